/* Owns: pictures are well formed, stay on the page, and are the same for the same plan. With FSDPC_VIEW_DIR
 * set they are written there, to be looked at. */
#include "planner/view/view.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void keep(const char *name, const Text *text) {
  const char *folder = getenv("FSDPC_VIEW_DIR");
  char path[512];
  if (!folder) return;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  fwrite(text->data, 1, text->length, out);
  fclose(out);
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (; (text = strstr(text, what)); text += strlen(what)) n++;
  return n;
}

/* Tags are closed in the order they were opened, and '<' stands nowhere else. */
static void check_xml(const char *text) {
  int depth = 0;
  for (const char *at = text; (at = strchr(at, '<')); at++) {
    const char *end = strchr(at, '>');
    assert_non_null(end);
    assert_null(memchr(at + 1, '<', (size_t)(end - at - 1)));
    if (at[1] == '/')
      depth--;
    else if (end[-1] != '/')
      depth++;
    assert_true(depth >= 0);
  }
  assert_int_equal(depth, 0);
}

static void check_inside(const char *text) {
  for (const char *at = text; (at = strstr(at, "<rect x=\"")); at++) {
    double x, y, width;
    assert_int_equal(sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &width), 3);
    assert_true(x >= 0 && x + width <= 1120 && width >= 0 && y >= 0);
  }
  assert_null(strstr(text, "nan"));
  assert_null(strstr(text, "inf\""));
}

static Text draw(Arena *arena, const Plan *plan) {
  SimResult sim;
  Text svg = {.arena = arena};
  plan_simulate(arena, plan, &sim);
  view_timeline_svg(&svg, plan, &sim);
  check_xml(svg.data);
  check_inside(svg.data);
  return svg;
}

static void draw_units(Text *dot, const Plan *plan) {
  SimResult sim;
  plan_simulate(dot->arena, plan, &sim);
  view_units_dot(dot, plan, &sim);
}

static void test_timeline(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  Text svg = draw(arena, plan);
  keep("small.svg", &svg);
  assert_non_null(strstr(svg.data, ">toy</text>"));
  assert_non_null(strstr(svg.data, "micro \xc3\x97 2"));
  assert_non_null(strstr(svg.data, ">gather</text>"));
  assert_non_null(strstr(svg.data, ">unit</text>"));
  assert_null(strstr(svg.data, ">replicate</text>"));
  assert_non_null(strstr(svg.data, "budget"));
  assert_string_equal(svg.data, draw(arena, good_plan(arena)).data);
  arena_free(arena);
}

static void test_odd_names(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  plan->model = plan_intern(arena, plan, "<a & \"b\">\n\\");
  plan->units.data[1].name = plan_intern(arena, plan, "<\"&\\>");
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    plan->instrs.data[i].name = plan_intern(arena, plan, "..<&>..3..");
  draw(arena, plan);
  for (uint32_t i = 0; i < plan->instrs.count; i++) plan->instrs.data[i].ns = 0;
  draw(arena, plan);
  Text dot = {.arena = arena};
  draw_units(&dot, plan);
  assert_null(strstr(dot.data, "<\"&"));
  arena_free(arena);
}

/* --- a deep model ------------------------------------------------------------------------------------ */

/* Prefetch by one, everything recomputed: enough to look like something. Not a plan that the verifier would
 * pass. */
static Plan *deep_plan(Arena *arena, int layers) {
  enum { SHARD = 1 << 24, ACT = 1 << 22 };
  Build b = build_new(arena);
  Plan *plan = b.plan;
  plan->model = plan_intern(arena, plan, "deep");
  plan->world = (PlanWorld){64, 8, 8, 8, 1, 16};
  plan->summary.strategy = plan_intern(arena, plan, "hybrid_shard");
  plan->summary.wrap = plan->summary.checkpoint = plan_intern(arena, plan, "auto");
  build_segment(&b, "micro", 16);
  int32_t *kept = ARENA_ARRAY(arena, int32_t, (size_t)layers), done = PLAN_NONE, before_done = PLAN_NONE;
  for (int l = 0; l < layers; l++)
    build_param(&b, build_unit(&b, arena_printf(arena, "layers.%d", l), SHARD), "w", 0, 1 << 13, 1 << 14);
  for (int half = 0; half < 2; half++)
    for (int k = 0; k < layers; k++) {
      int l = half ? layers - 1 - k : k;
      const char *name = arena_printf(arena, "layers.%d", l),
                 *op = arena_printf(arena, "layers.%d.mlp.up", l);
      Phase phase = half ? PHASE_BACKWARD : PHASE_FORWARD;
      int32_t full = build_buf(&b, name, BUF_GATHERED, DTYPE_BF16, 8ull * SHARD, l, false);
      int32_t gather =
          build_instr(&b, INSTR_ALLGATHER, phase, name, OPERANDS(B(plan->units.data[l].cast_buf), B(full)),
                      INTS(l, SHARD), NULL, 900000);
      if (before_done != PLAN_NONE) build_edge(&b, before_done, gather);
      before_done = done;
      if (!half) kept[l] = build_buf(&b, op, BUF_ACTIVATION, DTYPE_BF16, ACT, PLAN_NONE, false);
      int32_t gradient =
          half ? build_buf(&b, name, BUF_GRADFULL, DTYPE_F32, 8ull * SHARD, l, false) : kept[l];
      done = build_instr(&b, INSTR_COPY, half ? PHASE_RECOMPUTE : phase, op, OPERANDS(B(full), B(kept[l])),
                         INTS(1, 1), NULL, 400000);
      build_edge(&b, gather, done);
      done = build_instr(&b, INSTR_COPY, phase, op, OPERANDS(B(kept[l]), B(gradient)), INTS(1, 1), NULL,
                         half ? 1200000 : 600000);
      if (!half) continue;
      int32_t reduce =
          build_instr(&b, INSTR_REDUCE_SCATTER, phase, name,
                      OPERANDS(B(gradient), B(plan->units.data[l].grad_buf)), INTS(l, SHARD), NULL, 1000000);
      build_edge(&b, done, reduce);
      build_instr(&b, INSTR_ALLREDUCE, phase, name,
                  OPERANDS(B(plan->units.data[l].grad_buf), B(plan->units.data[l].grad_buf)), INTS(l, SHARD),
                  NULL, 300000);
      build_edge(&b, reduce, (int32_t)plan->instrs.count - 1);
    }
  build_segment(&b, "update", 1);
  for (int l = 0; l < layers; l++)
    build_instr(&b, INSTR_ZERO, PHASE_UPDATE, arena_printf(arena, "layers.%d", l),
                OPERANDS(B(plan->units.data[l].m_buf)), INTS(1), NULL, 150000);
  build_finish(&b);
  plan->summary.budget_bytes = plan->max_live_bytes + plan->max_live_bytes / 20;
  return plan;
}

static void test_deep(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = deep_plan(arena, 126);
  Text svg = draw(arena, plan), dot = {.arena = arena};
  keep("deep.svg", &svg);
  assert_true(svg.length < 1 << 20);
  assert_true(count(svg.data, "<rect") > 300);
  draw_units(&dot, plan);
  keep("deep.dot", &dot);
  assert_non_null(strstr(dot.data, ">layers.0 .. 125 \xc3\x97 126</b>"));
  assert_int_equal(count(dot.data, "subgraph cluster"), 1);
  assert_int_equal(count(dot.data, " [fillcolor="), 1);
  arena_free(arena);
}

static void test_units(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Text dot = {.arena = arena};
  draw_units(&dot, good_plan(arena));
  keep("small.dot", &dot);
  assert_int_equal(count(dot.data, "subgraph cluster"), 3);
  assert_non_null(strstr(dot.data, "in 100 ns, again for backward"));
  assert_non_null(strstr(dot.data, "n0 -> n1"));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_timeline), cmocka_unit_test(test_odd_names),
                                     cmocka_unit_test(test_deep), cmocka_unit_test(test_units)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
