/* Owns: exact, order-independent sums of non-negative doubles (a fixed-point superaccumulator: Kulisch). Sums of
 * squares built from it do not depend on how values are spread over units, shards and ranks. */
#ifndef FSDPC_KERNELS_EXACT_H
#define FSDPC_KERNELS_EXACT_H

#include <stdint.h>

enum { EXACT_WORDS = 40 }; /* digits of base 2^32, least first, word i weighing 2^(32 i - 640) */

/* Adds x >= 0. NaN or infinity makes the sum NaN for good (kept in a marker that exact_merge carries on). Up to 2^30
 * additions or merges may happen between normalisations; exact_add and exact_merge normalise by themselves. */
void exact_add(int64_t acc[EXACT_WORDS], double x);
void exact_merge(int64_t acc[EXACT_WORDS], const int64_t other[EXACT_WORDS]);
/* Nearest double. */
double exact_value(const int64_t acc[EXACT_WORDS]);

#endif
