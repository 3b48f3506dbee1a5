/* Owns: finding a plan's parameters in .safetensors files, ours or Hugging Face's: one file, or several with an index.
 *
 * Names match as they are, or with "transformer." or "model." before them in the file. GPT-2's c_attn, c_proj and c_fc
 * matrices are stored there as (in, out), and read transposed; whether a file does so shows in the shapes of c_attn and
 * c_fc, which are not square. Buffers of attention (attn.bias, attn.masked_bias, rotary_emb.inv_freq) are passed over,
 * and so is a lm_head.weight that only repeats a tied embedding. Anything else missing, left over or misshapen is an
 * error that names it. */
#ifndef FSDPC_RUNTIME_PRETRAINED_H
#define FSDPC_RUNTIME_PRETRAINED_H

#include "planner/plan/plan.h"
#include "runtime/files/safetensors.h"

typedef struct PretrainedParam {
  const Safetensors *file;
  const SafeTensor *tensor;
  bool transposed;
} PretrainedParam;

typedef struct Pretrained {
  const char *path; /* as given */
  Safetensors *files;
  uint32_t file_count;
  PretrainedParam *params; /* one a parameter of the plan */
} Pretrained;

/* path: a .safetensors file, an index (.json), or a folder with model.safetensors or model.safetensors.index.json.
 * Headers are read and everything is checked; on failure nothing stays open. */
bool pretrained_open(Arena *arena, Pretrained *weights, const Plan *plan, const char *path, Failure *failure);
void pretrained_close(Pretrained *weights);

/* Elements [first, first + n) of a parameter, in its own layout, as f32. */
bool pretrained_read(const Pretrained *weights, const PlanParam *param, uint32_t index, uint64_t first, uint64_t n,
                     float *out, Failure *failure);

/* A GPT-2 matrix by its name: ".../c_attn.weight" and its like. */
bool is_conv1d(const char *name);

#endif
