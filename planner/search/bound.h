/* Owns: a lower bound on step time that no plan of the searched space can beat under the cost model, for one micro-batch,
 * sharding and grouping of units.
 *
 * At a backward operator j everything that was kept for later operators is live, with what j itself touches. x_i is the kept
 * share of item i (bytes m_i, recompute time r_i), y_u that of unit u (bytes P_u, gather time g_u):
 *
 *   sum over i needed after j of m_i x_i + sum over u used after j of P_u y_u <= M_j
 *                M_j: room less what is live at j in every plan: values that j lies between the uses of in backward, the
 *                gathered unit and the unreduced gradients that j lies within
 *   T >= A = head + compute + sum (1 - x_i) r_i + tail
 *   T >= B = gathers once + sum (1 - y_u) g_u        (+ reductions where they share the queue)
 *
 * Where collectives slow compute by a share c of their time, T is compute + c overlap + idle. Compute slows collectives by a
 * factor 1 + s; B is what the busiest communicator takes alone, at most overlap / (1 + s) + idle. So T >= compute + c (1 + s) B +
 * (1 - c (1 + s)) idle: A gains c (1 + s) B, and head and tail count 1 - c (1 + s). And since that communicator overlaps with all
 * compute but what runs while it rests, T >= B + k compute, k = s / (1 + s) / (1 - c), at most 1. While the first shard is fetched from host
 * memory, or the last gradient leaves for it, nothing is gathered or reduced either: of head and tail A counts that in full, and B gains it.
 * B of gathers gains all of a tail that begins with the last operator.
 *
 * The loss divides a micro-batch: every parameter is first gathered before it and every gradient reduced after it. So with two
 * communicators, W forward's compute, G its gathers, V and R those of backward, V' what of V precedes the first whole gradient:
 *
 *   T >= F + A', T >= F + B', F = max(head + W + c (1 + s) G, G + k W), A' = V + c (1 + s) R + sum (1 - x_i) r_i + tail,
 *                             B' = V' + R + k (V - V')
 *
 * and A' goes with B as well. With one communicator what is gathered again and not there at j is so after the loss too, beside no reduction:
 * B' = sum (1 - y_u) g_u + R + k V holds beside V' + R; of units that may stay, since one that may not can be there at j nevertheless.
 * Where gradients are summed over the shard group and then over replicas, by two communicators, R is the
 * longest chain of the former sums of some gradients and the latter of the last of these and those after it: it is busy throughout, as one
 * communicator would be. Gradients that do not fit beside each other wait: backward's compute and reductions alone, run one
 * after the other as memory forces them to, take at least what bound_terms.c counts. They slow each other there. With one communicator a
 * pass takes compute + B - (1 / (1 + s) - c) overlap, and neither can overlap for longer than where both run on until memory or its lack of
 * gradients stops one: whatever is put off, run again or gathered beside it, and if c (1 + s) is above 1, as if s were less. With two,
 * reductions that begin as soon as they may end as early as in no other pass, by the clock that they get on by; a pass that rests more, so that
 * they slow compute less, rests for at least as long as it gains, again where c (1 + s) is at most 1. Those that may be put off, because they
 * wait for what they are added to, could overlap with each other instead: of these only the sums over the shard group count, one after the other,
 * and the last one over replicas.
 *
 * A row counts such gradients too, so that they compete with what is kept. The k-th, whole with op o_k, is live at j until it has been
 * read, and what it is reduced to until that has been summed; where it is not, compute has rested before j for what the reductions from some m-th on to the k-th take beyond the operators
 * from o_m to j: an item that A gains 1 - c (1 + s) of, at least as much more as for the gradient before it. Running operators again
 * meanwhile rests less and takes as much longer: what of it is needed by j is free in the row, and what is needed later is live at j,
 * as if it had been kept. What is pinned to be run again is paid for in any case, so that only gradients count that are whole after all of it.
 * What rests at the end rests after j. Gradients go one after the other: where those that are left do not fit, whatever else is given up, the first
 * of them has gone. Units that take turns whatever is kept make compute wait again and again in forward, and after j: bound_waits.h. It also
 * says what a communicator cannot begin before operator o of backward has ended, N_o, and which gathers of backward, G', take place beside no reduction:
 *
 *   T >= F + V_o + N_o + k (V - V_o), V_o the compute from the loss to o          A' gains c (1 + s) G'
 *
 * and which units every plan gathers again, in N. Once the last of them is there, the operator p that uses it first is left, and all after it:
 *
 *   T >= G + N + k (W + V_p) + V - V_p + tail
 *
 * Where results may go to host memory, share z_i of item i may be away too. What is away at j was stored before j and is fetched
 * after it, on one link of rate h, and host memory holds H of it (where an operator has other results too, m_i is of the one that goes, and the
 * others are an item of their own, which costs what running again costs more than being away):
 *
 *   C = sum z_i m_i / h          sum m_i z_i <= H
 *
 * so that C stands for all that A counts before j: forward, the operators from the loss to j, reductions that may begin before j;
 * what is run again for operators after j comes after it. So C has a weight against that part of A and, by the price of the last
 * row, one that gives back its share of H. Where copies take compute's time, in which collectives slow nothing, 1 - c (1 + s) of that is in A, or
 * all of it where A counts no collectives: those to the host only where compute does not rest in forward, which they could fill; F has its rests.
 *
 * Copies that run beside compute cost it a share h' of their time, with the operator that a store follows and with the one that waits for the fetch:
 * work like what is run again, the latter after j. The former is in forward, where it could fill rests: only pairs whose forward has no rest but the
 * first count it, of which one begins both sides with forward as a whole. C stands for it with all else before j.
 *
 * For any weight w in [0, 1] T >= w A + (1 - w) B, and the least of that under one row is a fractional knapsack: a
 * Lagrangian bound, valid for every w and row, maximised over w by tangents (it is concave in w) and over the rows of the
 * loss, of the largest M_j short-fall and of the least M_j. Head: the k units that are used first are gathered one after the other
 * before the k-th computes, for the k where compute rests longest; nothing is run again in forward. Tail: the last k gradients are reduced one
 * after the other, likewise; what is run again between them could fill the time, so that a fourth pair of A and B counts the longest tail
 * without what is run again in it, and the others only a tail in which nothing is. */
#ifndef FSDPC_PLANNER_BOUND_H
#define FSDPC_PLANNER_BOUND_H

#include "planner/search/bound_cases.h"
#include "planner/search/bound_slices.h"
#include "planner/schedule/schedule.h"

typedef struct BoundInput {
  const Skeleton *skeleton;
  const AllItems *items;
  const Runs *operators;  /* what can be given up of results */
  const Decisions *start; /* everything recomputed and gathered again that is not pinned */
  uint64_t room;          /* bytes for buffers that do not persist */
  uint64_t host_room;     /* bytes of host memory for them; UINT64_MAX: no limit */
  bool fetch_bound;       /* bound_of's own: of gathers count the fetches of their shards */
  bool may_keep;          /* whether units that start as gathered again may stay, unless the file says that one does not */
  Cases assumed;          /* bound_of's own: what holds in the case that is looked at */
  uint64_t enough;        /* once the bound has reached that it is raised no further; UINT64_MAX: always */
} BoundInput;

typedef struct Bound {
  uint64_t ns; /* of a step; UINT64_MAX: nothing fits */
  const char *by; /* what binds, in words */
} Bound;

Bound bound_of(const BoundInput *input);
/* A plan this fast is as good as any: looking further could save a thousandth. */
static inline uint64_t bound_reached(const Bound *bound) { return bound->ns + bound->ns / 1000; }

#endif
