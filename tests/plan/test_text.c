/* Owns: plan -> text -> plan -> text is the identity, for large plans too. */
#include "base/clock.h"
#include "planner/plan/verify.h"
#include "tests/plan/build.h"
#include "tests/plan/reading.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

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
  plan->model = plan_intern(arena, plan, "a \"quoted\" \\ name\twith # and \xc3\xa4");
  plan->source_path = plan_intern(arena, plan, "a \"quoted\" \\ path\twith\nlines # and \x7f \xc3\xa4");
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
  *operand_of(plan, AT_LINEAR, 0) = (PlanOperand){3, 2304, 1000, true};
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
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_identity), cmocka_unit_test(test_identity_odd), cmocka_unit_test(test_documented),
                                     cmocka_unit_test(test_comments_and_layout), cmocka_unit_test(test_large)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
