/* Owns: gradients of whole models that put operators together in unusual ways, against central differences of the loss: what a
 * step of SGD subtracts from each parameter is the direction in which the loss grows, and as long as it grows fast. The smallest
 * plan, which computes results again, gives the same bits.
 *
 * Kernels have differences of their own in tests/kernels; here it is what becomes of a gradient between them: who adds,
 * who overwrites, who may hand a buffer on. */
#include "machine.h"

#include "planner/planner.h"
#include "runtime/floats.h"

#include <string.h>

/* --- models: inputs, and what ends in `loss`; every width is 8, and so is the vocabulary, unless stated ------------------- */

typedef struct Case {
  const char *what, *body;
} Case;

#define EMBED "x = embedding(tokens, 8, 8) as wte\n"
#define LOSS  "loss = cross_entropy(linear(y, 8) as head, targets)"

static const Case VALUES_READ_TWICE[] = {
    {"a sum with itself", EMBED "y = linear(x + x, 8) as a " LOSS},
    {"a square", EMBED "y = linear(x, 8) as a  y = y * y " LOSS},
    {"a square of a part", EMBED "a, b = split(linear(x, 16) as ab, 2)  y = a * a + b " LOSS},
    {"residuals that share a gradient", EMBED "a = linear(x, 8) as a  b = gelu(a) + a  y = b + a + x " LOSS},
    {"a sum into its own operand", EMBED "a = linear(x, 8) as a  b = a + x  y = relu(b) * b + a " LOSS},
    {"three layers read one", EMBED "a = layernorm(x) as n  y = (linear(a, 8) as p) * gelu(linear(a, 8) as q, erf) + a " LOSS},
    {"a silu times what it reads", EMBED "a = linear(x, 8) as a  y = silu(a) * a " LOSS},
    {"a silu times its sum", EMBED "a = linear(x, 8) as a  b = linear(x, 8) as b  y = silu(a) * (a + b) + b " LOSS},
    {"numbers times what is read besides", EMBED "a = linear(0.5 * x, 8) as a  b = a * -3 + a  y = b / 4 + scale(b, 0.3) + 2 * (a + x) " LOSS},
    {"ids embedded three times", EMBED "y = x * (embedding(tokens, 9, 8) as wtf) + (embedding(tokens, 8, 8) as wtg) " LOSS},
};

static const Case PARTS[] = {
    {"parts in any order, one unused", EMBED "a, _b, c = split(linear(x, 24) as abc, 3)  y = c * relu(a) " LOSS},
    {"a part and the whole", EMBED "w = linear(x, 16) as w  a, b = split(w, 2)  y = (linear(w, 8) as c) + a * b " LOSS},
    {"parts that overlap", EMBED "w = linear(x, 16) as w  a, b = split(w, 2)  c, d, e = split(w, [4, 8, 4])  p, q = split(d, 2)\n"
                           "y = a * d + b + (linear(p, 8) as up) + (linear(q * c, 8) as vp) " LOSS},
    {"a part of a part, normed by heads", EMBED "w, v = split(linear(x, 24) as wv, [16, 8])  a, b = split(w, 2)\n"
                                          "y = (rmsnorm(a, heads = 2) as an) + (layernorm(b, heads = 2) as bn) * v " LOSS},
    {"parts of a norm", EMBED "a, b = split(layernorm(linear(x, 16) as up) as n, 2)  y = gelu(a) + silu(b) * a " LOSS},
    {"parts times numbers", EMBED "w = linear(x, 24) as w  a, b, _c = split(w, 3)  d, e = split(w * 0.7, 2)  p, q = split(d + 3 * e, [4, 8])\n"
                            "y = 0.5 * a + -2 * b + (linear(p, 8) as up) + q * 1.5 " LOSS},
    {"residual parts", EMBED "a, b = split(linear(x, 16) as ab, 2)  y = a + b + a " LOSS},
    {"positions in parts", EMBED "p, q = split(positions(6, 16) as wpe, 2)  y = x * (x + p) + q " LOSS},
};

static const Case ATTENTION[] = {
    {"of one tensor", EMBED "a = linear(x, 8) as a  y = attention(a, a, a, 2) " LOSS},
    {"of one tensor that is read besides", EMBED "a = linear(x, 8) as a  y = attention(a, a, x, 2, full) * a " LOSS},
    {"keys that are part of queries", EMBED "q = linear(x, 8) as q  k, _r = split(q, 2)  y = attention(q, k, k, 2, kv_heads = 1) " LOSS},
    {"keys and values that overlap", EMBED "w = linear(x, 12) as w  k, _r = split(w, [8, 4])  _s, v = split(w, [4, 8])\n"
                                     "y = attention(x, k, v, 4, full) + x " LOSS},
    {"queries and keys that overlap", EMBED "w = linear(x, 12) as w  q, _r = split(w, [8, 4])  _s, k = split(w, [4, 8])\n"
                                      "y = attention(q, k, q, 2) " LOSS},
    {"rotated parts", EMBED "q, k, v = split(linear(x, 16) as qkv, [8, 4, 4])\n"
                      "y = attention(rope(q, 2), rope(k, 1), rope(v, 2), 2, kv_heads = 1) + rope(q, 4) " LOSS},
    {"parts of heads rotated", EMBED "q, k, v = split(linear(x, 32) as qkv, [16, 8, 8])\n"
                               "y = attention(rope(q, 2, dims = 4), rope(k, 1, dims = 6), rope(v, 1, dims = 2), 2, kv_heads = 1) + rope(q, 4, dims = 2) " LOSS},
};

static const Case LOSSES[] = {
    {"of attention", EMBED "y = linear(x, 8) as a  loss = cross_entropy(attention(y, y, y, 2), targets)"},
    {"of a part", EMBED "_a, y = split(linear(x, 13) as up, [5, 8])  loss = cross_entropy(y, targets)"},
    {"of a part of attention", EMBED "_a, y = split(attention(linear(x, 16) as q, linear(x, 16, bias = false) as k, linear(x, 16) as v, 2), 2)\n"
                               "loss = cross_entropy(y, targets)"},
    {"of an embedding", "loss = cross_entropy(embedding(tokens, 8, 8) as wte, targets)"},
    {"of a sum with itself", EMBED "y = linear(x, 8) as a  loss = cross_entropy(y + y, targets)"},
    {"of a residual", EMBED "y = linear(x, 8) as a  loss = cross_entropy(gelu(y) + y, targets)"},
    {"of logits over a number", EMBED "loss = cross_entropy((linear(x, 11) as head) / 3, targets)"},
    {"of a norm by heads", EMBED "loss = cross_entropy(layernorm(x, heads = 2) as n, targets)"},
    {"of a silu's product", EMBED "y = linear(x, 8) as a  loss = cross_entropy(silu(y) * x, targets)"},
    {"in chunks, of a part", EMBED "a, b = split(linear(x, 16) as ab, 2)\n"
                             "loss = cross_entropy(linear(a * b, 11, bias = true) as head, targets, chunk = 5)"},
    {"with targets that do not count", EMBED "loss = cross_entropy(linear(x, 11) as head, targets, ignore_index = 3)"},
};

static const Case PARAMETERS[] = {
    {"one weight, four layers", EMBED "y = gelu(linear(x, 8, weight = wte)) + x  y = linear(y, 8, weight = wte, bias = true) as b\n"
                                "loss = cross_entropy(linear(y, 8, weight = wte), targets, chunk = 7)"},
    {"positions that multiply too", EMBED "p = positions(6, 8) as wpe  y = linear(relu(linear(x + p, 6, weight = wpe)), 8) as up  y = y + p " LOSS},
    {"positions times a number", EMBED "p = (positions(6, 8) as wpe) * 3  y = linear(x + p, 8) as a  y = y + p * -0.5 " LOSS},
    {"a frozen weight times a number", EMBED "y = linear(x * 4 + (linear(x, 8) as a), 8) as b  freeze \"wte\" " LOSS},
    {"positions computed on", EMBED "p = layernorm(linear(positions(6, 8) as wpe, 8) as pp) as pn  y = x * x + p * p + p " LOSS},
    {"frozen weights between", EMBED "a = linear(x, 8) as a  y = (layernorm(linear(a, 8) as b) as n) + a\n"
                               "freeze \"b\" freeze \"n.weight\" freeze \"wte\" " LOSS},
    {"a frozen head, in chunks", EMBED "y = linear(x, 8) as a  freeze \"head.weight\"\n"
                                 "loss = cross_entropy(linear(y, 8) as head, targets, chunk = 5)"},
    {"repeats within repeats", "module f(x, s) { a, b = split(linear(x, 16) as up, 2)  repeat i in 2 as r { a = a + (linear(a * b, 8) as l) }\n"
                               "return (rmsnorm(a) as n) + x, silu(s) * a }\n" EMBED
                               "y, z = repeat 2 f(x, x) as h  y = y + (linear(z, 8, weight = h.1.r.0.l) as t) " LOSS},
};

/* --- a model's plan, and the loss at its weights ---------------------------------------------------------------------------- */

enum { VOCAB = 8, SAMPLES = 3, MOST_NUMEL = 256 };

typedef struct Rig {
  Feed feed;
  const Plan *plan;
  Machine machine;
} Rig;

/* No pattern, and the same ids whenever they are asked for. */
static void fill(Feed *feed, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  (void)feed, (void)state;
  for (uint64_t i = 0; i < count; i++) out[i] = (int32_t)(fabs(random_normal(11, (uint64_t)input, i)) * 1000) % VOCAB;
}

static uint64_t count_valid(Feed *feed, const StepState *state, int32_t input, int64_t ignore) {
  int32_t ids[MOST_NUMEL];
  uint64_t count = SAMPLES * (uint64_t)((Rig *)feed)->plan->inputs.data[input].sample_numel, valid = 0;
  fill(feed, state, input, ids, count);
  for (uint64_t i = 0; i < count; i++) valid += ids[i] != ignore;
  return valid;
}

/* Where not even the smallest plan fits, it is that one. */
static const Plan *plan_of(Scratch *scratch, const Case *c, const char *memory) {
  const char *text = arena_printf(scratch->arena,
                                  "model odd { input tokens: int[batch, 6] input targets: int[batch, 6]\n%s }\n"
                                  "train { optimizer sgd { lr 1 } batch %d }\n"
                                  "cluster { device cpu { memory 1GiB bandwidth 10GB/s peak f32 100GFLOPS } }\n"
                                  "plan { micro_batch %d memory %s }\n",
                                  c->body, SAMPLES, SAMPLES, memory);
  Model *model = compile_model(scratch->arena, scratch_file(scratch, "odd.fsdp", text, strlen(text)), NULL, 0);
  PlannerOptions options = {.ranks = 1, .ranks_per_node = 1, .settings = model->graph->plan};
  PlannerResult result;
  planner_plan(scratch->arena, &model->sink, model->graph, &options, 0, NULL, &result);
  assert_non_null(result.plan);
  return result.plan;
}

static double read_scalar(const Rig *rig, int32_t buf) {
  double value = NAN;
  assert_true(rig->machine.rank.backend->read(rig->machine.rank.backend, buf, 0, &value, sizeof value));
  return value;
}

/* Of one step. */
static double loss_of(const Rig *rig, double lr) {
  Backend *backend = rig->machine.rank.backend;
  StepState state = {.step = 1, .lr = lr};
  for (uint32_t s = 0; s < rig->plan->segments.count; s++)
    if (!backend->run_segment(backend, (int32_t)s, &state, NULL)) fail_msg("%s", backend->error(backend));
  return read_scalar(rig, rig->plan->loss_buf) / read_scalar(rig, rig->plan->count_buf);
}

/* --- one parameter after the other -------------------------------------------------------------------------------------------- */

static void read_param(const Rig *rig, const PlanParam *param, float *out) {
  assert_true(floats_read(rig->machine.rank.backend, rig->plan, param_buffer(rig->plan, param), param->offset, out, param_numel(param)));
}

static void write_param(const Rig *rig, const PlanParam *param, const float *values) {
  assert_true(floats_write(rig->machine.rank.backend, rig->plan, param_buffer(rig->plan, param), param->offset, values, param_numel(param)));
}

static double shifted_loss(const Rig *rig, const PlanParam *param, const float *weights, const double *direction, double by) {
  float shifted[MOST_NUMEL];
  for (uint64_t i = 0; i < param_numel(param); i++) shifted[i] = (float)(weights[i] + by * direction[i]);
  write_param(rig, param, shifted);
  double loss = loss_of(rig, 0);
  write_param(rig, param, weights);
  return loss;
}

static double length(const double *v, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; i++) sum += v[i] * v[i];
  return sqrt(sum);
}

/* f32 leaves an error of 1e-7 in losses, 1e-5 in their differences; the third derivative another. */
static void assert_slope(const Rig *rig, const PlanParam *param, const float *before, const float *after, const char *what) {
  const double reach = 0.01, tolerance = 0.01, noise = 1e-4;
  uint64_t numel = param_numel(param);
  double gradient[MOST_NUMEL];
  if (plan_unit_frozen(rig->plan, &rig->plan->units.data[param->unit])) return;
  for (uint64_t i = 0; i < numel; i++) gradient[i] = (double)before[i] - (double)after[i];
  double norm = length(gradient, numel);
  if (norm == 0) fail_msg("%s: %s has no gradient", what, plan_str(rig->plan, param->name));
  for (uint64_t i = 0; i < numel; i++) gradient[i] /= norm;
  double slope = (shifted_loss(rig, param, before, gradient, reach) - shifted_loss(rig, param, before, gradient, -reach)) / (2 * reach);
  if (fabs(slope - norm) > tolerance * norm + noise)
    fail_msg("%s: the gradient of %s is %g long, but the loss grows by %g", what, plan_str(rig->plan, param->name), norm, slope);
}

typedef float Values[MOST_NUMEL];

static Values *read_params(Arena *arena, const Rig *rig) {
  Values *values = arena_alloc(arena, rig->plan->params.count * sizeof *values);
  for (uint32_t p = 0; p < rig->plan->params.count; p++) read_param(rig, &rig->plan->params.data[p], values[p]);
  return values;
}

static void open_rig(Scratch *scratch, Rig *rig, const Plan *plan) {
  *rig = (Rig){.feed = {.fill = fill, .count = count_valid}, .plan = plan};
  machine_open(scratch->arena, &rig->machine, plan, &rig->feed);
  machine_shake(&rig->machine, 0.5, 0.5);
}

static void assert_gradients(Scratch *scratch, const Case *c) {
  Rig rig;
  open_rig(scratch, &rig, plan_of(scratch, c, "1MiB"));
  uint32_t count = rig.plan->params.count;
  Values *before = read_params(scratch->arena, &rig);
  loss_of(&rig, 1); /* its rate makes what it subtracts the gradient */
  Values *after = read_params(scratch->arena, &rig);
  for (uint32_t p = 0; p < count; p++) write_param(&rig, &rig.plan->params.data[p], before[p]);
  for (uint32_t p = 0; p < count; p++) assert_slope(&rig, &rig.plan->params.data[p], before[p], after[p], c->what);
  machine_close(&rig.machine);
}

#define GRADIENTS(name, cases)                                                                       \
  static void name(void **state) {                                                                   \
    for (size_t i = 0; i < sizeof(cases) / sizeof *(cases); i++) assert_gradients(*state, &(cases)[i]); \
  }

GRADIENTS(values_that_are_read_twice_add_up, VALUES_READ_TWICE)
GRADIENTS(parts_give_their_columns_of_a_gradient, PARTS)
GRADIENTS(attention_gives_each_operand_its_own, ATTENTION)
GRADIENTS(a_loss_of_any_result_is_trained, LOSSES)
GRADIENTS(parameters_learn_wherever_they_are_used, PARAMETERS)

/* --- and whatever the plan ----------------------------------------------------------------------------------------------------- */

#define LIST(cases) {cases, sizeof(cases) / sizeof *(cases)}

/* A step of one plan and of another gives the same bits. */
static void assert_same_step(Scratch *scratch, const Plan *const plans[2], const char *what) {
  double loss[2];
  Values *after[2];
  for (int i = 0; i < 2; i++) {
    Rig rig;
    open_rig(scratch, &rig, plans[i]);
    loss_of(&rig, 0); /* memory is no longer zeros then */
    loss[i] = loss_of(&rig, 1);
    after[i] = read_params(scratch->arena, &rig);
    machine_close(&rig.machine);
  }
  assert_int_equal(plans[0]->params.count, plans[1]->params.count);
  for (uint32_t p = 0; p < plans[0]->params.count; p++) {
    const PlanParam *param = &plans[0]->params.data[p];
    assert_string_equal(plan_str(plans[0], param->name), plan_str(plans[1], plans[1]->params.data[p].name));
    if (loss[0] != loss[1] || memcmp(after[0][p], after[1][p], param_numel(param) * sizeof(float)) != 0)
      fail_msg("%s: %s differs in the smallest plan", what, plan_str(plans[0], param->name));
  }
}

static uint32_t recomputed(const Plan *plan) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) count += plan->instrs.data[i].phase == PHASE_RECOMPUTE;
  return count;
}

static void the_smallest_plan_trains_alike(void **state) {
  static const struct {
    const Case *cases;
    size_t count;
  } lists[] = {LIST(VALUES_READ_TWICE), LIST(PARTS), LIST(ATTENTION), LIST(LOSSES), LIST(PARAMETERS)};
  uint32_t again = 0;
  for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
    for (size_t i = 0; i < lists[l].count; i++) {
      const Case *c = &lists[l].cases[i];
      const Plan *const plans[] = {plan_of(*state, c, "1MiB"), plan_of(*state, c, "1B")};
      assert_same_step(*state, plans, c->what);
      again += recomputed(plans[1]);
    }
  assert_true(again > 50); /* these plans do compute results again */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(values_that_are_read_twice_add_up),      SCRATCH_TEST(parts_give_their_columns_of_a_gradient),
      SCRATCH_TEST(attention_gives_each_operand_its_own),   SCRATCH_TEST(a_loss_of_any_result_is_trained),
      SCRATCH_TEST(parameters_learn_wherever_they_are_used), SCRATCH_TEST(the_smallest_plan_trains_alike),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
