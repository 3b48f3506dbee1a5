/* Owns: what the sides of the bound are made of: A, B and what else a micro-batch takes at least, from figures and the operators'
 * order alone. bound.h has the derivations, bound.c the memory. */
#ifndef FSDPC_PLANNER_BOUND_TERMS_H
#define FSDPC_PLANNER_BOUND_TERMS_H

#include "planner/search/bound.h"

/* One pair of A and B. */
typedef struct Terms {
  double a, b;                   /* with nothing run or gathered again */
  double before;                 /* of a, what precedes the loss */
  double idle;                   /* of a, how long compute rests for collectives at the ends */
  const char *idle_by;           /* of which of them most */
  double reduced_a;              /* what A counts for a second of reductions, where not in before */
  double apart_a;                /* of a, what gathers of backward slow that take place beside no reduction */
  int32_t until;                 /* A gains from what is run again for this op or earlier ones only */
  double again_b;                /* what B gains for a second of running again; A gains all of it */
  bool stores;                   /* A gains what copies to the host take of compute: it never rests in forward once it has begun */
  double stores_b;               /* then what B gains for a second of that */
  double copying;                /* seconds of compute that a second of copies beside it costs */
  double regather_a, regather_b; /* what they gain for a second of gathering again */
  double rest_a;                 /* what A gains for a second of resting until op idle_from; A has what rests later */
  int32_t idle_from;
  const char *by;                /* what binds where B does */
} Terms;

enum { MOST_PAIRS = 8 };

/* The header's pairs of A and B, and the least time until the loss. */
typedef struct Pairs {
  Terms data[MOST_PAIRS];
  uint32_t count;
  double forward;
} Pairs;

/* What bound_waits.h finds. */
typedef struct Waits {
  bool found;            /* any */
  double *begun, *ended; /* by op, and one past the last: the rests of windows that begin before it, and of those that end by it */
  double *late;          /* by op of backward: what one communicator has to do that it cannot begin before the op has ended */
  double apart;          /* of gathers of backward, what takes place beside no reduction */
  double pinned;         /* of that, what is of units that must not stay */
  double again;          /* what gathers of backward that every plan has take; 0: they have not been looked for */
  Question next;         /* what may be told apart */
  int32_t last_used;     /* no op before uses the last of these first */
} Waits;

/* Of windows from op `first` on that end by op `last`. */
static inline double waits_between(const Waits *waits, int32_t first, int32_t last) {
  const double ns = waits->ended[last] - waits->begun[first];
  return ns > 0 ? ns : 0;
}

/* settled: the first op from which on nothing is run again. waits: NULL where they have not been looked for. */
Pairs terms_pairs(const BoundInput *in, const MicroPass *pass, int32_t settled, const Waits *waits);
/* Bytes that every plan has live at each op. */
double *terms_live(Arena *scratch, const BoundInput *in);
/* Likewise, before an op begins. */
double *terms_live_before(Arena *scratch, const BoundInput *in);
/* The reduce queues where compute neither rests nor runs anything again; times are those that reductions get on by meanwhile. */
typedef struct Reducing {
  double *start;       /* by op from the turn on */
  double *taken, *end; /* by reduction: when the gradient has been read, and summed over all ranks; 0: it is not counted */
} Reducing;

/* settled: the first op from which on nothing is run again that must be; of gradients that are whole from there on. */
Reducing terms_reducing(Arena *scratch, const BoundInput *in, const MicroPass *pass, int32_t settled);
/* To differences by op: the bytes of gradients that are then on their way. */
void terms_add_unreduced(const BoundInput *in, const Reducing *reducing, double *delta);
/* Those at op `at`, as slices that rest. */
Slices terms_unreduced(Arena *scratch, const BoundInput *in, const Reducing *reducing, int32_t at);
/* From the loss on, with nothing but operators and reductions. live: of terms_live. */
double terms_reducing_ns(Arena *scratch, const BoundInput *in, const double *live);
/* The op with which the first gradient is whole of those whose reductions compute may rest for at the end. */
int32_t terms_longest_tail(const BoundInput *in, const MicroPass *pass);
/* Of gradients on their way to the host, all after the loss. */
double terms_stored_ns(const BoundInput *in, const MicroPass *pass);
/* Of operators [first, end). */
double terms_ops_ns(const BoundInput *in, int32_t first, int32_t end);
/* Of reductions that may begin before an operator, one after the other. */
double terms_reduced_ns(const BoundInput *in, int32_t op);
/* Whether it is gathered again for backward unless it stays, and whether it may stay. */
bool terms_gathers_again(const BoundInput *in, uint32_t unit);
bool terms_may_keep(const BoundInput *in, uint32_t unit);
/* Of one gather alone, and, where those are what bounds, of fetching its shard instead. */
double terms_allgather_ns(const BoundInput *in, uint32_t unit);
double terms_gather_ns(const BoundInput *in, uint32_t unit);
/* Of one gradient's sum over the shard group, and over the replicas, alone. */
double terms_scatter_ns(const BoundInput *in, uint32_t unit);
double terms_replicate_ns(const BoundInput *in, uint32_t unit);
/* The longest that operators of `meanwhile` take, beside communication. */
double terms_active_ns(const BoundInput *in, double meanwhile);
/* Of a unit's gradient, until it has been read. */
double terms_gradient_bytes(const BoundInput *in, uint32_t unit);

static inline bool terms_used_twice(const UnitOps *ops) { return ops->first_forward >= 0 && ops->first_backward >= 0; }

/* Of differences by op: bytes that are live from first to last; nowhere when first is PLAN_NONE. */
static inline void terms_add_range(double *delta, int32_t first, int32_t last, double bytes) {
  if (first < 0 || last < first) return;
  delta[first] += bytes;
  delta[last + 1] -= bytes;
}

#endif
