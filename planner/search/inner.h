/* Owns: the inner search: for one outer choice and one grouping of units, recompute per operator, units kept gathered and
 * the issue slots of gathers, chosen together under the room that a budget leaves. Seeds by price (items.h), then moves of whole
 * classes of items, all judged by the exact schedule (schedule.h). */
#ifndef FSDPC_PLANNER_INNER_H
#define FSDPC_PLANNER_INNER_H

#include "planner/search/bound.h"
#include "planner/search/search.h"

typedef struct Trial {
  bool *recompute, *away, *keep; /* Decisions */
  IssueRule issue;
  const int32_t *slots; /* Decisions; NULL: by the rule */
  uint64_t ns;  /* of a step; UINT64_MAX: does not fit */
  int64_t live; /* most bytes at once */
} Trial;

/* Estimates leave out where buffers lie, so more than one trial is kept for placement. */
enum { POOL = 32, JUDGED = 4096 };

struct Inner {
  Search *search;
  Arena *arena;
  const Program *program;
  Outer outer;
  Grouping grouping;
  const UnitSet *units;
  const UnitFigures *figures;
  const Skeleton *skeleton;
  PlanWorld world;
  Decisions base; /* recompute and keep: the start, with pins */
  AllItems items;
  Runs slices; /* of operators, as are ranks */
  Ranks ranks;
  Live live; /* where seeds start */
  const Decisions *from; /* moves go on from these, found before; NULL: from seeds */
  bool finely;           /* then by shorter runs of items, more of them */
  const bool *start_away; /* where seeds start, if not at the base: what is held lies in host memory */
  uint64_t room, host_room; /* bytes for buffers that do not persist, on the device and in host memory */
  bool lacks_host; /* the state that lies there is more than host memory: nothing fits, room is 0 */
  bool ample; /* once improved: all that may be kept on the device is, under every issue rule, and nothing waits for room */
  bool keep_free, movable; /* units may stay gathered; results may go to the host */
  Bound bound;   /* within the room */
  uint64_t *judged; /* by fingerprint % JUDGED: fingerprints of trials judged within the room; NULL: none yet */
  uint64_t rival_ns; /* the best that is known elsewhere, 0: nothing */
  Trial pool[POOL]; /* of the trials seen: ever slower ones, ever smaller; what does not exist has ns UINT64_MAX */
};

/* Everything but a trial: units, figures, items, the bound under search->budget. False after diagnostics. */
bool inner_open(Search *search, Arena *arena, const Outer *outer, Grouping grouping, Inner *inner);
/* Likewise, where only a bound below `enough` matters. */
bool inner_open_below(Search *search, Arena *arena, const Outer *outer, Grouping grouping, uint64_t enough, Inner *inner);
/* The bound alone, where only one below `enough` matters; UINT64_MAX, in no time, where what persists leaves no room here or in host memory. */
bool inner_bound(Search *search, Arena *arena, const Outer *outer, Grouping grouping, uint64_t enough, Bound *bound);
/* Sets the room that this budget leaves; forgets all trials. */
void inner_set_budget(Inner *inner, uint64_t budget);
/* A few seeds, then (more) all of them, into the pool. */
void inner_seed(Inner *inner, bool more);
/* All seeds, or what moves go on from, then moves from the best trial until it has reached the bound, nothing improves or there were too
 * many. Where memory is ample there is nothing to move. */
void inner_improve(Inner *inner);
/* Few enough items that improving is cheap, or even complete. */
bool inner_is_small(const Inner *inner);
/* So many operators that seeding and placing take long. */
bool inner_is_long(const Inner *inner);
/* So many items, those of thousands of layers, that seeds come close and each look takes long: no moves, few seeds. */
bool inner_is_large(const Inner *inner);
/* The start's decisions, or a trial's, in search->arena. */
Decisions inner_smallest(const Inner *inner);
Decisions inner_decisions(const Inner *inner, const Trial *trial);

/* Keeps on the device what of the items is away; whether anything was. */
bool inner_bring_back(const Inner *inner, Decisions *decisions);

/* Bytes that the start takes on one rank, before placement. */
uint64_t inner_smallest_bytes(Inner *inner);

/* How many ways there are to set the states of all items, 0: more than MOST_SETTINGS; the trial of one of them. */
enum { MOST_SETTINGS = 8192 };
uint32_t inner_settings(const Inner *inner);
void inner_set(const Inner *inner, uint32_t number, Trial *trial);
/* All rules that are tried; whether two of them differ in nothing that matters; whether rule r is like none from `from` on before it. */
const IssueRule *inner_rules(uint32_t *count);
bool inner_same_rule(const Inner *inner, const IssueRule *a, const IssueRule *b);
bool inner_new_rule(const Inner *inner, uint32_t from, uint32_t r);
/* Whether gathers follow an issue rule at all. */
bool inner_has_rules(const Inner *inner);
/* Moves the trial's gathers one by one from where its rule issues them, as long as that is faster; whether it was. Its slots are in
 * search->arena then. */
bool inner_move_slots(const Inner *inner, Trial *trial);
/* Whether the trial fits the room; sets its ns. */
bool inner_judge(const Inner *inner, Trial *trial);
/* Likewise for trials that differ by nothing but their issue rules, one judge at a time. Under any rule such a trial takes at least
 * least_ns, UINT64_MAX where it does not fit, and least_live. */
typedef struct Judge {
  const Inner *in;
  Decisions decisions;
  Schedule schedule;
  Builder *builder; /* NULL: it does not fit */
  uint64_t least_ns;
  int64_t least_live;
} Judge;
void judge_open(Judge *judge, const Inner *inner, const Trial *trial);
bool judge_rule(Judge *judge, Trial *trial);
void judge_close(Judge *judge);
Trial inner_new_trial(const Inner *inner); /* a copy of the start */
Trial inner_trial_of(const Inner *inner, const Decisions *decisions); /* its gathers by the rule */

#endif
