/* Owns: what `fsdpc import` takes from a Hugging Face config.json: the numbers of a model that a file of
 * models/families can be. Adding an architecture: its family file, its row and its keys in import_keys.c, and
 * where its model block has other arguments, what import_write.c writes of them. */
#ifndef FSDPC_CLI_IMPORT_H
#define FSDPC_CLI_IMPORT_H

#include "base/text.h"

typedef struct ImportedRope {
  bool llama3; /* the scaling of Llama 3.1 and later; none otherwise */
  double theta, factor, low, high;
  int64_t original; /* the length of sequences that weights were trained on first; 0: not stated */
} ImportedRope;

typedef struct ImportedMultipliers {
  double embedding, attention, residual;
  double logits; /* a divisor */
} ImportedMultipliers;

typedef struct Imported {
  const char *name;                               /* of the model, an identifier */
  const char *class;                              /* as transformers calls it: LlamaForCausalLM */
  const char *family;                             /* the file of models/families and its module: llama */
  const char *precision;                          /* f32, bf16 or f16: that of the weights */
  void (*write)(Text *, const struct Imported *); /* the model block */
  int64_t vocab, ctx, d, heads, kv_heads, head_dim, inner, layers;
  int64_t window; /* the tokens that attention sees, where these are fewer than it has positions; 0: all */
  double rotary_share; /* of each head, that rotary positions turn; 0: the family's turn all of it */
  int64_t rotary;      /* as many dims, where that is stated */
  double eps;
  bool tied; /* the head's weight is the embedding's */
  bool gelu; /* the MLP has GELU, and no gate */
  bool erf;  /* the exact GELU */
  bool head_bias;
  bool attention_bias, mlp_bias;
  bool qkv_bias;        /* of queries, keys and values alone */
  bool layered_windows; /* use_window, and keys by layer, say where attention has the window */
  bool use_window;
  int64_t full_layers; /* so many come before those with the window, where no key says which have it */
  bool scalable;   /* the family's rotary positions may be scaled */
  bool multiplied; /* the family has multipliers */
  ImportedRope rope;
  ImportedMultipliers multipliers;
} Imported;

/* Reads FILE, or FILE/config.json. False after messages that name every key which does not fit. */
bool import_read(Arena *arena, const char *path, Imported *model);
/* A whole .fsdp file. */
void import_write(Text *out, const Imported *model);

/* The model blocks. */
void import_write_gpt2(Text *out, const Imported *model);
void import_write_decoder(Text *out, const Imported *model);

#endif
