/* Owns: one outer choice: the groupings of units that are looked at, those that leave hope, and how much each is searched. */
#include "planner/search/inner.h"

#include <math.h>
#include <stdlib.h>

enum { PLACED_GROUPINGS = 2 };

/* Sizes of units that are not listed lie on a ladder around that of a block, so that bounds can cover all of them. */
static const double RUNG = 1.06;
enum { LOWEST_RUNG = -64, HIGHEST_RUNG = 96 };
/* So many rungs from another size they are near. */
static const int32_t nearby_rungs[] = {-9, -4, -2, 2, 4, 8};
enum { NEARBY_SIZES = sizeof nearby_rungs / sizeof *nearby_rungs };
_Static_assert((int)NEARBY_SIZES <= (int)MAX_GROUPINGS, "one Groupings holds them");

/* --- groupings --------------------------------------------------------------------------------------------------------------- */

static uint64_t block_numel(const Program *program) {
  const Graph *graph = program->graph;
  uint64_t total = 0;
  for (uint32_t p = 0; p < graph->params.count; p++) {
    uint64_t numel = 0;
    shape_numel(&graph->params.data[p].shape, 1, &numel);
    if (program->block[graph->params.data[p].first_op] >= 0) total += numel;
  }
  uint32_t blocks = checkpoint_block_count(program);
  return blocks ? total / blocks : total;
}

bool search_groupings(Search *s, const Outer *outer, Groupings *out) {
  const PlanSettings *settings = s->settings;
  const Program *program = search_program(s, outer->micro_batch);
  if (!program) return false;
  *out = (Groupings){{{settings->wrap, settings->wrap_numel}}, 1, 1};
  if (settings->wrap != WRAP_AUTO) return true;
  out->data[0] = (Grouping){WRAP_BLOCK, 0};
  uint64_t block = block_numel(program);
  out->data[out->count++] = (Grouping){WRAP_SIZE, block + block / 2}; /* coarser where latency binds */
  out->data[out->count++] = (Grouping){WRAP_SIZE, 2 * block - block / 32};
  out->data[out->count++] = (Grouping){WRAP_SIZE, 3 * block + block / 2};
  out->data[out->count++] = (Grouping){WRAP_WHOLE, 0};
  out->finer = out->count;
  out->data[out->count++] = (Grouping){WRAP_SIZE, block * 13 / 25}; /* finer where memory is tight: three for two blocks */
  out->data[out->count++] = (Grouping){WRAP_SIZE, block / 5};
  out->data[out->count++] = (Grouping){WRAP_SIZE, 1}; /* an operator's parameters each: the least that is gathered at once */
  return true;
}

static Grouping size_at(const Program *program, int32_t rung) {
  const double numel = (double)block_numel(program) * pow(RUNG, rung < LOWEST_RUNG ? LOWEST_RUNG : rung > HIGHEST_RUNG ? HIGHEST_RUNG : rung);
  return (Grouping){WRAP_SIZE, numel < 1 ? 1 : (uint64_t)numel};
}

static int32_t rung_of(const Program *program, Grouping grouping) {
  const uint64_t block = block_numel(program);
  if (grouping.wrap != WRAP_SIZE || !block || !grouping.numel) return 0;
  return (int32_t)lround(log((double)grouping.numel / (double)block) / log(RUNG));
}

/* Somewhat finer and coarser. */
static Groupings groupings_near(Search *s, const Outer *outer, Grouping grouping) {
  const Program *program = search_program(s, outer->micro_batch);
  const int32_t rung = rung_of(program, grouping);
  Groupings out = {.count = NEARBY_SIZES};
  for (uint32_t i = 0; i < NEARBY_SIZES; i++) out.data[i] = size_at(program, rung + nearby_rungs[i]);
  return out;
}

bool search_bound_sizes(Search *s, const Outer *outer, uint64_t enough, Bound *least) {
  const Program *program = search_program(s, outer->micro_batch);
  const UnitSet *before = NULL;
  Arena *scratch = arena_new();
  bool good = program != NULL;
  for (int32_t rung = LOWEST_RUNG; good && rung <= HIGHEST_RUNG && least->ns >= enough && s->settings->wrap == WRAP_AUTO; rung++) {
    const Grouping grouping = size_at(program, rung);
    const UnitSet *units = search_units(s, program, grouping);
    Bound bound = {UINT64_MAX, "memory"};
    if (!units) good = false;
    else if (!before || !units_equal(before, units, s->graph)) good = inner_bound(s, scratch, outer, grouping, enough, &bound);
    if (bound.ns < least->ns) *least = bound;
    before = units;
    arena_reset(scratch);
  }
  arena_free(scratch);
  return good;
}

/* --- what has been searched ------------------------------------------------------------------------------------------------------ */

bool search_same_outer(const Outer *a, const Outer *b) {
  return a->micro_batch == b->micro_batch && a->shard == b->shard && a->gather_once == b->gather_once && a->reduce_once == b->reduce_once &&
         a->offload == b->offload;
}

static bool is_searched(const Search *s, const Inner *in) {
  for (uint32_t i = 0; i < s->searched.count; i++) {
    const Searched *done = &s->searched.data[i];
    if (done->budget == s->budget && done->brief == s->brief && done->reversed == s->reversed && done->apart == s->apart && done->keeping == s->keeping &&
        done->program == in->program && search_same_outer(&done->outer, &in->outer) && units_equal(done->units, in->units, s->graph))
      return true;
  }
  return false;
}

static void note_searched(Search *s, const Inner *in) {
  vec_push(s->arena, &s->searched, ((Searched){in->outer, in->program, in->units, s->budget, s->brief, s->reversed, s->apart, s->keeping}));
}

/* --- seeds, moves, plans ---------------------------------------------------------------------------------------------------------- */

static int compare_bound(const void *a, const void *b) {
  const Inner *x = a, *y = b;
  if (x->bound.ns != y->bound.ns) return x->bound.ns < y->bound.ns ? -1 : 1;
  if (x->grouping.wrap != y->grouping.wrap) return x->grouping.wrap < y->grouping.wrap ? -1 : 1;
  return (x->grouping.numel > y->grouping.numel) - (x->grouping.numel < y->grouping.numel);
}

static int compare_best(const void *a, const void *b) {
  const Inner *x = a, *y = b;
  if (x->pool[0].ns != y->pool[0].ns) return x->pool[0].ns < y->pool[0].ns ? -1 : 1;
  return compare_bound(a, b);
}

static uint32_t best_inner(const Inner *in, uint32_t count, uint32_t except) {
  uint32_t best = except;
  for (uint32_t g = 0; g < count; g++)
    if (g != except && (best == except || in[g].pool[0].ns < in[best].pool[0].ns)) best = g;
  return best;
}

/* Nothing of grouping g can be better by far, going by estimates of those before it. Long models are looked at less. */
static bool is_settled(const Inner *in, uint32_t g, uint64_t target_ns) {
  uint64_t best = g ? in[best_inner(in, g, g)].pool[0].ns : UINT64_MAX;
  if (best <= target_ns) return true;
  return inner_is_large(&in[g]) && best != UINT64_MAX && (g >= PLACED_GROUPINGS || best <= in[g].bound.ns);
}

/* On every grouping whose bound leaves hope. */
static void seed_groups(Inner *in, uint32_t count) {
  uint64_t target_ns = bound_reached(&in[0].bound);
  for (uint32_t g = 0; g < count; g++)
    if (!is_settled(in, g, target_ns) || inner_is_small(&in[g])) inner_seed(&in[g], false);
}

/* On the best two groupings, on all where models are small: there the best estimate is less likely to be the one that can be placed. */
static void improve_groups(Inner *in, uint32_t count) {
  uint64_t target_ns = bound_reached(&in[0].bound);
  uint32_t winner = best_inner(in, count, count), second = best_inner(in, count, winner);
  for (uint32_t g = 0; g < count; g++) {
    uint64_t best = in[best_inner(in, count, count)].pool[0].ns;
    bool promising = (g == winner || g == second) && best > target_ns && in[g].bound.ns < best && !inner_is_large(&in[g]);
    if (best < in[g].rival_ns || !in[g].rival_ns) in[g].rival_ns = best;
    if (promising || inner_is_small(&in[g])) inner_improve(&in[g]);
  }
}

/* Small models have the same units by several groupings. */
static bool has_units(const Inner *in, uint32_t count, const Inner *next) {
  for (uint32_t g = 0; g < count; g++)
    if (units_equal(in[g].units, next->units, next->search->graph)) return true;
  return false;
}

/* Opens the groupings that may hold a better plan than `best`, best bound first. False after diagnostics. */
static bool open_hopeful(Search *s, Arena *arena, const Outer *outer, const Groupings *of, const Found *best, Inner in[MAX_GROUPINGS],
                         uint32_t *hopeful) {
  *hopeful = 0;
  for (uint32_t g = 0; g < of->count; g++) {
    Inner *next = &in[*hopeful];
    if (!inner_open_below(s, arena, outer, of->data[g], best->plan ? best->sim.step_ns : UINT64_MAX, next)) return false;
    if (s->reversed && inner_settings(next)) continue; /* all of them have been looked at, in whatever order */
    if (is_searched(s, next) || has_units(in, *hopeful, next)) continue;
    if (inner_is_large(next)) inner_set_budget(next, search_first_budget(next));
    if (next->bound.ns < (best->plan ? best->sim.step_ns : UINT64_MAX)) ++*hopeful;
  }
  if (*hopeful) qsort(in, *hopeful, sizeof *in, compare_bound);
  return true;
}

static void note_best(Tried *tried) {
  const Inner *best = &tried->in[best_inner(tried->in, tried->count, tried->count)];
  tried->grouping = best->grouping;
  tried->estimate_ns = best->pool[0].ns;
}

/* Seeds on the groupings that may hold a better plan than `best`. */
static bool seed_with(Search *s, const Outer *outer, const Groupings *groupings, const Found *best, Tried *tried) {
  *tried = (Tried){.least = {UINT64_MAX, "memory"}, .estimate_ns = UINT64_MAX, .arena = arena_new()};
  tried->in = arena_alloc(tried->arena, MAX_GROUPINGS * sizeof(Inner));
  if (!open_hopeful(s, tried->arena, outer, groupings, best, tried->in, &tried->count)) {
    search_drop(tried);
    return false;
  }
  if (!tried->count) return true;
  tried->least = tried->in[0].bound;
  tried->small = inner_is_small(&tried->in[0]);
  tried->is_long = inner_is_long(&tried->in[0]);
  seed_groups(tried->in, tried->count);
  note_best(tried);
  return true;
}

bool search_seed(Search *s, const Outer *outer, const Found *best, Tried *tried) {
  Groupings groupings;
  return search_groupings(s, outer, &groupings) && seed_with(s, outer, &groupings, best, tried);
}

void search_improve(Tried *tried, const Found *best) {
  if (!tried->count) return;
  for (uint32_t g = 0; g < tried->count; g++) tried->in[g].rival_ns = best->plan ? best->sim.step_ns : 0;
  improve_groups(tried->in, tried->count);
  qsort(tried->in, tried->count, sizeof(Inner), compare_best);
  note_best(tried);
}

void search_settle(Search *s, Tried *tried, Found *best) {
  for (uint32_t g = 0; g < tried->count && (g < PLACED_GROUPINGS || inner_is_small(&tried->in[g])); g++) {
    search_place(s, &tried->in[g], best);
    note_searched(s, &tried->in[g]);
  }
  search_drop(tried);
  if (best->arena) arena_adopt(s->arena, best->arena);
  best->arena = NULL;
}

void search_drop(Tried *tried) {
  if (tried->arena) arena_free(tried->arena);
  tried->arena = NULL;
  tried->count = 0;
}

static bool search_with(Search *s, const Outer *outer, const Groupings *groupings, Found *best, Bound *least) {
  Tried tried;
  if (!seed_with(s, outer, groupings, best, &tried)) return false;
  *least = tried.least;
  search_improve(&tried, best);
  search_settle(s, &tried, best);
  return true;
}

bool search_as(Search *s, const Outer *outer, Grouping grouping, Found *best) {
  const Groupings groupings = {{grouping}, 1, 1};
  Bound least;
  return search_with(s, outer, &groupings, best, &least);
}

static void go_on(Search *s, Inner *in, bool finely, Found *best) {
  Decisions from = best->decisions;
  if (in->units != best->units) from.keep = in->base.keep;
  in->from = &from;
  in->finely = finely;
  in->rival_ns = best->sim.step_ns;
  inner_improve(in);
  search_place(s, in, best);
  if (best->arena) arena_adopt(s->arena, best->arena);
  best->arena = NULL;
}

bool search_on(Search *s, Grouping grouping, bool finely, Found *best) {
  Arena *arena = arena_new();
  Inner in;
  bool good = inner_open(s, arena, &best->outer, grouping, &in);
  if (good && in.bound.ns < best->sim.step_ns) go_on(s, &in, finely, best);
  arena_free(arena);
  return good;
}

bool search_gathers(Search *s, Found *best) {
  Arena *arena = arena_new();
  Inner in;
  const bool good = inner_open(s, arena, &best->outer, best->grouping, &in);
  if (good) search_move_gathers(s, &in, best);
  arena_free(arena);
  return good;
}

bool search_by_hand(Search *s, const Outer *outer, Found *best) {
  Arena *arena = arena_new();
  Inner in;
  const bool good = inner_open_below(s, arena, outer, (Grouping){WRAP_BLOCK, 0}, best->sim.step_ns, &in);
  if (good && in.bound.ns < best->sim.step_ns) search_policies(s, &in, best);
  arena_free(arena);
  return good;
}

/* least: falls to their bound. */
static bool try_sizes(Search *s, const Outer *outer, const Groupings *sizes, Found *best, Bound *least) {
  Bound own;
  if (!search_with(s, outer, sizes, best, &own)) return false;
  if (own.ns < least->ns) *least = own;
  return true;
}

bool search_nearby(Search *s, const Outer *outer, Grouping grouping, Found *best, Bound *least) {
  const Groupings sizes = groupings_near(s, outer, grouping);
  return try_sizes(s, outer, &sizes, best, least);
}

/* The next sizes from `rung` on, of units that differ from those before them. False after diagnostics. */
static bool list_sizes(Search *s, const Program *program, int32_t *rung, const UnitSet **before, Groupings *out) {
  out->count = 0;
  for (; *rung <= HIGHEST_RUNG && out->count < NEARBY_SIZES; ++*rung) {
    const Grouping size = size_at(program, *rung);
    const UnitSet *units = search_units(s, program, size);
    if (!units) return false;
    if (!*before || !units_equal(*before, units, s->graph)) out->data[out->count++] = size;
    *before = units;
  }
  return true;
}

bool search_all_sizes(Search *s, const Outer *outer, Found *best, Bound *least) {
  const Program *program = search_program(s, outer->micro_batch);
  const UnitSet *before = NULL;
  Groupings sizes = {.count = 1};
  bool good = program != NULL;
  for (int32_t rung = LOWEST_RUNG; good && sizes.count;)
    good = list_sizes(s, program, &rung, &before, &sizes) && (!sizes.count || try_sizes(s, outer, &sizes, best, least));
  return good;
}
