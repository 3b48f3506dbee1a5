/* Owns: what the reader of plans says to malformed text, and that it says something to any junk. */
#include "tests/plan/build.h"
#include "tests/plan/reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

/* --- errors ------------------------------------------------------------------------------------------ */

typedef struct Mistake {
  const char *from, *to; /* the first `from` in the good plan's text becomes `to` */
  const char *message;   /* what the first diagnostic contains */
} Mistake;

static const Mistake mistakes[] = {
    {"fsdpc-plan 1", "fsdpc-plan 2", "plans of version 2 are not understood, only 1"},
    {"fsdpc-plan 1", "fsdpc-plan", "expected a number, saw the end of the line"},
    {"fsdpc-plan 1", "model gpt {", "this is no plan"},
    {"model \"toy\"", "modle \"toy\"", "\"modle\" is not a kind of line"},
    {"model \"toy\"", "model toy", "expected a quoted text, saw \"toy\""},
    {"model \"toy\"", "model \"toy", "the text is not closed"},
    {"model \"toy\"", "model \"t\\oy\"", "unknown escape"},
    {"model \"toy\"", "model \"t\\x1b[31moy\"", "a name cannot hold the control character 0x1b"},
    {"cluster \"clusters/toy.fsdp\"", "cluster \"clusters", "not closed"},
    {" layers 3", " layer 3", "\"layer\" is not a key of line \"model\""},
    {" layers 3", " layers -3", "expected a number, saw \"-3\""},
    {" layers 3", " layers 99999999999999999999999999", "is too large, at most 4294967295 is possible"},
    {" layers 3", " layers 4294967296", "is too large"},
    {" layers 3", " layers 3 layers 3", "key \"layers\" stands twice"},
    {" training yes", " training maybe", "\"maybe\" is not \"yes\" or \"no\""},
    {" training yes", "", "expected \"training\", saw the end of the line"},
    {"0x0123456789abcdef", "0x10123456789abcdef", "is too large"},
    {"0x0123456789abcdef", "81985529216486895", "expected \"0x\""},
    {"world ranks", "  world # ranks", "expected \"ranks\", saw the end of the line"},
    {"world ranks", "# world ranks", "line \"world\" is missing before this one"},
    {"world ranks", "events 3\nworld ranks", "line \"events\" stands twice"},
    {"beta1 0.9 ", "beta1 nan ", "expected a finite number, saw \"nan\""},
    {"beta1 0.9 ", "beta1 1e999 ", "expected a finite number"},
    {"beta1 0.9 ", "beta1 0.9.9 ", "expected a finite number"},
    {"beta1 0.9 ", "beta1 0x1p3 ", "\"x1p3\" is not a key"},
    {"compute bf16", "compute bf61", "\"bf61\" is not a value of this key"},
    {"events 15", "events 2000000000", "2000000000 events, but only 34 instructions"},
    {"unit u1", "unit u2", "expected u1, saw u2"},
    {"unit u1", "unit u9", "u9 is not there: the plan has 3 of them"},
    {" first p1", " first p99", "p99 is not there"},
    {" grad b2", " grad b99", "b99 is not there: the plan has 35 buffers"},
    {" grad b2", " grad c2", "expected b and a number, saw \"c2\""},
    {"shape [32,64]", "shape [32,64,1,1,1]", "at most 4 dimensions"},
    {"shape [32,64]", "shape [32,64", "expected \"]\""},
    {"init normal", "init gauss", "\"gauss\" is not an initial value"},
    {" optimizer f32", " optimiser f32", "\"optimiser\" is not a class of buffers"},
    {" optimizer f32", " optimizer f23", "\"f23\" is not a dtype"},
    {" f32 1024 @", " f32 1125899906842624 @", "more than 2^50 bytes"},
    {" f32 1024 @", " f32 1024 at", "expected \"@\", saw \"at\""},
    {"live i25..i30", "live i25..i300", "i300 is not there: the plan has 34 instructions"},
    {"live i25..i30", "live i25-i30", "expected \"..\""},
    {"segment \"micro\" x 2", "segment \"micro\" 2", "expected \"x\""},
    {"segment \"begin\" x 1", "", "the instruction stands before the first segment"},
    {"linear_fwd", "linear_forward", "\"linear_forward\" is not an instruction"},
    {"compute forward embedding_fwd", "compue forward embedding_fwd", "\"compue\" is not a stream"},
    {"compute forward embedding_fwd", "compute foreward embedding_fwd", "\"foreward\" is not a phase"},
    {"b26 b23 b23+4096 -> b27", "b26 b23 b23+4096 b27", "expected \"->\", saw \"b27\""},
    {"b26 b23 b23+4096 -> b27", "b26 b23 -> b27", "expected b and a number, saw \"->\""},
    {"b26 b23 b23+4096 -> b27", "b26 b23 b23+x -> b27", "expected a number, saw \"x\""},
    {"b26 b23 b23+4096 -> b27", "b26 b23 b230 -> b27", "b230 is not there"},
    {"b26 b23 b23+4096 -> b27", "b26:99999999999 b23 b23+4096 -> b27", "too large"},
    {"{rows=8 out=64 in=64}", "{rows=8 out=64}", "expected \"in\", saw \"}\""},
    {"{rows=8 out=64 in=64}", "{rows=8 out=64 inn=64}", "\"inn\" is not an attribute of linear_fwd"},
    {"{rows=8 out=64 in=64}", "{rows=8 out=64 out=64}", "attribute \"out\" stands twice"},
    {"{rows=8 out=64 in=64}", "{rows=8 out=64 in=6e4}", "expected"},
    {"{rows=8 out=64 in=64}", "", "expected \"{\""},
    {"wait e1 e2", "wait e1 e22", "e22 is not there: the plan has 15 events"},
    {"wait e1 e2", "wait", "expected e and a number"},
    {"wait e1 e2", "wait e1 wait e2", "clause \"wait\" stands twice"},
    {"wait e1 e2", "waits e1 e2", "\"waits\" is not a clause of an instruction"},
    {"record e0", "record e-1", "expected a number"},
    {" ns 10 ", " ns 1.5 ", "expected a clause of an instruction"},
    {"i5 compute", "i6 compute", "expected i5, saw i6"},
    {"\nend\n", "\n", "ends without a line \"end\""},
    {"\nend\n", "\nend\nend\n", "the plan has ended before this line"},
    {"\nend\n", "\nend of plan\n", "expected the end of the line, saw \"of\""},
    {"events 15", "\x01\x02\nevents 15", "\"?\" is not a kind of line"},
};

static char *replace(Arena *arena, const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  if (!at) fail_msg("\"%s\" is not in the good plan", from);
  return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static bool is_reported(const Mistake *mistake) {
  Arena *arena = arena_new();
  char *text = replace(arena, written(arena, good_plan(arena)).data, mistake->from, mistake->to);
  Read *read = read_text(arena, text, strlen(text));
  bool good = !read->plan && read->sink.list.count && strstr(read->sink.list.data[0]->text, mistake->message);
  if (!good) printf("after \"%s\", expected: %s\n", mistake->to, mistake->message);
  if (!good || getenv("SHOW")) diag_print(&read->sink, stdout, false);
  arena_free(arena);
  return good;
}

static void test_mistakes(void **state) {
  (void)state;
  int bad = 0;
  for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) bad += !is_reported(&mistakes[i]);
  assert_int_equal(bad, 0);
}

static void test_several_errors(void **state) {
  (void)state;
  Arena *arena = arena_new();
  char *text = written(arena, good_plan(arena)).data;
  text = replace(arena, text, " layers 3", " layers x");
  text = replace(arena, text, "linear_fwd", "linear_fdw");
  text = replace(arena, text, "embedding_fwd", "embedding");
  Read *read = read_text(arena, text, strlen(text));
  assert_null(read->plan);
  assert_int_equal(read->sink.errors, 3);
  assert_string_equal(read->sink.list.data[2]->helps.data[0], "did you mean \"linear_fwd\"?");
  Position at = source_position(&read->sources, 0, read->sink.list.data[0]->span.begin);
  assert_int_equal(at.line, 2);
  arena_free(arena);
}

/* --- junk -------------------------------------------------------------------------------------------- */

static void refuse(const char *data, size_t length) {
  Arena *arena = arena_new();
  Read *read = read_text(arena, data, length);
  assert_null(read->plan);
  assert_true(read->sink.errors > 0);
  arena_free(arena);
}

static void test_truncated(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text text = written(arena, good_plan(arena));
  for (size_t length = 0; length + 1 < text.length; length += 37) refuse(text.data, length);
  arena_free(arena);
}

static void refuse_long(const char *start, char fill) {
  enum { LONG = 10 << 20 };
  char *data = malloc(LONG);
  size_t length = strlen(start);
  memset(data, fill, LONG);
  memcpy(data, start, length);
  refuse(data, LONG);
  free(data);
}

static void test_junk(void **state) {
  (void)state;
  refuse("", 0);
  refuse("\n\n\n", 3);
  refuse("fsdpc-plan 1\nx\0y", 16);
  refuse_long("fsdpc-plan 1\n", 'x');
  refuse_long("fsdpc-plan 1\n", '"');
  refuse_long("fsdpc-plan 1\nmodel \"", '\\');
  refuse_long("fsdpc-plan 1\nmodel \"x\" params ", '9');
  refuse_long("fsdpc-plan 1\nmodel \"x\" ", 'k');
  refuse_long("fsdpc-plan 1\n", '#');
  refuse_long("fsdpc-plan 1\n", '\n');
  refuse_long("", 'x');
  refuse_long("fsdpc-plan 1\n", '\xff');
}

static void test_files(void **state) {
  (void)state;
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  assert_null(plan_read(arena, &sources, &sink, "/nonexistent/x.plan"));
  assert_null(plan_read(arena, &sources, &sink, "/tmp"));
  assert_int_equal(sink.errors, 2);
  assert_false(plan_is_plan_file("/nonexistent/x.plan"));
  assert_false(plan_is_plan_file("/tmp"));
  const char *path = write_file(arena, "fsdpc-plan 1\n", 13);
  assert_true(plan_is_plan_file(path));
  write_file(arena, "fsdpc-planet", 12);
  assert_false(plan_is_plan_file(path));
  unlink(path);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes), cmocka_unit_test(test_several_errors), cmocka_unit_test(test_truncated),
                                     cmocka_unit_test(test_junk), cmocka_unit_test(test_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
