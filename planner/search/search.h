/* Owns: the joint search. Outer choices (micro-batch, sharding) and groupings of units are bounded first and tried best bound
 * first; those whose bound exceeds the best plan found are dropped. What is chosen inside one of them is inner.h's. The
 * simulator has the last word on what has been placed. */
#ifndef FSDPC_PLANNER_SEARCH_H
#define FSDPC_PLANNER_SEARCH_H

#include "planner/search/bound.h"
#include "planner/emit/emit.h"
#include "planner/schedule/figures.h"
#include "planner/planner.h"

/* What all outer choices of one micro-batch share. */
typedef struct Prepared {
  CheckpointKind checkpoint; /* under which policy */
  bool movable;           /* search_movable, under which its items were listed */
  Program *program;       /* costed */
  bool *recompute, *away; /* the start, with pins */
  Items items;            /* of operators */
  Runs slices;            /* of these */
  Ranks ranks;
} Prepared;

typedef struct Grouping {
  WrapKind wrap;
  uint64_t numel; /* WRAP_SIZE: a unit is closed at that many elements */
} Grouping;

/* Units that were chosen once for all outer choices of a micro-batch. */
typedef struct Grouped {
  const Program *program;
  Grouping grouping;
  const UnitSet *units;
} Grouped;

/* One outer choice. */
typedef struct Outer {
  int64_t micro_batch;
  uint32_t shard; /* ranks a unit is spread over */
  bool gather_once, reduce_once; /* Decisions */
  uint32_t offload;
} Outer;

/* Whether units are gathered at all: from other ranks, or from host memory. */
static inline bool outer_gathers(const Outer *outer) { return outer->shard > 1 || (outer->offload & OFFLOAD_PARAMETERS); }

/* Which units stay gathered between forward and backward, where that is open. */
typedef enum { KEEP_FREELY, KEEP_NONE, KEEP_ALL } Keeping;

/* Units of an outer choice that have been searched for a budget, in one way: once more would find the same. */
typedef struct Searched {
  Outer outer;
  const Program *program;
  const UnitSet *units;
  uint64_t budget;
  bool brief, reversed, apart;
  Keeping keeping;
} Searched;

typedef struct Search {
  Arena *arena;
  Arena *scratch; /* of one judgement */
  DiagSink *sink;
  const Graph *graph;
  const Cluster *cluster;
  const PlanSettings *settings;
  const InstrSpec *specs;
  const PlanSpan *spans;
  const char *const *span_paths;
  uint32_t ranks, ranks_per_node;
  int64_t asked_per_node; /* PlannerOptions.ranks_per_node */
  uint64_t samples; /* a step, 0: one micro-batch a rank */
  uint64_t budget;
  VEC(Prepared) prepared; /* one a micro-batch tried */
  VEC(Grouped) grouped;
  VEC(Searched) searched;
  bool brief;              /* PlannerOptions; also while a stuck plan is looked for elsewhere */
  bool thorough;           /* PlannerOptions */
  PlannerProgress *progress; /* PlannerOptions */
  void *watcher;
  PlannerStage stage;
  bool reversed;           /* moves begin with the last class of items */
  bool grounded;           /* results stay on the device, whether they may leave it or not */
  Keeping keeping;         /* of units, where that is open */
  bool apart;              /* one grouping as if no other were known */
  uint64_t unplaced_ns;    /* of the best trial that was to be placed within the whole budget, its addresses left out; 0: none was */
  uint64_t placing;        /* effort left for memory_place: some 0.5 s where nothing but placing is hard */
  int64_t pairing;         /* likewise for moves of two items at a time, in operators of the trials */
} Search;

/* A complete set of decisions. */
typedef struct Found {
  Outer outer;
  Grouping grouping;
  const UnitSet *units;
  Decisions decisions;
  uint64_t estimate_ns;
  Plan *plan; /* placed, with events */
  Arena *arena; /* of the plan, while the search may still find a better one; then search->arena has it */
  SimResult sim;
  Bound bound;
  const Outer *bound_of; /* the outer choice that the bound is of; NULL: the plan's own */
  uint64_t own_bound_ns; /* of the plan's outer choice */
  uint64_t unplaced_ns;  /* Search's, where it was found */
  bool fits;
  bool settled; /* memory is ample (Inner), nor do addresses make it wait */
  bool paced;   /* gathers wait for the compute that they are issued after (events.c) */
} Found;

/* A budget of more than any device has, so that nothing is given up for memory. */
#define UNLIMITED_BYTES ((uint64_t)1 << 50)

enum { MAX_GROUPINGS = 8, PLACING_EFFORT = 450000000, PAIRING_EFFORT = 32000000 };

typedef struct Groupings {
  Grouping data[MAX_GROUPINGS];
  uint32_t count, finer; /* from `finer` on, units are smaller than blocks */
} Groupings;

/* micro[0..count): micro-batches to consider. False after diagnostics. When nothing fits, found is the smallest plan. */
bool search_best(Search *search, const int64_t *micro, uint32_t count, Found *found);
typedef struct Inner Inner;
/* An outer choice that has been searched, addresses aside, and not placed yet. */
typedef struct Tried {
  Bound least;          /* of the groupings that may hold a better plan than was known; UINT64_MAX: there are none */
  Grouping grouping;    /* of those the one with the best estimate; WRAP_AUTO: there are none */
  uint64_t estimate_ns; /* that one; UINT64_MAX: nothing fits */
  Inner *in;            /* all of them, best estimate first */
  uint32_t count;
  bool is_long;         /* so many operators that placing takes long */
  bool small;           /* so few items that estimates say little: all of it is worth placing */
  Arena *arena;         /* of all this; search_settle and search_drop free it */
} Tried;

/* Opens and seeds what may hold a better plan than `best`. False after diagnostics, with nothing to free. */
bool search_seed(Search *search, const Outer *outer, const Found *best, Tried *tried);
/* Moves, from the best seeds. */
void search_improve(Tried *tried, const Found *best);
/* Replaces `best` by a better plan of what was tried, if one can be placed. */
void search_settle(Search *search, Tried *tried, Found *best);
void search_drop(Tried *tried);
/* Whether it is estimated to come near `best`, which has a plan, or to be faster. */
bool search_may_beat(const Tried *tried, const Found *best);
/* Replaces `best` by a better plan of this outer choice with these units, if there is one. False after diagnostics. */
bool search_as(Search *search, const Outer *outer, Grouping grouping, Found *best);
/* Likewise, by moves from where `best` is: with other units from what it runs again and moves, while which of them stay gathered starts
 * anew. finely: of shorter runs of items, more of them. */
bool search_on(Search *search, Grouping grouping, bool finely, Found *best);
/* Likewise, with gathers in other slots than `best` has. */
bool search_gathers(Search *search, Found *best);
/* Likewise, as people set it by hand, with blocks as units: the search judges by estimates, which do not know what runs earlier once it is placed. */
bool search_by_hand(Search *search, const Outer *outer, Found *best);
/* Likewise, with units somewhat finer and coarser than these. least: falls to the bound of what is tried. */
bool search_nearby(Search *search, const Outer *outer, Grouping grouping, Found *best, Bound *least);
/* Likewise, with units of all sizes. */
bool search_all_sizes(Search *search, const Outer *outer, Found *best, Bound *least);
/* The bound of all sizes of units that these two may try for an outer choice, no further than to `enough`, or of some where that is below
 * it: where it is less than `least`, that falls to it. False after diagnostics. */
bool search_bound_sizes(Search *search, const Outer *outer, uint64_t enough, Bound *least);
bool search_same_outer(const Outer *a, const Outer *b);
/* The bytes between budgets of a fixed grid, so many to the octave of `budget`; at least 1. */
uint64_t search_grid_step(uint64_t budget, uint64_t to_the_octave);
/* As much effort as a search begins with. */
void search_renew(Search *search);
/* At least a part of it, for what else is tried. */
void search_renew_some(Search *search, const Found *found);
/* It fits, so far from the bound that it is worth looking elsewhere; however long that takes. */
bool search_is_stuck(const Found *found, const Bound *bound);
bool search_is_far(const Found *found, const Bound *bound);
bool search_is_very_far(const Found *found, const Bound *bound);
/* It takes more than `share` of the bound. */
bool search_exceeds(const Found *found, double share, const Bound *bound);
/* The model has so few operators that it is planned in no time. */
bool search_has_few_operators(const Search *search);
/* Its plan has so many instructions that looking once more takes long. */
bool search_is_long(const Found *found);
/* So few that it takes hardly any time. */
bool search_is_short(const Found *found);
/* The decisions as a placed plan, simulated if it fits. effort: memory_place's. */
void search_emit(Search *search, Arena *arena, const Inner *inner, const Decisions *decisions, uint64_t *effort, Found *found);
/* Whether what lies in host memory is more than there is. */
bool search_lacks_host(const Search *search, const Plan *plan);
/* Lets a paced plan's gathers start as early as they can, if that is faster. */
void search_unpace(Search *search, Arena *arena, Found *found);
/* Places a plan that fits in less of the budget, as long as that makes nothing wait. */
void search_compact(Search *search, Arena *arena, Found *found);
/* Replaces `best` by a better placed plan among the trials of an inner search, which is searched again with less room where
 * addresses take more than estimated. */
void search_place(Search *search, Inner *inner, Found *best);
/* Replaces `best` by a better plan that runs all or nothing again and keeps all or no units gathered, with gathers one use ahead. */
void search_policies(Search *search, const Inner *inner, Found *best);
/* Likewise, with other slots for its gathers. */
void search_move_gathers(Search *search, const Inner *inner, Found *best);
/* The room that an inner search starts with: long plans leave a little for placing. */
uint64_t search_first_budget(const Inner *inner);
/* The smallest placed plan of an outer choice: everything recomputed that may be, nothing prefetched. NULL after diagnostics. */
Plan *search_smallest(Search *search, Arena *arena, const Outer *outer, Found *found);
/* Of a micro-batch; NULL after diagnostics. */
const Prepared *search_prepare(Search *search, int64_t micro_batch);
const Program *search_program(Search *search, int64_t micro_batch);
/* Of a program that has been prepared; NULL after diagnostics. */
const UnitSet *search_units(Search *search, const Program *program, Grouping grouping);
/* Whether the settings leave open which units stay gathered. */
bool search_kept_is_open(const Search *search, const Outer *outer);
/* Whether results may go to host memory. */
bool search_movable(const Search *search);
/* Whether these settings let state go there unasked. Adafactor's update is not made for it. */
bool search_may_offload(const Search *search, const PlanSettings *settings);
/* Tells who watches how far it is. */
void search_tell(const Search *search);
PlanWorld search_world(const Search *search, const Outer *outer);
/* Groupings of units that the settings leave open for an outer choice. False after diagnostics. */
bool search_groupings(Search *search, const Outer *outer, Groupings *out);

#endif
