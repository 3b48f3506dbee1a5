/* Owns: the .fsdp text of an imported model: it uses a family file and states what differs from that file's
 * defaults. */
#include "cli/import.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* The shortest text that reads back as the same number. */
static const char *real(char text[32], double value) {
  if (value >= 1 && value < 1e9 && value <= (double)(int64_t)value)
    return snprintf(text, 32, "%.0f", value), text;
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(text, 32, "%.*g", digits, value);
    if (!(strtod(text, NULL) < value) && !(strtod(text, NULL) > value)) break;
  }
  return text;
}

static void write_inputs(Text *out) {
  text_printf(out, "\n  input tokens: int[batch, ctx]\n  input targets: int[batch, ctx]\n\n");
}

void import_write_gpt2(Text *out, const Imported *model) {
  char eps[32];
  text_printf(out, "use \"families/gpt2.fsdp\"\n\nmodel %s {\n", model->name);
  text_printf(out,
              "  let vocab = %" PRId64 ", ctx = %" PRId64 ", d = %" PRId64 ", heads = %" PRId64
              ", layers = %" PRId64 "\n",
              model->vocab, model->ctx, model->d, model->heads, model->layers);
  write_inputs(out);
  text_printf(out,
              "  loss = gpt2(tokens, targets, vocab, ctx, d, heads, layers, inner = %" PRId64
              ", kind = %s, eps = %s)\n",
              model->inner, model->erf ? "erf" : "tanh", real(eps, model->eps));
}

static void write_scaling(Text *out, const ImportedRope *rope) {
  char factor[32], low[32], high[32];
  if (!rope->llama3) {
    text_printf(out, ", scaling = none");
    return;
  }
  text_printf(out, ", scaling = llama3, factor = %s, low = %s, high = %s, original = %" PRId64,
              real(factor, rope->factor), real(low, rope->low), real(high, rope->high), rope->original);
}

static void write_rotary(Text *out, const Imported *model) {
  if (model->rotary > 0 && model->rotary < model->head_dim) text_printf(out, ", rotary = %" PRId64, model->rotary);
}

static void write_biases(Text *out, const Imported *model) {
  if (model->attention_bias) text_printf(out, ", attention_bias = true");
  if (model->qkv_bias) text_printf(out, ", qkv_bias = true");
  if (model->mlp_bias) text_printf(out, ", mlp_bias = true");
}

static void write_multipliers(Text *out, const ImportedMultipliers *by) {
  char embedding[32], attention[32], residual[32], logits[32];
  text_printf(out,
              ",\n    embedding_multiplier = %s, attention_multiplier = %s, residual_multiplier = %s, logits_scaling = %s",
              real(embedding, by->embedding), real(attention, by->attention), real(residual, by->residual),
              real(logits, by->logits));
}

void import_write_decoder(Text *out, const Imported *model) {
  char eps[32], theta[32];
  text_printf(out, "use \"families/%s.fsdp\"\n\nmodel %s {\n", model->family, model->name);
  if (model->window > 0)
    text_printf(out,
                "  # Attention has a window of %" PRId64 " there, and sees all here: the same as long as ctx is no larger.\n",
                model->window);
  text_printf(out,
              "  let vocab = %" PRId64 ", ctx = %" PRId64 ", d = %" PRId64 ", heads = %" PRId64
              ", kv_heads = %" PRId64 ", ffn = %" PRId64 ", layers = %" PRId64 "\n",
              model->vocab, model->ctx, model->d, model->heads, model->kv_heads, model->inner, model->layers);
  write_inputs(out);
  text_printf(out,
              "  x = %s(tokens, vocab, d, heads, kv_heads, ffn, layers, head_dim = %" PRId64
              ", eps = %s,\n    theta = %s",
              model->family, model->head_dim, real(eps, model->eps), real(theta, model->rope.theta));
  if (model->scalable) write_scaling(out, &model->rope);
  write_rotary(out, model);
  if (model->gelu) text_printf(out, ", kind = %s", model->erf ? "erf" : "tanh");
  write_biases(out, model);
  if (model->multiplied) write_multipliers(out, &model->multipliers);
  text_printf(out, ") as model\n  logits = linear(x, vocab%s%s) as lm_head\n", model->head_bias ? ", bias = true" : model->tied ? "" : ", bias = false",
              model->tied ? ", weight = model.embed_tokens" : "");
  text_printf(out, "  loss = cross_entropy(logits, targets, chunk = 2048)\n");
}

void import_write(Text *out, const Imported *model) {
  text_printf(
      out,
      "# %s, imported from its config.json. The recipe is not in there: this one is for going on from the\n"
      "# model's weights (fsdpc run --init), and meant to be changed. Nor is a cluster: state one, or pass --cluster.\n",
      model->class);
  model->write(out, model);
  text_printf(out,
              "}\n\ntrain {\n  optimizer adamw { lr 2e-5 cosine  warmup 100  betas 0.9 0.95  decay 0.1 }\n"
              "  tokens_per_step %" PRId64
              "\n  steps 1000\n  precision %s reduce f32\n  clip 1.0\n  seed 1337\n}\n",
              model->ctx * 64, model->precision);
}
