/* Owns: every CUDA kernel against the CPU's in double, over the scenarios of tests/kernels: f32 closely, bf16 and f16
 * within what their 8 and 11 bits allow. Under the shim, in several orders of threads and blocks too. */
#include "tests/cuda/adapter.h"
#include "tests/cuda/host_product.h"
#include "tests/cuda/updates_test.h"
#include "tests/kernels/scenario.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void shim_seed(uint64_t seed); /* where there is no shim, nothing to seed */

/* Relative to the output and to the scenario's root mean square. */
static const double TOLERANCE[] = {[CUDA_F32] = 6e-6, [CUDA_BF16] = 2.5e-2, [CUDA_F16] = 4e-3};
static const char *const TYPE[] = {"f32", "bf16", "f16"};

/* Initial values come from the CPU; sums over ranks of 16 bits are tested below. */
static bool has_type(const Scenario *s, int type) {
  return type == CUDA_F32 || (strcmp(s->name, "init") != 0 && strcmp(s->name, "tree_sum") != 0);
}

static double typical_of(const Scene *scene) {
  double squares = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < scene->count; i++)
    if (isfinite(scene->out[i])) squares += scene->out[i] * scene->out[i], finite++;
  return sqrt(squares / (double)finite);
}

/* The largest error, in units of what is allowed: `slack` times the tolerance. */
static double worst(const Scenario *scenario, int type, double slack, const Scene *got, const Scene *expected) {
  double typical = typical_of(expected), most = 0;
  assert_int_equal(got->count, expected->count);
  for (int64_t i = 0; i < got->count; i++) {
    double want = expected->out[i], error = fabs(got->out[i] - want);
    if (got->out[i] == want) continue;
    error /= slack * TOLERANCE[type] * (typical + fabs(want));
    if (!(error <= 1))
      fail_msg("%s, %s: output %ld is %.9g, in double %.9g", scenario->name, TYPE[type], (long)i, got->out[i], want);
    if (error > most) most = error;
  }
  return most;
}

/* Buffers of optimizers start on 16-byte boundaries, as shards do. */
static int64_t shift_of(const Scenario *s, int type) {
  return type == CUDA_F32 && strcmp(s->name, "optimizers") != 0 ? 1 : 0;
}

static void test_against_double(void **unused) {
  (void)unused;
  KernelContext alone = {0};
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    Scene expected = {.state = 5};
    SCENARIOS[i].f64(&expected, kernels_cpu_f64(), &alone);
    for (int type = CUDA_F32; type <= CUDA_F16; type++) {
      if (!has_type(&SCENARIOS[i], type)) continue;
      Adapter adapter = {.type = type};
      Scene got = {.state = 5, .misaligned = shift_of(&SCENARIOS[i], type)};
      shim_seed((uint64_t)(type + 1));
      SCENARIOS[i].f32(&got, &adapter_table, &adapter.context);
      printf("%-22s %-5s %5.2f of %.1e\n", SCENARIOS[i].name, TYPE[type],
             worst(&SCENARIOS[i], type, 1, &got, &expected), TOLERANCE[type]);
    }
    memory_free();
  }
}

/* The order in which threads and blocks run must not show. */
static void test_same_in_any_order(void **unused) {
  (void)unused;
  for (int i = 0; i < SCENARIO_COUNT; i++) {
    Scene first = {.state = 5}, second = {.state = 5};
    Adapter adapter = {.type = CUDA_BF16};
    if (!has_type(&SCENARIOS[i], CUDA_BF16) || strncmp(SCENARIOS[i].name, "linear", 6) == 0) continue;
    shim_seed(11);
    SCENARIOS[i].f32(&first, &adapter_table, &adapter.context);
    shim_seed(12);
    SCENARIOS[i].f32(&second, &adapter_table, &adapter.context);
    assert_int_equal(first.count, second.count);
    if (memcmp(first.out, second.out, (size_t)first.count * sizeof *first.out) != 0)
      fail_msg("%s: another order of threads gave other bits", SCENARIOS[i].name);
    memory_free();
  }
}

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
static void test_tensor_core_attention(void **unused) {
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
      Scenario scenario = {.name = "attention on tensor cores"};
      Adapter adapter = {.type = type};
      Scene got = attend(&adapter_table, &adapter.context, shapes[i]);
      printf("tensor cores %zu         %-5s %5.2f of %.1e\n", i, TYPE[type], worst(&scenario, type, 2, &got, &expected),
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
  Scenario scenarios[] = {{.name = "o of single rows"}, {.name = "lse of single rows"}};
  Scene got_o = from(got, 0, o), want_o = from(expected, 0, o), got_lse = from(got, o, lse), want_lse = from(expected, o, lse);
  return fmax(worst(&scenarios[0], type, 2, &got_o, &want_o), worst(&scenarios[1], type, 2, &got_lse, &want_lse));
}

/* Keys in one part and in many, of one tile and of several, full and not; heads that do not share keys, that share them within a
 * block and over several; on tensor cores the heads of 64, 96 and 128 dimensions in 16 bits. Tolerance as above. */
static void test_attention_of_single_rows(void **unused) {
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
static void test_scratch_of_single_rows(void **unused) {
  (void)unused;
  for (int64_t kv = 1; kv <= 1024; kv *= 2)
    for (int64_t keys = 1; keys < 40000; keys += 63) {
      AttentionShape shape = {1, 1, keys, kv, kv, 64, 1, 0}, longer = shape;
      longer.tk++;
      assert_true(cuda_attention_fwd_scratch(&shape) <= cuda_attention_fwd_scratch(&longer));
    }
}

/* --- parameters without f32 masters --------------------------------------------------------------------------------- */

enum { WEIGHTS = 333, ROOM = 336 /* rows stay aligned */, OPTIMIZERS = 3 };

static void optimize(int which, const KernelTable *t, const KernelContext *k, const float *g, void *w, float *m, float *v) {
  const AdamwRates adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .bias1 = 0.1, .bias2 = 0.05, .grad_scale = 1};
  const LionRates lion = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1, .grad_scale = 1};
  const SgdRates sgd = {.lr = 1e-2, .momentum = 0.9, .decay = 0.1, .grad_scale = 1};
  if (which == 0) t->adamw(k, WEIGHTS, &adamw, g, w, m, v);
  if (which == 1) t->lion(k, WEIGHTS, &lion, g, w, m);
  if (which == 2) t->sgd(k, WEIGHTS, &sgd, g, w, m);
}

/* x as the CPU's optimizers keep it: SGD moves zeros there. */
static void keep_on_cpu(const WeightStore *store, const float *x, Half *out) {
  const KernelContext k = {.weights = store};
  const SgdRates rates = {.lr = 1, .grad_scale = 1};
  float g[WEIGHTS];
  for (int i = 0; i < WEIGHTS; i++) g[i] = -x[i], out[i] = (Half){0};
  kernels_cpu_named("portable")->sgd(&k, WEIGHTS, &rates, g, out, NULL);
}

/* Weights of 16 bits are updated as f32 ones are, and then rounded by the CPU's random bits, or to nearest. */
static void test_weights_without_masters(void **unused) {
  (void)unused;
  for (int n = 0; n < OPTIMIZERS * 4; n++) {
    int which = n / 4, type = n % 2 ? CUDA_BF16 : CUDA_F32;
    WeightStore store = {FLOAT_BF16, n / 2 % 2, 7, 3, 5, 1000 * n};
    uint64_t state = 11;
    _Alignas(64) float g[ROOM], w[ROOM], m[2][ROOM] = {{0}}, v[2][ROOM];
    Half h[WEIGHTS], want[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) {
      g[i] = (float)coarse_value_next(&state), w[i] = (float)coarse_value_next(&state), h[i] = bf16_of_float(w[i]);
      v[0][i] = v[1][i] = 1;
    }
    g[5] = NAN, g[6] = INFINITY;
    Adapter masters = {.type = type}, alone = {.context = {.weights = &store}, .type = type};
    optimize(which, &adapter_table, &masters.context, g, w, m[0], v[0]);
    optimize(which, &adapter_table, &alone.context, g, h, m[1], v[1]);
    keep_on_cpu(&store, w, want);
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    for (int i = 0; i < WEIGHTS; i++)
      if (h[i].bits != want[i].bits && !isnan((double)float_of_bf16(want[i])))
        fail_msg("optimizer %d, gradient %s, weight %d: %04x, the CPU keeps %04x", which, TYPE[type], i, h[i].bits, want[i].bits);
    assert_true(isnan((double)float_of_bf16(h[5])) || which == 1); /* Lion takes a sign, and NaN has none */
  }
}

/* --- sums over ranks ------------------------------------------------------------------------------------------------- */

enum { SUMMANDS = 200, PEERS = 43 };

/* Bit by bit what the CPU's kernel gives, whose partial sums are rounded to 16 bits too. */
static void test_sums_of_16_bits(void **unused) {
  (void)unused;
  static const int32_t counts[] = {1, 2, 3, 4, 7, 8, 21, PEERS};
  for (int n = 0; n < 2 * 2 * (int)(sizeof counts / sizeof *counts); n++) {
    int type = n % 2 ? CUDA_BF16 : CUDA_F16, add = n / 2 % 2;
    uint64_t state = 21;
    const float *floats[PEERS];
    const void *halves[PEERS];
    for (int r = 0; r < PEERS; r++) {
      float *x = memory_get(SUMMANDS * sizeof *x);
      uint16_t *h = memory_get(SUMMANDS * sizeof *h);
      for (int i = 0; i < SUMMANDS; i++) element_set(type, h, i, 3 * (float)value_next(&state)), x[i] = element_get(type, h, i);
      floats[r] = x, halves[r] = h;
    }
    float *sum = memory_get(SUMMANDS * sizeof *sum);
    uint16_t *want = memory_get(SUMMANDS * sizeof *want);
    for (int i = 0; i < SUMMANDS; i++) element_set(type, want, i, 1), sum[i] = 1;
    adapter_table.tree_sum(SUMMANDS, counts[n / 4], (FloatType)type, (const void *const *)floats, sum, add);
    kernels_cpu_named("portable")->tree_sum(SUMMANDS, counts[n / 4], (FloatType)type, halves, want, add);
    for (int i = 0; i < SUMMANDS; i++)
      if (sum[i] != element_get(type, want, i))
        fail_msg("%s, %d ranks: sum %d is %g, on the CPU %g", TYPE[type], (int)counts[n / 4], i, (double)sum[i],
                 (double)element_get(type, want, i));
    memory_free();
  }
}

/* --- 16-byte accesses against single ones -------------------------------------------------------------------------- */

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

/* ROWS positions of two samples, heads of 32. */
static void turns(const KernelTable *t, const KernelContext *k, Both *b, int add) {
  RopeShape shape = {.batch = 2, .seq = ROWS / 2, .heads = COLS / 34, .head_dim = 32, .theta = 10000};
  t->rope(k, &shape, 0, b->in[0], COLS, b->out[0], COLS, 0);
  t->rope(k, &shape, 1, b->in[1], COLS, b->out[1], COLS, add);
}

static void test_wide_against_single(void **unused) {
  (void)unused;
  void (*const cases[])(const KernelTable *, const KernelContext *, Both *, int) = {
      element_wise, broadcasts, norms, embeddings, losses, differences, attentions, turns};
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

/* More rows than a block compares tokens of at a time, and tokens that are everywhere, rare, or once at each end. Sums are in
 * row order, as the CPU's. */
static void test_embedding_gradient_of_many_rows(void **unused) {
  enum { TOKENS = 6301, VOCAB = 37, D = 8 };
  static int32_t tokens[TOKENS];
  static float dy[TOKENS * D], want[VOCAB * D], got[VOCAB * D];
  (void)unused;
  for (int i = 0; i < TOKENS; i++) tokens[i] = i % 4 != 0 ? 7 : i < 900 ? i * i % (VOCAB - 2) : i / 4 % 30;
  tokens[0] = tokens[TOKENS - 1] = VOCAB - 2, tokens[700] = VOCAB, tokens[5000] = -1;
  for (int type = CUDA_F32; type <= CUDA_BF16; type++) {
    uint64_t state = 51;
    for (int i = 0; i < TOKENS * D; i++) dy[i] = (float)(type == CUDA_F32 ? value_next(&state) : coarse_value_next(&state));
    Adapter adapter = {.type = type};
    KernelContext alone = {0};
    kernels_cpu_named("portable")->embedding_bwd(&alone, TOKENS, VOCAB, D, tokens, dy, D, want, 0);
    adapter_table.embedding_bwd(&adapter.context, TOKENS, VOCAB, D, tokens, dy, D, got, 0);
    assert_memory_equal(got, want, sizeof want);
  }
}

/* --- every number of 16 bits ------------------------------------------------------------------------------------------- */

enum { NUMBERS = 1 << 16 };

/* gelu's erf form and its gradient are as close as rounding lets them be, and 1e-4 of the result. */
static void test_gelu_of_all_halves(void **unused) {
  static const double ROUNDING[] = {[CUDA_BF16] = 0x1p-8, [CUDA_F16] = 0x1p-11}, LEAST[] = {[CUDA_BF16] = 1e-36, [CUDA_F16] = 0x1p-25};
  (void)unused;
  for (int type = CUDA_BF16; type <= CUDA_F16; type++) {
    float *x = memory_get(3 * NUMBERS * sizeof *x), *y = x + NUMBERS, *one = y + NUMBERS, *dx = memory_get(NUMBERS * sizeof *dx);
    for (int i = 0; i < NUMBERS; i++) x[i] = element_get(type, &(uint16_t){(uint16_t)i}, 0), one[i] = 1;
    Adapter adapter = {.type = type};
    adapter_table.gelu_fwd(&adapter.context, 1, NUMBERS, 1, x, NUMBERS, y, NUMBERS);
    adapter_table.gelu_bwd(&adapter.context, 1, NUMBERS, 1, x, NUMBERS, one, NUMBERS, dx, NUMBERS, 0);
    for (int i = 0; i < NUMBERS; i++) {
      double v = (double)x[i], cdf = erfc(-v * sqrt(0.5)) / 2, slope = cdf + v * exp(-v * v / 2) / sqrt(2 * acos(-1.0));
      double allowed = ROUNDING[type] + 1e-4, want = v * cdf;
      if (isnan(v)) assert_true(isnan((double)y[i]) && isnan((double)dx[i]));
      if (!isfinite(v)) continue;
      if (!(fabs((double)y[i] - want) <= allowed * fabs(want) + LEAST[type]))
        fail_msg("%s: gelu(%g) is %g, not %g", TYPE[type], v, (double)y[i], want);
      if (!(fabs((double)dx[i] - slope) <= allowed * fabs(slope) + 1e-5 * fmin(cdf, 1 - cdf) * (1 + fabs(v)) + LEAST[type]))
        fail_msg("%s: the slope at %g is %g, not %g", TYPE[type], v, (double)dx[i], slope);
    }
    memory_free();
  }
}

/* --- logits that are no numbers, rows of any length --------------------------------------------------------------------- */

enum { LOGIT_ROWS = 9, MOST_LOGITS = 9001 };

/* Row by row: what a row of logits must survive, or show. */
static void logits_of(int type, int64_t vocab, float *x) {
  uint64_t state = 61;
  for (int64_t i = 0; i < LOGIT_ROWS * vocab; i++) x[i] = 20 * (float)coarse_value_next(&state);
  for (int64_t i = 0; i < vocab; i++) x[1 * vocab + i] = -INFINITY, x[3 * vocab + i] = NAN;
  for (int64_t i = 0; i + 1 < vocab; i++) x[2 * vocab + i] = -INFINITY; /* but for the last */
  x[4 * vocab + vocab / 2] = NAN;
  x[5 * vocab + vocab / 3] = INFINITY;
  x[6 * vocab + vocab / 2] = 16000, x[7 * vocab] = -16000;
  for (int64_t i = 0; i < vocab; i++) x[8 * vocab + i] = i % 3 != 0 ? -INFINITY : i % 2 == 0 ? 3 : 3.5f;
  uint16_t h[1];
  for (int64_t i = 0; type != CUDA_F32 && i < LOGIT_ROWS * vocab; i++) element_set(type, h, 0, x[i]), x[i] = element_get(type, h, 0);
}

static void same_numbers(int type, int64_t vocab, int64_t n, const float *got, const float *want) {
  for (int64_t i = 0; i < n; i++)
    if (isnan((double)got[i]) != isnan((double)want[i]) ||
        (!isnan((double)want[i]) && got[i] != want[i] && !(fabsf(got[i] - want[i]) <= (float)TOLERANCE[type] * (0.05f + fabsf(want[i])))))
      fail_msg("%s, %ld logits: output %ld is %.9g, on the CPU %.9g", TYPE[type], (long)vocab, (long)i, (double)got[i], (double)want[i]);
}

/* Rows lie one behind the other, so that they begin anywhere in 16 bytes. */
static void test_cross_entropy_of_odd_logits(void **unused) {
  static const int64_t sizes[] = {1, 5, 8, 17, 515, 4099, 8192, MOST_LOGITS};
  (void)unused;
  for (size_t n = 0; n < 3 * sizeof sizes / sizeof *sizes; n++) {
    int type = (int)(n % 3);
    int64_t vocab = sizes[n / 3];
    float *want = memory_get((size_t)(LOGIT_ROWS * vocab) * sizeof *want), *got = memory_get((size_t)(LOGIT_ROWS * vocab) * sizeof *got);
    float losses[2][LOGIT_ROWS];
    double loss[2] = {0, 0};
    int32_t targets[LOGIT_ROWS];
    KernelContext alone = {0};
    Adapter adapter = {.type = type};
    for (int i = 0; i < LOGIT_ROWS; i++) targets[i] = i < 3 ? (int32_t)vocab - 1 : (int32_t)(i * vocab / LOGIT_ROWS);
    logits_of(type, vocab, want), logits_of(type, vocab, got);
    kernels_cpu_named("portable")->cross_entropy(&alone, LOGIT_ROWS, vocab, -100, 4, want, vocab, targets, &loss[0], losses[0]);
    adapter_table.cross_entropy(&adapter.context, LOGIT_ROWS, vocab, -100, 4, got, vocab, targets, &loss[1], losses[1]);
    same_numbers(type, vocab, LOGIT_ROWS, losses[1], losses[0]);
    same_numbers(type, vocab, LOGIT_ROWS * vocab, got, want);
    memory_free();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_against_double),
      cmocka_unit_test(test_tensor_core_attention),
      cmocka_unit_test(test_attention_of_single_rows),
      cmocka_unit_test(test_scratch_of_single_rows),
      cmocka_unit_test(test_weights_without_masters),
      cmocka_unit_test(test_sums_of_16_bits),
      cmocka_unit_test(test_sums_of_squares),
      cmocka_unit_test(test_sums_of_spread_squares),
      cmocka_unit_test(test_adafactor),
      cmocka_unit_test(test_embedding_gradient_of_many_rows),
      cmocka_unit_test(test_gelu_of_all_halves),
      cmocka_unit_test(test_cross_entropy_of_odd_logits),
      cmocka_unit_test(test_wide_against_single),
      cmocka_unit_test(test_same_in_any_order),
  };
  setvbuf(stdout, NULL, _IOLBF, 0);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
