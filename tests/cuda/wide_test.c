/* Owns: kernels that move 16 bytes at a time against the same kernels on buffers that allow single elements only. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/kernel_tests.h"

#include <math.h>
#include <string.h>

enum { ROWS = 70, COLS = 272, MOST = ROWS * COLS };

typedef struct Both {
  float *in[3], *out[3];
} Both;

static Both both_of(int64_t shift) {
  Both b;
  uint64_t state = 3;
  for (int i = 0; i < 3; i++) {
    b.in[i] = (float *)memory_get((MOST + 16) * sizeof(float)) + shift;
    b.out[i] = (float *)memory_get((MOST + 16) * sizeof(float)) + shift;
    for (int j = 0; j < MOST; j++) b.in[i][j] = (float)coarse_value_next(&state), b.out[i][j] = 1;
  }
  return b;
}

static void element_wise(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  DropoutSite site = {0.3, 1, 2, 3, 1000, 7};
  t->mul(k, ROWS, COLS, b->in[0], COLS, b->in[1], COLS, b->out[0], COLS, add);
  t->copy(k, ROWS, COLS, b->in[2], COLS, b->out[0], COLS, 1);
  t->scale(k, ROWS, COLS, 0.22, b->in[1], COLS, b->out[0], COLS, 1);
  t->gelu_bwd(k, ROWS, COLS, 0, b->in[0], COLS, b->in[1], COLS, b->out[1], COLS, add);
  t->dropout(k, &site, ROWS, COLS, b->in[0], COLS, b->out[2], COLS, add);
}

static void broadcasts(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  t->add_fwd(k, ROWS, COLS, 7, b->in[0], COLS, b->in[1], COLS, b->out[0], COLS);
  t->broadcast_bwd(k, ROWS, COLS, 7, b->in[0], COLS, b->out[1], COLS, add);
  t->broadcast_bwd(k, ROWS, COLS, 1, b->in[0], COLS, b->out[2], COLS, add);
}

static void norms(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  float mean[ROWS], rstd[ROWS], dbias[COLS] = {0};
  t->layernorm_fwd(k, ROWS, COLS, 1e-5, b->in[0], COLS, b->in[1], b->in[2], b->out[0], COLS, mean, rstd);
  t->layernorm_bwd(k, ROWS, COLS, b->in[0], COLS, b->in[1], mean, rstd, b->in[2], COLS, b->out[1], COLS, b->out[2],
                   dbias, add, add, 0);
}

static void head_norms(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  enum { HEADS = 2, PARTS = ROWS * HEADS, PART = COLS / HEADS };
  float rstd[PARTS];
  t->rmsnorm_fwd(k, PARTS, PART, 1e-5, b->in[0], PART, b->in[1], b->out[0], PART, rstd);
  t->rmsnorm_bwd(k, PARTS, PART, b->in[0], PART, b->in[1], rstd, b->in[2], PART, b->out[1], PART, b->out[2], add, add);
}

static void narrow_linear(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  enum { OUTS = 3 };
  float dbias[OUTS];
  t->linear_fwd(k, ROWS, OUTS, COLS, b->in[0], COLS, b->in[1], NULL, b->out[0], COLS);
  t->linear_bwd_x(k, ROWS, OUTS, COLS, b->in[2], COLS, b->in[1], b->out[1], COLS, add);
  t->linear_bwd_w(k, ROWS, OUTS, COLS, b->in[0], COLS, b->in[2], COLS, b->out[2], dbias, add, 0);
}

/* Rows that a part of a warp takes, the last block not full of them. */
static void short_norms(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  enum { SHORT = 61 };
  float mean[SHORT], rstd[SHORT], dbias[128] = {0};
  for (int64_t d = 128, at = 0; d >= 32; d /= 2, at += SHORT * 128) {
    if (at + SHORT * d > MOST) break;
    t->layernorm_fwd(k, SHORT, d, 1e-5, b->in[0] + at, d, b->in[1], b->in[2], b->out[0] + at, d, mean, rstd);
    t->layernorm_bwd(k, SHORT, d, b->in[0] + at, d, b->in[1], mean, rstd, b->in[2] + at, d, b->out[1] + at, d, b->out[2] + at, dbias,
                     add, add, 0);
  }
}

static void embeddings(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  int32_t tokens[ROWS];
  for (int i = 0; i < ROWS; i++) tokens[i] = i * i % 23;
  t->embedding_fwd(k, ROWS, 23, COLS, tokens, b->in[0], b->out[0], COLS);
  t->embedding_bwd(k, ROWS, 23, COLS, tokens, b->in[1], COLS, b->out[1], add);
}

static void losses(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  int32_t targets[ROWS];
  float row_loss[ROWS];
  double loss = add;
  for (int i = 0; i < ROWS; i++) targets[i] = i % 5 == 0 ? -100 : i;
  memcpy(b->out[0], b->in[0], MOST * sizeof(float));
  t->cross_entropy(k, ROWS, COLS, -100, 50, b->out[0], COLS, targets, &loss, row_loss);
  b->out[1][0] = (float)loss;
}

/* Rows that end in the middle of an access, and that do not. */
static void differences(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  double loss = 0;
  t->mse(k, ROWS, COLS, 50, b->in[0], COLS, b->in[1], COLS, &loss, b->out[0], COLS, add, b->out[1]);
  t->mse(k, ROWS, COLS - 5, 50, b->in[0], COLS, b->in[1], COLS, &loss, b->out[2], COLS, add, b->out[1] + ROWS);
}

/* Two samples, four heads of 40 over two. */
static void attentions(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  AttentionShape a = {2, ROWS / 2, ROWS / 2, 4, 2, 40, 1, 0.2};
  int64_t shift = (int64_t)((uintptr_t)b->in[0] % 64 / sizeof(float));
  float *o = (float *)memory_get((MOST + 16) * sizeof(float)) + shift, *lse = memory_get(ROWS * 4 * sizeof(float));
  t->attention_fwd(k, &a, b->in[0], COLS, b->in[1], COLS, b->in[2], COLS, o, COLS, lse);
  t->attention_bwd(k, &a, b->in[0], COLS, b->in[1], COLS, b->in[2], COLS, o, COLS, lse, b->in[1], COLS, b->out[0], COLS, add,
                   b->out[1], COLS, add, b->out[2], COLS, add);
}

/* ROWS positions of two samples, heads of 32, of which `dims` turn. */
static void turns_of(const KernelTable *t, const KernelContext *k, Both *b, int add, int64_t dims) {
  RopeShape shape = {.batch = 2, .seq = ROWS / 2, .heads = COLS / 34, .head_dim = 32, .dims = dims, .theta = 10000};
  t->rope(k, &shape, 0, b->in[0], COLS, b->out[0], COLS, 0);
  t->rope(k, &shape, 1, b->in[1], COLS, b->out[1], COLS, add);
}

static void turns(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  turns_of(t, k, b, add, 32);
}

static void turns_of_halves(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  turns_of(t, k, b, add, 16);
}

/* Where what turns ends in the middle of an access: one element at a time everywhere. */
static void turns_of_parts(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  turns_of(t, k, b, add, 12);
}

void test_wide_against_single(void **unused) {
  (void)unused;
  void (*const cases[])(const KernelTable *, const KernelContext *, Both *, int) = {
      element_wise, broadcasts, norms, head_norms, short_norms, narrow_linear, embeddings, losses, differences, attentions, turns, turns_of_halves, turns_of_parts};
  for (int type = CUDA_F32; type <= CUDA_F16; type++)
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
      for (int add = 0; add < 2; add++) {
        Adapter adapter = {.type = type};
        Both wide = both_of(0), single = both_of(1);
        cases[n](&adapter_table, &adapter.context, &wide, add);
        cases[n](&adapter_table, &adapter.context, &single, add);
        for (int i = 0; i < 3; i++)
          for (int j = 0; j < MOST; j++)
            if (!(fabsf(wide.out[i][j] - single.out[i][j]) <= (float)TOLERANCE[type] * (1 + fabsf(single.out[i][j]))))
              fail_msg("case %zu, %s: output %d, %d is %g wide and %g single", n, TYPE[type], i, j,
                       (double)wide.out[i][j], (double)single.out[i][j]);
        memory_free();
      }
}
