/* Owns: tests of attention's shapes: what tensor cores take, and single rows of queries over many keys, whose parts of keys are merged. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/kernel_tests.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- tensor cores --------------------------------------------------------------------------------------------------- */

/* One attention, forward and backward, by a table; outputs side by side. */
static Scene attend(const KernelTable *t, const KernelContext *k, AttentionShape a) {
  Scene s = {.state = 9};
  int64_t rows = a.batch * a.tq, keys = a.batch * a.tk, qd = a.heads * a.head_dim, kd = a.kv_heads * a.head_dim;
  int64_t sizes[] = {rows * qd, keys * kd, keys * kd, rows * qd};
  float *x[4], *lse = memory_get((size_t)(a.batch * a.heads * a.tq) * sizeof *lse), *out[4];
  for (int i = 0; i < 4; i++) {
    x[i] = memory_get((size_t)sizes[i] * sizeof(float));
    for (int64_t j = 0; j < sizes[i]; j++) x[i][j] = (float)coarse_value_next(&s.state);
  }
  for (int i = 0; i < 4; i++) out[i] = memory_get((size_t)sizes[i == 3 ? 0 : i] * sizeof(float)); /* dq dk dv o */
  a.scale = 1 / sqrt((double)a.head_dim);
  t->attention_fwd(k, &a, x[0], qd, x[1], kd, x[2], kd, out[3], qd, lse);
  for (int add = 0; add < 2; add++)
    t->attention_bwd(k, &a, x[0], qd, x[1], kd, x[2], kd, out[3], qd, lse, x[3], qd, out[0], qd, add, out[1], kd, add,
                     out[2], kd, add);
  for (int i = 0; i < 4; i++) s.count += sizes[i == 3 ? 0 : i];
  s.out = memory_get((size_t)s.count * sizeof(double));
  for (int64_t i = 0, n = 0; i < 4; i++)
    for (int64_t j = 0; j < sizes[i == 3 ? 0 : i]; j++) s.out[n++] = (double)out[i][j];
  return s;
}

/* Twice the tolerance: tensor cores take probabilities and their gradients rounded to 16 bits. */
void test_tensor_core_attention(void **unused) {
  (void)unused;
  static const AttentionShape shapes[] = {{1, 150, 150, 2, 2, 64, 1, 0},
                                          {2, 70, 70, 4, 2, 96, 0, 0},
                                          {1, 33, 100, 2, 1, 128, 1, 0},
                                          {1, 64, 64, 1, 1, 128, 0, 0},
                                          {1, 70, 132, 2, 1, 64, 1, 0}, /* of a tile, all but one pair is seen */
                                          {1, 70, 127, 1, 1, 96, 0, 0}};
  KernelContext alone = {0};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Scene expected = attend(kernels_cpu_named("portable"), &alone, shapes[i]);
    for (int type = CUDA_BF16; type <= CUDA_F16; type++) {
      Adapter adapter = {.type = type};
      Scene got = attend(&adapter_table, &adapter.context, shapes[i]);
      printf("tensor cores %zu         %-5s %5.2f of %.1e\n", i, TYPE[type], worst("attention on tensor cores", type, 2, &got, &expected),
             TOLERANCE[type]);
    }
    memory_free();
  }
}

/* --- single rows of queries ------------------------------------------------------------------------------------------ */

/* The forward pass: o, then lse. */
static Scene attend_rows(const KernelTable *t, const KernelContext *k, AttentionShape a) {
  Scene s = {.state = 9};
  int64_t keys = a.batch * a.tk, qd = a.heads * a.head_dim, kd = a.kv_heads * a.head_dim, sizes[] = {a.batch * qd, keys * kd, keys * kd};
  float *x[3], *o = memory_get((size_t)(sizes[0] + a.batch * a.heads) * sizeof *o), *lse = o + sizes[0];
  for (int i = 0; i < 3; i++) {
    x[i] = memory_get((size_t)sizes[i] * sizeof(float));
    for (int64_t j = 0; j < sizes[i]; j++) x[i][j] = (float)coarse_value_next(&s.state);
  }
  a.scale = 1 / sqrt((double)a.head_dim);
  t->attention_fwd(k, &a, x[0], qd, x[1], kd, x[2], kd, o, qd, lse);
  s.count = sizes[0] + a.batch * a.heads;
  s.out = memory_get((size_t)s.count * sizeof(double));
  for (int64_t i = 0; i < s.count; i++) s.out[i] = (double)o[i];
  return s;
}

static Scene from(const Scene *s, int64_t first, int64_t count) { return (Scene){.out = s->out + first, .count = count}; }

/* Of o and of lse, whose typical values differ. */
static double worst_row(const AttentionShape *a, int type, const Scene *got, const Scene *expected) {
  int64_t lse = a->batch * a->heads, o = lse * a->head_dim;
  Scene got_o = from(got, 0, o), want_o = from(expected, 0, o), got_lse = from(got, o, lse), want_lse = from(expected, o, lse);
  return fmax(worst("o of single rows", type, 2, &got_o, &want_o), worst("lse of single rows", type, 2, &got_lse, &want_lse));
}

/* Keys in one part and in many, of one tile and of several, full and not; heads that do not share keys, that share them within a
 * block and over several; on tensor cores the heads of 64, 96 and 128 dimensions in 16 bits. Tolerance as above. */
void test_attention_of_single_rows(void **unused) {
  (void)unused;
  static const AttentionShape shapes[] = {{1, 1, 1, 1, 1, 64, 1, 0},     {2, 1, 1000, 8, 2, 64, 1, 0},   {1, 1, 640, 3, 3, 96, 1, 0},
                                          {1, 1, 200, 20, 1, 128, 1, 0}, {1, 1, 150, 171, 171, 64, 0, 0}, {1, 1, 130, 33, 3, 40, 1, 0},
                                          {2, 1, 90, 6, 2, 256, 1, 0},   {1, 1, 1500, 5, 1, 8, 1, 0}};
  KernelContext alone = {0};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    Scene expected = attend_rows(kernels_cpu_named("portable"), &alone, shapes[i]);
    for (int type = CUDA_F32; type <= CUDA_F16; type++) {
      Adapter adapter = {.type = type};
      shim_seed(21);
      Scene got = attend_rows(&adapter_table, &adapter.context, shapes[i]);
      printf("single rows %zu          %-5s %5.2f of %.1e\n", i, TYPE[type], worst_row(&shapes[i], type, &got, &expected), TOLERANCE[type]);
      shim_seed(22);
      Scene again = attend_rows(&adapter_table, &adapter.context, shapes[i]);
      if (memcmp(got.out, again.out, (size_t)got.count * sizeof *got.out) != 0)
        fail_msg("single rows %zu, %s: another order of threads gave other bits", i, TYPE[type]);
    }
    memory_free();
  }
}

/* Scratch memory for a whole context is enough for its every position. */
void test_scratch_of_single_rows(void **unused) {
  (void)unused;
  for (int64_t kv = 1; kv <= 1024; kv *= 2)
    for (int64_t keys = 1; keys < 40000; keys += 63) {
      AttentionShape shape = {1, 1, keys, kv, kv, 64, 1, 0}, longer = shape;
      longer.tk++;
      assert_true(cuda_attention_fwd_scratch(&shape) <= cuda_attention_fwd_scratch(&longer));
    }
}
