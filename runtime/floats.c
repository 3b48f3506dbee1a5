/* Owns: conversion between f32 values and buffers of 16 bits. */
#include "runtime/floats.h"

#include "kernels/half.h"

#include <stdatomic.h>

enum { CHUNK = 4096 }; /* elements */

static bool is_half(const Plan *plan, int32_t buf) {
  return plan->bufs.data[buf].dtype != DTYPE_F32;
}

/* Reading weights from a slow disk is no standstill. */
static void beat(const Backend *backend) {
  if (backend->beats != NULL) atomic_fetch_add(backend->beats, 1);
}

bool floats_write(Backend *backend, const Plan *plan, int32_t buf, uint64_t first, const float *values, uint64_t n) {
  Half halves[CHUNK];
  FloatType type = (FloatType)plan->bufs.data[buf].dtype;
  beat(backend);
  if (!is_half(plan, buf)) return backend->write(backend, buf, first * sizeof *values, values, n * sizeof *values);
  for (uint64_t done = 0, part; done < n; done += part) {
    part = n - done < CHUNK ? n - done : CHUNK;
    for (uint64_t i = 0; i < part; i++) halves[i] = half_of_float(type, values[done + i]);
    if (!backend->write(backend, buf, (first + done) * sizeof *halves, halves, part * sizeof *halves)) return false;
  }
  return true;
}

bool floats_read(Backend *backend, const Plan *plan, int32_t buf, uint64_t first, float *out, uint64_t n) {
  Half halves[CHUNK];
  FloatType type = (FloatType)plan->bufs.data[buf].dtype;
  beat(backend);
  if (!is_half(plan, buf)) return backend->read(backend, buf, first * sizeof *out, out, n * sizeof *out);
  for (uint64_t done = 0, part; done < n; done += part) {
    part = n - done < CHUNK ? n - done : CHUNK;
    if (!backend->read(backend, buf, (first + done) * sizeof *halves, halves, part * sizeof *halves)) return false;
    for (uint64_t i = 0; i < part; i++) out[done + i] = float_of_half(type, halves[i]);
  }
  return true;
}
