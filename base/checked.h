/* Owns: overflow-checked size arithmetic. Sizes that come from a file are multiplied only through these. */
#ifndef FSDPC_BASE_CHECKED_H
#define FSDPC_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* False on overflow; *out is then unspecified. */
static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_add_overflow(a, b, out); }

/* value rounded up to a multiple of unit; the caller knows that it cannot overflow. */
static inline uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

#endif
