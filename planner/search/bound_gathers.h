/* Owns: gathers that wait for memory, for bound_waits.h: which of them every plan has, after which op they begin, what waits for them, and what
 * they take beside no reduction. */
#ifndef FSDPC_PLANNER_BOUND_GATHERS_H
#define FSDPC_PLANNER_BOUND_GATHERS_H

#include "planner/search/bound_windows.h"

/* A gather of forward or of backward, in the order of use, which is that of the queue. */
typedef struct Gather {
  uint32_t unit;
  bool again;       /* for backward: it was there in forward */
  int32_t to;       /* the op that uses it first, unless what is run again does before */
  int32_t by;       /* it is there before that op begins: that one, unless another is assumed */
  int32_t earliest; /* the first op that something is run again for which may use it */
  int32_t blocked;  /* it begins after that op has ended; PLAN_NONE: unknown */
  int32_t passes;   /* after that, the last op before `by` beside which it may be there, but not under way; PLAN_NONE: none */
  bool certain;     /* it is gathered in every plan */
  int32_t after;    /* the place in the order of reductions of one that must have been read before; PLAN_NONE: none */
} Gather;

typedef VEC(Gather) Gathers;

/* Whether `second` is behind `first` in the queue whatever is run again. */
static inline bool gather_is_behind(const Gather *second, const Gather *first) { return second->earliest > first->to; }

/* Bytes that gather `first`, listed before it, has for it to fit beside: 0 where that need not be there, or not before it in the queue. */
static inline double gather_ahead(const Finder *f, const Gather *first, const Gather *gather) {
  return gather->certain && first->certain && gather_is_behind(gather, first) ? full_bytes(f, first->unit) : 0;
}

static inline bool gathers_any_blocked(const Gathers *gathers) {
  for (uint32_t i = 0; i < gathers->count; i++)
    if (gathers->data[i].certain && gathers->data[i].blocked >= 0) return true;
  return false;
}

/* All of forward, or of backward. */
Gathers gathers_find(Finder *f, bool backward, bool reduces);
/* Lists what waits for them, and asks what else may be assumed. behind: reductions share their queue. */
void gathers_wait(Finder *f, const Gathers *gathers, bool behind, bool reduces);
/* What of gather `i` may be told apart, if it promises more than what has been asked before. */
void gathers_ask(Finder *f, const Gathers *gathers, uint32_t i, bool reduces);
/* Of those of backward, once all windows have been listed: what begins late, what is beside no reduction, how long they take. */
void gathers_sum(Finder *f, const Gathers *gathers, bool reduces, Waits *out);

#endif
