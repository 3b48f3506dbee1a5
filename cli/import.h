/* Owns: what `fsdpc import` takes from a Hugging Face config.json: the numbers of a model that a file of
 * models/families can be. Adding an architecture: its family file, a row of `architectures` with its keys
 * (import_config.c), and the function that writes its model (import_write.c). */
#ifndef FSDPC_CLI_IMPORT_H
#define FSDPC_CLI_IMPORT_H

#include "base/text.h"

typedef struct ImportedRope {
  bool llama3; /* the scaling of Llama 3.1 and later; none otherwise */
  double theta, factor, low, high;
  int64_t original;
} ImportedRope;

typedef struct Imported {
  const char *name;                               /* of the model, an identifier */
  const char *class;                              /* as transformers calls it: LlamaForCausalLM */
  const char *precision;                          /* f32, bf16 or f16: that of the weights */
  void (*write)(Text *, const struct Imported *); /* the model block */
  int64_t vocab, ctx, d, heads, kv_heads, head_dim, inner, layers;
  double eps;
  bool tied; /* the head's weight is the embedding's */
  bool erf;  /* the exact GELU */
  ImportedRope rope;
} Imported;

/* Reads FILE, or FILE/config.json. False after messages that name every key which does not fit. */
bool import_read(Arena *arena, const char *path, Imported *model);
/* A whole .fsdp file. */
void import_write(Text *out, const Imported *model);

/* The model blocks. */
void import_write_gpt2(Text *out, const Imported *model);
void import_write_llama(Text *out, const Imported *model);
void import_write_qwen3(Text *out, const Imported *model);

#endif
