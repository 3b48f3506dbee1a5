/* Owns: what copies make in forward: positions, and logits that the loss may not change. Each has the operator that writes it, as all
 * activations have, and none is run again or moved. */
#include "planner/planner.h"
#include "planner/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* No blocks, so that the search may run everything again; backward reads a sum that positions are part of, and a part is the logits. */
static const char text[] = "model m {\n"
                           "  input t: int[batch, 4] input y: int[batch, 4]\n"
                           "  x = embedding(t, 8, 8) as wte + positions(4, 8) as wpe\n"
                           "  a, _b = split(linear(gelu(attention(x, x, x, 2)), 16) as up, 2)\n"
                           "  loss = cross_entropy(a, y)\n"
                           "}\n"
                           "train { batch 4 }\n"
                           "cluster { use \"clusters/cpu.fsdp\" }\n"
                           "plan { memory 64KiB recompute wpe cross_entropy host wpe }\n";

typedef struct Model {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
} Model;

static void open_model(Model *m) {
  static const char path[] = "copies.fsdp"; /* only a name: the text is here */
  *m = (Model){.arena = arena_new()};
  m->sources.arena = m->sink.arena = m->arena;
  m->sink.sources = &m->sources;
  SourceFile file = {path, text, strlen(text)};
  vec_push(m->arena, &m->sources.overlays, file);
  FrontendOptions options = {0};
  m->graph = frontend_compile(m->arena, &m->sources, &m->sink, path, &options);
  if (!m->graph) diag_print(&m->sink, stderr, false);
  assert_non_null(m->graph);
}

static void copies_are_written_and_kept(void **state) {
  (void)state;
  Model m;
  open_model(&m);
  Program *program = program_build(m.arena, &m.sink, m.graph, instr_specs(m.arena), &m.graph->plan, 4, NULL);
  assert_non_null(program);
  uint32_t copies = 0;
  for (uint32_t v = 0; v < program->values.count; v++) {
    const Value *value = &program->values.data[v];
    if (value->kind != VALUE_ACTIVATION) continue;
    assert_in_range(value->producer, 0, program->turn - 1);
    if (program->ops.data[value->producer].op != INSTR_COPY) continue;
    assert_int_equal(program->flow.producer[v], PLAN_NONE);
    assert_int_equal(program->flow.moved[value->producer], PLAN_NONE);
    copies++;
  }
  assert_int_equal(copies, 2);
  arena_free(m.arena);
}

static void a_model_without_blocks_is_planned(void **state) {
  (void)state;
  Model m;
  open_model(&m);
  PlannerOptions options = {.settings = m.graph->plan, .ranks = 2};
  PlannerResult result;
  planner_plan(m.arena, &m.sink, m.graph, &options, 0, NULL, &result);
  if (!result.plan) diag_print(&m.sink, stderr, false);
  assert_non_null(result.plan);
  assert_true(result.fits);
  for (uint32_t i = 0; i < result.plan->instrs.count; i++)
    assert_false(result.plan->instrs.data[i].op == INSTR_COPY && result.plan->instrs.data[i].phase == PHASE_RECOMPUTE);
  arena_free(m.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(copies_are_written_and_kept),
      cmocka_unit_test(a_model_without_blocks_is_planned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
