/* Owns: which diagnostics are kept where there are more than are shown. */
#include "base/diag.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static DiagSink open_sink(uint32_t warnings) {
  DiagSink sink = {.arena = arena_new()};
  for (uint32_t i = 0; i < warnings; i++) diag_warning(&sink, SPAN_NONE, "warning %u", i);
  return sink;
}

static bool keeps(const DiagSink *sink, const char *text) {
  for (uint32_t i = 0; i < sink->list.count; i++)
    if (strcmp(sink->list.data[i]->text, text) == 0) return true;
  return false;
}

static void an_error_is_kept_whatever_came_before(void **state) {
  (void)state;
  DiagSink sink = open_sink(DIAG_LIMIT + 5);
  diag_error(&sink, SPAN_NONE, "why it fails");
  assert_true(keeps(&sink, "why it fails"));
  assert_true(keeps(&sink, "warning 0"));
  assert_int_equal(sink.list.count, DIAG_LIMIT);
  assert_int_equal(sink.errors, 1);
  assert_int_equal(sink.warnings, DIAG_LIMIT + 5);
  arena_free(sink.arena);
}

static void the_first_errors_are_kept(void **state) {
  (void)state;
  DiagSink sink = open_sink(1);
  for (uint32_t i = 0; i < DIAG_LIMIT + 5; i++) diag_error(&sink, SPAN_NONE, "error %u", i);
  assert_int_equal(sink.list.count, DIAG_LIMIT);
  for (uint32_t i = 0; i < DIAG_LIMIT; i++) assert_int_equal(sink.list.data[i]->level, DIAG_ERROR);
  assert_true(keeps(&sink, "error 0"));
  assert_false(keeps(&sink, "error 24"));
  arena_free(sink.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(an_error_is_kept_whatever_came_before), cmocka_unit_test(the_first_errors_are_kept)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
