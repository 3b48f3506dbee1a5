/* Owns: text -> plan, line by line. The file is untrusted: every id is checked against the number of lines of its kind,
 * which a first pass counts, every size against its limit, and each line reports at most one error. One pass,
 * linear in the file. */
#include "planner/plan/instr.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/reader.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>

enum { ERRORS_MOST = DIAG_LIMIT };
static const size_t file_most = (size_t)1 << 30;
static const char magic[] = "fsdpc-plan";

/* --- lines ------------------------------------------------------------------------------------------- */

static int find_header(Word word) {
  for (int i = 0; i < HEADER_LINES; i++)
    if (word_is(word, header_lines[i].keyword)) return i;
  return -1;
}

static void read_header(Reader *r, Word word, int header) {
  if (r->headers >> header & 1)
    scan_error(&r->scan, word.at, word.at + word.length, "line \"%s\" stands twice",
               header_lines[header].keyword);
  r->headers |= 1u << header;
  reader_fields(r, &header_lines[header], r->plan);
  if (header == LINE_EVENTS && r->plan->event_count > r->instrs)
    scan_error(&r->scan, word.at, r->scan.at, "%u events, but only %u instructions to record them",
               r->plan->event_count, r->instrs);
}

/* Ids of events, and positions without a path, need what the header says. */
static void require_headers(Reader *r, Word word) {
  for (int i = 0; i < HEADER_LINES && !r->checked_headers; i++)
    if (!(r->headers >> i & 1) && header_applies(r->plan, i))
      scan_error(&r->scan, word.at, word.at + word.length, "line \"%s\" is missing before this one",
                 header_lines[i].keyword);
  r->checked_headers = true;
}

static bool is_instr(Word word) {
  return word.length >= 2 && word.at[0] == 'i' && isdigit((unsigned char)word.at[1]);
}

static void unknown_line(Reader *r, Word word) {
  const char *names[HEADER_LINES + 6] = {"input", "unit", "param", "buf", "segment", "end"};
  for (int i = 0; i < HEADER_LINES; i++) names[6 + i] = header_lines[i].keyword;
  scan_unknown(&r->scan, word, "a kind of line", names, HEADER_LINES + 6);
}

static void read_end(Reader *r) {
  r->ended = true;
}

static const struct {
  const char *keyword;
  void (*read)(Reader *);
} tables[] = {{"buf", reader_buf},     {"param", reader_param},     {"unit", reader_unit},
              {"input", reader_input}, {"segment", reader_segment}, {"end", read_end}};

static void read_table_line(Reader *r, Word word) {
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    if (!word_is(word, tables[i].keyword)) continue;
    require_headers(r, word);
    tables[i].read(r);
    return;
  }
  if (!word.length) word.length = r->scan.at < r->scan.end; /* a character that begins no word */
  unknown_line(r, word);
}

static void read_line(Reader *r) {
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  Word word = scan_word(&r->scan);
  int header = find_header(word);
  if (header >= 0) {
    read_header(r, word, header);
  } else if (is_instr(word)) {
    require_headers(r, word);
    reader_instr(r, begin);
  } else {
    read_table_line(r, word);
  }
  scan_finish(&r->scan);
}

/* Where the line that begins at `at` ends: its newline, or the end of the file. */
static const char *line_end(const char *at, const char *end) {
  const char *newline = memchr(at, '\n', (size_t)(end - at));
  return newline ? newline : end;
}

/* Leaves out the comment, which a '#' outside of quotes begins, and blanks before it. */
static const char *content_end(const char *at, const char *end) {
  if (memchr(at, '#', (size_t)(end - at))) {
    bool quoted = false;
    for (const char *c = at; c < end; c++) {
      if (*c == '"') quoted = !quoted;
      if (quoted && *c == '\\') c++;
      if (*c == '#' && !quoted) end = c;
    }
  }
  while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r')) end--;
  return end;
}

static void count_line(Reader *r, const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t')) at++;
  Word word = {at, 0};
  while (at + word.length < end && word.length < 8 && isalnum((unsigned char)at[word.length])) word.length++;
  if (is_instr(word))
    r->instrs++;
  else if (word_is(word, "buf"))
    r->bufs++;
  else if (word_is(word, "param"))
    r->params++;
  else if (word_is(word, "unit"))
    r->units++;
  else if (word_is(word, "input"))
    r->inputs++;
  else if (word_is(word, "end"))
    r->whole = true;
}

/* "fsdpc-plan 1" */
static bool read_first_line(Reader *r) {
  Word word = scan_word(&r->scan);
  if (!word_is(word, magic)) {
    diag_help(scan_error(&r->scan, word.at, word.at + word.length, "this is no plan: a plan begins with \"%s %d\"",
                         magic, PLAN_VERSION),
              "'fsdpc plan FILE -o PLAN' writes one");
    return false;
  }
  scan_blanks(&r->scan);
  const char *begin = r->scan.at;
  uint64_t version = scan_number(&r->scan, UINT32_MAX);
  if (version != PLAN_VERSION && !r->scan.failed)
    diag_help(scan_error(&r->scan, begin, r->scan.at, "plans of version %llu are not understood, only %d",
                         (unsigned long long)version, PLAN_VERSION),
              "plan again with this fsdpc, or use the one that wrote it");
  scan_finish(&r->scan);
  return !r->scan.failed;
}

static void set_line(Reader *r, const char *at, const char *end) {
  r->scan.at = at;
  r->scan.end = content_end(at, end);
  r->scan.failed = false;
}

/* What a plan that was cut off names and lacks would be reported line by line. */
static bool check_whole(Reader *r, const char *end) {
  if (r->whole) return true;
  set_line(r, end, end);
  Diag *diag = scan_error(&r->scan, end, end, "the plan ends without a line \"end\": it is not complete");
  diag_help(diag, "plan again, or copy the file again");
  return false;
}

/* Behind a byte order mark, which editors may put there. */
static const char *after_mark(const char *text) {
  return strncmp(text, "\xef\xbb\xbf", 3) ? text : text + 3;
}

static void read_lines(Reader *r, const SourceFile *file) {
  const char *begin_text = after_mark(file->text), *end = file->text + file->length, *at = line_end(begin_text, end);
  for (const char *c = begin_text; c < end; c = line_end(c, end) + 1) count_line(r, c, line_end(c, end));
  set_line(r, begin_text, at);
  if (!read_first_line(r) || !check_whole(r, end)) return;
  while (at < end && r->scan.sink->errors < ERRORS_MOST) {
    const char *begin = at + 1;
    at = line_end(begin, end);
    set_line(r, begin, at);
    if (r->scan.at == r->scan.end) continue;
    if (r->ended) {
      scan_error(&r->scan, r->scan.at, r->scan.end, "the plan has ended before this line");
      return;
    }
    read_line(r);
  }
}

static Plan *read_source(Arena *arena, const SourceSet *sources, DiagSink *sink, int32_t file) {
  Arena *scratch = arena_new();
  const SourceFile *source = &sources->files.data[file];
  Reader r = {.scan = {.arena = scratch, .sink = sink, .file = file, .text = source->text},
              .arena = arena,
              .plan = plan_new(arena),
              .specs = instr_specs(scratch)};
  for (int i = 0; i < INSTR_COUNT; i++) r.op_names[i] = r.specs[i].name;
  uint32_t before = sink->errors;
  read_lines(&r, source);
  arena_free(scratch);
  return sink->errors == before ? r.plan : NULL;
}

Plan *plan_read(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path) {
  const char *why;
  int32_t file = source_read_most(sources, path, file_most, &why);
  if (file >= 0) return read_source(arena, sources, sink, file);
  diag_error(sink, SPAN_NONE, "cannot read plan \"%s\": %s", path, why);
  return NULL;
}

bool plan_is_plan_file(const char *path) {
  char text[sizeof magic + 4] = "";
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for its writer */
  FILE *in = fd < 0 ? NULL : fdopen(fd, "rb");
  if (!in) return false;
  text[fread(text, 1, sizeof text - 1, in)] = 0;
  const char *start = after_mark(text);
  bool is = !strncmp(start, magic, sizeof magic - 1) && start[sizeof magic - 1] == ' ';
  fclose(in);
  return is;
}
