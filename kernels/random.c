/* Owns: single random values, the definition that init.c computes many at a time of.
 *
 * Four normal values, or two uniform ones, come from one Philox block of counter (stream, index / 4 or / 2).
 */
#include "kernels/random.h"
#include "kernels/kernels.h"

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  Philox p = philox(seed, stream, index / 2);
  uint64_t high = p.word[index % 2 * 2], low = p.word[index % 2 * 2 + 1];
  return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
  Philox p = philox(seed, stream, index / 4);
  uint64_t pair = index % 4 / 2 * 2;
  SinCos values = normal_pair(p.word[pair], p.word[pair + 1]);
  return index % 2 == 0 ? values.cos : values.sin;
}
