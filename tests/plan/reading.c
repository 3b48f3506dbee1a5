/* Owns: reading.h. */
#include "tests/plan/reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include <cmocka.h>

static const char scratch_path[] = "/tmp/fsdpc-test-plan-text";

const char *write_file(Arena *arena, const char *data, size_t length) {
  const char *path = arena_printf(arena, "%s-%d.plan", scratch_path, (int)getpid());
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(data, 1, length, out), length);
  fclose(out);
  return path;
}

Read *read_text(Arena *arena, const char *data, size_t length) {
  Read *read = ARENA_NEW(arena, Read);
  read->sources.arena = arena;
  read->sink = (DiagSink){.arena = arena, .sources = &read->sources};
  const char *path = write_file(arena, data, length);
  read->plan = plan_read(arena, &read->sources, &read->sink, path);
  unlink(path);
  return read;
}

Text written(Arena *arena, const Plan *plan) {
  Text text = {.arena = arena};
  plan_write(&text, plan);
  return text;
}

void fail_with(DiagSink *sink) {
  diag_print(sink, stdout, false);
  fail();
}
