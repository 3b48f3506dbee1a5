/* Owns: from measured steps to the rates that the cost model knows: least squares of relative errors, without negative terms. */
#include "cli/profile.h"

#include "planner/cost.h"

#include <math.h>

enum { MOST_TERMS = 4, DESCENTS = 2000, LENGTHS = 33, LENGTH_STEP = 8 };

/* The sums that minimising sum over samples of (sum over terms of c_j x_j / y - 1)^2 needs. */
typedef struct Fit {
  int terms, samples;
  double xx[MOST_TERMS][MOST_TERMS], x[MOST_TERMS];
} Fit;

static void add_sample(Fit *fit, const double *x, double y) {
  fit->samples++;
  for (int i = 0; i < fit->terms; i++) {
    fit->x[i] += x[i] / y;
    for (int j = 0; j < fit->terms; j++) fit->xx[i][j] += x[i] / y * x[j] / y;
  }
}

/* Coordinate descent, which stays at or above zero; returns the sum of squares. */
static double solve(const Fit *fit, double c[MOST_TERMS]) {
  double error = fit->samples;
  for (int i = 0; i < fit->terms; i++) c[i] = 0;
  for (int pass = 0; pass < DESCENTS; pass++)
    for (int i = 0; i < fit->terms; i++) {
      double left = fit->x[i];
      for (int j = 0; j < fit->terms; j++) left -= j == i ? 0 : c[j] * fit->xx[i][j];
      c[i] = fit->xx[i][i] > 0 ? fmax(0, left / fit->xx[i][i]) : 0;
    }
  for (int i = 0; i < fit->terms; i++) {
    error -= 2 * c[i] * fit->x[i];
    for (int j = 0; j < fit->terms; j++) error += c[i] * c[j] * fit->xx[i][j];
  }
  return error;
}

typedef struct Sample {
  const Plan *plan;
  const PlanInstr *instr;
  double ns;
} Sample;

/* The next computing instruction of all steps; its number is kept in *at. */
static bool next_sample(const ProfileStep *steps, uint32_t at[2], Sample *out) {
  for (; at[0] < PROFILE_MODELS; at[0]++, at[1] = 0) {
    const ProfileStep *step = &steps[at[0]];
    while (at[1] < step->plan->instrs.count) {
      uint32_t i = at[1]++;
      *out = (Sample){step->plan, &step->plan->instrs.data[i], fmax(1, step->ns[i])};
      if (out->instr->stream == STREAM_COMPUTE) return true;
    }
  }
  return false;
}

static PassRate fit_product(const ProfileStep *steps, ProductPass pass) {
  Fit fit = {.terms = 4};
  uint32_t at[2] = {0, 0};
  Product products[PRODUCT_PASSES];
  double c[MOST_TERMS];
  for (Sample s; next_sample(steps, at, &s);) {
    if (cost_products(s.instr->op, s.plan->ints.data + s.instr->ints, products) != 1 || products[0].pass != pass) continue;
    double m = products[0].m, n = products[0].n, k = products[0].k, flops = 2 * m * n * k;
    add_sample(&fit, (const double[]){flops, flops / m, flops / n, flops / k}, s.ns);
  }
  solve(&fit, c);
  return c[0] > 0 ? (PassRate){1e9 / c[0], c[1] / c[0], c[2] / c[0], c[3] / c[0]} : (PassRate){0};
}

/* No product is faster than the peak: where other work slowed the measurement of that alone, one of a step is. */
static double fastest_product(const ProfileStep *steps, double peak) {
  uint32_t at[2] = {0, 0};
  Product products[PRODUCT_PASSES];
  for (Sample s; next_sample(steps, at, &s);)
    if (cost_products(s.instr->op, s.plan->ints.data + s.instr->ints, products) == 1)
      peak = fmax(peak, 2e9 * products[0].m * products[0].n * products[0].k / s.ns);
  return peak;
}

/* The product of two sums is no sum: each of several lengths is tried. */
static HeadRate fit_attention(const ProfileStep *steps, InstrOp op) {
  HeadRate best = {0};
  double least = INFINITY, c[MOST_TERMS];
  for (int length = 0; length < LENGTHS; length++) {
    Fit fit = {.terms = 2};
    uint32_t at[2] = {0, 0};
    double tokens = length * LENGTH_STEP;
    for (Sample s; next_sample(steps, at, &s);) {
      if (s.instr->op != op) continue;
      double flops = (double)s.instr->flops * (1 + tokens / (double)plan_int(s.plan, s.instr, 2));
      add_sample(&fit, (const double[]){flops, flops / (double)plan_int(s.plan, s.instr, 5)}, s.ns);
    }
    double error = solve(&fit, c);
    if (error < least && c[0] > 0) least = error, best = (HeadRate){.rate = 1e9 / c[0], .tokens = tokens, .dims = c[1] / c[0]};
  }
  return best;
}

/* Sizes within a factor of four make one point: their mean. */
static void fit_moves(Arena *arena, const ProfileStep *steps, MoveKind kind, TimedSizes *out) {
  enum { POINTS = 32, FIRST = 6 }; /* the first from 4 KiB on: below, the clock and the launch weigh most */
  double count[POINTS] = {0}, bytes[POINTS] = {0}, cost[POINTS] = {0};
  uint32_t at[2] = {0, 0};
  for (Sample s; next_sample(steps, at, &s);) {
    if (cost_move(s.instr->op) != kind || s.instr->bytes == 0) continue;
    double moved = cost_moved(s.instr->op, s.plan->ints.data + s.instr->ints, DTYPE_F32, (double)s.instr->bytes);
    int point = (int)(log2(moved) / 2);
    count[point]++, bytes[point] += log(moved), cost[point] += s.ns / moved;
  }
  for (int i = FIRST; i < POINTS; i++) {
    if (count[i] == 0) continue;
    double size = exp(bytes[i] / count[i]);
    TimedSize point = {size, size * cost[i] / count[i]};
    vec_push(arena, out, point);
  }
}

void profile_fit(Arena *arena, const ProfileStep steps[PROFILE_MODELS], ProfileResult *out) {
  static const InstrOp passes[2] = {INSTR_ATTENTION_FWD, INSTR_ATTENTION_BWD};
  out->peak = fastest_product(steps, out->peak);
  for (int p = 0; p < PRODUCT_PASSES; p++) out->products[p] = fit_product(steps, (ProductPass)p);
  for (int p = 0; p < 2; p++) out->attention[p] = fit_attention(steps, passes[p]);
  for (int m = 0; m < MOVE_COUNT; m++) fit_moves(arena, steps, (MoveKind)m, &out->moves[m]);
  out->launch_ns = INFINITY;
  for (int m = 0; m < PROFILE_MODELS; m++) out->launch_ns = fmin(out->launch_ns, steps[m].gap_ns);
}
