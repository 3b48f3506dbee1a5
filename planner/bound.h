/* Owns: a lower bound on step time that no plan of the searched space can beat under the cost model, for one micro-batch
 * and sharding.
 *
 * At the loss every kept activation and every parameter that stays gathered is live at once. With x_i the kept share of
 * item i (bytes m_i, recompute time r_i) and y the share of parameters (bytes P, time g a byte) that is not gathered twice:
 *
 *   sum m_i x_i + P y <= M                     M: budget less shards less what the loss itself needs
 *   T >= A = head + compute + sum (1 - x_i) r_i + tail
 *   T >= B = gathers once + (1 - y) P g        (+ reductions where they share the queue)
 *
 * Where collectives slow compute by a share c of their time, T is compute + c overlap + idle, the busiest communicator is at
 * most overlap + idle, and so T >= compute + c B + (1 - c) idle: A gains c B, and head and tail count 1 - c.
 *
 * For any weight w in [0, 1] T >= w A + (1 - w) B, and the least of that under the memory row is a fractional knapsack:
 * a Lagrangian bound, valid for every w, maximised by ternary search (it is concave in w). Latencies count once, units may be
 * cut in any way. Head: the first operator's parameters are gathered before it; tail: the last gradient's reduction. */
#ifndef FSDPC_PLANNER_BOUND_H
#define FSDPC_PLANNER_BOUND_H

#include "planner/items.h"

typedef struct BoundInput {
  const Program *program; /* costed */
  const Items *items;     /* of operators; units among them are ignored */
  const bool *kept;       /* by forward op: pinned to be kept */
  const Cluster *cluster;
  const PlanWorld *world;
  uint64_t budget;
  bool keep_free; /* whether units may stay gathered as the planner likes; otherwise keep_all says */
  bool keep_all;
  bool shared_queue;
} BoundInput;

typedef struct Bound {
  uint64_t ns; /* of a step */
  const char *by; /* "compute", "memory through recompute", "gather", "reduce", "communication" */
} Bound;

Bound bound_of(const BoundInput *input);

#endif
