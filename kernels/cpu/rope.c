/* Owns: rotary positions with split halves (arXiv 2104.09864): pairs (i, i + dims/2) of the first `dims` of every head
 * turn by t freq_i, freq_i = theta^(-2i/dims), scaled for rope_type "llama3" as Hugging Face does; the others stay as they
 * are. Angles in double.
 *
 * Sines and cosines of a position are shared by all heads and samples. Floor: 8 bytes an element, where copy
 * moves 30 GB/s. Achieved at 512 x 768, one thread: 30 GB/s. */
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tasks.h"
#include "kernels/random.h" /* sincos_quarters */

enum { PAIRS = 128, POSITIONS = 16 }; /* pairs treated at a time; positions of a task */

typedef struct Rope {
  RopeShape shape;
  int backward, add;
  const stored *x;
  stored *y;
  int64_t ldx, ldy;
} Rope;

typedef struct Turn {
  real cos[PAIRS], sin[PAIRS];
} Turn;

/* In quarter turns a position. */
static double frequency(const RopeShape *s, int64_t pair) {
  const double two_pi = 6.28318530717958647693;
  double f = pow(s->theta, -2.0 * (double)pair / (double)s->dims);
  if (s->llama3) {
    double turns = (double)s->original * f / two_pi; /* over the original context */
    double smooth = (turns - s->low) / (s->high - s->low);
    if (turns < s->low)
      f /= s->factor;
    else if (turns <= s->high)
      f = (1 - smooth) * f / s->factor + smooth * f;
  }
  return f * 4 / two_pi;
}

static void turn_row(const Rope *r, int64_t row, int64_t first, int64_t pairs, const Turn *turn) {
  int64_t half = r->shape.dims / 2;
  for (int64_t h = 0; h < r->shape.heads; h++) {
    const stored *x = r->x + row * r->ldx + h * r->shape.head_dim + first;
    stored *y = r->y + row * r->ldy + h * r->shape.head_dim + first;
    for (int64_t i = 0; i < pairs; i += VL) {
      int64_t left = pairs - i;
      vec a = vec_take(x + i, left), b = vec_take(x + half + i, left);
      vec c = vec_take(turn->cos + i, left), s = vec_take(turn->sin + i, left);
      vec first_half = a * c - b * s, second_half = b * c + a * s;
      if (r->add) {
        first_half += vec_take(y + i, left);
        second_half += vec_take(y + half + i, left);
      }
      vec_put(y + i, first_half, left);
      vec_put(y + half + i, second_half, left);
    }
  }
}

static void keep_row(const Rope *r, int64_t row) {
  int64_t kept = r->shape.head_dim - r->shape.dims;
  for (int64_t h = 0; h < r->shape.heads; h++) {
    int64_t col = h * r->shape.head_dim + r->shape.dims;
    const stored *x = r->x + row * r->ldx + col;
    stored *y = r->y + row * r->ldy + col;
    for (int64_t i = 0; i < kept; i += VL) {
      int64_t left = kept - i;
      vec a = vec_take(x + i, left);
      if (r->add) a += vec_take(y + i, left);
      vec_put(y + i, a, left);
    }
  }
}

static void rope_task(void *arg, int64_t index) {
  const Rope *r = arg;
  int64_t first_t = index * POSITIONS, end_t = least(r->shape.seq, first_t + POSITIONS);
  double quarters[PAIRS];
  Turn turn;
  for (int64_t first = 0; first < r->shape.dims / 2; first += PAIRS) {
    int64_t pairs = least(PAIRS, r->shape.dims / 2 - first);
    for (int64_t i = 0; i < pairs; i++)
      quarters[i] = frequency(&r->shape, first + i) * (r->backward ? -1 : 1);
    for (int64_t t = first_t; t < end_t; t++) {
#pragma omp simd
      for (int64_t i = 0; i < pairs; i++) {
        SinCos at = sincos_quarters((double)(r->shape.first + t) * quarters[i]);
        turn.cos[i] = (real)at.cos, turn.sin[i] = (real)at.sin;
      }
      for (int64_t b = 0; b < r->shape.batch; b++) {
        turn_row(r, b * r->shape.seq + t, first, pairs, &turn);
        if (first == 0) keep_row(r, b * r->shape.seq + t); /* the row is near now */
      }
    }
  }
}

void SYM(rope)(const KernelContext *k, const RopeShape *shape, int backward, const stored *x, int64_t ldx,
               stored *y, int64_t ldy, int add) {
  Rope r = {*shape, backward, add, x, y, ldx, ldy};
  tasks_run(k, ceil_div(shape->seq, POSITIONS), rope_task, &r);
}
