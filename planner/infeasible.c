/* Owns: infeasible.h. */
#include "planner/infeasible.h"

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

/* Each is tried in one way only: where that is too much, others may not be, and nothing is said. Returns whether something was. */
static bool try_relaxation(Search *search, const Outer *outer, const PlanSettings *settings, const char *what, Infeasible *out) {
  uint64_t bytes = smallest_bytes(search, outer, settings);
  bool fits = bytes && bytes <= search->budget;
  if (fits) relaxations_add(search->arena, what, "peak", bytes, search->budget, &out->relaxations);
  return fits;
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

void infeasible_relax(Arena *arena, Search *search, const Found *found, Infeasible *out) {
  PlanSettings relaxed = *search->settings;
  Outer outer = found->outer;
  if (relaxed.checkpoint == CHECKPOINT_NONE) {
    relaxed.checkpoint = CHECKPOINT_FULL;
    try_relaxation(search, &outer, &relaxed, "checkpoint full", out);
    relaxed = *search->settings;
  }
  if (outer.shard < search->ranks || relaxed.strategy == STRATEGY_SHARD_GRAD_OP) {
    relaxed.strategy = STRATEGY_FULL_SHARD;
    outer.shard = search->ranks;
    try_relaxation(search, &outer, &relaxed, "strategy full_shard", out);
    relaxed = *search->settings;
    outer = found->outer;
  }
  if (outer.micro_batch > 1 && !(outer.micro_batch % 2)) {
    outer.micro_batch /= 2;
    try_relaxation(search, &outer, &relaxed, arena_printf(arena, "micro_batch %lld", (long long)outer.micro_batch), out);
    outer = found->outer;
  }
  if (relaxed.wrap != WRAP_AUTO) {
    relaxed.wrap = WRAP_AUTO;
    try_relaxation(search, &outer, &relaxed, "wrap auto", out);
    relaxed = *search->settings;
  }
  if (relaxed.offload != SETTING_AUTO && search_offers_host(search)) {
    relaxed.offload = SETTING_AUTO;
    if (search_may_offload(search, &relaxed)) outer.offload = OFFLOAD_STATES;
    try_relaxation(search, &outer, &relaxed, "offload auto", out);
    relaxed = *search->settings;
    outer = found->outer;
  }
  bool divides = !search->samples || search->samples % (2ull * search->ranks * (uint64_t)outer.micro_batch) == 0;
  World own = {search->ranks, search->ranks_per_node}, twice;
  if (outer.shard > 1 && divides && double_ranks(search, &twice)) {
    set_world(search, &twice);
    outer.shard = twice.ranks;
    const char *ranks = arena_printf(arena, "ranks %u", twice.ranks);
    bool said = try_relaxation(search, &outer, &relaxed, ranks, out);
    outer.offload = OFFLOAD_STATES; /* half as much of it may find room */
    if (!said && search_may_offload(search, &relaxed)) (void)try_relaxation(search, &outer, &relaxed, ranks, out);
    set_world(search, &own);
  }
}
