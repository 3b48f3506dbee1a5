/* Owns: what compute and communicators wait for, whatever is kept, because units do not fit beside each other: a gradient is read
 * before the next one's buffer exists, and a unit is gathered only where what was there before has gone.
 *
 * Where values that every plan has live at operator j, and the gradient of a unit that is whole with operator o < j, take more than
 * there is, compute rests from o to j for what its reduction takes beyond the operators between. Likewise a unit that is first used by j is not
 * there at operator i < j, nor is its gather under way, where it does not fit beside what is live at i; where it fits neither beside the gradient
 * that is whole with o, at no operator and not between two either, it is gathered after that has been read. Gathers are queued in the order of use.
 * So those before it must fit with it, those behind it wait as long, and where reductions share the queue it is behind those whose gradients are whole
 * by i. What is run again may use a unit earlier than its own first operator does: the order is known where that is after the first use of the unit before.
 *
 * A result that is never run again, and that operator j needs first, is there at i or fetched after it; one that was made by i and that nothing
 * of forward reads from j on has been stored by j, or is there. So of those that the room at i, or at j, does not hold all copies are made between.
 *
 * A gather is beside a reduction only where its unit, the gradient and the units before in the queue fit. A reduction that is put off, because it
 * waits for a buffer or for what it adds to, could be beside any gather otherwise: so those count only that have read their gradient by then, for
 * one that follows does not fit. Compute may rest while both work: where each slows it by half at most it does so for at least as long as they would
 * have slowed it, but for windows that count already, which are left out.
 *
 * What is run again in backward between them for operators up to j may fill the rest, nothing else: operators are run again just before what needs
 * them. So what can be run again at most, and what copies take of compute there, is left out of the rest. Rests of windows of operators
 * that do not overlap add up. */
#ifndef FSDPC_PLANNER_BOUND_WAITS_H
#define FSDPC_PLANNER_BOUND_WAITS_H

#include "planner/search/bound_terms.h"

/* live: of terms_live. */
Waits waits_find(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live);

#endif
