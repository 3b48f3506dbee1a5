/* Owns: the bound of one memory row, for bound.h: what of A and B is weighed, and what is given up for the row's room. */
#ifndef FSDPC_PLANNER_BOUND_ROW_H
#define FSDPC_PLANNER_BOUND_ROW_H

#include "planner/search/bound_terms.h"

/* An item and what not keeping it costs. */
typedef struct Offer {
  const Slice *slice;
  double cost, slope; /* slope: what the cost gains with the share */
  bool again; /* it would be run again for want of memory */
} Offer;

/* One memory row: the slices that take room at it. */
typedef struct Row {
  Slices items, units;
  double room;
  double ran_ns, reduced_ns; /* of operators from the loss on, and of reductions, that may come before it */
  bool fits;      /* all of them: nothing is given up, whatever the weights */
  double host_ns; /* what the link needs, one way, for all that host memory holds; NEVER: no limit */
  int32_t at;     /* its op */
  bool moves;     /* some item may be away */
  bool reorders;  /* what items are worth depends on the weights */
  const Waits *waits;
  Offer *offers;  /* one an item, in the order of the weights tried last */
} Row;

/* How the terms are weighed: `share` of A against B, `link` of C against what it stands for in A, `price` of the time that C
 * takes, of which what host memory holds is free. */
typedef struct Weighting {
  double share, link, price;
} Weighting;

/* The most that was found. */
typedef struct Most {
  double ns;
  Weighting at;
  const Terms *terms;
  bool again, rests;
} Most;

/* Raises it by a row for a pair of A and B, no further than to `enough`. */
void row_maximise(const Terms *terms, const Row *row, double enough, Most *most);
/* Whether shares alone raise it to `enough`, on whatever row: weights of the link take ten times as long. */
bool row_shares_reach(const Pairs *pairs, const Row *rows, uint32_t count, double enough);

#endif
