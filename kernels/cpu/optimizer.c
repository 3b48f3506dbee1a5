/* Owns: AdamW (arXiv 1711.05101, bias-corrected), Lion (arXiv 2302.06675), SGD with momentum, and exact sums of squares for gradient
 * norms.
 *
 * Floor: memory, 28 GB/s here. AdamW 28 bytes an element, SGD 12 or 20, sum_squares 4. Achieved on 16 Mi
 * elements, one thread: AdamW 29 GB/s, SGD with momentum 28, sum_squares 22. */
#include "kernels/cpu/gradient.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"
#include "kernels/cpu/weights.h"
#include "kernels/exact_lazy.h"

enum { SUM_RUN = 64, SUM_TASKS = 16 }; /* elements that become one exact addition; most tasks of a sum */

typedef struct Update {
  real lr, beta1, beta2, rest1, rest2, eps, decay, step, root_bias2, grad_scale; /* decay: lr decay */
  FloatType type; /* of the gradient */
  const void *g;
  Weights w;
  real *m, *v;
  Cut cut;
} Update;

/* Whole and partial vectors alike, so that no bit depends on where a shard begins. */
static void adamw_task(void *arg, int64_t index) {
  const Update *u = arg;
  Piece p = cut_piece(&u->cut, index);
  const real beta1 = u->beta1, beta2 = u->beta2, rest1 = u->rest1, rest2 = u->rest2, eps = u->eps,
             decay = u->decay;
  const real step = u->step, root = u->root_bias2, scale = u->grad_scale;
  const FloatType type = u->type;
  const void *pg = u->g;
  const Weights weights = u->w;
  real *pm = u->m + p.col, *pv = u->v + p.col;
  for (int64_t i = 0; i < p.cols; i += VL) {
    int64_t left = p.cols - i;
    vec g = typed_take(type, pg, p.col + i, left) * scale, w = weights_take(&weights, p.col + i, left);
    vec m = beta1 * vec_take(pm + i, left) + rest1 * g, v = beta2 * vec_take(pv + i, left) + rest2 * (g * g);
    vec_put(pm + i, m, left);
    vec_put(pv + i, v, left);
    weights_put(&weights, p.col + i, w - (decay * w + step * m / (vec_sqrt(v) * root + eps)), left);
  }
}

void SYM(adamw)(const KernelContext *k, int64_t n, const AdamwRates *rates, const void *g, void *w, real *m,
                real *v) {
  Update u = {.type = gradient_type(k), .g = g, .w = weights_of(k, w), .m = m, .v = v, .cut = cut_elements(1, n)};
  u.beta1 = (real)rates->beta1, u.rest1 = (real)(1 - rates->beta1);
  u.beta2 = (real)rates->beta2, u.rest2 = (real)(1 - rates->beta2);
  u.eps = (real)rates->eps, u.grad_scale = (real)rates->grad_scale;
  u.decay = (real)(rates->lr * rates->decay), u.step = (real)(rates->lr / rates->bias1);
  u.root_bias2 = (real)(1 / sqrt(rates->bias2));
  tasks_run(k, cut_tasks(&u.cut), adamw_task, &u);
}

/* sign(0) is 0. */
static void lion_task(void *arg, int64_t index) {
  const Update *u = arg;
  Piece p = cut_piece(&u->cut, index);
  const real beta1 = u->beta1, beta2 = u->beta2, rest1 = u->rest1, rest2 = u->rest2, scale = u->grad_scale;
  const vec zero = vec_all(0), plus = vec_all(u->lr), minus = vec_all(-u->lr);
  for (int64_t i = p.col; i < p.col + p.cols; i += VL) {
    int64_t left = p.col + p.cols - i;
    vec g = typed_take(u->type, u->g, i, left) * scale, w = weights_take(&u->w, i, left), m = vec_take(u->m + i, left);
    vec c = beta1 * m + rest1 * g;
    vec step = vec_select((ivec)(c > zero), plus, vec_select((ivec)(c < zero), minus, zero));
    vec_put(u->m + i, beta2 * m + rest2 * g, left);
    weights_put(&u->w, i, w - (step + u->decay * w), left);
  }
}

void SYM(lion)(const KernelContext *k, int64_t n, const LionRates *rates, const void *g, void *w, real *m) {
  Update u = {.type = gradient_type(k), .g = g, .w = weights_of(k, w), .m = m, .cut = cut_elements(1, n)};
  u.lr = (real)rates->lr, u.grad_scale = (real)rates->grad_scale, u.decay = (real)(rates->lr * rates->decay);
  u.beta1 = (real)rates->beta1, u.rest1 = (real)(1 - rates->beta1);
  u.beta2 = (real)rates->beta2, u.rest2 = (real)(1 - rates->beta2);
  tasks_run(k, cut_tasks(&u.cut), lion_task, &u);
}

static void sgd_task(void *arg, int64_t index) {
  const Update *u = arg;
  Piece p = cut_piece(&u->cut, index);
  const real lr = u->lr, momentum = u->beta1, decay = u->decay, scale = u->grad_scale;
  for (int64_t i = p.col; i < p.col + p.cols; i += VL) {
    int64_t left = p.col + p.cols - i;
    vec g = typed_take(u->type, u->g, i, left) * scale, w = weights_take(&u->w, i, left);
    if (u->m) {
      g = momentum * vec_take(u->m + i, left) + g;
      vec_put(u->m + i, g, left);
    }
    weights_put(&u->w, i, w - (lr * g + decay * w), left);
  }
}

void SYM(sgd)(const KernelContext *k, int64_t n, const SgdRates *rates, const void *g, void *w, real *m) {
  Update u = {.type = gradient_type(k), .g = g, .w = weights_of(k, w), .m = m, .cut = cut_elements(1, n)};
  u.lr = (real)rates->lr, u.beta1 = (real)rates->momentum, u.grad_scale = (real)rates->grad_scale;
  u.decay = (real)(rates->lr * rates->decay);
  tasks_run(k, cut_tasks(&u.cut), sgd_task, &u);
}

typedef struct SumSquares {
  FloatType type;
  const void *g;
  int64_t n, step;
  int64_t acc[SUM_TASKS][EXACT_WORDS];
} SumSquares;

/* A float's square is exact in double, so fusing changes nothing and every variant gives the same sum. */
static double sum_run(const real *g, int64_t n) {
  double lane[8] = {0};
  if (n == SUM_RUN) {
    for (int i = 0; i < SUM_RUN; i += 8) {
      for (int j = 0; j < 8; j++) lane[j] += (double)g[i + j] * (double)g[i + j];
    }
  } else {
    for (int64_t i = 0; i < n; i++) lane[i % 8] += (double)g[i] * (double)g[i];
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static double sum_typed_run(const SumSquares *s, int64_t first, int64_t n) {
  real run[SUM_RUN];
  if (s->type == FLOAT_REAL) return sum_run((const real *)s->g + first, n);
  for (int64_t j = 0; j < n; j += VL) vec_put(run + j, typed_take(s->type, s->g, first + j, n - j), n - j);
  return sum_run(run, n);
}

static void sum_task(void *arg, int64_t index) {
  SumSquares *s = arg;
  int64_t end = least(s->n, (index + 1) * s->step);
  for (int64_t i = index * s->step; i < end; i += SUM_RUN) {
    exact_add_lazily(s->acc[index], sum_typed_run(s, i, least(SUM_RUN, end - i)));
  }
}

void SYM(sum_squares)(const KernelContext *k, int64_t n, const void *g, int64_t *acc) {
  SumSquares s = {.type = gradient_type(k), .g = g, .n = n};
  int64_t tasks = least(SUM_TASKS, ceil_div(n, TASK_ELEMENTS));
  if (tasks == 0) return;
  s.step = ceil_div(ceil_div(n, tasks), SUM_RUN) * SUM_RUN;
  tasks = ceil_div(n, s.step);
  tasks_run(k, tasks, sum_task, &s);
  for (int64_t i = 0; i < tasks; i++) exact_merge(acc, s.acc[i]);
}
