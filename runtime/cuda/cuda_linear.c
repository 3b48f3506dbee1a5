/* Owns: linear's three products on a GPU, and the loss that is computed with them, some rows at a time.
 *
 * Tensor cores read and write rows of 16-bit elements 16 bytes at a time. Where a row's length is no multiple of that, cuBLASLt falls back
 * to kernels of the generation before last, however far apart rows are: GPT-2's 50257 classes take 118.6 ms a micro-batch of 64 x 1024
 * tokens (102, 141 and 153 TFLOP/s forward, back to x and back to w), 50304 would take 20.9 (cuBLASLt 13.1 on an H200). So the columns up
 * to the last multiple are a product, and the few that are left our own (kernels/cuda/narrow.cu). */
#include "runtime/cuda/cuda_dispatch.h"

#include "kernels/cuda/scratch.h"
#include "runtime/cuda/cuda_operands.h"

static const CudaTensor absent = {0};

static int product(const CudaCall *c, CudaProduct p) {
  CudaProducts *products = c->machine->products;
  bool ok = c->prepare ? cuda_products_prepare(products, &p, c->failure)
                       : cuda_products_run(products, S, &p, c->failure);
  return ok ? 0 : CUDA_CALL_FAILED;
}

/* --- linear --------------------------------------------------------------------------------------------------------- */

/* y [rows, out] or its gradient, of x [rows, in] and w [out, in]. */
typedef struct Linear {
  int64_t rows, out, in;
} Linear;

/* How many of the last columns of y are ours: all others are a product. */
static int64_t narrow_of(const Linear *linear, CudaTensor y) {
  bool narrow = y.type != CUDA_F32 && y.ld % LINEAR_ALIGN == 0 && linear->out >= LINEAR_LEAST;
  return narrow ? linear->out % LINEAR_ALIGN : 0;
}

static int forward(const CudaCall *c, const Linear *l, CudaTensor x, CudaTensor w, CudaTensor b, CudaTensor y) {
  int64_t narrow = narrow_of(l, y), whole = l->out - narrow;
  w.ld = l->in;
  y.add = 0;
  int failed = product(c, (CudaProduct){l->rows, whole, l->in, 0, 1, x, w, y, b});
  if (failed || c->prepare || narrow == 0) return failed;
  return cuda_narrow_fwd(S, l->rows, narrow, l->in, x, cuda_at(w, whole, 0), b.x == NULL ? absent : cuda_at(b, 0, whole),
                         cuda_at(y, 0, whole));
}

/* The larger part is added to the smaller, whose own rounding is lost in that of their sum. */
static int backward_x(const CudaCall *c, const Linear *l, CudaTensor dy, CudaTensor w, CudaTensor dx) {
  int64_t narrow = narrow_of(l, dy), whole = l->out - narrow;
  int failed = 0;
  w.ld = l->in;
  if (narrow > 0 && !c->prepare) failed = cuda_narrow_bwd_x(S, l->rows, narrow, l->in, cuda_at(dy, 0, whole), cuda_at(w, whole, 0), dx);
  dx.add = dx.add || narrow > 0;
  return failed ? failed : product(c, (CudaProduct){l->rows, l->in, whole, 0, 0, dy, w, dx, absent});
}

static int backward_w(const CudaCall *c, const Linear *l, CudaTensor x, CudaTensor dy, CudaTensor dw, CudaTensor db) {
  int64_t narrow = narrow_of(l, dy), whole = l->out - narrow;
  dw.ld = l->in;
  int failed = product(c, (CudaProduct){whole, l->in, l->rows, 1, 0, dy, x, dw, absent});
  if (failed || c->prepare) return failed;
  if (narrow > 0)
    failed = cuda_narrow_bwd_w(S, l->rows, narrow, l->in, x, cuda_at(dy, 0, whole), cuda_at(dw, whole, 0), c->machine->scratch);
  if (failed || db.x == NULL) return failed;
  return cuda_column_sums(S, l->rows, l->out, dy, absent, db, c->machine->scratch);
}

int cuda_op_linear_fwd(const CudaCall *c) { return forward(c, &(Linear){N(0), N(1), N(2)}, T(0), T(1), T(2), T(3)); }
int cuda_op_linear_bwd_x(const CudaCall *c) { return backward_x(c, &(Linear){N(0), N(1), N(2)}, T(0), T(1), T(2)); }
int cuda_op_linear_bwd_w(const CudaCall *c) { return backward_w(c, &(Linear){N(0), N(1), N(2)}, T(0), T(1), T(2), T(3)); }

/* --- with the loss ---------------------------------------------------------------------------------------------------- */

/* What differs between linear_cross_entropy and its twin for frozen parameters, which have no gradients (x NULL). */
typedef struct Turn {
  CudaTensor dw, db, logits;
  float *row_loss;
} Turn;

/* Rows [first, first + part) of linear_cross_entropy: linear, loss, and the gradients of linear. */
static int classify(const CudaCall *c, const Turn *turn, int64_t first, int64_t part) {
  Linear linear = {part, N(1), N(2)};
  CudaTensor x = cuda_at(T(0), first, 0), dx = cuda_at(T(6), first, 0), dw = turn->dw, db = turn->db;
  dw.add = dw.add || first > 0;
  db.add = db.add || first > 0;
  int failed = forward(c, &linear, x, T(1), T(2), turn->logits);
  if (!failed && !c->prepare)
    failed = cuda_cross_entropy(S, part, linear.out, N(3), F64(4), turn->logits, I32(3) + first, turn->row_loss + first);
  if (!failed) failed = backward_x(c, &linear, turn->logits, T(1), dx);
  if (!failed && dw.x != NULL) failed = backward_w(c, &linear, x, turn->logits, dw, db);
  return failed;
}

static int classify_all(const CudaCall *c, const Turn *turn) {
  int64_t rows = N(0), chunk = N(4);
  int failed = 0;
  for (int64_t first = 0; first < rows && !failed; first += chunk)
    failed = classify(c, turn, first, rows - first < chunk ? rows - first : chunk);
  if (failed || c->prepare) return failed;
  return cuda_sum_loss(S, rows, turn->row_loss, F64(5));
}

int cuda_op_linear_cross_entropy(const CudaCall *c) { return classify_all(c, &(Turn){T(7), T(8), T(10), F32(9)}); }
int cuda_op_linear_cross_entropy_x(const CudaCall *c) { return classify_all(c, &(Turn){absent, absent, T(8), F32(7)}); }
