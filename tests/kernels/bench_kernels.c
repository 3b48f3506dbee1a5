/* Owns: rates of kernels at GPT-2 124M's sizes: bench_kernels [threads] [rows] [name]. Built with the tests,
 * run by hand.
 *
 * Bytes and flops are the floors of the kernels' header comments, so GB/s compares with copy's and GFLOP/s
 * with the product library's. "steps" is how often a kernel runs in one step of GPT-2 124M; the last lines
 * add up. */
#include "kernels/kernels.h"
#include "tests/kernels/support.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { D = 768, FF = 3072, HEADS = 12, HEAD_DIM = 64, VOCAB = 50257, LAYERS = 12, SEQ = 256 };

typedef struct Bench {
  const KernelTable *t;
  KernelContext k;
  int64_t rows, seq;
  float *a, *b, *c, *d, *e, *f, *g, *h; /* each of `floats` */
  int32_t *tokens;
  double other_s, gemm_s;
  const char *only;
} Bench;

/* A single thread's own time, so that a busy machine disturbs less. */
static double now(const Bench *x) {
  struct timespec t;
  clock_gettime(x->k.parallel ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *floats(size_t n) {
  size_t bytes = (n * sizeof(float) + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  char *p = mmap(NULL, bytes + (2 << 20), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  p += (2 << 20) - (uintptr_t)p % (2 << 20);
  madvise(p, bytes, MADV_HUGEPAGE);
  uint64_t state = n;
  fill_f32(&state, (int64_t)n, (float *)(void *)p);
  return (float *)(void *)p;
}

static double measure(Bench *x, void (*call)(Bench *)) {
  double best = 1e9, total = 0;
  for (int i = 0; i < 3 || (total < 0.4 && i < 200); i++) {
    double start = now(x);
    call(x);
    double taken = now(x) - start;
    total += taken;
    best = taken < best ? taken : best;
  }
  return best;
}

static void report(Bench *x, const char *name, void (*call)(Bench *), double bytes, double flops,
                   double steps) {
  if (x->only && !strstr(name, x->only)) return;
  double s = measure(x, call);
  printf("%-24s %9.3f ms  %7.1f GB/s  %7.1f GFLOP/s  x%-4g\n", name, s * 1e3, bytes / s * 1e-9,
         flops / s * 1e-9, steps);
  if (flops > 0 && bytes == 0)
    x->gemm_s += s * steps;
  else
    x->other_s += s * steps;
}

#define CALL(name, ...)                                                                                      \
  static void name(Bench *x) {                                                                               \
    x->t->__VA_ARGS__;                                                                                       \
  }

CALL(copy, copy(&x->k, x->rows, FF, x->a, FF, x->b, FF, 0))
CALL(copy_add, copy(&x->k, x->rows, FF, x->a, FF, x->b, FF, 1))
CALL(add_residual, add_fwd(&x->k, x->rows, D, x->rows, x->a, D, x->b, D, x->c, D))
CALL(mul, mul(&x->k, x->rows, FF, x->a, FF, x->b, FF, x->c, FF, 0))
CALL(scale, scale(&x->k, x->rows, FF, 0.22, x->a, FF, x->b, FF, 0))
CALL(gelu_fwd, gelu_fwd(&x->k, x->rows, FF, 0, x->a, FF, x->b, FF))
CALL(gelu_bwd, gelu_bwd(&x->k, x->rows, FF, 0, x->a, FF, x->b, FF, x->c, FF, 0))
CALL(gelu_erf_fwd, gelu_fwd(&x->k, x->rows, FF, 1, x->a, FF, x->b, FF))
CALL(gelu_erf_bwd, gelu_bwd(&x->k, x->rows, FF, 1, x->a, FF, x->b, FF, x->c, FF, 0))
CALL(silu_fwd, silu_fwd(&x->k, x->rows, FF, x->a, FF, x->b, FF))
CALL(silu_bwd, silu_bwd(&x->k, x->rows, FF, x->a, FF, x->b, FF, x->c, FF, 0))
CALL(silu_mul_fwd, silu_mul_fwd(&x->k, x->rows, FF, x->a, FF, x->b, FF, x->c, FF))
CALL(silu_mul_bwd, silu_mul_bwd(&x->k, x->rows, FF, x->a, FF, x->b, FF, x->c, FF, x->d, FF, 0, x->g, FF, 0))
CALL(relu_bwd, relu_bwd(&x->k, x->rows, FF, x->a, FF, x->b, FF, x->c, FF, 0))
CALL(layernorm_fwd, layernorm_fwd(&x->k, x->rows, D, 1e-5, x->a, D, x->b, x->c, x->d, D, x->e, x->f))
CALL(layernorm_bwd,
     layernorm_bwd(&x->k, x->rows, D, x->a, D, x->b, x->e, x->f, x->c, D, x->d, D, x->g, x->h, 1, 0, 0))
CALL(rmsnorm_fwd, rmsnorm_fwd(&x->k, x->rows, D, 1e-5, x->a, D, x->b, x->d, D, x->f))
CALL(rmsnorm_bwd, rmsnorm_bwd(&x->k, x->rows, D, x->a, D, x->b, x->f, x->c, D, x->d, D, x->g, 1, 0))
CALL(head_norms_fwd,
     rmsnorm_fwd(&x->k, x->rows * HEADS, HEAD_DIM, 1e-5, x->a, HEAD_DIM, x->b, x->d, HEAD_DIM, x->f))
CALL(head_norms_bwd,
     rmsnorm_bwd(&x->k, x->rows * HEADS, HEAD_DIM, x->a, HEAD_DIM, x->b, x->f, x->c, HEAD_DIM, x->d, HEAD_DIM, x->g, 1, 0))
CALL(embedding_fwd, embedding_fwd(&x->k, x->rows, VOCAB, D, x->tokens, x->h, x->a, D))
CALL(embedding_bwd_add, embedding_bwd(&x->k, x->rows, VOCAB, D, x->tokens, x->a, D, x->h, 1))
CALL(embedding_bwd_set, embedding_bwd(&x->k, x->rows, VOCAB, D, x->tokens, x->a, D, x->h, 0))
CALL(positions_bwd, broadcast_bwd(&x->k, x->rows, D, SEQ, x->a, D, x->b, D, 0))
CALL(qkv_fwd, linear_fwd(&x->k, x->rows, 3 * D, D, x->a, D, x->b, x->c, x->d, 3 * D))
CALL(qkv_bwd_x, linear_bwd_x(&x->k, x->rows, 3 * D, D, x->d, 3 * D, x->b, x->a, D, 0))
CALL(qkv_bwd_w, linear_bwd_w(&x->k, x->rows, 3 * D, D, x->a, D, x->d, 3 * D, x->b, x->c, 0, 0))
CALL(proj_fwd, linear_fwd(&x->k, x->rows, D, D, x->a, D, x->b, x->c, x->d, D))
CALL(proj_bwd_x, linear_bwd_x(&x->k, x->rows, D, D, x->d, D, x->b, x->a, D, 0))
CALL(proj_bwd_w, linear_bwd_w(&x->k, x->rows, D, D, x->a, D, x->d, D, x->b, x->c, 0, 0))
CALL(up_fwd, linear_fwd(&x->k, x->rows, FF, D, x->a, D, x->b, x->c, x->d, FF))
CALL(up_bwd_x, linear_bwd_x(&x->k, x->rows, FF, D, x->d, FF, x->b, x->a, D, 0))
CALL(up_bwd_w, linear_bwd_w(&x->k, x->rows, FF, D, x->a, D, x->d, FF, x->b, x->c, 0, 0))
CALL(down_fwd, linear_fwd(&x->k, x->rows, D, FF, x->a, FF, x->b, x->c, x->d, D))
CALL(down_bwd_x, linear_bwd_x(&x->k, x->rows, D, FF, x->d, D, x->b, x->a, FF, 0))
CALL(down_bwd_w, linear_bwd_w(&x->k, x->rows, D, FF, x->a, FF, x->d, D, x->b, x->c, 0, 0))
CALL(head_fwd, linear_fwd(&x->k, x->rows, VOCAB, D, x->a, D, x->h, NULL, x->g, VOCAB))
CALL(head_bwd_x, linear_bwd_x(&x->k, x->rows, VOCAB, D, x->g, VOCAB, x->h, x->a, D, 0))
CALL(head_bwd_w, linear_bwd_w(&x->k, x->rows, VOCAB, D, x->a, D, x->g, VOCAB, x->h, NULL, 0, 0))

/* The plain call that linear layers are cut from. */
static void plain_fwd(Bench *x) {
  x->k.gemm->sgemm('N', 'T', x->rows, FF, D, 1, x->a, D, x->b, D, 0, x->d, FF);
}

static void plain_bwd_x(Bench *x) {
  x->k.gemm->sgemm('N', 'N', x->rows, D, FF, 1, x->d, FF, x->b, D, 0, x->a, D);
}

static void plain_bwd_w(Bench *x) {
  x->k.gemm->sgemm('T', 'N', FF, D, x->rows, 1, x->d, FF, x->a, D, 0, x->b, D);
}

static AttentionShape attention_shape(const Bench *x, int causal) {
  return (AttentionShape){x->rows / x->seq, x->seq, x->seq, HEADS, HEADS, HEAD_DIM, causal, 0.125};
}

static void attention_fwd(Bench *x) {
  AttentionShape s = attention_shape(x, 1);
  x->t->attention_fwd(&x->k, &s, x->a, 3 * D, x->a + D, 3 * D, x->a + 2 * D, 3 * D, x->b, D, x->c);
}

static void attention_bwd(Bench *x) {
  AttentionShape s = attention_shape(x, 1);
  x->t->attention_bwd(&x->k, &s, x->a, 3 * D, x->a + D, 3 * D, x->a + 2 * D, 3 * D, x->b, D, x->c, x->e, D,
                      x->d, 3 * D, 0, x->d + D, 3 * D, 0, x->d + 2 * D, 3 * D, 0);
}

static void attention_full_fwd(Bench *x) {
  AttentionShape s = attention_shape(x, 0);
  x->t->attention_fwd(&x->k, &s, x->a, 3 * D, x->a + D, 3 * D, x->a + 2 * D, 3 * D, x->b, D, x->c);
}

static void rope(Bench *x) {
  RopeShape s = {x->rows / x->seq, x->seq, HEADS, HEAD_DIM, HEAD_DIM, 0, 8192, 10000, 8, 1, 4, 0};
  x->t->rope(&x->k, &s, 0, x->a, D, x->b, D, 0);
}

static void dropout(Bench *x) {
  DropoutSite s = {0.1, 1, 2, 3, 0, x->seq};
  x->t->dropout(&x->k, &s, x->rows, FF, x->a, FF, x->b, FF, 0);
}

static void cross_entropy(Bench *x) {
  double loss = 0;
  x->t->cross_entropy(&x->k, x->rows, VOCAB, -100, 512, x->g, VOCAB, x->tokens, &loss, x->f);
}

static void mse(Bench *x) {
  double loss = 0;
  x->t->mse(&x->k, x->rows, FF, 512, x->a, FF, x->b, FF, &loss, x->c, FF, 0, x->f);
}

enum { N = 16 << 20 };

static void sum_squares(Bench *x) {
  int64_t acc[EXACT_WORDS] = {0};
  x->t->sum_squares(&x->k, N, x->g, acc);
}

static void adamw(Bench *x) {
  AdamwRates r = {1e-4, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5, 1};
  x->t->adamw(&x->k, N, &r, x->h, x->g, x->g + N, x->h + N);
}

static void sgd(Bench *x) {
  SgdRates r = {1e-6, 0.9, 0.1, 1};
  x->t->sgd(&x->k, N, &r, x->h, x->g, x->g + N);
}

static void tree(Bench *x, int ranks) {
  const float *source[8] = {x->g, x->g + N / 4, x->g + N / 2, x->g + 3 * (N / 4),
                            x->h, x->h + N / 4, x->h + N / 2};
  source[7] = x->h + 3 * (N / 4);
  x->t->tree_sum(N / 4, ranks, FLOAT_REAL, (const void *const *)source, x->g + N, 0);
}

static void tree_2(Bench *x) {
  tree(x, 2);
}
static void tree_3(Bench *x) {
  tree(x, 3);
}
static void tree_8(Bench *x) {
  tree(x, 8);
}

static void memcpy_floor(Bench *x) {
  memcpy(x->g, x->h, N * sizeof(float));
}

static void init_normal(Bench *x) {
  InitFill f = {2, 0.02, 1, 2};
  x->t->init_fill(&x->k, &f, 0, N / 4, x->a);
}

static void products(Bench *x) {
  double r = (double)x->rows, f = 2 * r * D * D, head = 2 * r * D * VOCAB;
  report(x, "plain N T", plain_fwd, 0, 4 * f, 0);
  report(x, "plain N N", plain_bwd_x, 0, 4 * f, 0);
  report(x, "plain T N", plain_bwd_w, 0, 4 * f, 0);
  report(x, "linear_fwd qkv", qkv_fwd, 0, 3 * f, LAYERS);
  report(x, "linear_bwd_x qkv", qkv_bwd_x, 0, 3 * f, LAYERS);
  report(x, "linear_bwd_w qkv", qkv_bwd_w, 0, 3 * f, LAYERS);
  report(x, "linear_fwd proj", proj_fwd, 0, f, LAYERS);
  report(x, "linear_bwd_x proj", proj_bwd_x, 0, f, LAYERS);
  report(x, "linear_bwd_w proj", proj_bwd_w, 0, f, LAYERS);
  report(x, "linear_fwd up", up_fwd, 0, 4 * f, LAYERS);
  report(x, "linear_bwd_x up", up_bwd_x, 0, 4 * f, LAYERS);
  report(x, "linear_bwd_w up", up_bwd_w, 0, 4 * f, LAYERS);
  report(x, "linear_fwd down", down_fwd, 0, 4 * f, LAYERS);
  report(x, "linear_bwd_x down", down_bwd_x, 0, 4 * f, LAYERS);
  report(x, "linear_bwd_w down", down_bwd_w, 0, 4 * f, LAYERS);
  report(x, "linear_fwd head", head_fwd, 0, head, 1);
  report(x, "linear_bwd_x head", head_bwd_x, 0, head, 1);
  report(x, "linear_bwd_w head", head_bwd_w, 0, head, 1);
}

static void others(Bench *x) {
  double r = (double)x->rows, d = r * D, ff = r * FF, seq = (double)x->seq, table = (double)VOCAB * D;
  double pairs = r * (seq + 1) / 2 * HEADS * HEAD_DIM;
  report(x, "memcpy 64 MiB", memcpy_floor, 8.0 * N, 0, 0);
  report(x, "copy", copy, 8 * ff, 0, 0);
  report(x, "copy +", copy_add, 12 * ff, 0, 0);
  report(x, "add_fwd", add_residual, 12 * d, 0, 2 * LAYERS + 1);
  report(x, "mul", mul, 12 * ff, 0, 0);
  report(x, "scale", scale, 8 * ff, 0, 0);
  report(x, "gelu_fwd tanh", gelu_fwd, 8 * ff, 0, LAYERS);
  report(x, "gelu_bwd tanh", gelu_bwd, 12 * ff, 0, LAYERS);
  report(x, "gelu_fwd erf", gelu_erf_fwd, 8 * ff, 0, 0);
  report(x, "gelu_bwd erf", gelu_erf_bwd, 12 * ff, 0, 0);
  report(x, "silu_fwd", silu_fwd, 8 * ff, 0, 0);
  report(x, "silu_bwd", silu_bwd, 12 * ff, 0, 0);
  report(x, "silu_mul_fwd", silu_mul_fwd, 12 * ff, 0, 0);
  report(x, "silu_mul_bwd", silu_mul_bwd, 20 * ff, 0, 0);
  report(x, "relu_bwd", relu_bwd, 12 * ff, 0, 0);
  report(x, "layernorm_fwd", layernorm_fwd, 8 * d, 0, 2 * LAYERS + 1);
  report(x, "layernorm_bwd", layernorm_bwd, 24 * d, 0, 2 * LAYERS + 1);
  report(x, "rmsnorm_fwd", rmsnorm_fwd, 8 * d, 0, 0);
  report(x, "rmsnorm_bwd", rmsnorm_bwd, 24 * d, 0, 0);
  report(x, "rmsnorm_fwd heads", head_norms_fwd, 8 * d, 0, 0);
  report(x, "rmsnorm_bwd heads", head_norms_bwd, 24 * d, 0, 0);
  report(x, "rope", rope, 8 * d, 0, 0);
  report(x, "dropout", dropout, 8 * ff, 0, 0);
  report(x, "embedding_fwd", embedding_fwd, 8 * d, 0, 1);
  report(x, "embedding_bwd +", embedding_bwd_add, 12 * d, 0, 1);
  report(x, "embedding_bwd", embedding_bwd_set, 12 * d + 4 * table, 0, 0);
  report(x, "broadcast_bwd", positions_bwd, 4 * d + 4.0 * SEQ * D, 0, 1);
  report(x, "attention_fwd full", attention_full_fwd, 1, 4 * r * seq * D, 0);
  report(x, "attention_fwd causal", attention_fwd, 1, 4 * pairs, LAYERS);
  report(x, "attention_bwd causal", attention_bwd, 1, 10 * pairs, LAYERS);
  report(x, "cross_entropy", cross_entropy, 8 * r * VOCAB, 0, 1);
  report(x, "mse", mse, 12 * ff, 0, 0);
  double parts = 124.4e6 / N;
  report(x, "sum_squares", sum_squares, 4.0 * N, 0, parts);
  report(x, "adamw", adamw, 28.0 * N, 0, parts);
  report(x, "sgd momentum", sgd, 20.0 * N, 0, 0);
  report(x, "tree_sum 2", tree_2, 3.0 * N, 0, 0);
  report(x, "tree_sum 3", tree_3, 4.0 * N, 0, 0);
  report(x, "tree_sum 8", tree_8, 9.0 * N, 0, 0);
  report(x, "init normal", init_normal, N, 0, 0);
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? atoi(argv[1]) : 1;
  kernels_thread_init();
  Pool pool = pool_of(threads);
  Bench x = {.t = kernels_cpu(),
             .k = {.parallel = threads > 1 ? &pool.parallel : NULL, .gemm = gemm_open(getenv("FSDPC_GEMM"), NULL)}};
  if (!x.t || !x.k.gemm) return 1;
  x.rows = argc > 2 ? atoi(argv[2]) : 512, x.seq = x.rows < SEQ ? x.rows : SEQ;
  x.only = argc > 3 ? argv[3] : NULL;
  float **small[] = {&x.a, &x.b, &x.c, &x.d, &x.e, &x.f};
  for (int i = 0; i < 6; i++) *small[i] = floats((size_t)x.rows * FF + (size_t)FF * D + N / 4);
  x.g = floats((size_t)x.rows * VOCAB + 2 * (size_t)N), x.h = floats((size_t)VOCAB * D + 2 * (size_t)N);
  x.tokens = malloc((size_t)x.rows * sizeof *x.tokens);
  for (int64_t i = 0; i < x.rows; i++) x.tokens[i] = (int32_t)(i * 7919 % VOCAB);
  printf("%s, %s, %d threads, %d rows\n", x.t->name, x.k.gemm->name, threads, (int)x.rows);
  products(&x);
  others(&x);
  printf("one step of GPT-2 124M: products %.0f ms, everything else %.0f ms = %.1f %%\n", x.gemm_s * 1e3,
         x.other_s * 1e3, 100 * x.other_s / x.gemm_s);
  free(x.tokens);
  return 0;
}
