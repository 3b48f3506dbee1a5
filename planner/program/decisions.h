/* Owns: what the planner decides about one plan, before it is emitted. The search fills one of these, emit.c turns it
 * into instructions. */
#ifndef FSDPC_PLANNER_DECISIONS_H
#define FSDPC_PLANNER_DECISIONS_H

#include "planner/program/program.h"

typedef struct Unit {
  const char *name;
  VEC(int32_t) params; /* graph params in flat order */
  uint64_t elements;   /* of these, each rounded up to PLAN_ALIGN_ELEMENTS */
  int32_t reshard;     /* release after forward and gather again: 0, 1, or SETTING_AUTO where the file leaves it open */
  bool frozen;         /* all of its parameters are, or none: no gradient, no moments, no update */
} Unit;

typedef struct UnitSet {
  VEC(Unit) units;
  int32_t *unit_of; /* by graph param */
} UnitSet;

/* What its parameters are kept in: where nothing updates them, as they are gathered. */
static inline DType unit_kept(const Program *program, const Unit *unit) {
  const Recipe *recipe = &program->graph->recipe;
  return unit->frozen || program->window ? recipe->compute : recipe->master;
}

/* How far ahead gathers are issued: in uses, at most; as early as memory allows within that; then, if `late`, delayed to where
 * they still are in time. How far compute runs ahead of reductions: a gradient is reduced, at the latest, when `behind` more
 * reductions have been issued; 0: compute waits for each. */
typedef struct IssueRule {
  uint32_t ahead;
  bool late;
  uint32_t behind;
  bool first; /* gathers take the room before copies do: what is on its way to host memory, or comes from there */
} IssueRule;

/* Uses that a gather may be ahead of its own: of decisions where nobody pinned a depth, and of a rule that goes as far as these allow. */
#define PREFETCH_FREE UINT32_MAX
#define AS_FAR_AS_MAY_BE UINT32_MAX
enum { MOST_AHEAD = 6 }; /* by a rule, where the depth is free: further would only fill memory */

typedef struct Decisions {
  uint32_t ranks, shard, replicas, ranks_per_node;
  uint64_t accumulation;
  bool gather_once, reduce_once; /* a step: parameters stay gathered, gradients add up unreduced, over its micro-batches */
  uint32_t offload;              /* OFFLOAD_* bits of what lies in host memory between its uses: parameters are the shards that
                                    gathers read; gradients reduced ones; optimizer moments, and masters that gathers do not read */
  const UnitSet *units;
  const bool *keep; /* by unit: gathered from forward to backward */
  bool *recompute; /* by forward op of the program */
  bool *away;      /* by forward op: its result (Flow.moved) is in host memory from forward to backward; not recomputed then */
  uint32_t prefetch; /* most uses ahead, or PREFETCH_FREE */
  IssueRule issue;   /* ahead and late: where parameters are gathered each micro-batch */
  const int32_t *slots; /* by gather in the order of their queue, the step it is issued before; NULL: by the rule */
  uint64_t room;     /* bytes that live buffers may take, gathers by the rule among them */
  PlanOverlap overlap; /* figures of units count comm_slowdown */
} Decisions;

/* How many uses ahead gathers are issued under this rule at most. */
static inline uint32_t decisions_ahead(const Decisions *d, const IssueRule *rule) {
  const uint32_t most = d->prefetch == PREFETCH_FREE ? MOST_AHEAD : d->prefetch;
  return rule->ahead < most ? rule->ahead : most;
}
/* Whether a unit's parameters come from elsewhere before each use: from other ranks or the host. */
static inline bool decisions_gather(const Decisions *d) { return d->shard > 1 || (d->offload & OFFLOAD_PARAMETERS) != 0; }
/* Whether its gradient goes elsewhere after backward. */
static inline bool decisions_reduce(const Decisions *d) { return d->ranks > 1 || (d->offload & OFFLOAD_GRADIENTS) != 0; }
/* Whether a micro-batch adds to the reduced gradient of those before it. */
static inline bool decisions_adds_up(const Decisions *d) { return d->accumulation > 1 && !d->reduce_once; }
/* Whether operators add to parameter gradients that a step begins with as zeros, not write them first. */
static inline bool decisions_zeroes(const Decisions *d) { return d->accumulation > 1 && (d->reduce_once || d->ranks == 1); }
/* Whether gradients add up unreduced in buffers beside the reduced ones. */
static inline bool decisions_holds_gradients(const Decisions *d) {
  return d->reduce_once && (d->shard > 1 || (d->offload & OFFLOAD_GRADIENTS));
}

/* units.c: requires a program (for execution order). NULL with diagnostics when a pattern matches nothing. */
const UnitSet *units_choose(Arena *arena, DiagSink *sink, const Program *program, const PlanSettings *settings,
                            WrapKind wrap, uint64_t wrap_numel);
/* The same parameters in the same units, whatever their names. Both are of one graph. */
bool units_equal(const UnitSet *a, const UnitSet *b, const Graph *graph);
void units_print(Text *out, const Program *program, const UnitSet *units);

/* What is settled about an operator's results before the search. */
typedef enum {
  PIN_NONE,  /* nothing; they start as recomputed */
  PIN_KEPT,  /* by the policy: they are not recomputed, but may lie in host memory */
  PIN_EXACT  /* by name, or by how the loss works: as recompute and away say */
} Pin;

/* checkpoint.c: by forward op. */
void checkpoint_pin(const Program *program, const PlanSettings *settings, Pin *pins, bool *recompute, bool *away);
uint32_t checkpoint_block_count(const Program *program);
/* What becomes of each forward op's results: "drop" where nothing in backward reads them. */
void checkpoint_print(Text *out, const Program *program, const bool *recompute, const bool *away);

#endif
