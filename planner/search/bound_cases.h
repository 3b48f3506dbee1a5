/* Owns: cases of the bound: of a few things one is so in every plan, so that the least bound of the cases is one too. Each is assumed in turn where
 * together they say too little: what must not be beside an operator is before it or after it, and either takes time, elsewhere.
 *
 * A gather needs room for the unit and for a shard that was fetched for it. Where these do not fit beside operator j, with what precedes the gather in
 * the queue, it begins after j has ended, or it has been done before j begins. A gradient that is whole before j may be there as well: where it does not
 * fit beside both, it has been read before j begins, or the gather begins after j has begun: after j has ended, or once the gradient has been read;
 * or, where the unit alone would fit, it was done before. And a unit stays, or it is gathered again. */
#ifndef FSDPC_PLANNER_BOUND_CASES_H
#define FSDPC_PLANNER_BOUND_CASES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum CaseKind {
  CASE_AFTER,  /* the unit's gather begins after op `op` has ended */
  CASE_BEFORE, /* the unit is there before it begins */
  CASE_READ,   /* the reduction's gradient has been read before it begins */
  CASE_BEHIND, /* the unit's gather begins after it has begun, and after the reduction's gradient has been read */
  CASE_AGAIN,  /* the unit is gathered again for backward */
  CASE_KEPT    /* it stays from forward on */
} CaseKind;

typedef struct Case {
  CaseKind kind;
  bool backward;      /* of a gather: it is one of backward, or for it */
  uint32_t unit;
  uint32_t reduction; /* its place in their order */
  int32_t op, use;    /* use: the op that uses the unit first */
} Case;

enum { MOST_ASSUMED = 12, MOST_ANSWERS = 4 };

/* What is assumed, at once. */
typedef struct Cases {
  Case data[MOST_ASSUMED];
  uint32_t count;
} Cases;

/* Of its answers one is so in every plan. */
typedef struct Question {
  Case answers[MOST_ANSWERS];
  uint32_t count; /* 0: there is none */
  double ns;      /* that the one takes at least which is known to take least */
} Question;

/* The last one of these that is assumed, which says most; NULL: none. */
static inline const Case *cases_of_gather(const Cases *cases, CaseKind kind, uint32_t unit, bool backward) {
  for (uint32_t i = cases->count; i-- > 0;)
    if (cases->data[i].kind == kind && cases->data[i].unit == unit && cases->data[i].backward == backward) return &cases->data[i];
  return NULL;
}

static inline bool cases_assume(const Cases *cases, CaseKind kind, uint32_t unit) { return cases_of_gather(cases, kind, unit, true); }

#endif
