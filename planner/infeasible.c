/* Owns: infeasible.h. */
#include "planner/infeasible.h"

#include "planner/pins.h"
#include "planner/world.h"

#include <stdlib.h>

static int compare_largest(const void *a, const void *b) {
  const LargestBuffer *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void list_largest(Arena *arena, const Plan *plan, int32_t at, Infeasible *out) {
  VEC(LargestBuffer) all = {0};
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->host || buf->first > at || buf->last < at) continue;
    const char *name = plan_str(plan, buf->name);
    if (buf->unit >= 0) name = arena_printf(arena, "%s of unit %s", name, plan_str(plan, plan->units.data[buf->unit].name));
    LargestBuffer entry = {name, buf_class_name(buf->class), buf->bytes};
    vec_push(arena, &all, entry);
  }
  qsort(all.data, all.count, sizeof *all.data, compare_largest);
  for (uint32_t i = 0; i < all.count && i < 8; i++) vec_push(arena, &out->largest, all.data[i]);
}

void infeasible_explain(Arena *arena, const Search *search, const Found *found, Infeasible *out) {
  const Plan *plan = found->plan;
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  plan_peak(plan, by_class, &at);
  const PlanInstr *instr = &plan->instrs.data[at];
  out->smallest_peak_bytes = plan->arena_bytes;
  out->peak_at = arena_printf(arena, "%s of %s (%s)", search->specs[instr->op].name, plan_str(plan, instr->name),
                              phase_name(instr->phase));
  list_largest(arena, plan, at, out);
  out->lacks_host_bytes = search_lacks_host(search, plan) ? plan->host_bytes - search->cluster->device.host_memory : 0;
  if (!out->lacks_host_bytes) relaxations_add_memory(arena, plan->arena_bytes, &out->relaxations);
}

/* Arena of the smallest plan under changed settings; 0: there is none, or host memory is too small. */
static uint64_t smallest_bytes(Search *search, const Outer *outer, const PlanSettings *settings) {
  Arena *scratch = arena_new();
  const PlanSettings *own = search->settings;
  Found found;
  search->settings = settings;
  const Plan *plan = search_smallest(search, scratch, outer, &found);
  search->settings = own;
  uint64_t bytes = plan && !search_lacks_host(search, plan) ? plan->arena_bytes : 0;
  arena_free(scratch);
  return bytes;
}

/* What was found, and what is said of it. */
typedef struct Relaxing {
  Search *search;
  const Found *found;
  Infeasible *out;
} Relaxing;

/* What else takes the least with most units, as far as it is open. */
static Outer leanest(const Search *search, Outer outer, const PlanSettings *settings) {
  const bool open = settings->strategy != STRATEGY_SHARD_OPTIM;
  if (open && settings->gather != CADENCE_STEP) outer.gather_once = false;
  if (open && settings->reduce != CADENCE_STEP) outer.reduce_once = false;
  if (search_may_offload(search, settings)) outer.offload = OFFLOAD_STATES;
  return outer;
}

/* As the smallest plan is, or where that is too much as lean as can be. */
static uint64_t least_bytes(Search *search, const Outer *outer, const PlanSettings *settings) {
  uint64_t bytes = smallest_bytes(search, outer, settings);
  if (bytes && bytes <= search->budget) return bytes;
  const Outer lean = leanest(search, *outer, settings);
  return search_same_outer(&lean, outer) ? bytes : smallest_bytes(search, &lean, settings);
}

/* Each is tried in these two ways only: where both are too much, others may not be, and nothing is said. Nor is it of settings that other pins
 * contradict. */
static void try_relaxation(const Relaxing *r, const Outer *outer, const PlanSettings *settings, const char *what) {
  Search *search = r->search;
  DiagSink unsaid = {.arena = search->scratch, .sources = search->sink->sources};
  if (!pins_agree(&unsaid, settings)) return;
  const PlanSettings completed = pins_completed(*settings);
  uint64_t bytes = least_bytes(search, outer, &completed);
  if (bytes && bytes <= search->budget) relaxations_add(search->arena, what, "peak", bytes, search->budget, &r->out->relaxations);
}

static void relax_checkpoint(const Relaxing *r) {
  PlanSettings relaxed = *r->search->settings;
  if (relaxed.checkpoint != CHECKPOINT_NONE) return;
  relaxed.checkpoint = CHECKPOINT_FULL;
  try_relaxation(r, &r->found->outer, &relaxed, "checkpoint full");
}

static void relax_strategy(const Relaxing *r) {
  PlanSettings relaxed = *r->search->settings;
  Outer outer = r->found->outer;
  const bool once = relaxed.strategy == STRATEGY_SHARD_OPTIM;
  if (outer.shard == r->search->ranks && !once && relaxed.strategy != STRATEGY_SHARD_GRAD_OP) return;
  relaxed.strategy = STRATEGY_FULL_SHARD;
  outer.shard = r->search->ranks;
  outer.gather_once = false;
  if (once) outer.reduce_once = relaxed.reduce == CADENCE_STEP;
  try_relaxation(r, &outer, &relaxed, "strategy full_shard");
}

/* A step of one micro-batch, for which pinned cadences are one, becomes one of two. */
static void relax_micro_batch(const Relaxing *r) {
  const PlanSettings *settings = r->search->settings;
  Outer outer = r->found->outer;
  if (outer.micro_batch % 2) return;
  outer.micro_batch /= 2;
  outer.gather_once |= settings->gather == CADENCE_STEP && outer.shard > 1;
  outer.reduce_once |= settings->reduce == CADENCE_STEP;
  try_relaxation(r, &outer, settings, arena_printf(r->search->arena, "micro_batch %lld", (long long)outer.micro_batch));
}

/* A pin that is let go of, if it costs memory and its strategy does not set it anyway. */
typedef struct Pinned {
  bool (*let_go)(PlanSettings *settings);
  const char *what;
} Pinned;

static bool let_go_wrap(PlanSettings *s) {
  const bool pinned = s->wrap != WRAP_AUTO;
  s->wrap = WRAP_AUTO;
  return pinned;
}

static bool let_go_reshard(PlanSettings *s) {
  const bool pinned = s->reshard == 0;
  s->reshard = SETTING_AUTO;
  return pinned;
}

static bool let_go_cadence(Cadence *cadence, Strategy strategy) {
  const bool pinned = *cadence == CADENCE_STEP && strategy != STRATEGY_SHARD_OPTIM;
  *cadence = CADENCE_AUTO;
  return pinned;
}

static bool let_go_gather(PlanSettings *s) { return let_go_cadence(&s->gather, s->strategy); }
static bool let_go_reduce(PlanSettings *s) { return let_go_cadence(&s->reduce, s->strategy); }

static bool let_go_offload(PlanSettings *s) {
  const bool pinned = s->offload != SETTING_AUTO;
  s->offload = SETTING_AUTO;
  return pinned;
}

static void relax_pins(const Relaxing *r) {
  static const Pinned pins[] = {{let_go_wrap, "wrap auto"},
                                {let_go_reshard, "reshard auto"},
                                {let_go_gather, "gather auto"},
                                {let_go_reduce, "reduce auto"},
                                {let_go_offload, "offload auto"}};
  for (size_t i = 0; i < sizeof pins / sizeof *pins; i++) {
    PlanSettings relaxed = *r->search->settings;
    if (pins[i].let_go(&relaxed)) try_relaxation(r, &r->found->outer, &relaxed, pins[i].what);
  }
}

/* Twice the ranks in nodes as asked for, else the cluster's, which may be as many as it takes where there is a network. */
static bool double_ranks(const Search *search, World *out) {
  PlannerOptions twice = {.ranks = 2 * (int64_t)search->ranks, .ranks_per_node = search->asked_per_node};
  DiagSink sink = {.arena = search->scratch, .sources = search->sink->sources}; /* what is impossible is not proposed */
  return world_choose(&sink, search->graph, &twice, out);
}

static void set_world(Search *search, const World *world) {
  search->ranks = world->ranks;
  search->ranks_per_node = world->ranks_per_node;
}

/* Groups of a fixed size hold as much on more ranks. */
static void relax_ranks(const Relaxing *r) {
  Search *search = r->search;
  const World own = {search->ranks, search->ranks_per_node};
  Outer outer = r->found->outer;
  World twice;
  bool divides = !search->samples || search->samples % (2ull * search->ranks * (uint64_t)outer.micro_batch) == 0;
  if (outer.shard == 1 || search->settings->strategy == STRATEGY_HYBRID_SHARD || !divides || !double_ranks(search, &twice)) return;
  set_world(search, &twice);
  outer.shard = twice.ranks;
  try_relaxation(r, &outer, search->settings, arena_printf(search->arena, "ranks %u", twice.ranks));
  set_world(search, &own);
}

void infeasible_relax(Search *search, const Found *found, Infeasible *out) {
  const Relaxing relaxing = {search, found, out};
  relax_checkpoint(&relaxing);
  relax_strategy(&relaxing);
  relax_micro_batch(&relaxing);
  relax_pins(&relaxing);
  relax_ranks(&relaxing);
}
