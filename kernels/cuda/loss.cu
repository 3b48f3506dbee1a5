/* Owns: losses and their gradients: cross entropy over logits, which become the gradient in place; mean squared error;
 * the sum of row losses, in double and row order.
 *
 * Ignored rows have no loss and a zero gradient; a target outside the vocabulary makes its row NaN, so that it shows.
 * Count 0: zero gradient. A block owns a row. Rows need no alignment (a vocabulary of 50257 in bf16 has none): the
 * elements before the first 16-byte boundary and after the last are taken one by one.
 *
 * Cross entropy moves 2 elements an element where a row fits in shared memory (50,424 of 16 bits), which asynchronous copies fill, a
 * whole row on its way, while the multiprocessor's other block computes. Else 3: a read for maximum and sum together, a read and a write
 * for the gradient. About 6 flops and 2 exponentials. The second read goes backwards, for what was read last is in L2: all of it where the
 * rows in flight, three a multiprocessor, fit there (396 on an H100 of 50 MB), else a part. Mean squared error
 * moves 3, one more with `add`, for 4 flops; the sum of row losses 4 bytes a row, by one block. Bound: memory; of the sum,
 * latency. Rate on an H200 of cross entropy that reads once: 3.38 TB/s at 65536 x 50257 bf16, 79 % of a copy's 4.28; that reads twice
 * 2.86 there, counting 2 elements; counting 3 it was 4.28, so hardly any of the second read came out of L2. The others: not measured. */
#include "kernels/cuda/device.cuh"

/* KEPT_BYTES: what all GPUs have room for in a block's shared memory, and from computes 9.0 on, but for 12, in two blocks' at a time. */
constexpr int THREADS = 512, WARPS = THREADS / WARP, KEPT_BYTES = 99 * 1024 - 512;

/* Calls f(v, i) for every piece of a row that this thread owns, its elements from i on: a wide access, or one element in the
 * row's head and tail. WRITE stores what f leaves; pieces are then taken from the row's end on. They are read where the row is kept:
 * as it lies modulo 16 bytes, or the row itself. */
template <class T, bool WRITE, class F> DEVICE void sweep(T *x, const T *kept, int64_t n, F f) {
  constexpr int N = Wide<T>::N;
  int64_t head = (int64_t)((16 - (uintptr_t)x % 16) % 16 / sizeof(T)), own = threadIdx.x;
  if (head > n) head = n;
  int64_t chunks = (n - head) / N, tail = head + chunks * N;
  auto piece = [&](auto &v, int64_t i) {
    constexpr int COUNT = (int)(sizeof v / sizeof *v);
    load<T, COUNT>(kept + i, v);
    f(v, i);
    if (WRITE) store<T, COUNT>(x + i, v);
  };
  float one[1], many[N];
  if (own < head) piece(one, own);
#pragma unroll 2 /* two reads on their way */
  for (int64_t c = own; c < chunks; c += THREADS) piece(many, head + (WRITE ? chunks - 1 - c : c) * N);
  if (tail + own < n) piece(one, tail + own);
}

/* e^x for x <= 0. Of elements of 16 bits to 1e-5, by three instructions. By expf's eight the two sweeps together take some 34 an
 * element, which an H100 starts in the time in which it moves the element. */
template <class T> DEVICE float power(float x) {
  if constexpr (sizeof(T) == 2) return fast_exp2(x * 1.44269504f);
  else return expf(x);
}

struct Softmax {
  float top, sum; /* sum of exp(x - top); 0 while top is -infinity */
};

DEVICE Softmax join(Softmax a, Softmax b) {
  float top = fmaxf(a.top, b.top), base = base_of(top);
  return Softmax{top, a.sum * expf(a.top - base) + b.sum * expf(b.top - base)};
}

/* NaN passes by the maximum, as fmaxf takes it, and stays in the sum. */
template <class T, int N> DEVICE Softmax join_piece(Softmax s, const float (&v)[N]) {
  float top = s.top, sum = 0;
#pragma unroll
  for (int j = 0; j < N; j++) top = fmaxf(top, v[j]);
  float base = base_of(top);
#pragma unroll
  for (int j = 0; j < N; j++) sum += power<T>(v[j] - base);
  return Softmax{top, s.sum * power<T>(s.top - base) + sum};
}

/* Over LANES neighbouring lanes. */
template <int LANES> DEVICE Softmax lanes_join(Softmax s) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) {
    Softmax other = {__shfl_xor_sync(WHOLE_WARP, s.top, offset), __shfl_xor_sync(WHOLE_WARP, s.sum, offset)};
    /* The lower lane's comes first, so that both lanes get the same bits. */
    s = threadIdx.x & offset ? join(other, s) : join(s, other);
  }
  return s;
}

/* Every warp joins all the warps' once more. */
DEVICE Softmax block_join(Softmax s, Softmax *space) {
  s = lanes_join<WARP>(s);
  if (threadIdx.x % WARP == 0) space[threadIdx.x / WARP] = s;
  __syncthreads();
  return lanes_join<WARPS>(space[threadIdx.x % WARPS]);
}

template <class T> DEVICE void fill_row(T *x, int64_t n, float value) {
  sweep<T, true>(x, x, n, [=](auto &v, int64_t) {
    for (float &each : v) each = value;
  });
}

/* Copies the pieces of a row that this thread owns, all of them on their way at a time. */
template <class T> DEVICE void keep_row(const T *x, T *kept, int64_t n) {
  constexpr int N = Wide<T>::N;
  int64_t head = (int64_t)((16 - (uintptr_t)x % 16) % 16 / sizeof(T)), own = threadIdx.x;
  if (head > n) head = n;
  int64_t tail = head + (n - head) / N * N;
  for (int64_t i = head + own * N; i < tail; i += THREADS * N) copy_async<16>(kept + i, x + i, true);
  if (own < head) kept[own] = x[own];
  if (tail + own < n) kept[tail + own] = x[tail + own];
  copies_wait();
}

/* KEPT: the row is read once, into shared memory. */
template <class T, bool KEPT>
__global__ void __launch_bounds__(THREADS, KEPT ? 2 : 3) cross_entropy_kernel(int64_t vocab, int64_t ignore, const double *count, T *logits,
                                     int64_t ld, const int32_t *targets, float *row_loss) {
  SHARED_ARRAY(Softmax, space, WARPS);
  DYNAMIC_SHARED(shared);
  T *x = logits + (int64_t)blockIdx.x * ld, *kept = KEPT ? (T *)(shared + (uintptr_t)x % 16) : x;
  int64_t target = targets[blockIdx.x];
  if (target == ignore || target < 0 || target >= vocab) {
    float value = target == ignore ? 0.0f : NAN;
    fill_row(x, vocab, value);
    if (threadIdx.x == 0) row_loss[blockIdx.x] = value;
    return;
  }
  Softmax s = {-INFINITY, 0};
  float at_target = to_float(x[target]);
  if (KEPT) keep_row(x, kept, vocab);
  sweep<T, false>(x, kept, vocab, [&](auto &v, int64_t) { s = join_piece<T>(s, v); });
  s = block_join(s, space); /* its barrier also ends all reads of x[target], and all copies, before what follows */
  double inverse = *count > 0 ? 1 / *count : 0;
  float top = s.top, factor = (float)(inverse / (double)s.sum), rest = (float)inverse;
  sweep<T, true>(x, kept, vocab, [=](auto &v, int64_t i) {
    int left = (int)(target - i);
    for (float &each : v) each = power<T>(each - top) * factor - (left-- == 0 ? rest : 0.0f);
  });
  if (threadIdx.x == 0) row_loss[blockIdx.x] = (float)(log((double)s.sum) + (double)top - (double)at_target);
}

int cuda_cross_entropy(CudaStream stream, int64_t rows, int64_t vocab, int64_t ignore, const double *count,
                       CudaTensor logits, const int32_t *targets, float *row_loss) {
  if (rows == 0) return 0;
  int64_t bytes = vocab * type_bytes(logits.type) + 16;
  bool keep = bytes <= KEPT_BYTES;
  FOR_TYPE(logits.type, false, (void)N; auto kernel = keep ? cross_entropy_kernel<T, true> : cross_entropy_kernel<T, false>;
           int failed = keep ? ALLOW_SHARED(kernel, bytes) : 0; if (failed) return failed;
           LAUNCH(kernel, (unsigned)rows, THREADS, (size_t)(keep ? bytes : 0), stream, vocab, ignore, count, (T *)logits.x,
                  logits.ld, targets, row_loss);)
  return LAUNCHED();
}

template <class T> struct Rows {
  T *x;
  int64_t ld;
};

/* N neighbours: g (+)= factor (x - y); the squares of the differences are added to sum one by one. */
template <class T, int N> DEVICE void differ(const T *x, const T *y, T *g, float factor, int add, float &sum) {
  float a[N], b[N];
  load<T, N>(x, a);
  load<T, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; j++) {
    a[j] -= b[j];
    sum = fmaf(a[j], a[j], sum);
    a[j] *= factor;
  }
  put<T, N>(g, a, add);
}

/* Thread t takes the row's pieces t, t + THREADS, ... of 16 bytes; where rows are not aligned, or end, element by element,
 * in the same order. */
template <class T>
__global__ void mse_kernel(int64_t cols, const double *count, Rows<const T> x, Rows<const T> y, Rows<T> dx, bool wide,
                           int add, float *row_loss) {
  constexpr int N = Wide<T>::N;
  SHARED_ARRAY(float, space, WARPS);
  int64_t r = blockIdx.x;
  const T *a = x.x + r * x.ld, *b = y.x + r * y.ld;
  T *g = dx.x + r * dx.ld;
  float factor = *count > 0 ? (float)(2 / *count) : 0, sum = 0;
  for (int64_t c = threadIdx.x * N; c < cols; c += THREADS * N) {
    if (wide && c + N <= cols) {
      differ<T, N>(a + c, b + c, g + c, factor, add, sum);
    } else {
      for (int64_t i = c; i < cols && i < c + N; i++) differ<T, 1>(a + i, b + i, g + i, factor, add, sum);
    }
  }
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) row_loss[r] = sum;
}

int cuda_mse(CudaStream stream, int64_t rows, int64_t cols, const double *count, CudaTensor x, CudaTensor y,
             CudaTensor dx, float *row_loss) {
  if (x.type != dx.type || y.type != dx.type) return CUDA_UNSUPPORTED;
  if (rows == 0) return 0;
  int n = wide_of(x.type);
  bool wide = wide_ok(x, rows, n, n) && wide_ok(y, rows, n, n) && wide_ok(dx, rows, n, n);
  FOR_TYPE(x.type, false, (void)N;
           LAUNCH((mse_kernel<T>), (unsigned)rows, THREADS, 0, stream, cols, count, Rows<const T>{(const T *)x.x, x.ld},
                  Rows<const T>{(const T *)y.x, y.ld}, Rows<T>{(T *)dx.x, dx.ld}, wide, dx.add, row_loss);)
  return LAUNCHED();
}

/* One block: thread t takes rows t, t + THREADS, ... */
static __global__ void sum_kernel(int64_t rows, const float *row_loss, double *loss) {
  SHARED_ARRAY(double, space, WARPS);
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += THREADS) sum += (double)row_loss[r];
  sum = block_sum(sum, space);
  if (threadIdx.x == 0) *loss += sum;
}

int cuda_sum_loss(CudaStream stream, int64_t rows, const float *row_loss, double *loss) {
  LAUNCH(sum_kernel, 1, THREADS, 0, stream, rows, row_loss, loss);
  return LAUNCHED();
}
