/* Owns: random_model.h. */
#include "tests/planner/random_model.h"

uint64_t random_below(Random *random, uint64_t n) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % n;
}

/* Drawn apart, so that what else a seed gives does not depend on it. */
static const char *factor_of(uint64_t seed, const char *factor) {
  Random random = {seed + 55555};
  return random_below(&random, 3) ? "" : factor;
}

/* So is this. */
static const char *dims_of(uint64_t seed) {
  Random random = {seed + 99999};
  return random_below(&random, 3) ? "" : ", dims = 2";
}

static void print_attention(Text *t, Random *r, bool rope, const char *dims, bool norms) {
  text_printf(t, "  module attn(x) {\n    q, k, v = split(linear(x, d + 2*kv*(d/heads)%s) as qkv, [d, kv*(d/heads), kv*(d/heads)])\n",
              random_below(r, 2) ? ", bias = false" : "");
  if (norms) text_printf(t, "    q = rmsnorm(q, heads = heads) as q_norm\n    k = layernorm(k, heads = kv) as k_norm\n");
  if (rope) text_printf(t, "    q = rope(q, heads%s)\n    k = rope(k, kv%s)\n", dims, dims);
  text_printf(t, "    return linear(attention(q, k, v, heads, causal, kv_heads = kv), d) as proj\n  }\n");
}

static void print_mlp(Text *t, Random *r) {
  if (random_below(r, 2))
    text_printf(t, "  module mlp(x) { return linear(silu(linear(x, f, bias = false) as gate) * (linear(x, f, bias = false) as up), d, "
                   "bias = false) as down }\n");
  else
    text_printf(t, "  module mlp(x) { return linear(%s(linear(x, f) as fc), d) as proj }\n", random_below(r, 2) ? "gelu" : "relu");
}

/* So is this. */
static const char *host_of(Arena *arena, uint64_t seed) {
  Random random = {seed + 77777};
  if (random_below(&random, 2)) return "";
  static const char *const contentions[] = {"0", "0.05", "0.3"};
  const uint64_t link = 100 + random_below(&random, 20000), kib = 16ull << random_below(&random, 12);
  return arena_printf(arena, " host_link %lluMB/s host_memory %lluKB host_contention %s", (unsigned long long)link, (unsigned long long)kib,
                      contentions[random_below(&random, 3)]);
}

static void print_cluster(Text *t, Random *r, const char *host) {
  static const char *const contentions[] = {"0", "0", "0.15", "0.44"};
  text_printf(t,
              "cluster {\n  device %s { memory 64GiB  bandwidth %lluGB/s  bandwidth_share 0.8\n    peak f32 %lluGFLOPS  "
              "gemm_share 0.8  attention_share 0.5  attention_backward 0.8  tile_units 1  launch %lluus%s }\n"
              "  node { devices 8  bandwidth %lluMB/s  latency %lluus }\n  contention %s  comm_slowdown %s\n}\n",
              random_below(r, 2) ? "cpu" : "gpu", (unsigned long long)(5 + random_below(r, 40)),
              (unsigned long long)(50 + random_below(r, 400)), (unsigned long long)(1 + random_below(r, 8)), host,
              (unsigned long long)(500 + random_below(r, 20000)), (unsigned long long)(2 + random_below(r, 100)),
              contentions[random_below(r, 4)], contentions[random_below(r, 3)]);
}

const char *random_model(Arena *arena, uint64_t seed) {
  Random random = {seed}, *r = &random;
  Text text = {.arena = arena}, *t = &text;
  unsigned heads = 1u << random_below(r, 3), kv = 1u << random_below(r, 3), head_dim = 4u << random_below(r, 2);
  if (kv > heads) kv = heads;
  bool tied = random_below(r, 2), rope = random_below(r, 2), rms = random_below(r, 2);
  text_printf(t, "model random {\n  let vocab = %llu, ctx = %llu, d = %u, heads = %u, kv = %u, f = %llu, layers = %llu\n",
              (unsigned long long)(20 + random_below(r, 60)), (unsigned long long)(4 + random_below(r, 12)), heads * head_dim,
              heads, kv, (unsigned long long)(8 * (1 + random_below(r, 8))), (unsigned long long)(1 + random_below(r, 6)));
  text_printf(t, "  input tokens : int[batch, ctx]\n  input targets : int[batch, ctx]\n");
  print_attention(t, r, rope, dims_of(seed), seed >= RANDOM_HEAD_NORMS);
  print_mlp(t, r);
  const char *norm = rms ? "rmsnorm" : "layernorm";
  const char *drop = random_below(r, 3) ? "" : "dropout(";
  text_printf(t, "  module block(x) {\n    x = x + %sattn(%s(x) as n1) as attn%s%s\n    return x + mlp(%s(x) as n2) as mlp\n  }\n", drop,
              norm, *drop ? ", 0.1)" : "", factor_of(seed, " * 0.22"), norm);
  text_printf(t, "  x = embedding(tokens, vocab, d) as wte%s%s\n", factor_of(seed, " * sqrt(d)"), rope ? "" : " + positions(ctx, d) as wpe");
  text_printf(t, "  x = repeat layers block(x) as h\n  x = %s(x) as nf\n", norm);
  static const char *const freezes[] = {"", "", "", "  freeze \"wte\"\n", "  freeze \"h.*.n1\"\n  freeze \"h.0\"\n", "  freeze \"nf\"\n  freeze \"*.mlp\"\n"};
  text_printf(t, "%s", freezes[random_below(r, 6)]);
  text_printf(t, "  loss = cross_entropy(linear(x, vocab, %s) %s, targets%s)\n}\n", tied ? "weight = wte" : "bias = false",
              tied ? "" : "as head", random_below(r, 2) ? ", chunk = 16" : "");
  static const char *const optimizers[] = {"adamw", "sgd", "adafactor"};
  text_printf(t, "train { optimizer %s { lr 1e-3 } batch %llu precision f32 clip 1.0 seed 1 }\n", optimizers[random_below(r, 3)],
              (unsigned long long)(16u << random_below(r, 2)));
  print_cluster(t, r, host_of(arena, seed));
  return text.data;
}
