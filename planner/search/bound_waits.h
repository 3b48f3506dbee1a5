/* Owns: what compute waits for within backward, whatever is kept, because two units do not fit beside each other: a gradient is read
 * before the next one's buffer exists, and a unit is gathered only where what was there before has gone.
 *
 * Where values that every plan has live at operator j, and the gradient of a unit that is whole with operator o < j, take more than
 * there is, compute rests from o to j for what its reduction takes beyond the operators between. Likewise a unit that is first used by j is not there
 * at operator i < j, nor is its gather under way, where it does not fit beside what is live at i; where it fits neither beside the gradient
 * that is whole with o, it is gathered after that has been read. What is run again between them for operators up to j may fill the rest,
 * nothing else: operators are run again just before what needs them. So what can be run again at most, and what copies take of
 * compute there, is left out of the rest. Rests of windows of operators that do not overlap add up. */
#ifndef FSDPC_PLANNER_BOUND_WAITS_H
#define FSDPC_PLANNER_BOUND_WAITS_H

#include "planner/search/bound_terms.h"

typedef struct Waits {
  double *begun, *ended; /* by op, and one past the last: the rests of windows that begin before it, and of those that end by it */
} Waits;

/* live: of terms_live. */
Waits waits_find(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live);

/* Of windows from op `first` on that end by op `last`. */
static inline double waits_between(const Waits *waits, int32_t first, int32_t last) {
  const double ns = waits->ended[last] - waits->begun[first];
  return ns > 0 ? ns : 0;
}

#endif
