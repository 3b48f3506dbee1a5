/* Owns: what plain_test.c, plain_elementwise.c and plain_state.c share: ways to run a kernel, operands, and sums in double to compare with.
 *
 * Inputs are multiples of 1/32 in [-2, 2], or these times a power of two: bf16 and f16 hold them, and sums of a thousand
 * products are exact in float. So what a kernel gives may differ from the formula by its own rounding alone. */
#ifndef FSDPC_TESTS_KERNELS_PLAIN_H
#define FSDPC_TESTS_KERNELS_PLAIN_H

#include "tests/kernels/half_adapter.h"
#include "tests/kernels/support.h"
#include <math.h>
#include <stdio.h>

/* A table, threads, types. `a` works for elements of 32 bits too: its context comes first. */
typedef struct Mode {
  HalfAdapter a;
  const KernelTable *t;
  Pool pool;
  char name[64];
} Mode;

enum { MOST_MODES = 16 };
extern Mode MODES[MOST_MODES];
extern int mode_count;
void modes_open(void);

/* Rows lie `ld` apart; what is between them must survive. */
typedef struct Mat {
  float *x;
  int64_t rows, cols, ld;
} Mat;

/* What a kernel should give, and the sum of the magnitudes of its terms, to which rounding is relative. */
typedef struct Sum {
  double value, size;
} Sum;

/* Of float arithmetic, relative to Sum.size; 0 where sums are exact. */
#define EXACT       0.0
#define FLOAT_ERROR 3e-6

float plain_value(void);
Mat plain_input(int64_t rows, int64_t cols);
Mat plain_dense(int64_t rows, int64_t cols); /* without padding */
void plain_scale(Mat m, float by);
/* NaN; or, where it is added to, plain_before of each element. */
Mat plain_output(int64_t rows, int64_t cols, int add);
Mat plain_output_dense(int64_t rows, int64_t cols, int add);
double plain_before(int64_t row, int64_t col);
Sum *plain_sums(int64_t n);
void plain_add(Sum *sum, double term);
int32_t *plain_ids(int64_t n, int64_t vocab);

static inline float plain_at(Mat m, int64_t row, int64_t col) {
  return m.x[row * m.ld + col];
}

/* Rounded to the type, as it lies in memory. */
float plain_round(FloatType type, double x);

/* A gradient of parameters, in the type that the mode's context says: NULL stays NULL. plain_read brings back what was written. */
void *plain_lend(const Mode *m, Mat y);
void plain_read(const Mode *m, Mat y, const void *lent);

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* What is tested now, for messages. */
extern char plain_now[256];
#define NOW(...) snprintf(plain_now, sizeof plain_now, __VA_ARGS__)

/* Each element within one rounding to the type and `error` of its size; padding as it was. `want` is dense. */
void plain_check(const Mode *m, const char *what, FloatType type, Mat got, int add, const Sum *want, double error);
void plain_check_number(const Mode *m, const char *what, double got, Sum want, double error);

/* Of plain_elementwise.c. */
void test_elementwise(void **unused);
void test_silu_mul_bwd(void **unused);
void test_broadcast(void **unused);
void test_dropout(void **unused);
void test_mse(void **unused);
/* Of plain_state.c. */
void test_sum_squares(void **unused);
void test_optimizers(void **unused);
void test_adafactor(void **unused);
void test_tree_sum(void **unused);
void test_narrow(void **unused);
void test_init(void **unused);

#endif
