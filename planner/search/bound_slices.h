/* Owns: what can be given up for memory, for the rows of the bound: slices by worth, and those that take room at an operator. Like slices
 * are found as one there, by their sums, so that a row takes as long as there are kinds of them. */
#ifndef FSDPC_PLANNER_BOUND_SLICES_H
#define FSDPC_PLANNER_BOUND_SLICES_H

#include "planner/search/items.h"

/* What can be given up: an operator's item, or a unit that stays. */
typedef struct Slice {
  double bytes, ns; /* what keeping takes and saves */
  double away;      /* or the time that a copy to the host, or from it, needs; 0: it cannot go there */
  bool link;        /* copies take the host link's time, else that of compute */
  bool beside;      /* results that stay where another one of the same op is away: to be given up by running it again alone */
  bool rests;       /* a gradient on its way: compute rests for ns where it is not live */
  int32_t until;    /* the first backward op that has it live anyway */
} Slice;

#define NEVER 1e30 /* bytes of what may not stay, or is pinned to be run again; ns of what is never run again */

typedef struct Slices {
  Slice *data; /* by ns per byte, best first */
  uint32_t count;
} Slices;

/* Slices in order, those that are worth as much a byte next to each other, by `until`: a run. */
typedef struct Runs {
  Slices slices;
  Slice *rest;   /* each with those after it in its run, as one */
  uint32_t *end; /* by run: of its slices */
  uint32_t count;
} Runs;

/* Sorts the slices. */
Runs slices_group(Arena *arena, Slices slices);
/* Of operators, and of those that are pinned to be run again: the same for all bounds of one program. */
Runs slices_of_operators(Arena *arena, const Program *program, const Items *operators, const Items *again, bool copies_beside);
/* The latest `until` of those of so many bytes or more: NEVER for what is pinned to be run again. */
int32_t slices_latest(const Runs *runs, double bytes);
/* Slices that take room at op `at`, told apart by the side of the op `split`, like ones as one. more: what takes room only there. */
Slices slices_at(Arena *scratch, const Runs *runs, int32_t at, int32_t split, Slices more);
double slices_bytes(const Slices *slices);

#endif
