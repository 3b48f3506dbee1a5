/* Owns: executor_search.h's search. Every point of the grid is summed; those that fit and might be the fastest with one of their
 * values are timed. The last pass asks executor_predict() again, so that what is reported is what `fsdpc predict` says. */
#include "planner/executor/executor_search.h"

#include "planner/executor/executor_grid.h"
#include "planner/executor/executor_model.h"
#include "planner/world.h"

#include <math.h>

/* The best policy so far of those with one value of one axis. */
typedef struct Best {
  bool fits, any;
  double ns_per_sample, reserved; /* of the fastest that fits */
  GridPoint point;
  double least;                   /* reserved bytes of the smallest, whether it fits or not */
  GridPoint smallest;
} Best;

typedef struct Hunt {
  const Grid *grid;
  const PlannerOptions *options; /* who watches */
  Arena *scratch[2]; /* lives as long as a described model; as long as one point */
  double budget;
  double enough; /* reserved bytes that end the hunt, with memory_only */
  Best best;
  Best by_value[AXIS_COUNT][AXIS_VALUES_MAX];
  Best unhosted; /* smallest in host memory, of those that the host cannot hold */
  ExecutorUnits units[AXIS_VALUES_MAX][AXIS_VALUES_MAX]; /* by units and resharding */
  bool memory_only;
  uint32_t candidates;
} Hunt;

static double samples_of(const ExecutorWorld *w) {
  return (double)w->micro_batch * (double)w->accumulation * w->ranks;
}

/* --- comparing ------------------------------------------------------------------------------------------------------------ */

/* Of two times, the difference that sums in another order make. */
static const double rounding = 1e-9;

static bool as_fast(double ns, double other_ns) {
  return fabs(ns - other_ns) <= rounding * other_ns;
}

static void keep_smallest(Best *best, const GridPoint *point, double reserved) {
  if (best->any && reserved >= best->least) return;
  best->any = true;
  best->least = reserved;
  best->smallest = *point;
}

static void keep_fastest(Best *best, const GridPoint *point, double ns_per_sample, double reserved) {
  bool better = as_fast(ns_per_sample, best->ns_per_sample) ? reserved < best->reserved : ns_per_sample < best->ns_per_sample;
  if (best->fits && !better) return;
  best->fits = true;
  best->ns_per_sample = ns_per_sample;
  best->reserved = reserved;
  best->point = *point;
}

/* Nothing that this point could still be best at. */
static bool hopeless(const Hunt *h, const GridPoint *point, double floor) {
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    const Best *best = &h->by_value[axis][point->at[axis]];
    if (!best->fits || floor <= best->ns_per_sample * (1 + rounding)) return false;
  }
  return true;
}

/* Too large, and not the smallest of anything. */
static bool oversized(const Hunt *h, const GridPoint *point, double floor) {
  if (floor <= h->budget || !h->best.any || floor < h->best.least) return false;
  for (int axis = 0; axis < AXIS_COUNT && !h->memory_only; axis++) {
    const Best *best = &h->by_value[axis][point->at[axis]];
    if (!best->any || floor < best->least) return false;
  }
  return true;
}

/* --- one point ------------------------------------------------------------------------------------------------------------ */

static void weigh(Hunt *h, const GridPoint *point, const Model *model, const ExecutorWorld *world) {
  ExecutorPrediction prediction = {0};
  Sharding sharding;
  double samples = samples_of(world);
  h->candidates++;
  sharding_open(h->scratch[1], model, world, &h->units[point->at[AXIS_UNITS]][point->at[AXIS_RESHARD]], &sharding);
  if (sharding_unparted(&sharding) || oversized(h, point, reserved_floor_bytes(model, &sharding))) return;
  predict_memory(model, &sharding, &prediction);
  if (!prediction.host_fits) {
    keep_smallest(&h->unhosted, point, prediction.host_bytes);
    return;
  }
  keep_smallest(&h->best, point, prediction.reserved_bytes);
  for (int axis = 0; axis < AXIS_COUNT; axis++) keep_smallest(&h->by_value[axis][point->at[axis]], point, prediction.reserved_bytes);
  if (prediction.reserved_bytes > h->budget || h->memory_only) return;
  if (hopeless(h, point, step_floor_ns(model, &sharding) / samples)) return;
  predict_time(h->scratch[1], model, &sharding, &prediction);
  double each = prediction.step_ns / samples;
  keep_fastest(&h->best, point, each, prediction.reserved_bytes);
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    keep_fastest(&h->by_value[axis][point->at[axis]], point, each, prediction.reserved_bytes);
}

/* --- all points ----------------------------------------------------------------------------------------------------------- */

/* Counts up the axes after AXIS_CHECKPOINT and before, but not the two that a model's description depends on. */
static bool next_point(const Grid *grid, GridPoint *point) {
  static const ExecutorAxis order[] = {AXIS_OFFLOAD, AXIS_PREFETCH, AXIS_RESHARD, AXIS_UNITS, AXIS_REDUCE, AXIS_SHARD};
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    if (++point->at[order[i]] < grid->axes[order[i]].count) return true;
    point->at[order[i]] = 0;
  }
  return false;
}

/* As of points that gather: with offload, where there is one, one rank does too. To the others it is all the same. */
static bool find_units(Hunt *h, DiagSink *sink, Model *model) {
  const Grid *grid = h->grid;
  const PlanSettings *own = model->settings;
  bool good = true;
  for (uint32_t u = 0; u < grid->axes[AXIS_UNITS].count && good; u++)
    for (uint32_t r = 0; r < grid->axes[AXIS_RESHARD].count && good; r++) {
      GridPoint point = {.at = {[AXIS_UNITS] = u, [AXIS_RESHARD] = r, [AXIS_OFFLOAD] = grid->axes[AXIS_OFFLOAD].count - 1}};
      PlanSettings settings;
      ExecutorWorld world;
      grid_point(grid, &point, &settings, &world);
      model->settings = &settings;
      good = units_find(grid->arena, sink, model, &h->units[u][r]);
    }
  model->settings = own;
  return good;
}

static void tell(const Hunt *h) {
  if (h->options->progress) h->options->progress(h->options->watcher, &(PlannerStage){.ranks = h->grid->world.ranks});
}

static bool found(const Hunt *h) {
  return h->memory_only && h->best.any && h->best.least <= h->enough;
}

static bool hunt(Hunt *h, DiagSink *sink) {
  const Grid *grid = h->grid;
  bool found_units = false;
  for (uint32_t m = 0; m < grid->axes[AXIS_MICRO_BATCH].count; m++)
    for (uint32_t c = 0; c < grid->axes[AXIS_CHECKPOINT].count; c++) {
      GridPoint point = {.at = {[AXIS_MICRO_BATCH] = m, [AXIS_CHECKPOINT] = c}};
      PlanSettings settings;
      ExecutorWorld world;
      Model model;
      tell(h);
      arena_reset(h->scratch[0]);
      grid_point(grid, &point, &settings, &world);
      model_open(h->scratch[0], grid->graph, &settings, world.micro_batch, &model);
      if (!found_units && !find_units(h, sink, &model)) return false;
      found_units = true;
      do {
        arena_reset(h->scratch[1]);
        bool needs_more = h->memory_only && point.at[AXIS_PREFETCH] > 0; /* than with less fetched ahead */
        if (!needs_more && grid_point(grid, &point, &settings, &world)) weigh(h, &point, &model, &world);
        if (found(h)) return true;
      } while (next_point(grid, &point));
    }
  return true;
}

static Hunt *hunt_open(Arena *arena, const Grid *grid, const PlannerOptions *options, double budget) {
  Hunt *h = ARENA_NEW(arena, Hunt);
  *h = (Hunt){.grid = grid, .options = options, .budget = budget, .scratch = {arena_new(), arena_new()}};
  return h;
}

static void hunt_close(Hunt *h) {
  arena_free(h->scratch[0]);
  arena_free(h->scratch[1]);
}

/* A group of ranks to reshard to, of all units or of one. */
static int32_t asked_group(const PlanSettings *asked) {
  int32_t group = asked->reshard;
  for (uint32_t u = 0; u < asked->units.count && group < 2; u++) group = asked->units.data[u].reshard;
  return group;
}

/* Every other pin leaves something to try. */
static bool has_any(DiagSink *sink, const Hunt *h) {
  const Grid *grid = h->grid;
  uint32_t widest = (uint32_t)grid->axes[AXIS_SHARD].values[0].value;
  if (h->best.any || h->unhosted.any) return true;
  Diag *diag = diag_error(sink, SPAN_NONE, "units that at most %u rank%s share%s cannot be resharded to groups of %d", widest, text_plural(widest),
                          widest == 1 ? "s" : "", asked_group(grid->asked));
  diag_help(diag, "the group's size must divide the ranks that share a unit, and be less; --reshard auto leaves it open");
  return false;
}

/* --- why each lost -------------------------------------------------------------------------------------------------------- */

static bool predict_point(Arena *arena, DiagSink *sink, const Grid *grid, const GridPoint *point, ExecutorPrediction *out) {
  PlanSettings settings;
  ExecutorWorld world;
  return grid_point(grid, point, &settings, &world) && executor_predict(arena, sink, grid->graph, &settings, &world, out);
}

static const char *more(Arena *arena, const char *what, double ns) {
  char text[32];
  return arena_printf(arena, "%s %s%s a step", what, ns < 0 ? "-" : "+", text_time(text, fabs(ns)));
}

/* The largest part of what it takes longer, both for the chosen step's samples. */
static const char *reason(Arena *arena, const ExecutorPrediction *chosen, const ExecutorPrediction *other, double scale) {
  char text[32];
  double waits = other->exposed_ns * scale - chosen->exposed_ns, again = other->recompute_ns * scale - chosen->recompute_ns,
         update = other->update_ns * scale - chosen->update_ns;
  double rest = other->step_ns * scale - chosen->step_ns - waits - again - update;
  if (other->step_ns * scale <= chosen->step_ns || as_fast(other->step_ns * scale, chosen->step_ns)) {
    double bytes = other->reserved_bytes - chosen->reserved_bytes;
    return bytes > 0 ? arena_printf(arena, "as fast, reserves %s more", text_bytes(text, (uint64_t)bytes)) : "as fast and as small";
  }
  if (again >= waits && again >= update && again >= rest) return more(arena, "recompute", again);
  if (waits >= update && waits >= rest) return more(arena, "waiting for communication", waits);
  if (update >= rest) return more(arena, "optimizer", update);
  return more(arena, "compute, copies and contention", rest);
}

static bool add_runner(Arena *arena, DiagSink *sink, const Hunt *h, int axis, uint32_t value, ExecutorPlan *out) {
  const Best *best = &h->by_value[axis][value];
  RunnerUp row = {.axis = (ExecutorAxis)axis, .value = h->grid->axes[axis].values[value].text, .fits = best->fits};
  ExecutorPrediction other;
  char text[32];
  if (!best->any) return true;
  row.reserved_bytes = best->fits ? best->reserved : best->least;
  row.ns_per_sample = best->ns_per_sample;
  row.lost = arena_printf(arena, "needs %s", text_bytes(text, (uint64_t)best->least));
  if (best->fits) {
    PlanSettings settings;
    ExecutorWorld world;
    if (!predict_point(arena, sink, h->grid, &best->point, &other)) return false;
    grid_point(h->grid, &best->point, &settings, &world);
    row.lost = reason(arena, &out->prediction, &other, samples_of(&out->world) / samples_of(&world));
  }
  vec_push(arena, &out->runners, row);
  return true;
}

/* --- what would fit ------------------------------------------------------------------------------------------------------- */

/* Reserved bytes of the smallest policy, or of one that `enough` suffice for; infinite where the host can hold none. */
static bool find_small(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, double enough, double *reserved) {
  Grid *grid = ARENA_NEW(arena, Grid);
  if (!grid_open(arena, sink, graph, options, grid) || !executor_check(sink, graph, grid->asked, &grid->world)) return false;
  Hunt *h = hunt_open(arena, grid, options, 0);
  h->memory_only = true;
  h->enough = enough;
  bool good = hunt(h, sink) && has_any(sink, h);
  *reserved = h->best.any ? h->best.least : INFINITY;
  hunt_close(h);
  return good;
}

static void try_relaxation(Arena *arena, const Graph *graph, const PlannerOptions *options, const char *what, ExecutorPlan *out) {
  DiagSink quiet = {.arena = arena};
  double reserved;
  if (find_small(arena, &quiet, graph, options, 0, &reserved) && isfinite(reserved))
    relaxations_add(arena, what, "reserves", (uint64_t)ceil(reserved), (uint64_t)out->budget_bytes, &out->relaxations);
}

static void list_relaxations(Arena *arena, const Graph *graph, const PlannerOptions *asked, ExecutorPlan *out) {
  PlannerOptions open = *asked;
  if (out->prediction.host_fits) {
    relaxations_add_memory(arena, (uint64_t)ceil(out->prediction.reserved_bytes), &out->relaxations);
  } else {
    open.settings.offload = SETTING_AUTO;
    try_relaxation(arena, graph, &open, "offload auto", out);
    open = *asked;
  }
  if (asked->settings.micro_batch > 1) {
    open.settings.micro_batch = SETTING_AUTO;
    try_relaxation(arena, graph, &open, "micro_batch auto", out);
  }
  if (asked->settings.checkpoint == CHECKPOINT_NONE) {
    open = *asked;
    open.settings.checkpoint = CHECKPOINT_AUTO;
    try_relaxation(arena, graph, &open, "checkpoint auto", out);
  }
  if (asked->settings.strategy != STRATEGY_AUTO && asked->settings.strategy != STRATEGY_FULL_SHARD) {
    open = *asked;
    open.settings.strategy = STRATEGY_FULL_SHARD;
    open.settings.shard = 0;
    try_relaxation(arena, graph, &open, "strategy full_shard", out);
  }
  for (uint32_t times = 2; times <= 8; times *= 2) {
    open = *asked;
    open.ranks = (int64_t)out->world.ranks * times;
    try_relaxation(arena, graph, &open, arena_printf(arena, "ranks %lld", (long long)open.ranks), out);
  }
}

/* --- the door ------------------------------------------------------------------------------------------------------------- */

/* Modules outside of blocks, unless they are the root. */
static void describe_modules(Arena *arena, const Model *model, const ExecutorUnit *unit, PlannedUnit *out) {
  out->name = out->last = model->settings->units.data[unit->rule].name;
  for (uint32_t i = 0; i < model->outside.count; i++) {
    const char *module = model->outside.data[i].module;
    if (units_rule_outside(model, &model->outside.data[i]) != unit->rule) continue;
    if (!out->modules.count || strcmp(out->modules.data[out->modules.count - 1], module))
      vec_push(arena, &out->modules, arena_strndup(arena, module, strlen(module)));
  }
}

static void list_units(Arena *arena, const Hunt *h, const GridPoint *point, ExecutorPlan *out) {
  Model model;
  Sharding sharding;
  model_open(h->scratch[0], h->grid->graph, &out->settings, out->world.micro_batch, &model);
  sharding_open(h->scratch[0], &model, &out->world, &h->units[point->at[AXIS_UNITS]][point->at[AXIS_RESHARD]], &sharding);
  for (uint32_t u = 0; u < sharding.unit_count; u++) {
    const ExecutorUnit *unit = &sharding.units[u];
    bool blocks = model_is_block(&model, (int32_t)unit->first);
    PlannedUnit planned = {.name = blocks ? model.parts[unit->first].name : "root",
                           .last = blocks ? model.parts[unit->end - 1].name : "root",
                           .blocks = blocks ? unit->end - unit->first : u || model_gathers_blocks(&model) ? 0 : model.block_count,
                           .numel = unit->numel,
                           .reshard = unit->reshard,
                           .gather_bytes = sharding.gathers ? model.gathered * unit->numel : 0,
                           .gather_ns = (sharding.gather_ns[u] + sharding.regather_ns[u]) * (double)out->world.accumulation};
    if (u && !blocks) describe_modules(arena, &model, unit, &planned);
    vec_push(arena, &out->units, planned);
  }
}

static bool describe_choice(Arena *arena, DiagSink *sink, const Hunt *h, ExecutorPlan *out) {
  const GridPoint *point = h->best.fits ? &h->best.point : h->best.any ? &h->best.smallest : &h->unhosted.smallest;
  out->fits = h->best.fits;
  out->candidates = h->candidates;
  grid_point(h->grid, point, &out->settings, &out->world);
  out->settings.memory_bytes = (uint64_t)h->budget;
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    out->chosen[axis] = h->grid->axes[axis].values[point->at[axis]].text;
    out->idle[axis] = grid_idle(h->grid, point, &out->world, (ExecutorAxis)axis);
  }
  list_units(arena, h, point, out);
  if (!executor_predict(arena, sink, h->grid->graph, &out->settings, &out->world, &out->prediction) ||
      !world_states_time(sink, h->grid->graph, out->prediction.step_ns))
    return false;
  bool good = true;
  for (int axis = 0; axis < AXIS_COUNT && out->fits; axis++)
    for (uint32_t value = 0; value < h->grid->axes[axis].count && good; value++)
      if (value != point->at[axis] && !out->idle[axis]) good = add_runner(arena, sink, h, axis, value, out);
  return good;
}

static double budget_of(const Graph *graph, const PlannerOptions *options) {
  uint64_t asked = options->settings.memory_bytes;
  return asked ? (double)asked : floor(executor_unretried_bytes(&graph->cluster.device));
}

bool executor_fits(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, bool *fits) {
  double reserved;
  double budget = budget_of(graph, options);
  if (!find_small(arena, sink, graph, options, budget, &reserved)) return false;
  *fits = reserved <= budget;
  return true;
}

bool executor_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, ExecutorPlan *out) {
  Grid *grid = ARENA_NEW(arena, Grid);
  *out = (ExecutorPlan){0};
  if (!grid_open(arena, sink, graph, options, grid) || !executor_check(sink, graph, grid->asked, &grid->world)) return false;
  out->budget_bytes = budget_of(graph, options);
  Hunt *h = hunt_open(arena, grid, options, out->budget_bytes);
  bool good = hunt(h, sink) && has_any(sink, h) && describe_choice(arena, sink, h, out);
  hunt_close(h);
  if (good && !out->fits) list_relaxations(arena, graph, options, out);
  return good;
}
