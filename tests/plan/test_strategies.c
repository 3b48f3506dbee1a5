/* Owns: the verifier on other ways to train than sharding: one rank, replicas, hybrid, forward only. One
 * linear layer whose gradient takes every route that the rule "gradient" knows. */
#include "planner/plan/verify.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

enum { ROWS = 8, D = 64, NUMEL = D * D };

/* How the gradient gets from the layer to the update. */
typedef enum {
  DIRECT,           /* += into the persistent gradient */
  DIRECT_ALLREDUCE, /* the same, and one all-reduce in place before the update */
  EACH_ALLREDUCE,   /* a full gradient a micro-batch, all-reduced += into the persistent one */
  EACH_SCATTER,     /* reduce-scattered += */
  HYBRID,           /* reduce-scattered += each time, all-reduced once */
  COPIED,           /* a full gradient a micro-batch, copied += */
  IN_PLACE_EACH     /* wrong: all-reduces what earlier micro-batches have all-reduced already */
} Route;

typedef struct Toy {
  Build b;
  int32_t x, y, full, gradient, acc, scale, norm, loss;
  const PlanUnit *unit;
} Toy;

static Toy toy_new(Arena *arena, uint32_t shard, uint32_t replicas) {
  Toy t = {.b = build_new(arena)};
  Build *b = &t.b;
  Plan *plan = b->plan;
  plan->world = (PlanWorld){shard * replicas, shard, replicas, 1, 1, 2};
  plan->recipe.steps = 1;
  plan->recipe.optimizer = OPTIMIZER_SGD;
  plan->recipe.compute = DTYPE_BF16; /* of the copy that every unit of build.h has */
  plan->recipe.reduce = DTYPE_F32;
  build_param(b, build_unit(b, "fc", NUMEL / shard), "fc.weight", 0, D, D);
  t.unit = &plan->units.data[0];
  t.loss = build_buf(b, "loss", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  t.norm = build_buf(b, "norm", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  plan->loss_buf = plan->count_buf = t.loss;
  plan->norm_buf = t.norm;
  t.x = build_buf(b, "x", BUF_ACTIVATION, DTYPE_F32, ROWS * D, PLAN_NONE, false);
  t.y = build_buf(b, "y", BUF_ACTIVATION, DTYPE_F32, ROWS * D, PLAN_NONE, false);
  t.full = build_buf(b, "fc.full", BUF_GATHERED, DTYPE_BF16, NUMEL, 0, false);
  t.gradient = build_buf(b, "fc.gradfull", BUF_GRADFULL, DTYPE_F32, NUMEL, 0, false);
  t.acc = build_buf(b, "acc", BUF_WORKSPACE, DTYPE_I64, EXACT_DIGITS, PLAN_NONE, false);
  t.scale = build_buf(b, "scale", BUF_WORKSPACE, DTYPE_F32, 1, PLAN_NONE, false);
  return t;
}

static void add(Toy *t, InstrOp op, const PlanOperand *operands, const int64_t *ints, const double *reals) {
  build_instr(&t->b, op, PHASE_BACKWARD, "fc", operands, ints, reals, 1);
}

static void allreduce(Toy *t, int32_t from, PlanOperand to) {
  add(t, INSTR_ALLREDUCE, OPERANDS(B(from), to), INTS(0, (int64_t)t->unit->shard), NULL);
}

static void send(Toy *t, Route route) {
  PlanOperand gradient = route == DIRECT || route == DIRECT_ALLREDUCE || route == IN_PLACE_EACH
                             ? B_ADD(t->unit->grad_buf)
                             : B(t->gradient);
  add(t, INSTR_LINEAR_BWD_W, OPERANDS(B(t->x), B(t->y), gradient, B_NONE), INTS(ROWS, D, D), NULL);
  if (route == EACH_ALLREDUCE) allreduce(t, t->gradient, B_ADD(t->unit->grad_buf));
  if (route == IN_PLACE_EACH) allreduce(t, t->unit->grad_buf, B(t->unit->grad_buf));
  if (route == EACH_SCATTER || route == HYBRID)
    add(t, INSTR_REDUCE_SCATTER, OPERANDS(B(t->gradient), B_ADD(t->unit->grad_buf)),
        INTS(0, (int64_t)t->unit->shard), NULL);
  if (route == COPIED)
    add(t, INSTR_COPY, OPERANDS(B(t->gradient), B_ADD(t->unit->grad_buf)), INTS(1, NUMEL), NULL);
}

static void update(Toy *t, Route route) {
  int64_t n = (int64_t)t->unit->shard;
  build_segment(&t->b, "update", 1);
  if (route == DIRECT_ALLREDUCE || route == HYBRID) allreduce(t, t->unit->grad_buf, B(t->unit->grad_buf));
  add(t, INSTR_ZERO, OPERANDS(B(t->acc)), INTS(EXACT_DIGITS), NULL);
  add(t, INSTR_SUM_SQUARES, OPERANDS(B(t->unit->grad_buf), B(t->acc)), INTS(0, n), NULL);
  if (t->b.plan->world.shard > 1) add(t, INSTR_ALLREDUCE_EXACT, OPERANDS(B(t->acc)), NULL, NULL);
  add(t, INSTR_CLIP, OPERANDS(B(t->acc), B(t->norm), B(t->scale)), NULL, REALS(0));
  add(t, INSTR_SGD,
      OPERANDS(B(t->unit->grad_buf), B(t->scale), B(t->unit->param_buf), B(t->unit->m_buf),
               B(t->unit->cast_buf)),
      INTS(0, n), NULL);
}

/* All streams on one queue: only the route matters here. */
static Plan *train(Arena *arena, Route route, uint32_t shard, uint32_t replicas) {
  Toy t = toy_new(arena, shard, replicas);
  memset(t.b.plan->queue, 0, sizeof t.b.plan->queue);
  build_segment(&t.b, "begin", 1);
  add(&t, INSTR_ZERO, OPERANDS(B(t.unit->grad_buf)), INTS((int64_t)t.unit->shard), NULL);
  build_segment(&t.b, "micro", 2);
  add(&t, INSTR_ZERO, OPERANDS(B(t.x)), INTS(ROWS * D), NULL);
  if (shard > 1)
    add(&t, INSTR_ALLGATHER, OPERANDS(B(t.unit->cast_buf), B(t.full)), INTS(0, (int64_t)t.unit->shard),
        NULL);
  int32_t weight = shard > 1 ? t.full : t.unit->param_buf;
  add(&t, INSTR_LINEAR_FWD, OPERANDS(B(t.x), B(weight), B_NONE, B(t.y)), INTS(ROWS, D, D), NULL);
  send(&t, route);
  update(&t, route);
  for (uint32_t b = 0; b < t.b.plan->bufs.count; b++) /* what this route does not use */
    if (t.b.plan->bufs.data[b].last < 0) t.b.plan->bufs.data[b].first = t.b.plan->bufs.data[b].last = 0;
  build_finish(&t.b);
  return t.b.plan;
}

static void check(Route route, uint32_t shard, uint32_t replicas, bool good, const char *text) {
  Arena *arena = arena_new();
  VerifyResult result;
  bool passed = plan_verify(arena, train(arena, route, shard, replicas), &result);
  for (uint32_t i = 0; i < result.violations.count && good; i++)
    print_message("%s: %s\n", verify_rule_name(result.violations.data[i].rule),
                  result.violations.data[i].text);
  if (passed != good) fail_msg("route %d on %u x %u", route, shard, replicas);
  if (!good) {
    assert_int_equal(result.violations.data[0].rule, VERIFY_GRADIENT);
    if (!strstr(result.violations.data[0].text, text)) fail_msg("%s", result.violations.data[0].text);
  }
  arena_free(arena);
}

static void test_good_routes(void **state) {
  (void)state;
  check(DIRECT, 1, 1, true, "");
  check(COPIED, 1, 1, true, "");
  check(DIRECT_ALLREDUCE, 1, 2, true, "");
  check(EACH_ALLREDUCE, 1, 2, true, "");
  check(EACH_SCATTER, 2, 1, true, "");
  check(HYBRID, 2, 2, true, "");
}

static void test_bad_routes(void **state) {
  (void)state;
  check(DIRECT, 1, 2, false, "not the sum over all ranks");
  check(EACH_SCATTER, 2, 2, false, "not the sum over all ranks");
  check(EACH_ALLREDUCE, 2, 2, false, "not yet over the shard group");
  check(IN_PLACE_EACH, 1, 2, false, "adds an unreduced gradient to a reduced one");
}

/* --- forward only ------------------------------------------------------------------------------------ */

static Plan *forward(Arena *arena) {
  Toy t = toy_new(arena, 1, 1);
  Plan *plan = t.b.plan;
  plan->training = false;
  plan->loss_buf = plan->count_buf = plan->norm_buf = PLAN_NONE;
  plan->output_buf = t.y;
  build_segment(&t.b, "forward", 1);
  add(&t, INSTR_ZERO, OPERANDS(B(t.x)), INTS(ROWS * D), NULL);
  add(&t, INSTR_LINEAR_FWD, OPERANDS(B(t.x), B(t.unit->param_buf), B_NONE, B(t.y)), INTS(ROWS, D, D), NULL);
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (plan->bufs.data[b].last < 0) plan->bufs.data[b].first = plan->bufs.data[b].last = 0;
  build_finish(&t.b);
  return plan;
}

static void test_forward(void **state) {
  (void)state;
  Arena *arena = arena_new();
  VerifyResult result;
  Plan *plan = forward(arena);
  assert_true(plan_verify(arena, plan, &result));
  plan->output_buf = find_buf(plan, "x");
  assert_false(plan_verify(arena, plan, &result));
  assert_int_equal(result.violations.data[0].rule, VERIFY_STRUCTURE);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_good_routes), cmocka_unit_test(test_bad_routes),
                                     cmocka_unit_test(test_forward)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
