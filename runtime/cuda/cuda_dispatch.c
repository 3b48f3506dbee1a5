/* Owns: one function an instruction, which hands its operands to the kernel or the library. Operands, ints and reals are
 * numbered as in instr.def. */
#include "runtime/cuda/cuda_dispatch.h"

#include "runtime/beside.h"
#include "runtime/shapes.h"

#include <cuda_runtime_api.h>

#include "runtime/cuda/cuda_operands.h"

_Static_assert((int)CUDA_F32 == (int)DTYPE_F32 && (int)CUDA_BF16 == (int)DTYPE_BF16 && (int)CUDA_F16 == (int)DTYPE_F16,
               "the kernels number element types as plans do");

CudaTensor cuda_at(CudaTensor t, int64_t row, int64_t column) {
  t.x = (unsigned char *)t.x + (row * t.ld + column) * (t.type == CUDA_F32 ? 4 : 2);
  return t;
}

#define OP(name) static int op_##name(const CudaCall *c)

/* --- data --------------------------------------------------------------------------------------------------------- */

OP(input) { return cuda_input(S, c->machine->step, N(0), c->machine->staged[c->position], I32(0)); }

OP(count_targets) {
  return (int)cudaMemcpyAsync(F64(0), c->machine->staged[c->position], sizeof(double), cudaMemcpyDeviceToDevice,
                              (cudaStream_t)S);
}

OP(zero) {
  const Plan *plan = c->machine->plan;
  const PlanBuf *buf = &plan->bufs.data[plan_operand(plan, c->instr, 0)->buf];
  return (int)cudaMemsetAsync(T(0).x, 0, (size_t)N(0) * dtype_bytes(buf->dtype), (cudaStream_t)S);
}

/* Between the device's arena and the pinned host arena. */
static int transfer(const CudaCall *c) {
  const Plan *plan = c->machine->plan;
  const PlanBuf *buf = &plan->bufs.data[plan_operand(plan, c->instr, 0)->buf];
  return (int)cudaMemcpyAsync(T(1).x, T(0).x, buf->bytes, cudaMemcpyDefault, (cudaStream_t)S);
}
OP(fetch) { return transfer(c); }
OP(store) { return transfer(c); }

static const CudaTensor absent = {0};

OP(linear_fwd) { return cuda_op_linear_fwd(c); }
OP(linear_bwd_x) { return cuda_op_linear_bwd_x(c); }
OP(linear_bwd_w) { return cuda_op_linear_bwd_w(c); }
OP(linear_cross_entropy) { return cuda_op_linear_cross_entropy(c); }
OP(linear_cross_entropy_x) { return cuda_op_linear_cross_entropy_x(c); }

/* --- the rest of forward and backward ------------------------------------------------------------------------------- */

OP(embedding_fwd) { return cuda_embedding_fwd(S, N(0), N(1), N(2), I32(0), T(1), T(2)); }
OP(embedding_bwd) { return cuda_embedding_bwd(S, N(0), N(1), N(2), I32(0), T(1), T(2)); }
OP(copy) { return cuda_copy(S, N(0), N(1), T(0), T(1)); }
OP(pack) { return cuda_copy(S, N(0), N(1), T(0), T(1)); }
OP(layernorm_fwd) { return cuda_norm_fwd(S, N(0), N(1), X(0), T(0), T(1), T(2), T(3), F32(4), F32(5)); }
OP(rmsnorm_fwd) { return cuda_norm_fwd(S, N(0), N(1), X(0), T(0), T(1), absent, T(2), NULL, F32(3)); }
OP(layernorm_bwd) {
  return cuda_norm_bwd(S, N(0), N(1), T(0), T(1), F32(2), F32(3), T(4), T(5), T(6), T(7), c->machine->scratch);
}
OP(rmsnorm_bwd) {
  return cuda_norm_bwd(S, N(0), N(1), T(0), T(1), NULL, F32(2), T(3), T(4), T(5), absent, c->machine->scratch);
}

OP(rope_fwd) {
  RopeShape shape = rope_shape(c->machine->plan, c->instr, c->machine->state->position);
  return cuda_rope(S, &shape, 0, T(0), T(1));
}
OP(rope_bwd) {
  RopeShape shape = rope_shape(c->machine->plan, c->instr, c->machine->state->position);
  return cuda_rope(S, &shape, 1, T(0), T(1));
}

/* --- forward at a position: the verifier has seen that caches and tables hold the whole context ----------------------- */

OP(positions_fwd) { return cuda_copy(S, N(0), N(2), cuda_at(T(0), (int64_t)c->machine->state->position, 0), T(1)); }
OP(cache_append) { return cuda_copy(S, N(0), N(2), T(0), cuda_at(T(1), (int64_t)c->machine->state->position, 0)); }

OP(attention_cached) {
  AttentionShape shape = cached_shape(c->machine->plan, c->instr, (int64_t)c->machine->state->position + N(0));
  return cuda_attention_fwd(S, &shape, T(0), T(1), T(2), T(3), F32(4), c->machine->scratch);
}

/* What only prepares is done; what cuDNN took is launched; the rest is left to an own kernel: true. */
static bool own_attention(const CudaCall *c, const CudaFlashCall *call, int *result) {
  CudaFlash *flash = c->machine->flash;
  *result = 0;
  if (c->prepare) {
    const char *why;
    if (flash != NULL && !cuda_flash_prepare(flash, c->position, call, &why)) *c->refused = why;
    return false;
  }
  if (flash == NULL || !cuda_flash_takes(flash, c->position)) return true;
  if (!cuda_flash_run(flash, S, c->position, c->failure)) *result = CUDA_CALL_FAILED;
  return false;
}

static bool hopper_takes_backward(const CudaCall *c, const AttentionShape *shape) {
  if (!c->machine->hopper || !(hopper_leads(shape) || c->machine->hopper_all)) return false;
  return hopper_groups(shape) > 0 && cuda_attention_hopper_takes(shape, T(0), T(1), T(2), T(3), T(5), T(6), T(7), T(8));
}
static int hopper_backward(const CudaCall *c, const AttentionShape *shape) {
  return cuda_attention_hopper_bwd(S, shape, hopper_groups(shape), c->machine->comm != NULL, T(0), T(1), T(2), T(3), F32(4), T(5), T(6), T(7), T(8),
                                   c->machine->attention);
}

OP(attention_fwd) {
  AttentionShape shape = attention_shape(c->machine->plan, c->instr);
  CudaFlashCall call = {.shape = shape, .q = T(0), .k = T(1), .v = T(2), .o = T(3), .lse = F32(4)};
  int result;
  if (!own_attention(c, &call, &result)) return result;
  if (c->machine->hopper_all && cuda_attention_hopper_fwd_takes(&shape, T(0), T(1), T(2), T(3)))
    return cuda_attention_hopper_fwd(S, &shape, c->machine->comm != NULL, T(0), T(1), T(2), T(3), F32(4));
  return cuda_attention_fwd(S, &shape, T(0), T(1), T(2), T(3), F32(4), c->machine->scratch);
}
OP(attention_bwd) {
  AttentionShape shape = attention_shape(c->machine->plan, c->instr);
  CudaFlashCall call = {.shape = shape, .backward = true, .q = T(0), .k = T(1), .v = T(2), .o = T(3), .lse = F32(4),
                        .d_o = T(5), .dq = T(6), .dk = T(7), .dv = T(8)};
  int result;
  if (hopper_takes_backward(c, &shape)) return c->prepare ? 0 : hopper_backward(c, &shape);
  if (!own_attention(c, &call, &result)) return result;
  return cuda_attention_bwd(S, &shape, T(0), T(1), T(2), T(3), F32(4), T(5), T(6), T(7), T(8), c->machine->scratch);
}

OP(gelu_fwd) { return cuda_activation_fwd(S, N(2) ? CUDA_GELU_ERF : CUDA_GELU_TANH, N(0), N(1), T(0), T(1)); }
OP(gelu_bwd) { return cuda_activation_bwd(S, N(2) ? CUDA_GELU_ERF : CUDA_GELU_TANH, N(0), N(1), T(0), T(1), T(2)); }
OP(relu_fwd) { return cuda_activation_fwd(S, CUDA_RELU, N(0), N(1), T(0), T(1)); }
OP(relu_bwd) { return cuda_activation_bwd(S, CUDA_RELU, N(0), N(1), T(0), T(1), T(2)); }
OP(silu_fwd) { return cuda_activation_fwd(S, CUDA_SILU, N(0), N(1), T(0), T(1)); }
OP(silu_bwd) { return cuda_activation_bwd(S, CUDA_SILU, N(0), N(1), T(0), T(1), T(2)); }
OP(mul_fwd) { return cuda_mul(S, N(0), N(1), T(0), T(1), T(2)); }
OP(mul_bwd) { return cuda_mul(S, N(0), N(1), T(0), T(1), T(2)); }
OP(scale_fwd) { return cuda_scale(S, N(0), N(1), X(0), T(0), T(1)); }
OP(scale_bwd) { return cuda_scale(S, N(0), N(1), X(0), T(0), T(1)); }
OP(silu_mul_fwd) { return cuda_silu_mul_fwd(S, N(0), N(1), T(0), T(1), T(2)); }
OP(silu_mul_bwd) { return cuda_silu_mul_bwd(S, N(0), N(1), T(0), T(1), T(2), T(3), T(4)); }
OP(add_fwd) { return cuda_add(S, N(0), N(1), N(2), T(0), T(1), T(2)); }
OP(broadcast_bwd) { return cuda_broadcast_bwd(S, N(0), N(1), N(2), T(0), T(1), c->machine->scratch); }

static int dropout(const CudaCall *c) {
  const Plan *plan = c->machine->plan;
  CudaDropout site = {.p = c->machine->state->forward_only ? 0 : X(0),
                      .seed = plan->recipe.seed,
                      .site = (uint64_t)N(2),
                      .rows_per_sample = N(3),
                      .ranks = plan->world.ranks,
                      .rank = c->machine->rank,
                      .micro_batch = plan->world.micro_batch};
  return cuda_dropout(S, c->machine->step, &site, N(0), N(1), T(0), T(1));
}
OP(dropout_fwd) { return dropout(c); }
OP(dropout_bwd) { return dropout(c); }

OP(cross_entropy) {
  int failed = cuda_cross_entropy(S, N(0), N(1), N(2), F64(2), T(0), I32(1), F32(4));
  return failed ? failed : cuda_sum_loss(S, N(0), F32(4), F64(3));
}
OP(mse) {
  int failed = cuda_mse(S, N(0), N(1), F64(2), T(0), T(1), T(4), F32(5));
  return failed ? failed : cuda_sum_loss(S, N(0), F32(5), F64(3));
}

/* --- collectives -------------------------------------------------------------------------------------------------- */

static int said(bool ok) { return ok ? 0 : CUDA_COMM_FAILED; }

OP(allgather) {
  CudaComm *comm = c->machine->comm;
  return said(comm->allgather(comm, S, T(0).x, T(1).x, (uint64_t)N(1), (DType)T(0).type));
}
OP(reduce_scatter) {
  CudaComm *comm = c->machine->comm;
  return said(comm->reduce_scatter(comm, S, T(0).x, T(1).x, (uint64_t)N(1), (DType)T(0).type, T(1).add != 0));
}
OP(allreduce) {
  CudaComm *comm = c->machine->comm;
  return said(comm->allreduce(comm, S, T(0).x, T(1).x, (uint64_t)N(1), (DType)T(0).type, T(1).add != 0));
}
OP(allreduce_sum) {
  CudaComm *comm = c->machine->comm;
  return said(comm->allreduce_sum(comm, S, F64(0), (uint64_t)N(0)));
}
/* Ranks add word by word: without carries the squares of 405 billion parameters, 2^32.6 runs of 64, overflow a word. */
OP(allreduce_exact) {
  CudaComm *comm = c->machine->comm;
  int failed = cuda_exact_carry(S, ACC(0));
  return failed ? failed : said(comm->allreduce_int(comm, S, ACC(0), EXACT_WORDS));
}
OP(allreduce_int) {
  CudaComm *comm = c->machine->comm;
  return said(comm->allreduce_int(comm, S, ACC(0), (uint64_t)N(0)));
}

/* --- update ------------------------------------------------------------------------------------------------------- */

OP(sum_squares) { return cuda_sum_squares(S, c->machine->ranges[N(0)], N(1), T(0), ACC(1)); }
OP(clip) { return cuda_clip(S, X(0), ACC(0), F64(1), F32(2)); }
OP(scale_count) { return cuda_scale_count(S, F64(0), F64(1), F64(2)); }
OP(clip_scaled) {
  return cuda_clip_scaled(S, (CudaScaling){X(0), X(1), X(2), N(0)}, ACC(0), F64(1), F64(2), F32(3));
}
CudaUpdate cuda_update(const CudaCall *c, int w, int cast) {
  const Recipe *recipe = &c->machine->plan->recipe;
  return (CudaUpdate){.step = c->machine->step,
                      .ranges = c->machine->ranges[N(0)],
                      .shard = N(1),
                      .g = T(0),
                      .scale = F32(1),
                      .w = T(w),
                      .cast = T(cast),
                      .rounding = {recipe->rounding == ROUNDING_STOCHASTIC, recipe->seed}};
}

OP(adamw) {
  const Recipe *recipe = &c->machine->plan->recipe;
  CudaUpdate update = cuda_update(c, 2, 5);
  return cuda_adamw(S, &update, recipe->beta1, recipe->beta2, recipe->eps, F32(3), F32(4));
}
OP(lion) {
  const Recipe *recipe = &c->machine->plan->recipe;
  CudaUpdate update = cuda_update(c, 2, 4);
  return cuda_lion(S, &update, recipe->beta1, recipe->beta2, F32(3));
}
OP(sgd) {
  CudaUpdate update = cuda_update(c, 2, 4);
  return cuda_sgd(S, &update, c->machine->plan->recipe.momentum, F32(3));
}

OP(adafactor_sums) { return cuda_op_adafactor_sums(c); }
OP(adafactor_moments) { return cuda_op_adafactor_moments(c); }
OP(adafactor) { return cuda_op_adafactor(c); }

CudaFunction cuda_function(InstrOp op) {
  static const CudaFunction table[INSTR_COUNT] = {
#define INSTR(id, name, stream, operands, ints, reals, meaning) [INSTR_##id] = op_##name,
#include "planner/plan/instr.def"
#undef INSTR
  };
  return table[op];
}

bool cuda_needs_preparing(InstrOp op) {
  return op == INSTR_LINEAR_FWD || op == INSTR_LINEAR_BWD_X || op == INSTR_LINEAR_BWD_W ||
         op == INSTR_LINEAR_CROSS_ENTROPY || op == INSTR_LINEAR_CROSS_ENTROPY_X || op == INSTR_ATTENTION_FWD || op == INSTR_ATTENTION_BWD;
}
