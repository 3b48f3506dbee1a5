/* Owns: elements of any type, and products as plain loops over them, summed in double. */
#include "tests/cuda/host_product.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef _Float16 Binary16;

float element_get(int type, const void *from, int64_t i) {
  uint32_t bits;
  float x;
  Binary16 half;
  switch (type) {
    case CUDA_F32: return ((const float *)from)[i];
    case CUDA_BF16:
      bits = (uint32_t)((const uint16_t *)from)[i] << 16;
      memcpy(&x, &bits, sizeof x);
      return x;
    default: memcpy(&half, (const uint16_t *)from + i, sizeof half); return (float)half;
  }
}

void element_set(int type, void *to, int64_t i, float x) {
  uint32_t bits;
  Binary16 half = (Binary16)x;
  memcpy(&bits, &x, sizeof bits);
  if (type == CUDA_F32) ((float *)to)[i] = x;
  if (type == CUDA_BF16) ((uint16_t *)to)[i] = x != x ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  if (type == CUDA_F16) memcpy((uint16_t *)to + i, &half, sizeof half);
}

static double get(CudaTensor t, int64_t i) { return (double)element_get(t.type, t.x, i); }

/* rows x cols of the tensor or, turned, of its transpose, by rows. */
static double *gathered(CudaTensor t, bool turn, int64_t rows, int64_t cols) {
  double *out = malloc(sizeof *out * (size_t)(rows * cols + 1));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) out[i * cols + j] = get(t, turn ? j * t.ld + i : i * t.ld + j);
  return out;
}

int host_product(const CudaProduct *p) {
  double *a = gathered(p->a, p->ta, p->m, p->k), *b = gathered(p->b, !p->tb, p->n, p->k); /* b: transposed */
  for (int64_t i = 0; i < p->m; i++) {
    for (int64_t j = 0; j < p->n; j++) {
      double sum = p->bias.x != NULL ? get(p->bias, j) : 0;
      for (int64_t l = 0; l < p->k; l++) sum += a[i * p->k + l] * b[j * p->k + l];
      if (p->c.add) sum += get(p->c, i * p->c.ld + j);
      element_set(p->c.type, p->c.x, i * p->c.ld + j, (float)sum);
    }
  }
  free(a), free(b);
  return 0;
}
