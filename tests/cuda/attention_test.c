/* Owns: tests of attention's shapes: what tensor cores take, Hopper's too, and single rows of queries over many keys, whose parts of keys are
 * merged. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/host_product.h"
#include "tests/cuda/kernel_tests.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
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

/* --- Hopper ------------------------------------------------------------------------------------------------------- */

enum { HOPPER_Q, HOPPER_K, HOPPER_V, HOPPER_O, HOPPER_DO, HOPPER_DQ, HOPPER_DK, HOPPER_DV, HOPPER_TENSORS };
enum { GAP = 8, THREADS = 8, MOST_RUNS = 5 };

/* One backward pass in double, and its operands where the kernels run: rows with a gap after each. */
typedef struct Backward {
  AttentionShape shape;
  double *x[HOPPER_TENSORS], *lse;
  CudaTensor t[HOPPER_TENSORS];
  int64_t rows, cols[HOPPER_TENSORS];
  float *device_lse;
  void *scratch;
} Backward;

static Backward backward_in_double(AttentionShape a) {
  Backward b = {.shape = a, .rows = a.batch * a.tq};
  Pool pool = pool_of(THREADS);
  KernelContext k = {.parallel = &pool.parallel};
  const KernelTable64 *t = kernels_cpu_f64();
  uint64_t state = 9;
  for (int i = 0; i < HOPPER_TENSORS; i++) {
    bool keys = i == HOPPER_K || i == HOPPER_V || i == HOPPER_DK || i == HOPPER_DV;
    b.cols[i] = (keys ? a.kv_heads : a.heads) * a.head_dim;
    b.x[i] = memory_get((size_t)(b.rows * b.cols[i]) * sizeof *b.x[i]);
    for (int64_t j = 0; j < b.rows * b.cols[i]; j++) b.x[i][j] = coarse_value_next(&state);
  }
  b.lse = memory_get((size_t)(a.heads * b.rows) * sizeof *b.lse);
  b.shape.scale = (a.scale > 0 ? a.scale : 1) / sqrt((double)a.head_dim); /* a.scale: how much larger than usual */
  int64_t q = b.cols[HOPPER_Q], kv = b.cols[HOPPER_K];
  double **x = b.x;
  t->attention_fwd(&k, &b.shape, x[HOPPER_Q], q, x[HOPPER_K], kv, x[HOPPER_V], kv, x[HOPPER_O], q, b.lse);
  t->attention_bwd(&k, &b.shape, x[HOPPER_Q], q, x[HOPPER_K], kv, x[HOPPER_V], kv, x[HOPPER_O], q, b.lse, x[HOPPER_DO], q, x[HOPPER_DQ], q, 0,
                   x[HOPPER_DK], kv, 0, x[HOPPER_DV], kv, 0);
  return b;
}

static size_t tensor_bytes(const Backward *b, int i) { return (size_t)(b->rows * (b->cols[i] + GAP)) * sizeof(uint16_t); }

static void device_poison(void *to, size_t bytes) { /* NaN */
  void *nan = malloc(bytes + 1);
  device_put(to, memset(nan, 0xff, bytes), bytes);
  free(nan);
}

static void backward_put(Backward *b, int type) {
  int64_t rows = b->shape.heads * b->rows;
  float *lse = malloc((size_t)rows * sizeof *lse);
  for (int64_t i = 0; i < rows; i++) lse[i] = (float)b->lse[i];
  b->device_lse = device_get((size_t)rows * sizeof *lse);
  device_put(b->device_lse, lse, (size_t)rows * sizeof *lse);
  free(lse);
  for (int i = 0; i < HOPPER_TENSORS; i++) {
    uint16_t *data = memset(malloc(tensor_bytes(b, i)), 0xff, tensor_bytes(b, i));
    b->t[i] = (CudaTensor){device_get(tensor_bytes(b, i)), b->cols[i] + GAP, type, 0};
    for (int64_t j = 0; j < b->rows * b->cols[i]; j++)
      element_set(type, data, j / b->cols[i] * b->t[i].ld + j % b->cols[i], (float)b->x[i][j]);
    device_put(b->t[i].x, data, tensor_bytes(b, i));
    free(data);
  }
  b->scratch = device_get(cuda_attention_hopper_scratch(&b->shape, b->shape.batch * b->shape.kv_heads));
}

static void backward_free(Backward *b) {
  for (int i = 0; i < HOPPER_TENSORS; i++) device_free(b->t[i].x);
  device_free(b->device_lse), device_free(b->scratch);
}

static int hopper_takes(const Backward *b) {
  const CudaTensor *t = b->t;
  return cuda_attention_hopper_takes(&b->shape, t[HOPPER_Q], t[HOPPER_K], t[HOPPER_V], t[HOPPER_O], t[HOPPER_DO], t[HOPPER_DQ], t[HOPPER_DK],
                                     t[HOPPER_DV]);
}

/* dq, dk and dv as they lie in memory, one after the other. groups: of a launch; shares: beside other kernels. */
static uint16_t *run_hopper(const Backward *b, int64_t groups, int shares) {
  const CudaTensor *t = b->t;
  size_t bytes = 0;
  for (int i = HOPPER_DQ; i < HOPPER_TENSORS; i++) device_poison(t[i].x, tensor_bytes(b, i)), bytes += tensor_bytes(b, i);
  device_poison(b->scratch, cuda_attention_hopper_scratch(&b->shape, groups));
  int failed = cuda_attention_hopper_bwd(device_stream(), &b->shape, groups, shares, t[HOPPER_Q], t[HOPPER_K], t[HOPPER_V], t[HOPPER_O], b->device_lse, t[HOPPER_DO],
                                         t[HOPPER_DQ], t[HOPPER_DK], t[HOPPER_DV], b->scratch);
  if (failed) fail_msg("attention on Hopper: error %d from the launch", failed);
  uint16_t *out = memory_get(bytes), *to = out;
  for (int i = HOPPER_DQ; i < HOPPER_TENSORS; to += tensor_bytes(b, i++) / sizeof *to) device_fetch(to, t[i].x, tensor_bytes(b, i));
  return out;
}

/* Each output by itself, and 128 rows of a sample at a time: the first see few keys, and are larger. What lies between rows is nobody's to write. */
static double worst_of_hopper(const Backward *b, int first, int end, const uint16_t *got) {
  static const char *const names[] = {[HOPPER_O] = "o on Hopper", [HOPPER_DQ] = "dq on Hopper", [HOPPER_DK] = "dk on Hopper", [HOPPER_DV] = "dv on Hopper"};
  double most = 0;
  for (int i = first; i < end; got += tensor_bytes(b, i++) / sizeof *got) {
    int64_t cols = b->cols[i], ld = cols + GAP;
    double *out = memory_get((size_t)(b->rows * cols) * sizeof *out);
    for (int64_t j = 0; j < b->rows * ld; j++) {
      if (j % ld < cols) out[j / ld * cols + j % ld] = (double)element_get(b->t[i].type, got, j);
      else assert_int_equal(got[j], 0xffff);
    }
    for (int64_t row = 0, rows; row < b->rows; row += rows) {
      rows = b->shape.tq - row % b->shape.tq < HOPPER_KEYS ? b->shape.tq - row % b->shape.tq : HOPPER_KEYS;
      Scene want = {.out = b->x[i] + row * cols, .count = rows * cols}, have = {.out = out + row * cols, .count = rows * cols};
      most = fmax(most, worst(names[i], b->t[i].type, 2, &have, &want));
    }
  }
  return most;
}

/* Tiles that are full and not, of one head and of several, that share keys and do not; on a GPU also more of them than it runs at a time. Bits
 * must not depend on what runs first, nor on how much of it is launched at a time, nor on how
 * long a block goes on. Tolerance as above. */
void test_hopper_attention(void **unused) {
  (void)unused;
  static const AttentionShape shapes[] = {{1, 128, 128, 2, 2, 64, 1, 0}, {2, 200, 200, 2, 1, 64, 1, 0}, {1, 300, 300, 6, 2, 64, 1, 0},
                                          {1, 70, 70, 1, 1, 64, 1, 0},   {2, 257, 257, 3, 3, 64, 1, 0}, {1, 513, 513, 4, 2, 64, 1, 0},
                                          {1, 64, 64, 1, 1, 128, 1, 0},  {2, 129, 129, 2, 1, 128, 1, 0}, {1, 320, 320, 6, 2, 128, 1, 0},
                                          {2, 200, 200, 3, 3, 128, 1, 0},
                                          /* on a GPU only */
                                          {2, 2048, 2048, 8, 2, 64, 1, 0}, {4, 1024, 1024, 12, 12, 64, 1, 0}, {2, 2048, 2048, 8, 2, 128, 1, 0}};
  int all = sizeof shapes / sizeof *shapes, count = device_is_gpu() ? all : all - 3, runs = device_is_gpu() ? MOST_RUNS : 3;
  if (device_compute() != 90) {
    printf("attention on Hopper: skipped, for this GPU is of compute %d.%d\n", device_compute() / 10, device_compute() % 10);
    skip();
  }
  for (int i = 0; i < count; i++) {
    Backward b = backward_in_double(shapes[i]);
    for (int type = CUDA_BF16; type <= CUDA_F16; type++) {
      uint16_t *out[MOST_RUNS];
      size_t bytes = 0;
      backward_put(&b, type);
      assert_true(hopper_takes(&b));
      for (int t = HOPPER_DQ; t < HOPPER_TENSORS; t++) bytes += tensor_bytes(&b, t);
      for (int n = 0; n < runs; n++) {
        shim_seed((uint64_t)(31 + n));
        out[n] = run_hopper(&b, n == 1 ? 1 : b.shape.batch * b.shape.kv_heads, n == 2);
        if (memcmp(out[0], out[n], bytes) != 0) fail_msg("attention on Hopper %d, %s: another order gave other bits", i, TYPE[type]);
      }
      printf("Hopper %d               %-5s %5.2f of %.1e\n", i, TYPE[type], worst_of_hopper(&b, HOPPER_DQ, HOPPER_TENSORS, out[0]), TOLERANCE[type]);
      backward_free(&b);
    }
    memory_free();
  }
}

/* What another kernel has to do. */
void test_not_hopper_attention(void **unused) {
  (void)unused;
  Backward b = {.shape = {1, 128, 128, 2, 2, 64, 1, 1}}, other = b;
  for (int i = 0; i < HOPPER_TENSORS; i++) b.t[i] = (CudaTensor){(void *)(uintptr_t)256, 128, CUDA_BF16, 0};
  assert_true(hopper_takes(&b));
#define REFUSED(change) other = b, other.change, assert_false(hopper_takes(&other))
  REFUSED(shape.causal = 0);
  REFUSED(shape.tk = 129);
  REFUSED(shape.head_dim = 96);
  for (int i = 0; i < HOPPER_TENSORS; i++) {
    REFUSED(t[i].type = CUDA_F32);
    REFUSED(t[i].type = CUDA_F16);
    REFUSED(t[i].ld = 132);
    REFUSED(t[i].x = (void *)(uintptr_t)264);
    if (i >= HOPPER_DQ) REFUSED(t[i].add = 1);
  }
#undef REFUSED
}

/* --- Hopper, forward ---------------------------------------------------------------------------------------------------- */

/* o, as it lies in memory. */
static uint16_t *run_hopper_forward(const Backward *b, int shares, float *lse) {
  const CudaTensor *t = b->t;
  size_t bytes = tensor_bytes(b, HOPPER_O), lse_bytes = (size_t)(b->shape.heads * b->rows) * sizeof *lse;
  device_poison(t[HOPPER_O].x, bytes), device_poison(b->device_lse, lse_bytes);
  int failed = cuda_attention_hopper_fwd(device_stream(), &b->shape, shares, t[HOPPER_Q], t[HOPPER_K], t[HOPPER_V], t[HOPPER_O], b->device_lse);
  if (failed) fail_msg("forward attention on Hopper: error %d from the launch", failed);
  uint16_t *out = memory_get(bytes);
  device_fetch(out, t[HOPPER_O].x, bytes), device_fetch(lse, b->device_lse, lse_bytes);
  return out;
}

static double worst_lse(const Backward *b, int type, const float *got) {
  int64_t count = b->shape.heads * b->rows;
  double *out = memory_get((size_t)count * sizeof *out);
  for (int64_t i = 0; i < count; i++) out[i] = (double)got[i];
  Scene want = {.out = b->lse, .count = count}, have = {.out = out, .count = count};
  return worst("lse on Hopper", type, 2, &have, &want);
}

/* Tiles of queries and of keys that are full and not, of one head and of several; scores so large that maxima grow from tile to tile. Neither the
 * order of threads nor how many blocks there are may change a bit. Tolerance as above. */
void test_hopper_forward(void **unused) {
  (void)unused;
  static const AttentionShape shapes[] = {{1, 1, 1, 1, 1, 64, 1, 0},       {2, 64, 64, 2, 1, 64, 1, 0},    {1, 127, 127, 2, 2, 128, 1, 0},
                                          {1, 128, 128, 4, 2, 64, 1, 0},   {2, 129, 129, 2, 1, 128, 1, 0}, {2, 300, 300, 6, 2, 64, 1, 4},
                                          {1, 300, 300, 2, 2, 128, 1, 40}, {1, 513, 513, 2, 1, 64, 1, 40}, {1, 513, 513, 2, 1, 128, 1, 0},
                                          {1, 1, 1, 3, 1, 128, 1, 0},      {1, 250, 250, 2, 1, 64, 1, 0},
                                          /* on a GPU only */
                                          {2, 2048, 2048, 8, 2, 64, 1, 40}, {8, 1024, 1024, 25, 25, 64, 1, 0}, {2, 2048, 2048, 8, 2, 128, 1, 4}};
  int all = sizeof shapes / sizeof *shapes, count = device_is_gpu() ? all : all - 3, runs = device_is_gpu() ? MOST_RUNS : 3;
  if (device_compute() != 90) {
    printf("forward attention on Hopper: skipped, for this GPU is of compute %d.%d\n", device_compute() / 10, device_compute() % 10);
    skip();
  }
  for (int i = 0; i < count; i++) {
    Backward b = backward_in_double(shapes[i]);
    for (int type = CUDA_BF16; type <= CUDA_F16; type++) {
      uint16_t *out[MOST_RUNS];
      size_t statistics = (size_t)(b.shape.heads * b.rows) * sizeof(float);
      float *lse[MOST_RUNS];
      backward_put(&b, type);
      assert_true(cuda_attention_hopper_fwd_takes(&b.shape, b.t[HOPPER_Q], b.t[HOPPER_K], b.t[HOPPER_V], b.t[HOPPER_O]));
      for (int n = 0; n < runs; n++) {
        shim_seed((uint64_t)(31 + n));
        lse[n] = memory_get(statistics);
        out[n] = run_hopper_forward(&b, n == 1, lse[n]);
        if (memcmp(out[0], out[n], tensor_bytes(&b, HOPPER_O)) != 0 || memcmp(lse[0], lse[n], statistics) != 0)
          fail_msg("forward attention on Hopper %d, %s: another order gave other bits", i, TYPE[type]);
      }
      printf("Hopper forward %d       %-5s %5.2f, lse %5.2f, of %.1e\n", i, TYPE[type], worst_of_hopper(&b, HOPPER_O, HOPPER_O + 1, out[0]),
             worst_lse(&b, type, lse[0]), TOLERANCE[type]);
      backward_free(&b);
    }
    memory_free();
  }
}

/* What another kernel has to do. */
void test_not_hopper_forward(void **unused) {
  (void)unused;
  Backward b = {.shape = {1, 128, 128, 2, 2, 64, 1, 1}}, other;
  for (int i = 0; i < HOPPER_TENSORS; i++) b.t[i] = (CudaTensor){(void *)(uintptr_t)256, 256, CUDA_BF16, 0};
#define TAKES(change)                                                                                                                  \
  (other = b, other.change, cuda_attention_hopper_fwd_takes(&other.shape, other.t[HOPPER_Q], other.t[HOPPER_K], other.t[HOPPER_V], other.t[HOPPER_O]))
  assert_true(TAKES(shape.batch = 2));
  assert_true(TAKES(shape.head_dim = 128));
  assert_false(TAKES(shape.head_dim = 96));
  assert_false(TAKES(shape.causal = 0));
  assert_false(TAKES(shape.tk = 129));
  assert_false(TAKES(shape.scale = -1));
  for (int i = HOPPER_Q; i <= HOPPER_O; i++) {
    assert_false(TAKES(t[i].type = CUDA_F32));
    assert_false(TAKES(t[i].type = CUDA_F16));
    assert_false(TAKES(t[i].ld = 260));
    assert_false(TAKES(t[i].x = (void *)(uintptr_t)264));
    assert_false(TAKES(t[i].add = 1));
  }
#undef TAKES
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
