/* Owns: plan -> text -> plan -> text is the identity; what the reader says to malformed text. */
#include "planner/plan/plan_text.h"

#include "base/clock.h"
#include "planner/plan/verify.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static const char scratch_path[] = "/tmp/fsdpc-test-plan-text";

/* A file of this process. */
static const char *write_file(Arena *arena, const char *data, size_t length) {
  const char *path = arena_printf(arena, "%s-%d.plan", scratch_path, (int)getpid());
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(data, 1, length, out), length);
  fclose(out);
  return path;
}

typedef struct Read {
  SourceSet sources;
  DiagSink sink;
  Plan *plan;
} Read;

static Read *read_text(Arena *arena, const char *data, size_t length) {
  Read *read = ARENA_NEW(arena, Read);
  read->sources.arena = arena;
  read->sink = (DiagSink){.arena = arena, .sources = &read->sources};
  const char *path = write_file(arena, data, length);
  read->plan = plan_read(arena, &read->sources, &read->sink, path);
  unlink(path);
  return read;
}

static Text written(Arena *arena, const Plan *plan) {
  Text text = {.arena = arena};
  plan_write(&text, plan);
  return text;
}

static void fail_with(DiagSink *sink) {
  diag_print(sink, stdout, false);
  fail();
}

/* --- identity ---------------------------------------------------------------------------------------- */

static void same_string(const Plan *a, StrId x, const Plan *b, StrId y) {
  assert_string_equal(plan_str(a, x), plan_str(b, y));
}

#define SAME(field)        assert_memory_equal(&a->field, &b->field, sizeof a->field)
#define SAME_STRING(field) same_string(a, a->field, b, b->field)

static void same_header(const Plan *a, const Plan *b) {
  SAME_STRING(model);
  SAME_STRING(source_path);
  SAME_STRING(cluster);
  SAME(source_hash);
  SAME(training);
  SAME(output_buf);
  SAME(world);
  SAME_STRING(summary.strategy);
  SAME_STRING(summary.wrap);
  SAME_STRING(summary.checkpoint);
  SAME_STRING(summary.bound_by);
  SAME(summary.prefetch);
  SAME(summary.budget_bytes);
  SAME(summary.step_ns);
  SAME(summary.lower_bound_ns);
  SAME(summary.kept_bytes);
  SAME(summary.model_flops_per_sample);
  SAME(summary.peak_flops);
  SAME(summary.launch_ns);
  SAME(summary.device);
  SAME(summary.device_bytes);
  SAME(layers);
  SAME(overlap.contention);
  SAME(overlap.comm_slowdown);
  SAME(overlap.compute_spread);
  SAME(overlap.comm_spread);
  SAME(param_numel);
  SAME(arena_bytes);
  SAME(persistent_bytes);
  SAME(host_bytes);
  SAME(max_live_bytes);
  SAME(queue);
  SAME(loss_buf);
  SAME(count_buf);
  SAME(norm_buf);
  SAME(event_count);
  SAME(recipe.optimizer);
  SAME(recipe.schedule);
  SAME(recipe.lr);
  SAME(recipe.min_lr);
  SAME(recipe.warmup_steps);
  SAME(recipe.beta1);
  SAME(recipe.beta2);
  SAME(recipe.eps);
  SAME(recipe.momentum);
  SAME(recipe.decay);
  SAME(recipe.clip);
  SAME(recipe.steps);
  SAME(recipe.seed);
  SAME(recipe.order);
  SAME(recipe.samples_per_step);
  SAME(recipe.compute);
  SAME(recipe.reduce);
  SAME(recipe.master);
  SAME(recipe.rounding);
  SAME(inputs.count);
  SAME(params.count);
  SAME(units.count);
  SAME(bufs.count);
  SAME(instrs.count);
  SAME(segments.count);
}

static void same_tables(const Plan *a, const Plan *b) {
  for (uint32_t i = 0; i < a->inputs.count; i++) {
    SAME_STRING(inputs.data[i].name);
    SAME(inputs.data[i].feed);
    SAME(inputs.data[i].sample_numel);
    SAME(inputs.data[i].vocab);
  }
  for (uint32_t i = 0; i < a->params.count; i++) {
    SAME_STRING(params.data[i].name);
    SAME(params.data[i].unit);
    SAME(params.data[i].offset);
    SAME(params.data[i].rank);
    SAME(params.data[i].dim);
    SAME(params.data[i].init.kind);
    SAME(params.data[i].init.a);
    SAME(params.data[i].decay);
  }
  for (uint32_t i = 0; i < a->units.count; i++) {
    SAME_STRING(units.data[i].name);
    SAME(units.data[i].first_param);
    SAME(units.data[i].param_count);
    SAME(units.data[i].numel);
    SAME(units.data[i].shard);
    SAME(units.data[i].reshard);
    SAME(units.data[i].param_buf);
    SAME(units.data[i].grad_buf);
    SAME(units.data[i].m_buf);
    SAME(units.data[i].v_buf);
    SAME(units.data[i].cast_buf);
  }
  for (uint32_t i = 0; i < a->bufs.count; i++) {
    SAME_STRING(bufs.data[i].name);
    SAME(bufs.data[i].class);
    SAME(bufs.data[i].dtype);
    SAME(bufs.data[i].numel);
    SAME(bufs.data[i].bytes);
    SAME(bufs.data[i].offset);
    SAME(bufs.data[i].persistent);
    SAME(bufs.data[i].host);
    SAME(bufs.data[i].first);
    SAME(bufs.data[i].last);
    SAME(bufs.data[i].unit);
  }
  for (uint32_t i = 0; i < a->segments.count; i++) {
    SAME_STRING(segments.data[i].name);
    SAME(segments.data[i].first);
    SAME(segments.data[i].end);
    SAME(segments.data[i].count);
  }
}

static void same_instrs(const Plan *a, const Plan *b, const InstrSpec *specs) {
  for (uint32_t i = 0; i < a->instrs.count; i++) {
    const PlanInstr *x = &a->instrs.data[i], *y = &b->instrs.data[i];
    SAME(instrs.data[i].op);
    SAME(instrs.data[i].stream);
    SAME(instrs.data[i].phase);
    SAME(instrs.data[i].wait_count);
    SAME(instrs.data[i].record);
    SAME(instrs.data[i].ns);
    SAME(instrs.data[i].flops);
    SAME(instrs.data[i].bytes);
    SAME(instrs.data[i].span.line);
    SAME(instrs.data[i].span.column);
    SAME(instrs.data[i].operands);
    SAME(instrs.data[i].ints);
    SAME(instrs.data[i].reals);
    SAME(instrs.data[i].waits);
    SAME_STRING(instrs.data[i].name);
    SAME_STRING(instrs.data[i].span.path);
    for (int k = 0; k < specs[x->op].operand_count; k++) {
      const PlanOperand *p = plan_operand(a, x, k), *q = plan_operand(b, y, k);
      assert_true(p->buf == q->buf && p->offset == q->offset && p->ld == q->ld && p->add == q->add);
    }
    for (int k = 0; k < specs[x->op].int_count; k++) assert_true(plan_int(a, x, k) == plan_int(b, y, k));
    for (int k = 0; k < specs[x->op].real_count; k++)
      assert_memory_equal(&a->reals.data[x->reals + (uint32_t)k], &b->reals.data[y->reals + (uint32_t)k], 8);
    for (uint32_t w = 0; w < x->wait_count; w++)
      assert_int_equal(a->waits.data[x->waits + w], b->waits.data[y->waits + w]);
  }
}

static void check_identity(Arena *arena, const Plan *plan) {
  Text text = written(arena, plan);
  Read *read = read_text(arena, text.data, text.length);
  if (!read->plan) fail_with(&read->sink);
  same_header(plan, read->plan);
  same_tables(plan, read->plan);
  same_instrs(plan, read->plan, instr_specs(arena));
  assert_string_equal(text.data, written(arena, read->plan).data);
  assert_true(plan_hash(plan) == plan_hash(read->plan));
}

static void test_identity(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  check_identity(arena, plan);
  VerifyResult result;
  Text text = written(arena, plan);
  assert_true(plan_verify(arena, read_text(arena, text.data, text.length)->plan, &result));
  if (getenv("SHOW")) fputs(text.data, stdout);
  arena_free(arena);
}

/* The examples in docs/plan-format.md are lines of the good plan. */
static void test_documented(void **state) {
  (void)state;
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  const char *why, *text = written(arena, good_plan(arena)).data;
  assert_int_equal(source_read(&sources, "docs/plan-format.md", &why), 0);
  char *doc = arena_strdup(arena, sources.files.data[0].text), *rest = doc;
  bool fenced = false;
  int lines = 0;
  *strstr(doc, "## Errors") = 0;
  for (char *line; (line = strsep(&rest, "\n"));) {
    bool fence = !strncmp(line, "```", 3);
    if (fence) fenced = !fenced;
    if (!fenced || fence) continue;
    if (!strstr(text, arena_printf(arena, "%s\n", line))) fail_msg("not in the good plan: %s", line);
    lines++;
  }
  assert_true(lines > 15);
  arena_free(arena);
}

/* What the good plan does not have: odd names, views, other files, large and tiny numbers. */
static void test_identity_odd(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  plan->model = plan_intern(arena, plan, "a \"quoted\" \\ name\twith\nlines # and \x7f \xc3\xa4");
  plan->source_hash = UINT64_MAX;
  plan->summary.model_flops_per_sample = 1e308;
  plan->summary.peak_flops = 5e-324;
  plan->recipe.lr = -0.1;
  plan->recipe.seed = UINT64_MAX;
  plan->bufs.data[0].host = true;
  plan->host_bytes = 65536;
  plan->summary.device = PLAN_DEVICE_GPU;
  plan->summary.device_bytes = 84933672960;
  plan->recipe.master = DTYPE_BF16;
  plan->recipe.rounding = ROUNDING_STOCHASTIC;
  plan->params.data[0].rank = 0;
  plan->params.data[0].dim[0] = plan->params.data[0].dim[1] = 0;
  plan->units.data[2].cast_buf = PLAN_NONE;
  plan->instrs.data[AT_LINEAR].span.path = plan_intern(arena, plan, "other.fsdp");
  plan->instrs.data[AT_HEAD].span = (PlanSpan){0};
  plan->instrs.data[AT_HEAD].name = 0;
  plan->instrs.data[AT_LOSS].ns = UINT64_MAX;
  *operand_of(plan, AT_LINEAR, 0) = (PlanOperand){3, 1000, 2304, true};
  plan->ints.data[0] = INT64_MIN;
  plan->ints.data[1] = INT64_MAX;
  check_identity(arena, plan);
  arena_free(arena);
}

static void test_comments_and_layout(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text text = written(arena, good_plan(arena)), loose = {.arena = arena};
  for (size_t i = 0; i < text.length; i++) {
    if (text.data[i] == '\n')
      text_printf(&loose, " \t# a \"comment\r\n\n   # another\n");
    else
      text_add(&loose, &text.data[i], 1);
  }
  Read *read = read_text(arena, loose.data, loose.length);
  if (!read->plan) fail_with(&read->sink);
  assert_string_equal(text.data, written(arena, read->plan).data);
  arena_free(arena);
}

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

/* --- size -------------------------------------------------------------------------------------------- */

/* The good plan and a segment of a long chain of activations that take turns in two places. */
static Plan *large_plan(Arena *arena, int links) {
  Build build = {.arena = arena, .plan = good_plan(arena), .specs = instr_specs(arena)};
  Plan *plan = build.plan;
  uint64_t places[2] = {plan->arena_bytes, plan->arena_bytes + 2048};
  build_segment(&build, "deep", 1);
  int32_t x = PLAN_NONE;
  for (int i = 0; i < links; i++) {
    build.end = places[i % 2];
    int32_t y = build_buf(&build, arena_printf(arena, "h.%d.y", i), BUF_ACTIVATION, DTYPE_BF16, 1024,
                          PLAN_NONE, false);
    const char *name = arena_printf(arena, "h.%d.mlp.act", i);
    if (x == PLAN_NONE)
      build_instr(&build, INSTR_ZERO, PHASE_FORWARD, name, OPERANDS(B(y)), INTS(1024), NULL, 1000);
    else
      build_instr(&build, INSTR_GELU_FWD, PHASE_FORWARD, name, OPERANDS(B(x), B(y)), INTS(16, 64, 1), NULL,
                  1000);
    x = y;
  }
  plan->persistent_bytes = 0;
  build.end = places[1] + 2048;
  build_finish(&build);
  return plan;
}

static void test_large(void **state) {
  (void)state;
  enum { INSTRS = 300000 };
  Arena *arena = arena_new();
  Plan *plan = large_plan(arena, INSTRS);
  double start = clock_seconds();
  Text text = written(arena, plan);
  double write_s = clock_seconds() - start;
  Read *read = read_text(arena, text.data, text.length);
  double read_s = clock_seconds() - start - write_s;
  if (!read->plan) fail_with(&read->sink);
  VerifyResult result;
  double before = clock_seconds();
  bool good = plan_verify(arena, read->plan, &result);
  print_message("%u instructions, %zu bytes: write %.2f s, read %.2f s, verify %.2f s\n", plan->instrs.count,
                text.length, write_s, read_s, clock_seconds() - before);
  for (uint32_t i = 0; i < result.violations.count; i++)
    print_message("%s\n", result.violations.data[i].text);
  assert_true(good);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_identity),   cmocka_unit_test(test_identity_odd),
      cmocka_unit_test(test_documented), cmocka_unit_test(test_comments_and_layout),
      cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_several_errors),
      cmocka_unit_test(test_truncated),  cmocka_unit_test(test_junk),
      cmocka_unit_test(test_files),      cmocka_unit_test(test_large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
