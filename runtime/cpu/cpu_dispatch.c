/* Owns: one function an instruction, which hands its operands to the kernel. Operands, ints and reals are numbered as in
 * instr.def; layouts agree with kernels.def. The backend has checked the types of floats.
 *
 * Compiled twice: as it stands for activations and gathered parameters of 32 bits, by cpu_dispatch_half.c for 16. */
#include "runtime/cpu/cpu_dispatch.h"

#include "runtime/shapes.h"

#include <math.h>
#include <string.h>

#if CPU_STORED_16
typedef Half Stored;
#define TABLE        (c->machine->half)
#define CPU_FUNCTION cpu_function_half
#else
typedef float Stored;
#define TABLE        (c->machine->kernels)
#define CPU_FUNCTION cpu_function
#endif

/* Operand i of call c, as the kernels want it: F in the compute dtype, G in whatever type a gradient of parameters has. */
#define F(i)   ((Stored *)c->o[i].data)
#define G(i)   (c->o[i].data)
#define F32(i) ((float *)c->o[i].data)
#define I32(i) ((int32_t *)c->o[i].data)
#define F64(i) ((double *)c->o[i].data)
#define ACC(i) ((int64_t *)c->o[i].data)
#define LD(i)  (c->o[i].ld)
#define ADD(i) (c->o[i].add)
#define N(i)   (c->n[i])
#define X(i)   (c->x[i])

#define OP(name) static CommStatus op_##name(const CpuCall *c)
/* Runs a kernel, all of whose arguments but the context follow. */
#define KERNEL(name, ...)                                                                                    \
  do {                                                                                                       \
    TABLE->name(c->k, __VA_ARGS__);                                                                          \
    return COMM_OK;                                                                                          \
  } while (0)
/* The same for one whose operand g is a gradient of parameters, or may be one. */
#define GRADIENT_KERNEL(g, name, ...)                                                                        \
  do {                                                                                                       \
    KernelContext k = with_gradient(c, g);                                                                   \
    TABLE->name(&k, __VA_ARGS__);                                                                            \
    return COMM_OK;                                                                                          \
  } while (0)

static KernelContext with_gradient(const CpuCall *c, int operand) {
  KernelContext k = *c->k;
  k.gradient = c->o[operand].type;
  return k;
}

/* --- data -------------------------------------------------------------------------------------------------------- */

OP(input) {
  Feed *feed = c->machine->feed;
  feed->fill(feed, c->state, (int32_t)N(1), I32(0), (uint64_t)N(0));
  return COMM_OK;
}

OP(count_targets) {
  Feed *feed = c->machine->feed;
  *F64(0) = (double)feed->count(feed, c->state, (int32_t)N(0), N(1));
  return COMM_OK;
}

enum { TASK_BYTES = 1 << 20 }; /* of one task that clears or copies */

/* to = from, or zeros where `from` is NULL. */
typedef struct FillJob {
  const unsigned char *from;
  unsigned char *to;
  uint64_t bytes;
} FillJob;

static void fill_part(void *arg, int64_t index) {
  const FillJob *job = arg;
  uint64_t first = (uint64_t)index * TASK_BYTES, left = job->bytes - first, bytes = left < TASK_BYTES ? left : TASK_BYTES;
  if (job->from != NULL)
    memcpy(job->to + first, job->from + first, bytes);
  else
    memset(job->to + first, 0, bytes);
}

/* n elements of what operand 0 holds. */
static CommStatus fill(const CpuCall *c, const void *from, void *to) {
  const Plan *plan = c->machine->plan;
  FillJob job = {from, to, (uint64_t)N(0) * dtype_bytes(plan->bufs.data[plan_operand(plan, c->instr, 0)->buf].dtype)};
  c->k->parallel->run(c->k->parallel, (int64_t)((job.bytes + TASK_BYTES - 1) / TASK_BYTES), fill_part, &job);
  return COMM_OK;
}

OP(zero) { return fill(c, NULL, c->o[0].data); }
OP(fetch) { return fill(c, c->o[0].data, c->o[1].data); }
OP(store) { return fill(c, c->o[0].data, c->o[1].data); }

/* --- forward ------------------------------------------------------------------------------------------------------ */

OP(embedding_fwd) { KERNEL(embedding_fwd, N(0), N(1), N(2), I32(0), F(1), F(2), LD(2)); }
OP(copy) { GRADIENT_KERNEL(1, copy, N(0), N(1), F(0), LD(0), G(1), LD(1), ADD(1)); }
OP(pack) { KERNEL(copy, N(0), N(1), F(0), LD(0), F(1), LD(1), 0); }
OP(linear_fwd) { KERNEL(linear_fwd, N(0), N(1), N(2), F(0), LD(0), F(1), F(2), F(3), LD(3)); }
OP(layernorm_fwd) {
  KERNEL(layernorm_fwd, N(0), N(1), X(0), F(0), LD(0), F(1), F(2), F(3), LD(3), F32(4), F32(5));
}
OP(rmsnorm_fwd) { KERNEL(rmsnorm_fwd, N(0), N(1), X(0), F(0), LD(0), F(1), F(2), LD(2), F32(3)); }

OP(rope_fwd) {
  RopeShape shape = rope_shape(c->machine->plan, c->instr, c->state->position);
  KERNEL(rope, &shape, 0, F(0), LD(0), F(1), LD(1), 0);
}
OP(rope_bwd) {
  RopeShape shape = rope_shape(c->machine->plan, c->instr, c->state->position);
  KERNEL(rope, &shape, 1, F(0), LD(0), F(1), LD(1), ADD(1));
}

OP(attention_fwd) {
  AttentionShape shape = attention_shape(c->machine->plan, c->instr);
  KERNEL(attention_fwd, &shape, F(0), LD(0), F(1), LD(1), F(2), LD(2), F(3), LD(3), F32(4));
}
OP(attention_bwd) {
  AttentionShape shape = attention_shape(c->machine->plan, c->instr);
  KERNEL(attention_bwd, &shape, F(0), LD(0), F(1), LD(1), F(2), LD(2), F(3), LD(3), F32(4), F(5), LD(5), F(6), LD(6),
         ADD(6), F(7), LD(7), ADD(7), F(8), LD(8), ADD(8));
}

/* --- forward at a position: the verifier has seen that caches and tables hold the whole context ------------------------ */

OP(positions_fwd) {
  KERNEL(copy, N(0), N(2), F(0) + (int64_t)c->state->position * LD(0), LD(0), F(1), LD(1), 0);
}

OP(cache_append) {
  KERNEL(copy, N(0), N(2), F(0), LD(0), F(1) + (int64_t)c->state->position * LD(1), LD(1), 0);
}

OP(attention_cached) {
  AttentionShape shape = cached_shape(c->machine->plan, c->instr, (int64_t)c->state->position + N(0));
  KERNEL(attention_fwd, &shape, F(0), LD(0), F(1), LD(1), F(2), LD(2), F(3), LD(3), F32(4));
}

OP(gelu_fwd) { KERNEL(gelu_fwd, N(0), N(1), (int)N(2), F(0), LD(0), F(1), LD(1)); }
OP(relu_fwd) { KERNEL(relu_fwd, N(0), N(1), F(0), LD(0), F(1), LD(1)); }
OP(silu_fwd) { KERNEL(silu_fwd, N(0), N(1), F(0), LD(0), F(1), LD(1)); }
OP(mul_fwd) { KERNEL(mul, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2), 0); }
OP(scale_fwd) { KERNEL(scale, N(0), N(1), X(0), F(0), LD(0), F(1), LD(1), 0); }
OP(silu_mul_fwd) { KERNEL(silu_mul_fwd, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2)); }
OP(add_fwd) { KERNEL(add_fwd, N(0), N(1), N(2), F(0), LD(0), F(1), LD(1), F(2), LD(2)); }

static DropoutSite dropout_site(const CpuCall *c) {
  const PlanWorld *world = &c->machine->plan->world;
  uint64_t before = (c->state->micro_batch * world->ranks + c->machine->comm->rank) * world->micro_batch;
  return (DropoutSite){.p = c->state->forward_only ? 0 : X(0),
                       .seed = c->machine->plan->recipe.seed,
                       .step = c->state->step,
                       .site = (uint64_t)N(2),
                       .first_sample = c->state->first_sample + before,
                       .rows_per_sample = N(3)};
}

static CommStatus dropout(const CpuCall *c) {
  DropoutSite site = dropout_site(c);
  KERNEL(dropout, &site, N(0), N(1), F(0), LD(0), F(1), LD(1), ADD(1));
}
OP(dropout_fwd) { return dropout(c); }
OP(dropout_bwd) { return dropout(c); }

/* --- the turn ------------------------------------------------------------------------------------------------------ */

OP(cross_entropy) { KERNEL(cross_entropy, N(0), N(1), N(2), *F64(2), F(0), LD(0), I32(1), F64(3), F32(4)); }
OP(linear_cross_entropy) {
  GRADIENT_KERNEL(7, linear_cross_entropy, N(0), N(1), N(2), N(3), N(4), *F64(4), F(0), LD(0), F(1), F(2), I32(3),
                  F64(5), F(6), LD(6), ADD(6), G(7), ADD(7), G(8), ADD(8), F32(9), F(10), LD(10));
}
OP(linear_cross_entropy_x) {
  KERNEL(linear_cross_entropy, N(0), N(1), N(2), N(3), N(4), *F64(4), F(0), LD(0), F(1), F(2), I32(3), F64(5), F(6),
         LD(6), ADD(6), NULL, 0, NULL, 0, F32(7), F(8), LD(8));
}
OP(mse) { KERNEL(mse, N(0), N(1), *F64(2), F(0), LD(0), F(1), LD(1), F64(3), F(4), LD(4), ADD(4), F32(5)); }

/* --- backward ------------------------------------------------------------------------------------------------------ */

OP(embedding_bwd) { GRADIENT_KERNEL(2, embedding_bwd, N(0), N(1), N(2), I32(0), F(1), LD(1), G(2), ADD(2)); }
OP(linear_bwd_x) { KERNEL(linear_bwd_x, N(0), N(1), N(2), F(0), LD(0), F(1), F(2), LD(2), ADD(2)); }
OP(linear_bwd_w) {
  GRADIENT_KERNEL(2, linear_bwd_w, N(0), N(1), N(2), F(0), LD(0), F(1), LD(1), G(2), G(3), ADD(2), ADD(3));
}
OP(layernorm_bwd) {
  GRADIENT_KERNEL(6, layernorm_bwd, N(0), N(1), F(0), LD(0), F(1), F32(2), F32(3), F(4), LD(4), F(5), LD(5), G(6), G(7),
                  ADD(5), ADD(6), ADD(7));
}
OP(rmsnorm_bwd) {
  GRADIENT_KERNEL(5, rmsnorm_bwd, N(0), N(1), F(0), LD(0), F(1), F32(2), F(3), LD(3), F(4), LD(4), G(5), ADD(4), ADD(5));
}
OP(gelu_bwd) { KERNEL(gelu_bwd, N(0), N(1), (int)N(2), F(0), LD(0), F(1), LD(1), F(2), LD(2), ADD(2)); }
OP(relu_bwd) { KERNEL(relu_bwd, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2), ADD(2)); }
OP(silu_bwd) { KERNEL(silu_bwd, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2), ADD(2)); }
OP(mul_bwd) { KERNEL(mul, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2), ADD(2)); }
OP(scale_bwd) { KERNEL(scale, N(0), N(1), X(0), F(0), LD(0), F(1), LD(1), ADD(1)); }
OP(silu_mul_bwd) {
  KERNEL(silu_mul_bwd, N(0), N(1), F(0), LD(0), F(1), LD(1), F(2), LD(2), F(3), LD(3), ADD(3), F(4), LD(4), ADD(4));
}
OP(broadcast_bwd) { GRADIENT_KERNEL(1, broadcast_bwd, N(0), N(1), N(2), F(0), LD(0), G(1), LD(1), ADD(1)); }

/* --- collectives --------------------------------------------------------------------------------------------------- */

static uint64_t at(const CpuCall *c, int operand) {
  return (uint64_t)((unsigned char *)c->o[operand].data - c->machine->arena);
}

OP(allgather) {
  const Plan *plan = c->machine->plan;
  DType dtype = plan->bufs.data[plan_operand(plan, c->instr, 0)->buf].dtype;
  Comm *comm = c->machine->comm;
  return comm->allgather(comm, at(c, 0), at(c, 1), (uint64_t)N(1), dtype_bytes(dtype));
}
OP(reduce_scatter) {
  Comm *comm = c->machine->comm;
  return comm->reduce_scatter(comm, at(c, 0), at(c, 1), (uint64_t)N(1), (DType)c->o[0].type, ADD(1) != 0);
}
OP(allreduce) {
  Comm *comm = c->machine->comm;
  return comm->allreduce(comm, at(c, 0), at(c, 1), (uint64_t)N(1), (DType)c->o[0].type, ADD(1) != 0);
}
OP(allreduce_sum) {
  Comm *comm = c->machine->comm;
  return comm->allreduce_sum(comm, at(c, 0), (uint64_t)N(0));
}
OP(allreduce_exact) {
  Comm *comm = c->machine->comm;
  return comm->allreduce_exact(comm, at(c, 0));
}

OP(allreduce_int) {
  Comm *comm = c->machine->comm;
  return comm->allreduce_int(comm, at(c, 0), (uint64_t)N(0));
}

/* --- update: parameter by parameter, so that padding is never read ------------------------------------------------- */

/* Elements of operand 0, a gradient, from `first` on. */
static const void *gradient_at(const CpuCall *c, uint64_t first) {
  return (const unsigned char *)G(0) + first * (c->o[0].type == FLOAT_REAL ? sizeof(float) : sizeof(Half));
}

OP(sum_squares) {
  const UnitRanges *ranges = &c->machine->ranges[N(0)];
  KernelContext k = with_gradient(c, 0);
  for (uint32_t i = 0; i < ranges->count; i++)
    TABLE->sum_squares(&k, (int64_t)ranges->data[i].count, gradient_at(c, ranges->data[i].local), ACC(1));
  return COMM_OK;
}

OP(clip) {
  double norm = sqrt(exact_value(ACC(0))), limit = X(0);
  *F64(1) = norm;
  *F32(2) = limit > 0 && limit < norm + 1e-6 ? (float)(limit / (norm + 1e-6)) : 1.0f;
  return COMM_OK;
}

OP(scale_count) {
  *F64(2) = *F64(0) / F64(1)[SCALER_SCALE];
  return COMM_OK;
}

OP(clip_scaled) {
  double *scaler = F64(1), limit = X(0), scale = scaler[SCALER_SCALE], norm = sqrt(exact_value(ACC(0))) / scale;
  *F64(2) = norm;
  if (isfinite(norm)) {
    double clipped = limit > 0 && limit < norm + 1e-6 ? limit / (norm + 1e-6) : 1;
    *F32(3) = (float)(clipped / scale);
    scaler[SCALER_GOOD]++;
    if (scaler[SCALER_GOOD] < (double)N(0)) return COMM_OK;
    scaler[SCALER_SCALE] *= X(1);
  } else {
    *F32(3) = NAN;
    scaler[SCALER_SKIPPED]++;
    scaler[SCALER_SCALE] *= X(2);
  }
  scaler[SCALER_GOOD] = 0;
  return COMM_OK;
}

/* The copy of updated parameters in the compute dtype, of masters in f32; operand w is always number 2. */
static void narrow_range(const CpuCall *c, int cast, const ParamRange *range) {
  if (c->o[cast].data == NULL) return;
  TABLE->narrow(c->k, (int64_t)range->count, c->o[cast].type, F32(2) + range->local, (Half *)c->o[cast].data + range->local);
}

/* Elements of operand 2, the parameters that an optimizer updates, from `first` on. */
static void *weights_at(const CpuCall *c, uint64_t first) {
  return (unsigned char *)c->o[2].data + first * (c->o[2].type == FLOAT_REAL ? sizeof(float) : sizeof(Half));
}

/* Overflow in f16: clip_scaled says that nothing is to be updated. */
static bool skipped(const CpuCall *c) { return isnan(*F32(1)); }

/* One optimizer on one range of the shard; decay: of its parameter. */
typedef void UpdateRange(const CpuCall *c, const KernelContext *k, const ParamRange *range, double decay);

static CommStatus update(const CpuCall *c, UpdateRange *update_range, int cast) {
  const Plan *plan = c->machine->plan;
  if (skipped(c)) return COMM_OK;
  KernelContext k = with_gradient(c, 0);
  const UnitRanges *ranges = &c->machine->ranges[N(0)];
  for (uint32_t i = 0; i < ranges->count; i++) {
    const ParamRange *range = &ranges->data[i];
    const WeightStore store = cpu_weight_store(c, c->o[2].type, range);
    k.weights = &store;
    update_range(c, &k, range, plan->params.data[range->param].decay ? plan->recipe.decay : 0);
    narrow_range(c, cast, range);
  }
  return COMM_OK;
}

static void adamw_range(const CpuCall *c, const KernelContext *k, const ParamRange *range, double decay) {
  const Recipe *recipe = &c->machine->plan->recipe;
  double updates = (double)(c->state->step - c->state->skipped);
  const AdamwRates rates = {.lr = c->state->lr,
                            .beta1 = recipe->beta1,
                            .beta2 = recipe->beta2,
                            .eps = recipe->eps,
                            .decay = decay,
                            .bias1 = 1 - pow(recipe->beta1, updates),
                            .bias2 = 1 - pow(recipe->beta2, updates),
                            .grad_scale = *F32(1)};
  TABLE->adamw(k, (int64_t)range->count, &rates, gradient_at(c, range->local), weights_at(c, range->local),
               F32(3) + range->local, F32(4) + range->local);
}

static void lion_range(const CpuCall *c, const KernelContext *k, const ParamRange *range, double decay) {
  const Recipe *recipe = &c->machine->plan->recipe;
  const LionRates rates = {.lr = c->state->lr, .beta1 = recipe->beta1, .beta2 = recipe->beta2, .decay = decay, .grad_scale = *F32(1)};
  TABLE->lion(k, (int64_t)range->count, &rates, gradient_at(c, range->local), weights_at(c, range->local),
              F32(3) + range->local);
}

static void sgd_range(const CpuCall *c, const KernelContext *k, const ParamRange *range, double decay) {
  const SgdRates rates = {.lr = c->state->lr, .momentum = c->machine->plan->recipe.momentum, .decay = decay, .grad_scale = *F32(1)};
  TABLE->sgd(k, (int64_t)range->count, &rates, gradient_at(c, range->local), weights_at(c, range->local),
             F32(3) != NULL ? F32(3) + range->local : NULL);
}

OP(adamw) { return update(c, adamw_range, 5); }
OP(lion) { return update(c, lion_range, 4); }
OP(sgd) { return update(c, sgd_range, 4); }

OP(adafactor_sums) { return cpu_adafactor_sums(c); }
OP(adafactor_moments) { return cpu_adafactor_moments(c); }
OP(adafactor) { return cpu_adafactor(c); }

CpuFunction CPU_FUNCTION(InstrOp op) {
  static const CpuFunction table[INSTR_COUNT] = {
#define INSTR(id, name, stream, operands, ints, reals, meaning) [INSTR_##id] = op_##name,
#include "planner/plan/instr.def"
#undef INSTR
  };
  return table[op];
}
