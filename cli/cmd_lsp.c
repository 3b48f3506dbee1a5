/* Owns: `fsdpc lsp`: the Language Server Protocol over standard input and output: framing, dispatch, lifetime. */
#include "cli/lsp.h"

#include <ctype.h>
#include <stdlib.h>

enum { MESSAGE_MOST = 64 << 20, PARSE_ERROR = -32700, NO_METHOD = -32601, NOT_INITIALIZED = -32002, INVALID_REQUEST = -32600 };

/* --- framing ------------------------------------------------------------------------------------------- */

static void send(json_t *message) {
  char *text = json_dumps(message, JSON_COMPACT);
  json_decref(message);
  if (!text) return;
  printf("Content-Length: %zu\r\n\r\n%s", strlen(text), text);
  fflush(stdout);
  free(text);
}

/* "Content-Length: 12\r\n": the length, or -1 for another header. */
static long header_length(const char *line) {
  static const char name[] = "content-length:";
  for (size_t k = 0; name[k]; k++)
    if (tolower((unsigned char)line[k]) != name[k]) return -1;
  return strtol(line + sizeof name - 1, NULL, 10);
}

/* What follows cannot be told apart: an editor sends nothing like it, but a person may. */
static void lose_framing(void) {
  fprintf(stderr, "fsdpc: error: lsp: no message of an editor: each begins with \"Content-Length: N\" and an empty line\n"
                  "help: 'fsdpc lsp' is started by an editor; docs/editors/README.md says how\n");
}

/* The protocol has an editor ask for shutdown and exit; without, the exit code is 1. */
static void say_ended(void) {
  fprintf(stderr, "fsdpc: error: lsp: the input ended before a shutdown was asked for\n"
                  "help: 'fsdpc lsp' is started by an editor; docs/editors/README.md says how\n");
}

/* The next message's bytes, malloc'd; NULL when framing is lost, or at the end of the input, which *ended says. */
static char *receive(size_t *length, bool *ended) {
  char line[256];
  long size = -1;
  while (fgets(line, sizeof line, stdin)) {
    if (!strcmp(line, "\r\n") || !strcmp(line, "\n")) {
      if (size < 0 || size > MESSAGE_MOST) return lose_framing(), NULL;
      char *text = malloc((size_t)size + 1);
      if (!text || fread(text, 1, (size_t)size, stdin) != (size_t)size) return free(text), *ended = true, NULL;
      *length = (size_t)size;
      return text;
    }
    if (!strchr(line, ':')) return lose_framing(), NULL;
    long found = header_length(line);
    if (found >= 0) size = found;
  }
  *ended = true;
  return NULL;
}

static void respond(const json_t *id, json_t *result) {
  send(json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result ? result : json_null()));
}

static void refuse(const json_t *id, int code, const char *why) {
  json_t *null = json_null();
  send(json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id", id ? id : null, "error", "code", code, "message", why));
}

static void publish(const Lsp *lsp, const char *uri) {
  const Document *document = lsp_find(lsp, uri);
  json_t *list = document ? lsp_diagnostics(lsp, document) : json_array(); /* of a closed one: none any more */
  send(json_pack("{s:s, s:s, s:{s:s, s:o}}", "jsonrpc", "2.0", "method", "textDocument/publishDiagnostics", "params", "uri", uri,
                 "diagnostics", list));
}

/* --- notifications ------------------------------------------------------------------------------------- */

static const char *string(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

static const char *uri_of(const json_t *params) {
  return string(json_object_get(params, "textDocument"), "uri");
}

static void did_open(Lsp *lsp, const json_t *params) {
  lsp_open(lsp, uri_of(params), string(json_object_get(params, "textDocument"), "text"));
  publish(lsp, uri_of(params));
}

/* The whole text is sent each time (change: 1); the last change counts. */
static void did_change(Lsp *lsp, const json_t *params) {
  const json_t *changes = json_object_get(params, "contentChanges");
  size_t count = json_array_size(changes);
  if (count) lsp_open(lsp, uri_of(params), string(json_array_get(changes, count - 1), "text"));
  publish(lsp, uri_of(params));
}

static void did_close(Lsp *lsp, const json_t *params) {
  lsp_close(lsp, uri_of(params));
  publish(lsp, uri_of(params));
}

static const struct {
  const char *method;
  void (*run)(Lsp *lsp, const json_t *params);
} notifications[] = {{"textDocument/didOpen", did_open}, {"textDocument/didChange", did_change}, {"textDocument/didClose", did_close}};

static void notify(Lsp *lsp, const char *method, const json_t *params) {
  for (size_t k = 0; k < sizeof notifications / sizeof *notifications; k++)
    if (!strcmp(notifications[k].method, method)) notifications[k].run(lsp, params);
}

/* --- requests ------------------------------------------------------------------------------------------ */

static json_t *initialize(Lsp *lsp, const json_t *params) {
  const json_t *encodings = json_object_get(json_object_get(json_object_get(params, "capabilities"), "general"), "positionEncodings");
  size_t k;
  const json_t *encoding;
  json_array_foreach(encodings, k, encoding) lsp->utf8 |= json_is_string(encoding) && !strcmp(json_string_value(encoding), "utf-8");
  lsp->initialized = true;
  return json_pack("{s:{s:s, s:{s:b, s:i}, s:b, s:b, s:{}}, s:{s:s, s:s}}", "capabilities", "positionEncoding", lsp->utf8 ? "utf-8" : "utf-16",
                   "textDocumentSync", "openClose", true, "change", 1, "hoverProvider", true, "definitionProvider", true, "completionProvider",
                   "serverInfo", "name", "fsdpc", "version", FSDPC_VERSION);
}

static const struct {
  const char *method;
  json_t *(*answer)(const Lsp *lsp, const Document *document, uint32_t offset);
} requests[] = {{"textDocument/hover", lsp_hover}, {"textDocument/definition", lsp_definition}, {"textDocument/completion", lsp_completion}};

static void answer(Lsp *lsp, const json_t *id, const char *method, const json_t *params) {
  if (!strcmp(method, "initialize")) {
    respond(id, initialize(lsp, params));
    return;
  }
  if (!lsp->initialized || lsp->shut_down) {
    refuse(id, lsp->shut_down ? INVALID_REQUEST : NOT_INITIALIZED, lsp->shut_down ? "the server was shut down" : "initialize comes first");
    return;
  }
  if (!strcmp(method, "shutdown")) {
    lsp->shut_down = true;
    respond(id, json_null());
    return;
  }
  for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
    if (strcmp(requests[k].method, method)) continue;
    const Document *document = lsp_find(lsp, uri_of(params));
    respond(id, document ? requests[k].answer(lsp, document, lsp_offset(lsp, document, json_object_get(params, "position"))) : json_null());
    return;
  }
  refuse(id, NO_METHOD, "this method is not supported");
}

/* False: exit was asked for. */
static bool take(Lsp *lsp, const char *text, size_t length) {
  json_t *message = json_loadb(text, length, JSON_REJECT_DUPLICATES, NULL);
  const json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
  const char *method = string(message, "method");
  bool leaves = !strcmp(method, "exit");
  if (!message)
    refuse(NULL, PARSE_ERROR, "this is not JSON");
  else if (id && *method)
    answer(lsp, id, method, params);
  else if (!leaves && lsp->initialized)
    notify(lsp, method, params);
  json_decref(message);
  return !leaves;
}

int cmd_lsp(Cli *cli) {
  Lsp lsp = {.cli = cli};
  size_t length;
  bool ended = false;
  for (bool goes_on = true; goes_on;) {
    char *text = receive(&length, &ended);
    if (!text) break;
    goes_on = take(&lsp, text, length);
    free(text);
  }
  if (ended && !lsp.shut_down) say_ended();
  while (lsp.count) lsp_close(&lsp, lsp.documents[0].uri);
  free(lsp.documents);
  return lsp.shut_down ? EXIT_OK : EXIT_INVALID;
}
