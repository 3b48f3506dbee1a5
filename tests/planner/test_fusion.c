/* Owns: which silus are computed by the product that reads them, and which stand alone. */
#include "base/text.h"
#include "planner/planner.h"
#include "planner/program/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Case {
  const char *what, *body, *plan;
  int fused, silus, products; /* instructions each way */
} Case;

#define GATES "a = linear(x, 16) as gate  b = linear(x, 16) as up\n"
#define LOSS  "loss = mse(linear(h, 8) as last, y)"

static const Case FUSED[] = {
    {"silu first", GATES "h = silu(a) * b " LOSS, "", 1, 0, 0},
    {"silu second", GATES "h = b * silu(a) " LOSS, "", 1, 0, 0},
    {"of two silus the first", GATES "h = silu(a) * silu(b) " LOSS, "", 1, 1, 0},
    {"columns of one tensor", "a, b = split(linear(x, 32) as both, 2) h = silu(a) * b " LOSS, "", 1, 0, 0},
    {"pinned alike", GATES "h = silu(a) * b " LOSS, "recompute silu mul", 1, 0, 0},
    {"pinned by its product alone", GATES "h = silu(a) * b " LOSS, "recompute mul", 1, 0, 0},
};

static const Case APART[] = {
    {"no product", GATES "h = silu(a) + b " LOSS, "", 0, 1, 0},
    {"read twice", GATES "g = silu(a) h = g * b + g " LOSS, "", 0, 1, 1},
    {"its own square", GATES "g = silu(a) h = g * g + b " LOSS, "", 0, 1, 1},
    {"read by the loss", "g = silu(linear(x, 8) as gate) h = g * linear(x, 8) loss = mse(g, y)", "", 0, 1, 0}, /* nobody reads the product */
    {"read through views", "g, r = split(silu(linear(x, 32) as gate), 2) h = g * r " LOSS, "", 0, 1, 1},
    {"times what it reads", GATES "h = silu(a) * a + b " LOSS, "", 0, 1, 1},
    {"pinned apart", GATES "h = silu(a) * b " LOSS, "recompute silu save mul", 0, 1, 1},
    {"pinned by itself", GATES "h = silu(a) * b " LOSS, "recompute silu", 0, 1, 1},
    {"in another block", "module block(h, g) { return linear(h * g, 16) }\n" GATES "h = repeat 1 block(b, silu(a)) as layers " LOSS, "", 0, 1, 1},
};

static Graph *compile(Arena *arena, SourceSet *sources, DiagSink *sink, const char *body, const char *plan) {
  static const char path[] = "fusion.fsdp"; /* only a name: the text is here */
  const char *text = arena_printf(arena,
                                  "model m { input x: float[batch, 16] input y: float[batch, 8]\n%s }\n"
                                  "train { optimizer sgd { lr 0.1 } batch 8 }\nplan { %s }\n",
                                  body, plan);
  *sources = (SourceSet){.arena = arena};
  *sink = (DiagSink){.arena = arena, .sources = sources};
  SourceFile file = {path, text, strlen(text)};
  vec_push(arena, &sources->overlays, file);
  FrontendOptions options = {0};
  Graph *graph = frontend_compile(arena, sources, sink, path, &options);
  if (!graph) diag_print(sink, stderr, false);
  assert_non_null(graph);
  return graph;
}

static Program *build(Arena *arena, const char *body, const char *plan) {
  SourceSet sources;
  DiagSink sink;
  const Graph *graph = compile(arena, &sources, &sink, body, plan);
  Program *program = program_build(arena, &sink, graph, instr_specs(arena), &graph->plan, 4, NULL);
  assert_non_null(program);
  return program;
}

static int count(const Program *program, InstrOp op) {
  int found = 0;
  for (uint32_t i = 0; i < program->ops.count; i++) found += program->ops.data[i].op == op;
  return found;
}

static const ProgramOp *only(const Program *program, InstrOp op) {
  assert_int_equal(count(program, op), 1);
  uint32_t i = 0;
  while (program->ops.data[i].op != op) i++;
  return &program->ops.data[i];
}

static void expect(const char *what, const Program *program, InstrOp op, int want) {
  if (count(program, op) != want) fail_msg("%s: %s occurs %d times, not %d", what, program->specs[op].name, count(program, op), want);
}

static void try_cases(const Case *cases, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const Case *c = &cases[i];
    Arena *arena = arena_new();
    const Program *program = build(arena, c->body, c->plan);
    expect(c->what, program, INSTR_SILU_MUL_FWD, c->fused);
    expect(c->what, program, INSTR_SILU_MUL_BWD, c->fused);
    expect(c->what, program, INSTR_SILU_FWD, c->silus);
    expect(c->what, program, INSTR_SILU_BWD, c->silus);
    expect(c->what, program, INSTR_MUL_FWD, c->products);
    expect(c->what, program, INSTR_MUL_BWD, 2 * c->products);
    arena_free(arena);
  }
}

static void test_fused(void **state) {
  (void)state;
  try_cases(FUSED, sizeof FUSED / sizeof *FUSED);
}

static void test_apart(void **state) {
  (void)state;
  try_cases(APART, sizeof APART / sizeof *APART);
}

/* Its result has no value, and the product's operands are in the order of the instruction, whatever theirs is in the file. */
static void test_operands(void **state) {
  static const char *const bodies[] = {GATES "h = silu(a) * b " LOSS, GATES "h = b * silu(a) " LOSS, GATES "h = silu(a) * silu(b) " LOSS};
  (void)state;
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
    Arena *arena = arena_new();
    const Program *program = build(arena, bodies[i], "");
    const ProgramOp *forward = only(program, INSTR_SILU_MUL_FWD), *backward = only(program, INSTR_SILU_MUL_BWD);
    assert_string_equal(forward->name, "mul");
    assert_string_equal(program->values.data[forward->refs[0].value].name, "gate");
    assert_string_equal(program->values.data[forward->refs[1].value].name, i == 2 ? "silu_1" : "up");
    for (int k = 0; k < 2; k++) assert_int_equal(backward->refs[k].value, forward->refs[k].value);
    for (uint32_t v = 0; v < program->values.count; v++) assert_string_not_equal(program->values.data[v].name, "silu");
    arena_free(arena);
  }
}

/* Model inputs have no gradient: that of the other operand is computed alone. */
static void test_absent_gradients(void **state) {
  (void)state;
  Arena *arena = arena_new();
  const ProgramOp *left = only(build(arena, "h = silu(x) * linear(x, 16) as up " LOSS, ""), INSTR_SILU_MUL_BWD);
  const ProgramOp *right = only(build(arena, "h = silu(linear(x, 16) as gate) * x " LOSS, ""), INSTR_SILU_MUL_BWD);
  assert_true(left->refs[3].value < 0 && left->refs[4].value >= 0);
  assert_true(right->refs[3].value >= 0 && right->refs[4].value < 0);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fused),
      cmocka_unit_test(test_apart),
      cmocka_unit_test(test_operands),
      cmocka_unit_test(test_absent_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
