/* Owns: damaged inputs. Models are cut, doubled, shuffled and overwritten at random (a fixed seed); whatever
 * comes out is either compiled or refused with an error, and what parses formats to something that formats to
 * itself. Sanitizers and the time limit do the rest. */
#include "frontend/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROUNDS = 2000, MAX_TEXT = 1 << 16 };

static const char *const seeds[] = {"tests/frontend/models/gpt-tiny.fsdp",
                                    "tests/frontend/models/encoder-decoder.fsdp",
                                    "tests/frontend/models/repeat-statement.fsdp",
                                    "tests/frontend/models/modules.fsdp",
                                    "tests/frontend/models/rope-dims.fsdp",
                                    "tests/frontend/fmt/operators.fsdp",
                                    "tests/frontend/fmt/comments.fsdp",
                                    "tests/frontend/fmt/blocks.fsdp",
                                    "models/clusters/dgx-h100.fsdp"};
enum { SEEDS = sizeof seeds / sizeof *seeds };

static uint64_t next(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static size_t read_seed(const char *path, char *text) {
  FILE *in = fopen(path, "rb");
  assert_non_null(in);
  size_t length = fread(text, 1, MAX_TEXT / 4, in);
  fclose(in);
  return length;
}

static const char *const fragments[] = {"(",
                                        ")",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        "=",
                                        "+",
                                        "*",
                                        ".",
                                        "repeat 3 ",
                                        " as x",
                                        "#",
                                        "\"",
                                        "\n",
                                        "999999999999999999",
                                        "-1",
                                        "0",
                                        "batch",
                                        "let ",
                                        "module f(x) {",
                                        "return x",
                                        "1e400",
                                        "72GiB",
                                        "x",
                                        "use \"x\"",
                                        "//",
                                        "\xff",
                                        "\x01",
                                        "init \"*\" zeros",
                                        "loss"};
enum { FRAGMENTS = sizeof fragments / sizeof *fragments };

/* One edit: overwrite a byte, drop a piece, double a piece, or put in a fragment. */
static size_t mutate(char *text, size_t length, uint64_t *random) {
  size_t at = length ? next(random) % length : 0, span = next(random) % 40;
  if (at + span > length) span = length - at;
  switch (next(random) % 4) {
  case 0:
    if (length) text[at] = (char)(next(random) % 95 + 32);
    return length;
  case 1:
    memmove(text + at, text + at + span, length - at - span);
    return length - span;
  case 2:
    memmove(text + at + span, text + at, length - at);
    return length + span;
  default: {
    const char *fragment = fragments[next(random) % FRAGMENTS];
    size_t size = strlen(fragment);
    memmove(text + at + size, text + at, length - at);
    memcpy(text + at, fragment, size);
    return length + size;
  }
  }
}

static void write_text(const char *path, const char *text, size_t length) {
  unlink(path); /* a new file: one that is cut and written again waits for the disk on some file systems */
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(text, 1, length, out), length);
  fclose(out);
}

static void check(const char *path) {
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources}, quiet = {.arena = arena, .sources = &sources};
  bool good = frontend_check(arena, &sources, &sink, path, NULL);
  assert_true(good == (sink.errors == 0));
  FILE *null = fopen("/dev/null", "w");
  diag_print(&sink, null, true);
  diag_print_json(&sink, null);
  fclose(null);
  const char *once = frontend_format(arena, &sources, &quiet, path);
  assert_true((once == NULL) == (quiet.errors > 0));
  if (once) {
    write_text(path, once, strlen(once));
    const char *twice = frontend_format(arena, &sources, &quiet, path);
    assert_non_null(twice);
    assert_string_equal(once, twice);
  }
  arena_free(arena);
}

static void test_mutations(void **state) {
  (void)state;
  static char text[2 * MAX_TEXT];
  char path[] = "/tmp/fsdpc-mutation-XXXXXX";
  uint64_t random = 1;
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  for (int round = 0; round < ROUNDS; round++) {
    size_t length = read_seed(seeds[next(&random) % SEEDS], text);
    for (uint64_t edits = 1 + next(&random) % 4; edits > 0; edits--) length = mutate(text, length, &random);
    write_text(path, text, length);
    check(path);
  }
  unlink(path);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_mutations)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
