/* Owns: the habits of executors, as tables; each row begins with where its constants come from. Those depend on device
 * generation, executor and kernel class, never on a model, a length or a published row. [F] fitted to published runs,
 * [D] published by others, [A] assumed; docs/cost-model.md tells how. */
#include "planner/executor/executor.h"

#define MiB (1024.0 * 1024.0)

/* --- attention ------------------------------------------------------------------------------------------ */

#define FLASH1_AMPERE                                                                                        \
  { 0.41, 0.69, 980 } /* [F] */
#define FLASH1_HOPPER                                                                                        \
  { 0.23, 0.69, 980 } /* [F] */
#define FLASH2_AMPERE                                                                                        \
  { 0.58, 0.69, 980 } /* share [D], backward and saturation as FLASH1 [A] */
#define FLASH2_HOPPER                                                                                        \
  { 0.37, 0.69, 980 }
#define CUDNN_HOPPER                                                                                         \
  { 0.69, 0.85, 700 } /* [D] */

static const AttentionClass attention_classes[ATTENTION_KIND_COUNT] = {
    /* The cluster file's own figures. */
    [ATTENTION_DEFAULT] = {.name = "native"},
    /* FlashAttention-1 in Triton, as LLM Foundry of 2023 bundled it. */
    [ATTENTION_FLASH1] =
        {.name = "Triton FlashAttention-1",
         .rates = {[GENERATION_AMPERE] = FLASH1_AMPERE, [GENERATION_HOPPER] = FLASH1_HOPPER}},
    /* What scaled_dot_product_attention chooses before PyTorch 2.11 (pytorch/pytorch pull request 138522). */
    [ATTENTION_FLASH2] = {.name = "FlashAttention-2",
                          .rates = {[GENERATION_AMPERE] = FLASH2_AMPERE,
                                    [GENERATION_ADA] = FLASH2_AMPERE,
                                    [GENERATION_HOPPER] = FLASH2_HOPPER,
                                    [GENERATION_BLACKWELL] = {0.25, 0.69, 980}}},
    /* cuDNN 9 or FlashAttention-3; Ampere and Blackwell [A]. */
    [ATTENTION_CUDNN] = {.name = "cuDNN 9",
                         .rates = {[GENERATION_AMPERE] = FLASH2_AMPERE,
                                   [GENERATION_ADA] = FLASH2_AMPERE,
                                   [GENERATION_HOPPER] = CUDNN_HOPPER,
                                   [GENERATION_BLACKWELL] = {0.6, 0.85, 700}}},
    /* Scores, mask, softmax in f32, dropout and its mask each as a tensor [A]. */
    [ATTENTION_UNFUSED] = {.name = "unfused",
                           .rates = {[GENERATION_VOLTA] = {0.2, 0.8, 0},
                                     [GENERATION_AMPERE] = {0.1, 0.8, 0},
                                     [GENERATION_ADA] = {0.1, 0.8, 0},
                                     [GENERATION_HOPPER] = {0.1, 0.8, 0}},
                           .score_bytes = 13},
};

const AttentionClass *executor_attention(const ExecutorSettings *executor) {
  AttentionKind kind = executor->attention;
  return &attention_classes[kind ? kind : executor_profile(executor->id)->attention];
}

/* --- layers --------------------------------------------------------------------------------------------- */

#define ATTENTION_SAVES (SAVE_INPUT | SAVE_SECOND | SAVE_THIRD | SAVE_OUTPUT)

/* One kernel an operator; RMSNorm and rotary positions through f32 copies. */
static const LayerHabit eager_layers[LAYER_COUNT] = {
    [LAYER_EMBEDDING] = {4, 8, 0, 0},
    [LAYER_POSITIONS] = {0, 4, 0, 0},
    [LAYER_LINEAR] = {0, 0, SAVE_INPUT, 0},
    [LAYER_LAYERNORM] = {4, 10, SAVE_INPUT, 0},
    /* Backward as PyTorch differentiates it: pow alone is three kernels. Kept: the f32 copy in place of the input, and the
     * normalised values. */
    [LAYER_RMSNORM] = {36, 92, 0, 6, true},
    [LAYER_ROPE] = {20, 20, 0, 0, true},
    [LAYER_ATTENTION] = {0, 0, ATTENTION_SAVES, 0},
    [LAYER_GELU] = {4, 6, SAVE_INPUT, 0},
    [LAYER_RELU] = {4, 6, SAVE_OUTPUT, 0},
    [LAYER_SILU] = {4, 6, SAVE_INPUT, 0},
    [LAYER_MUL] = {6, 12, SAVE_INPUT | SAVE_SECOND, 0},
    [LAYER_SCALE] = {4, 4, 0, 0},
    [LAYER_ADD] = {6, 6, 0, 0},
    [LAYER_DROPOUT] = {5, 5, 0, 1},
    [LAYER_MSE] = {6, 6, SAVE_INPUT, 0},
};

/* Neighbours fused by a compiler: silu is part of the product that follows. */
static const LayerHabit compiled_layers[LAYER_COUNT] = {
    [LAYER_EMBEDDING] = {4, 8, 0, 0},
    [LAYER_POSITIONS] = {0, 4, 0, 0},
    [LAYER_LINEAR] = {0, 0, SAVE_INPUT, 0},
    [LAYER_LAYERNORM] = {4, 8, SAVE_INPUT, 0},
    [LAYER_RMSNORM] = {4, 8, SAVE_INPUT, 0},
    [LAYER_ROPE] = {4, 4, 0, 0},
    [LAYER_ATTENTION] = {0, 0, ATTENTION_SAVES, 0},
    [LAYER_GELU] = {4, 6, SAVE_INPUT, 0},
    [LAYER_RELU] = {4, 6, SAVE_OUTPUT, 0},
    [LAYER_SILU] = {0, 0, SAVE_INPUT, 0},
    [LAYER_MUL] = {6, 10, SAVE_INPUT | SAVE_SECOND, 0},
    [LAYER_SCALE] = {0, 0, 0, 0}, /* part of what makes its operand or reads its result [A] */
    [LAYER_ADD] = {3, 5, 0, 0}, /* the first of a block 2 / 4, the second 4 / 6 */
    [LAYER_DROPOUT] = {1, 1, 0, 1},
    [LAYER_MSE] = {6, 6, SAVE_INPUT, 0},
};

/* f16 autocast: the residual stream, norms and softmax in f32, GELU as a chain of tensors [A]. */
static const LayerHabit autocast_layers[LAYER_COUNT] = {
    [LAYER_EMBEDDING] = {8, 16, 0, 0},
    [LAYER_POSITIONS] = {0, 8, 0, 0},
    [LAYER_LINEAR] = {0, 0, SAVE_INPUT, 0},
    [LAYER_LAYERNORM] = {12, 24, SAVE_INPUT, 4, true}, /* the f32 output beside its f16 copy */
    [LAYER_RMSNORM] = {36, 92, SAVE_INPUT, 8, true},
    [LAYER_ROPE] = {20, 20, 0, 0, true},
    [LAYER_ATTENTION] = {8, 8, ATTENTION_SAVES, 0},
    [LAYER_GELU] = {36, 60, SAVE_INPUT, 12},
    [LAYER_RELU] = {4, 6, SAVE_OUTPUT, 0},
    [LAYER_SILU] = {4, 6, SAVE_INPUT, 0},
    [LAYER_MUL] = {6, 12, SAVE_INPUT | SAVE_SECOND, 0},
    [LAYER_SCALE] = {4, 4, 0, 0},
    [LAYER_ADD] = {10, 10, 0, 0},
    [LAYER_DROPOUT] = {5, 5, 0, 1},
    [LAYER_MSE] = {12, 12, SAVE_INPUT, 0},
};

const LayerHabit *executor_layer(const ExecutorSettings *executor, LayerKind kind) {
  bool norm = kind == LAYER_RMSNORM || kind == LAYER_LAYERNORM;
  bool fused = executor->fused_layers ? norm || kind == LAYER_ROPE || kind == LAYER_SILU || kind == LAYER_MUL : executor->fused_norms && norm;
  return &(fused ? compiled_layers : executor_profile(executor->id)->layers)[kind];
}

/* --- loss and optimizer --------------------------------------------------------------------------------- */

LossHabit executor_loss(LossKind kind, bool eager, DType compute) {
  bool f32 = compute == DTYPE_F32; /* nothing to cast, and twice as wide */
  switch (kind) {
  case LOSS_COMPILED:
    return f32 ? (LossHabit){16, 8} : (LossHabit){10, 8};
  case LOSS_UPCAST:
    return f32 ? (LossHabit){16, 12} : (LossHabit){10, 14}; /* compiled, the logits in f32 beside their gradient */
  case LOSS_CHUNKED:
    /* Logits, every chunk's logarithms in f32, and gradients of the first chunk of eight [A]. */
    if (eager) return f32 ? (LossHabit){20, 9} : (LossHabit){24, 7};
    return f32 ? (LossHabit){16, 8} : (LossHabit){10, 4}; /* logits and their gradient; a chunk's f32 comes and goes */
  case LOSS_NARROW:
    return f32 ? (LossHabit){20, 12} : (LossHabit){12, 6}; /* no copy in f32: logits, their logarithms and their gradient */
  case LOSS_JOINT:
    return f32 ? (LossHabit){12, 8} : (LossHabit){6, 4}; /* one kernel a pass: logits and their gradient */
  case LOSS_FUSED:
    return f32 ? (LossHabit){12, 4} : (LossHabit){6, 2}; /* the gradient replaces the logits */
  case LOSS_SHIFTED:
    return f32 ? (LossHabit){40, 12} : (LossHabit){44, 12}; /* logits in f32, a copy shifted by a token, its logarithms */
  case LOSS_SHIFTED_FUSED:
    return f32 ? (LossHabit){28, 8} : (LossHabit){32, 8}; /* the same copy, which the gradient replaces */
  case LOSS_SHIFTED_NARROW: /* as `narrow`, and the shifted copy, which backward copies back */
    return f32 ? executor_loss(LOSS_SHIFTED, eager, compute) : (LossHabit){20, 8};
  case LOSS_SHIFTED_NARROW_FUSED: /* without logarithms */
    return f32 ? executor_loss(LOSS_SHIFTED_FUSED, eager, compute) : (LossHabit){14, 6};
  default:
    return f32 ? (LossHabit){20, 12} : (LossHabit){24, 16};
  }
}

/* Fused [A]. Without it AdamW is eight kernels that read or write 20 values (torch.optim's _multi_tensor_adamw and _single_tensor_adamw,
 * Composer's DecoupledAdamW); torchtitan's pull request 881 has them 1.6 to 2.2 % of a step slower than the fused one. */
double executor_update_bytes(UpdateKind kind, double state) {
  bool narrow = state <= 2;
  if (kind == UPDATE_FUSED) return narrow ? 14 : 36;
  return narrow ? 40 : 80;
}

double executor_update_held(UpdateKind kind, double state) {
  return kind == UPDATE_FUSED ? 0 : state;
}

/* With offload the optimizer runs on the host. Ampere: torchtune's 70B on eight ranks a node, 20.9 s a step of which 10.1 are left for the
 * optimizer, and 13.6 s with short samples (its pull request 993) [F]; others by the bandwidth of their hosts' memory, DDR4-2666 to
 * DDR5-5600, beside it [A]. */
double executor_host_rate(Generation generation) {
  static const double rates[GENERATION_COUNT] = {
      [GENERATION_VOLTA] = 15e9, [GENERATION_AMPERE] = 24e9, [GENERATION_ADA] = 24e9, [GENERATION_HOPPER] = 36e9, [GENERATION_BLACKWELL] = 42e9};
  return rates[generation] > 0 ? rates[generation] : rates[GENERATION_AMPERE];
}

/* torch.optim.AdamW of PyTorch 2.8 on one core: fused 1.17 ns a parameter in f32, 0.91 in bf16; otherwise, foreach or not, 6.07 and
 * 7.9 [M]; pytorch/pytorch issue 74588 says 5 to 7 times the fused one. */
double executor_host_update_bytes(UpdateKind kind, double state) {
  bool fused = kind == UPDATE_FUSED, narrow = state <= 2;
  return fused ? (narrow ? 28 : 36) : narrow ? 243 : 187;
}

/* --- executors ------------------------------------------------------------------------------------------ */

#define TORCH                                                                                                \
  .host_op_ns = 8e3, .host_unit_ns = 4e5, .update_ns = 1e6, .accumulates = true,                             \
  .reserved_factor = 0.6, .workspace_bytes = 512 * MiB, .bias_bytes = 2,                                     \
  .network_contention = 0.14 /* [F] 14 runs whose slow links are stated */, .straggle = 0.012 /* [F] */
/* Since PyTorch 2.1 checkpointing without reentrance stops where the last value that backward needs is there again; torch.compile
 * drops what nobody needs. */
#define STOPS .stops_early = true
#define FSDP2      .live_units = 3, .back_units = 2, .frees_first = true, .keep_last = true, .copies = 2, .update = UPDATE_FOREACH
#define FSDP1      .live_units = 2, .copies = 1, .flat_units = true
#define EAGER      .keeps_unread = true, .loss = LOSS_EAGER, .expand_bytes = 4, .expands = true, .sum_first = 6, .sum_more = 6
#define EAGER_SDPA EAGER, .layers = eager_layers, .layout_bytes = 4
#define COMPILED                                                                                             \
  .layers = compiled_layers, .loss = LOSS_COMPILED, .fused_swiglu = true, .sum_first = 2, .sum_more = 4
#define GEMM_2023                                                                                            \
  {                                                                                                          \
    [GENERATION_VOLTA] = 0.7, [GENERATION_AMPERE] = 0.83, [GENERATION_ADA] = 0.85,                           \
    [GENERATION_HOPPER] = 0.67, [GENERATION_BLACKWELL] = 0.7                                                 \
  }
#define GEMM_2025                                                                                            \
  {                                                                                                          \
    [GENERATION_VOLTA] = 0.7, [GENERATION_AMPERE] = 0.83, [GENERATION_ADA] = 0.85,                           \
    [GENERATION_HOPPER] = 0.74, [GENERATION_BLACKWELL] = 0.7                                                \
  }

#define FOUNDRY                                                                                              \
  .gemm_share = GEMM_2023, .attention = ATTENTION_FLASH1, TORCH, FSDP1, .expand_bytes = 4, .expands = true,  \
  .sum_first = 6, .sum_more = 6, .layers = eager_layers, .loss = LOSS_FUSED, .loss_extra = {26, 4},          \
  .reduce_each = true, .update = UPDATE_UNFUSED, .retry_factor = 1.15 /* [F] */, .retry_ns = 0.027 /* [F] 29 ms a GiB */

static const ExecutorProfile profiles[EXECUTOR_COUNT] = {
    [EXECUTOR_NATIVE] = {/* cluster file; llmq's published step times stand for fused kernels */
                         .attention = ATTENTION_DEFAULT,
                         .layers = compiled_layers,
                         .fused_swiglu = true,
                         .loss = LOSS_FUSED,
                         .update = UPDATE_FUSED,
                         .sum_first = 0,
                         .sum_more = 0,
                         .bias_bytes = 0,
                         .live_units = 2,
                         .workspace_bytes = 64 * MiB},
    [EXECUTOR_FSDP2_EAGER] = {/* as of 2024, newer matrix products */
                              .gemm_share = GEMM_2025,
                              .attention = ATTENTION_FLASH2,
                              .loss_extra = {0, -4}, /* the logits are freed before backward */
                              TORCH,
                              STOPS,
                              FSDP2,
                              EAGER_SDPA},
    [EXECUTOR_FSDP2_COMPILED] = {/* KempnerForge, torchao and torchtune runs of 2025 */
                                 .gemm_share = GEMM_2025,
                                 .attention = ATTENTION_FLASH2,
                                 TORCH,
                                 STOPS,
                                 FSDP2,
                                 COMPILED},
    [EXECUTOR_FSDP2_EAGER_2024] = {/* torchtitan pull request 165 */
                                   .gemm_share = GEMM_2023,
                                   .attention = ATTENTION_FLASH2,
                                   TORCH,
                                   STOPS,
                                   FSDP2,
                                   EAGER_SDPA},
    [EXECUTOR_FSDP2_COMPILED_2024] = {/* torchtitan pull request 165 */
                                      .gemm_share = GEMM_2023,
                                      .attention = ATTENTION_FLASH2,
                                      .loss_extra = {0, 4}, /* not compiled, and its copy in f32 is freed before backward */
                                      TORCH,
                                      STOPS,
                                      FSDP2,
                                      COMPILED},
    [EXECUTOR_FSDP1_EAGER] = {/* torchtitan pull request 165 */
                              .gemm_share = GEMM_2023,
                              .attention = ATTENTION_FLASH2,
                              TORCH,
                              STOPS,
                              FSDP1,
                              EAGER_SDPA,
                              .update = UPDATE_FOREACH},
    [EXECUTOR_FSDP1_COMPILED] = {/* as pytorch-fsdp2-compiled-2024, with FSDP1's copies and units */
                                 .gemm_share = GEMM_2023,
                                 .attention = ATTENTION_FLASH2,
                                 TORCH,
                                 STOPS,
                                 FSDP1,
                                 COMPILED,
                                 .update = UPDATE_FOREACH},
    [EXECUTOR_FSDP1_FOUNDRY] = {/* LLM Foundry's tables of 2023 */ STOPS, FOUNDRY},
    [EXECUTOR_FSDP1_FOUNDRY_2022] = {/* as pytorch-fsdp1-2023 */ .retry_room = 4096 * MiB /* [F] */, FOUNDRY},
    [EXECUTOR_FSDP1_AUTOCAST] = {/* assumed */
                                 .gemm_share = GEMM_2023,
                                 .attention = ATTENTION_UNFUSED,
                                 TORCH,
                                 FSDP1,
                                 EAGER,
                                 .layers = autocast_layers,
                                 .stream_bytes = 4,
                                 .gathered_bytes = 4,
                                 .update = UPDATE_UNFUSED,
                                 .reduce_each = true},
};

bool executor_is_fsdp2(ExecutorId id) {
  return id >= EXECUTOR_FSDP2_EAGER && id <= EXECUTOR_FSDP2_COMPILED_2024;
}

const ExecutorProfile *executor_profile(ExecutorId id) {
  return &profiles[id];
}

Rates executor_rates(const Cluster *cluster, const ExecutorSettings *executor, DType compute) {
  const ExecutorProfile *profile = executor_profile(executor->id);
  const Device *device = &cluster->device;
  Rates rates = cost_rates(cluster, compute);
  double peak = device->peak[compute] * device->clock;
  double gemm = profile->gemm_share[device->generation];
  const AttentionRate *attention = &executor_attention(executor)->rates[device->generation];
  if (gemm > 0) rates.product = peak * gemm;
  if (attention->share <= 0) return rates;
  rates.attention_forward = peak * attention->share;
  rates.attention_backward = rates.attention_forward * attention->backward;
  rates.attention_tokens = attention->tokens;
  return rates;
}
