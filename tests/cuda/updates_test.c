/* Owns: tests of what updates weights: optimizers of weights without f32 masters, and what reads a whole shard, which is sums of squares
 * and Adafactor, aligned and not, of shards that begin in the middle of a row. The CPU's kernels are the reference: integers and exact
 * sums must be theirs to the bit. */
#include "tests/cuda/kernel_tests.h"

#include "kernels/exact.h"
#include "tests/cuda/adapter.h"
#include "tests/cuda/closeness.h"
#include "tests/cuda/host_product.h"
#include "tests/kernels/support.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const KernelTable *cpu(void) { return kernels_cpu_named("portable"); }
static size_t bytes_of(int type) { return type == CUDA_F32 ? 4 : 2; }

/* --- weights without f32 masters ------------------------------------------------------------------------------------ */

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
  cpu()->sgd(&k, WEIGHTS, &rates, g, out, NULL);
}

/* Weights of 16 bits are updated as f32 ones are, and then rounded by the CPU's random bits, or to nearest. */
void test_weights_without_masters(void **unused) {
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

/* --- sums of squares ------------------------------------------------------------------------------------------------- */

/* What a kernel is handed: a copy on the device of `bytes`, `shift` bytes behind an aligned address. */
static void *on_device(const void *host, size_t bytes, size_t shift) {
  char *at = device_get(bytes + shift);
  assert_non_null(at);
  device_put(at + shift, host, bytes);
  return at + shift;
}

/* Random elements of a type; memory of memory_get. */
static void *elements(int type, int64_t n, uint64_t *state) {
  void *x = memory_get((size_t)n * bytes_of(type));
  for (int64_t i = 0; i < n; i++) element_set(type, x, i, (float)value_next(state));
  return x;
}

/* The exact sum of g's squares over the ranges of a shard, as the kernel leaves its digits. */
static void squares_of(CudaRanges ranges, int64_t shard, int type, const void *g, size_t shift, int64_t *got) {
  CudaRanges there = {on_device(ranges.data, (size_t)ranges.count * sizeof *ranges.data, 0), ranges.count};
  CudaTensor x = {on_device(g, (size_t)shard * bytes_of(type), shift * bytes_of(type)), shard, type, 0};
  int64_t *acc = on_device(got, EXACT_WORDS * sizeof *got, 0);
  assert_int_equal(cuda_sum_squares(device_stream(), there, shard, x, acc), 0);
  device_fetch(got, acc, EXACT_WORDS * sizeof *got);
  device_free((void *)(uintptr_t)there.data), device_free(x.x), device_free(acc);
}

/* Digit by digit, carried. */
static void same_sums(const int64_t *got, const int64_t *want) {
  int64_t a[EXACT_WORDS] = {0}, b[EXACT_WORDS] = {0};
  exact_merge(a, got), exact_merge(b, want);
  assert_memory_equal(a, b, sizeof a);
}

void test_sums_of_squares(void **unused) {
  static const int64_t counts[] = {1, 7, 63, 64, 65, 300, 40000};
  uint64_t state = 31;
  (void)unused;
  for (size_t n = 0; n < 6 * sizeof counts / sizeof *counts; n++) {
    int type = (int)(n % 3);
    int64_t count = counts[n / 6], want[EXACT_WORDS] = {0}, got[EXACT_WORDS] = {0};
    KernelContext k = {.gradient = (FloatType)type};
    void *g = elements(type, count, &state);
    CudaRange range = {.count = count};
    cpu()->sum_squares(&k, count, g, want);
    squares_of((CudaRanges){&range, 1}, count, type, g, n / 3 % 2, got);
    same_sums(got, want);
    memory_free();
  }
}

/* Runs whose squares begin in words far apart, next to each other, nowhere, or are no numbers. */
typedef enum { FAR_APART, NEIGHBOURS, MOSTLY_ZERO, INFINITE, SPREADS } Spread;

static float spread_value(Spread spread, int64_t run, uint64_t *state) {
  float x = (float)value_next(state);
  if (spread == FAR_APART) return ldexpf(x, (int)(run * 37 % 230) - 120);
  if (spread == NEIGHBOURS) return ldexpf(x, (int)(run % 30));
  if (spread == MOSTLY_ZERO) return run % 23 == 5 ? x : 0;
  return run == 77 ? INFINITY : x;
}

/* A shard of several parameters, with NaN in the padding between them. */
void test_sums_of_spread_squares(void **unused) {
  static const CudaRange ranges[] = {{.first = 0, .count = 5000}, {.first = 5056, .count = 64}, {.first = 5248, .count = 14001}};
  enum { RANGES = sizeof ranges / sizeof *ranges, SHARD = 5248 + 14016 };
  uint64_t state = 37;
  (void)unused;
  for (int n = 0; n < 2 * 2 * SPREADS; n++) {
    int type = n % 2 ? CUDA_BF16 : CUDA_F32;
    int64_t want[EXACT_WORDS] = {0}, got[EXACT_WORDS] = {0};
    KernelContext k = {.gradient = (FloatType)type};
    char *g = memory_get((size_t)SHARD * bytes_of(type));
    for (int64_t i = 0; i < SHARD; i++) element_set(type, g, i, NAN);
    for (int r = 0; r < RANGES; r++) {
      for (int64_t i = ranges[r].first; i < ranges[r].first + ranges[r].count; i++)
        element_set(type, g, i, spread_value((Spread)(n / 4), i / 64, &state));
      cpu()->sum_squares(&k, ranges[r].count, g + (size_t)ranges[r].first * bytes_of(type), want);
    }
    squares_of((CudaRanges){ranges, RANGES}, SHARD, type, g, (size_t)n / 2 % 2, got);
    same_sums(got, want);
    assert_int_equal(isnan(exact_value(got)), n / 4 == INFINITE);
    memory_free();
  }
}

/* Of so many squares that a few ranks' words, added as they are, would not fit. */
void test_carries_of_sums(void **unused) {
  enum { MARKER = EXACT_WORDS - 1 };
  int64_t before[EXACT_WORDS], got[EXACT_WORDS];
  uint64_t state = 43;
  (void)unused;
  for (int marked = 0; marked < 2; marked++) {
    for (int i = 0; i < EXACT_WORDS; i++) before[i] = INT64_C(1) << 62 | (int64_t)(fabs(value_next(&state)) * 0x1p60);
    before[MARKER - 1] = 0, before[MARKER] = marked * 9;
    int64_t *acc = on_device(before, sizeof before, 0);
    assert_int_equal(cuda_exact_carry(device_stream(), acc), 0);
    device_fetch(got, acc, sizeof got);
    device_free(acc);
    same_sums(got, before);
    for (int i = 0; i < MARKER; i++) assert_in_range(got[i], 0, UINT32_MAX);
  }
}

/* --- Adafactor ------------------------------------------------------------------------------------------------------ */

/* Parameters of a unit and what of them lies in the shard. */
static const struct Part {
  int64_t rows, cols; /* cols 0: a vector */
  int64_t first, count;
} PARTS[] = {{5, 64, 0, 320},   {7, 36, 64, 130}, {9, 37, 64, 200},     {3, 200, 128, 472}, {130, 0, 64, 66},
             {20, 40, 3, 500},  {6, 8, 0, 0},     {150, 520, 1000, 70001}, {40, 0, 0, 40}};
enum { COUNT = sizeof PARTS / sizeof *PARTS, PADDING = 7 };

/* Arrays lie on the host; what a kernel writes is fetched. */
typedef struct Unit {
  CudaFactored param[COUNT];
  int64_t shard, moments;
  void *g;      /* NaN between parameters */
  float *w, *v; /* w: PADDING there */
  int64_t acc[EXACT_WORDS], *sums, *norms; /* sums: then the weights' exact squares */
  int type;
} Unit;

static int64_t words_of(const Unit *u) { return u->moments + COUNT * EXACT_WORDS; }

static int64_t *zeros(int64_t words) {
  return memset(memory_get((size_t)words * sizeof(int64_t)), 0, (size_t)words * sizeof(int64_t));
}

static Unit unit_of(int type) {
  Unit u = {.type = type};
  uint64_t state = 41;
  KernelContext k = {.gradient = (FloatType)type};
  for (int i = 0; i < COUNT; i++) {
    int64_t rows = PARTS[i].rows, cols = PARTS[i].cols;
    CudaFactored *p = &u.param[i];
    *p = (CudaFactored){.rows = rows, .cols = cols > 0 ? cols : 1, .row_at = u.moments, .decay = i % 2 * 0.1};
    p->col_at = cols > 0 ? u.moments + rows : -1;
    p->first = PARTS[i].first, p->count = PARTS[i].count, p->local = u.shard;
    u.moments += PARTS[i].rows + cols;
    u.shard += (PARTS[i].count + 63) / 64 * 64;
  }
  u.g = elements(type, u.shard, &state), u.w = elements(CUDA_F32, u.shard, &state);
  u.v = elements(CUDA_F32, u.moments, &state);
  u.sums = zeros(words_of(&u)), u.norms = zeros(COUNT * EXACT_WORDS);
  for (int64_t i = 0; i < u.moments; i++) u.v[i] *= u.v[i];
  for (int i = 0; i < COUNT; i++) {
    int64_t end = u.param[i].local + u.param[i].count, next = i + 1 < COUNT ? u.param[i + 1].local : u.shard;
    for (int64_t j = end; j < next; j++) element_set(type, u.g, j, NAN), u.w[j] = PADDING;
    cpu()->sum_squares(&k, u.param[i].count, (char *)u.g + (size_t)u.param[i].local * bytes_of(type), u.acc);
  }
  return u;
}

static const CudaAdafactor RATES = {.eps = 1e-3, .eps2 = 1e-3, .threshold = 1, .beta2_decay = -0.8};
static const CudaStep STEP = {.step = 5, .update = 3, .lr = 1e-2};
static const float SCALE = 0.5f;

/* As runtime/cpu/cpu_adafactor.c does with a parameter. */
static void expect_part(Unit *u, int i, double grid) {
  const CudaFactored *p = &u->param[i];
  KernelContext k = {.gradient = (FloatType)u->type}, f32 = {0};
  const void *g = (char *)u->g + (size_t)p->local * bytes_of(u->type);
  bool matrix = p->col_at >= 0;
  int64_t *rows = u->sums + p->row_at, *cols = matrix ? u->sums + p->col_at : NULL;
  int64_t *squares = u->sums + u->moments + i * EXACT_WORDS, *norm = u->norms + i * EXACT_WORDS;
  float *row = u->v + p->row_at, *col = matrix ? u->v + p->col_at : NULL;
  double weight = pow((double)STEP.update, RATES.beta2_decay), unit = (double)SCALE * SCALE / grid, mean = 0;
  if (p->count > 0) cpu()->adafactor_sums(&k, p->first, p->count, p->cols, grid, g, rows, cols);
  cpu()->sum_squares(&f32, p->count, u->w + p->local, squares);
  cpu()->adafactor_average(p->rows, weight, unit / (double)p->cols, rows, row);
  if (matrix) cpu()->adafactor_average(p->cols, weight, unit / (double)p->rows, cols, col);
  for (int64_t r = 0; r < p->rows; r++) mean += (double)row[r] / (double)p->rows;
  AdafactorRates rates = {.grad_scale = SCALE, .row_scale = 1 / fmax(mean, RATES.eps), .floor = RATES.eps * RATES.eps};
  cpu()->adafactor_norm(&k, &rates, p->first, p->count, p->cols, row, col, g, norm);
  double n = (double)(p->rows * p->cols);
  rates.keep = 1 - STEP.lr * p->decay;
  rates.step = fmax(RATES.eps2, sqrt(exact_value(squares) / n)) * fmin(STEP.lr, 1 / sqrt((double)STEP.update)) /
               fmax(1, sqrt(exact_value(norm) / n) / RATES.threshold);
  cpu()->adafactor(&k, &rates, p->first, p->count, p->cols, row, col, g, u->w + p->local);
}

static void expect(Unit *u) {
  int exponent;
  frexp(exact_value(u->acc), &exponent);
  for (int i = 0; i < COUNT; i++) expect_part(u, i, ldexp(1, 62 - exponent));
}

/* The same by the three kernels' functions; the cast is in the gradient's type. Returns what the update's launch says. */
static int run(Unit *u, size_t shift, void *cast_out) {
  size_t n = (size_t)u->shard, words = (size_t)words_of(u) * sizeof(int64_t);
  size_t norm_bytes = COUNT * EXACT_WORDS * sizeof(int64_t);
  CudaFactoreds params = {on_device(u->param, sizeof u->param, 0), COUNT, u->moments};
  CudaTensor g = {on_device(u->g, n * bytes_of(u->type), shift * bytes_of(u->type)), u->shard, u->type, 0};
  CudaTensor w = {on_device(u->w, n * sizeof(float), shift * sizeof(float)), u->shard, CUDA_F32, 0};
  CudaTensor cast = {cast_out != NULL ? on_device(u->g, n * bytes_of(u->type), 0) : NULL, u->shard, u->type, 0};
  int64_t *acc = on_device(u->acc, sizeof u->acc, 0), *sums = on_device(u->sums, words, 0);
  int64_t *norms = on_device(u->norms, norm_bytes, 0);
  float *v = on_device(u->v, (size_t)u->moments * sizeof(float), 0), *scale = on_device(&SCALE, sizeof SCALE, 0);
  CudaStep *step = on_device(&STEP, sizeof STEP, 0);
  void *scratch = device_get(cuda_adafactor_scratch(COUNT));
  CudaUpdate update = {.step = step, .shard = u->shard, .g = g, .scale = scale, .w = w, .cast = cast};
  assert_int_equal(cuda_adafactor_sums(device_stream(), params, u->shard, g, w, acc, sums, scratch), 0);
  int status = cuda_adafactor_moments(device_stream(), step, RATES, params, u->shard, g, acc, scale, sums, v, norms, scratch);
  assert_int_equal(status, 0);
  status = cuda_adafactor(device_stream(), &update, RATES, params, sums, norms, v, scratch);
  device_fetch(u->sums, sums, words), device_fetch(u->norms, norms, norm_bytes);
  device_fetch(u->v, v, (size_t)u->moments * sizeof(float)), device_fetch(u->w, w.x, n * sizeof(float));
  if (cast_out != NULL) device_fetch(cast_out, cast.x, n * bytes_of(u->type));
  void *all[] = {(void *)(uintptr_t)params.data, g.x, w.x, cast.x, acc, sums, norms, v, scale, step, scratch};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i] != NULL) device_free(all[i]);
  return status;
}

static void close_to(const char *what, int64_t i, double got, double want) {
  if (!(fabs(got - want) <= 1e-5 * fabs(want) + 1e-9))
    fail_msg("%s %ld is %.9g, on the CPU %.9g", what, (long)i, got, want);
}

static void compare_sums(const Unit *got, const Unit *want) {
  for (int64_t i = 0; i < got->moments; i++)
    if (got->sums[i] != want->sums[i])
      fail_msg("sum %ld is %ld, on the CPU %ld", (long)i, (long)got->sums[i], (long)want->sums[i]);
  for (int64_t i = 0; i < got->moments; i++) close_to("moment", i, (double)got->v[i], (double)want->v[i]);
  for (int64_t i = 0; i < COUNT; i++) {
    int64_t squares = got->moments + i * EXACT_WORDS;
    assert_true(exact_value(got->sums + squares) == exact_value(want->sums + squares));
    close_to("norm", i, exact_value(got->norms + i * EXACT_WORDS), exact_value(want->norms + i * EXACT_WORDS));
  }
}

/* Weights, their copies, and the padding, which stays as it was. */
static void compare_weights(const Unit *got, const Unit *want, const void *cast) {
  uint16_t rounded[1];
  for (int p = 0; p < COUNT; p++)
    for (int64_t i = got->param[p].local; i < got->param[p].local + got->param[p].count; i++) {
      close_to("weight", i, (double)got->w[i], (double)want->w[i]);
      if (cast == NULL) continue;
      element_set(got->type, rounded, 0, got->w[i]);
      assert_true(element_get(got->type, cast, i) == element_get(got->type, rounded, 0));
    }
  for (int p = 0; p + 1 < COUNT; p++)
    for (int64_t i = got->param[p].local + got->param[p].count; i < got->param[p + 1].local; i++) {
      assert_true(got->w[i] == PADDING);
      if (cast != NULL) assert_true(isnan((double)element_get(got->type, cast, i)));
    }
}

void test_adafactor(void **unused) {
  (void)unused;
  for (int type = CUDA_F32; type <= CUDA_F16; type++)
    for (size_t shift = 0; shift < 2; shift++) {
      Unit want = unit_of(type), got = unit_of(type);
      void *cast = type == CUDA_F32 ? NULL : memory_get((size_t)got.shard * bytes_of(type));
      expect(&want);
      int status = run(&got, shift, cast);
      compare_sums(&got, &want);
      assert_int_equal(status, shift == 0 ? 0 : CUDA_UNSUPPORTED); /* shards begin aligned */
      if (status == 0) compare_weights(&got, &want, cast);
      memory_free();
    }
}
