/* Owns: Adafactor's three instructions on the CPU: which sums and moments belong to which parameter, and its rates.
 * Sums, moments and rates of a parameter are the same on every rank; each updates the elements it holds. */
#include "runtime/cpu/cpu_dispatch.h"

#include <math.h>
#include <string.h>

enum { SUM_BITS = 62 }; /* all squares together stay below 2^62 on the grid */

/* One parameter of the unit, seen as rows x cols; a vector has no columns to sum over. */
typedef struct Factored {
  const PlanParam *param;
  int32_t index;                 /* in the unit */
  int64_t rows, cols, numel;
  uint64_t row_at, col_at, end;  /* elements of the unit's moments */
} Factored;

static const PlanUnit *unit_of(const CpuCall *c) { return &c->machine->plan->units.data[c->n[0]]; }

/* Of operand 0, the gradient: its type. */
static KernelContext with_gradient(const CpuCall *c) {
  KernelContext k = *c->k;
  k.gradient = c->o[0].type;
  return k;
}

static void *element_at(const CpuOperand *operand, uint64_t index) {
  return (unsigned char *)operand->data + index * (operand->type == FLOAT_REAL ? sizeof(float) : sizeof(Half));
}

/* Overflow in f16, by the scale of gradients: clip_scaled says that nothing is to be updated. */
static bool skipped(float grad_scale) { return isnan(grad_scale); }

/* Number of this update, from 1. */
static double update_number(const CpuCall *c) { return (double)(c->state->step - c->state->skipped); }

/* The parameter after `last`; false when there is none. {0} comes before the first. */
static bool next_factored(const CpuCall *c, Factored *last) {
  const PlanUnit *unit = unit_of(c);
  int32_t index = last->param == NULL ? 0 : last->index + 1;
  if (index == unit->param_count) return false;
  const PlanParam *param = &c->machine->plan->params.data[unit->first_param + index];
  Factored next = {.param = param, .index = index, .row_at = last->end};
  next.numel = (int64_t)param_numel(param);
  next.cols = param->rank < 2 ? 1 : param->dim[param->rank - 1];
  next.rows = next.numel / next.cols;
  next.col_at = next.row_at + (uint64_t)next.rows;
  next.end = next.row_at + factored_numel(param->rank, param->dim);
  *last = next;
  return true;
}

/* What of the parameter lies in this rank's shard, or NULL. Ranges come in the order of parameters. */
static const ParamRange *range_of(const CpuCall *c, const Factored *f) {
  const UnitRanges *ranges = &c->machine->ranges[c->n[0]];
  int32_t param = unit_of(c)->first_param + f->index;
  uint32_t low = 0, high = ranges->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (ranges->data[middle].param < param)
      low = middle + 1;
    else
      high = middle;
  }
  return low < ranges->count && ranges->data[low].param == param ? &ranges->data[low] : NULL;
}

static bool has_columns(const Factored *f) { return f->param->rank >= 2; }

/* 2^k such that the sum of all squared gradients, times this, lies below 2^SUM_BITS. 0 without a finite sum. */
static double grid_of(const int64_t *acc) {
  int exponent;
  double squares = exact_value(acc);
  if (!isfinite(squares) || squares <= 0) return 0;
  frexp(squares, &exponent);
  return ldexp(1, SUM_BITS - exponent);
}

static int64_t *norm_at(int64_t *norms, const Factored *f) { return norms + (int64_t)f->index * EXACT_DIGITS; }

/* Root of the mean square that an exact sum stands for. */
static double rms(const int64_t *norm, const Factored *f) { return sqrt(exact_value(norm) / (double)f->numel); }

CommStatus cpu_adafactor_sums(const CpuCall *c) {
  const KernelTable *kernels = c->machine->kernels;
  KernelContext k = with_gradient(c), master = *c->k;
  master.gradient = c->o[1].type;
  int64_t *sums = c->o[3].data, *norms = sums + plan_factored_numel(c->machine->plan, unit_of(c));
  double grid = grid_of(c->o[2].data);
  memset(sums, 0, (size_t)c->n[2] * sizeof *sums);
  for (Factored f = {0}; next_factored(c, &f);) {
    const ParamRange *range = range_of(c, &f);
    if (range == NULL) continue;
    int64_t *columns = has_columns(&f) ? sums + f.col_at : NULL;
    if (grid > 0)
      kernels->adafactor_sums(&k, (int64_t)range->first, (int64_t)range->count, f.cols, grid,
                              element_at(&c->o[0], range->local), sums + f.row_at, columns);
    kernels->sum_squares(&master, (int64_t)range->count, element_at(&c->o[1], range->local), norm_at(norms, &f));
  }
  return COMM_OK;
}

/* What the update of one parameter is made with; row_scale needs its moments. */
static AdafactorRates update_rates(const CpuCall *c, const Factored *f, double grad_scale, const float *v) {
  double mean = 0, eps = c->machine->plan->recipe.eps;
  for (int64_t r = 0; r < f->rows; r++) mean += v[f->row_at + (uint64_t)r];
  mean /= (double)f->rows;
  return (AdafactorRates){.grad_scale = grad_scale, .row_scale = 1 / fmax(mean, eps), .floor = eps * eps};
}

static void average(const CpuCall *c, const Factored *f, double unit, const int64_t *sums, float *v) {
  const KernelTable *kernels = c->machine->kernels;
  double weight = pow(update_number(c), c->machine->plan->recipe.beta2_decay);
  kernels->adafactor_average(f->rows, weight, unit / (double)f->cols, sums + f->row_at, v + f->row_at);
  if (has_columns(f))
    kernels->adafactor_average(f->cols, weight, unit / (double)f->rows, sums + f->col_at, v + f->col_at);
}

CommStatus cpu_adafactor_moments(const CpuCall *c) {
  KernelContext k = with_gradient(c);
  double grid = grid_of(c->o[1].data), scale = *(const float *)c->o[2].data;
  double unit = grid > 0 ? scale * scale / grid : 0; /* of one integer, after clipping */
  const int64_t *sums = c->o[3].data;
  float *v = c->o[4].data;
  int64_t *norms = c->o[5].data;
  memset(norms, 0, (size_t)c->n[4] * EXACT_DIGITS * sizeof *norms);
  if (skipped((float)scale)) return COMM_OK;
  for (Factored f = {0}; next_factored(c, &f);) {
    average(c, &f, unit, sums, v);
    const ParamRange *range = range_of(c, &f);
    if (range == NULL) continue;
    AdafactorRates rates = update_rates(c, &f, scale, v);
    c->machine->kernels->adafactor_norm(&k, &rates, (int64_t)range->first, (int64_t)range->count, f.cols, v + f.row_at,
                                        has_columns(&f) ? v + f.col_at : NULL, element_at(&c->o[0], range->local),
                                        norm_at(norms, &f));
  }
  return COMM_OK;
}

CommStatus cpu_adafactor(const CpuCall *c) {
  const Recipe *recipe = &c->machine->plan->recipe;
  KernelContext k = with_gradient(c);
  float grad_scale = *(const float *)c->o[1].data;
  const float *v = c->o[4].data;
  int64_t *sums = c->o[2].data, *norms = c->o[3].data;
  int64_t *squares = sums + plan_factored_numel(c->machine->plan, unit_of(c)); /* of the parameters */
  if (skipped(grad_scale)) return COMM_OK;
  double lr = c->state->lr, most = fmin(lr, 1 / sqrt(update_number(c)));
  for (Factored f = {0}; next_factored(c, &f);) {
    const ParamRange *range = range_of(c, &f);
    if (range == NULL) continue;
    AdafactorRates rates = update_rates(c, &f, grad_scale, v);
    rates.keep = 1 - (f.param->decay ? lr * recipe->decay : 0);
    rates.step = fmax(recipe->eps2, rms(norm_at(squares, &f), &f)) * most /
                 fmax(1, rms(norm_at(norms, &f), &f) / recipe->threshold);
    const WeightStore store = cpu_weight_store(c, c->o[5].type, range);
    void *w = element_at(&c->o[5], range->local);
    k.weights = &store;
    c->machine->kernels->adafactor(&k, &rates, (int64_t)range->first, (int64_t)range->count, f.cols, v + f.row_at,
                                   has_columns(&f) ? v + f.col_at : NULL, element_at(&c->o[0], range->local), w);
    if (c->o[6].data != NULL) /* the copy in the compute dtype */
      c->machine->kernels->narrow(c->k, (int64_t)range->count, c->o[6].type, w,
                                  (Half *)c->o[6].data + range->local);
  }
  return COMM_OK;
}
