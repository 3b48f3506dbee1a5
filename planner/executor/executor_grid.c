/* Owns: executor_grid.h. Values come simplest first: where two policies are equal the earlier one is chosen. */
#include "planner/executor/executor_grid.h"

#include "planner/world.h"

enum { MOST_MICRO_BATCH = 256, MOST_PREFETCH_DEPTH = 3 };
enum { AGAIN_PINNED = -1, AGAIN_OPERATORS = -2 }; /* else so many blocks */
enum { UNITS_WHOLE = -1, UNITS_PINNED = 0 };      /* else so many blocks a unit; WHOLE: the root alone */
enum { RESHARD_PINNED = -2, RESHARD_LAST = -1 };  /* else as PlanSettings.reshard; LAST: all but the last unit */

const char *executor_axis_name(ExecutorAxis axis) {
  static const char *const names[AXIS_COUNT] = {"shard", "micro_batch", "reduce", "checkpoint", "units", "reshard", "prefetch", "offload"};
  return names[axis];
}

static void add(Axis *axis, const char *text, int64_t value) {
  if (axis->count < AXIS_VALUES_MAX) axis->values[axis->count++] = (AxisValue){text, value};
}

static const char *number(Arena *arena, int64_t value) {
  return arena_printf(arena, "%lld", (long long)value);
}

/* FSDP1 takes neither groups of ranks, explicit prefetch nor lists of modules. */
static bool is_fsdp2(const Grid *g) {
  return executor_is_fsdp2(g->asked->executor.id);
}

/* --- blocks --------------------------------------------------------------------------------------------------------------- */

static void find_blocks(Grid *g) {
  const Graph *graph = g->graph;
  g->blocks = ARENA_ARRAY(g->arena, const char *, graph->modules.count);
  for (uint32_t m = 0; m < graph->modules.count; m++)
    if (graph_is_block(graph, m)) g->blocks[g->block_count++] = graph->modules.data[m].name;
}

/* --- the axes ------------------------------------------------------------------------------------------------------------- */

/* All ranks, groups that nodes divide or that divide a node, each rank alone. */
static void list_widths(Grid *g) {
  Axis *axis = &g->axes[AXIS_SHARD];
  int64_t ranks = g->world.ranks, node = g->world.ranks_per_node;
  Strategy strategy = g->asked->strategy;
  if (strategy == STRATEGY_HYBRID_SHARD) {
    add(axis, number(g->arena, g->asked->shard), g->asked->shard);
    return;
  }
  if (strategy == STRATEGY_NO_SHARD) {
    add(axis, "1", 1);
    return;
  }
  add(axis, number(g->arena, ranks), ranks);
  if (strategy != STRATEGY_AUTO) return;
  for (int64_t width = node; width < ranks; width *= 2)
    if (ranks % width == 0) add(axis, number(g->arena, width), width);
  for (int64_t width = node / 2; width >= 1; width /= 2)
    if (ranks % width == 0 && width < ranks) add(axis, number(g->arena, width), width);
}

/* Divisors of a rank's samples, smallest first; one sample where the file says nothing of a step. */
static void list_micro_batches(Grid *g) {
  Axis *axis = &g->axes[AXIS_MICRO_BATCH];
  int64_t asked = g->asked->micro_batch, share = g->samples ? (int64_t)(g->samples / g->world.ranks) : 1;
  if (asked != SETTING_AUTO) {
    add(axis, number(g->arena, asked), asked);
    return;
  }
  for (int64_t m = 1; m <= MOST_MICRO_BATCH; m++)
    if (share % m == 0) add(axis, number(g->arena, m), m);
}

static void list_reductions(Grid *g) {
  Axis *axis = &g->axes[AXIS_REDUCE];
  const ExecutorSettings *executor = &g->asked->executor; /* its own word before the plan's */
  bool each = executor->reduce == REDUCE_MICRO_BATCH || (!executor->reduce && g->asked->reduce == CADENCE_MICRO_BATCH),
       once = executor->reduce == REDUCE_STEP || (!executor->reduce && g->asked->reduce == CADENCE_STEP);
  if (!each) add(axis, "each step", CADENCE_STEP);
  if (!once) add(axis, "each micro-batch", CADENCE_MICRO_BATCH);
}

/* So many blocks of all, spread evenly: every k-th where k divides. */
static void pick_blocks(Grid *g, uint32_t at, int64_t count) {
  g->again[at].data = ARENA_ARRAY(g->arena, CheckpointRule, (size_t)count);
  for (int64_t i = 0, blocks = g->block_count; i < blocks; i++)
    if ((i + 1) * count / blocks > i * count / blocks)
      g->again[at].data[g->again[at].count++] = (CheckpointRule){.pattern = g->blocks[i], .recompute = true, .span = SPAN_NONE};
}

static const char *again_text(const Grid *g, int64_t count) {
  if (count == 0) return "none";
  if (count == g->block_count) return "full";
  if (g->block_count % count == 0) return arena_printf(g->arena, "1 block in %lld", (long long)(g->block_count / count));
  return arena_printf(g->arena, "%lld of %u blocks", (long long)count, g->block_count);
}

static const char *stated_text(const PlanSettings *asked) {
  if (asked->checkpoint == CHECKPOINT_FULL) return "full";
  if (asked->executor.selective == SELECTIVE_OPERATORS) return "operators";
  if (asked->executor.selective == SELECTIVE_BLOCKS) return "1 block in 2";
  if (asked->executor.selective == SELECTIVE_MODULES) return "each module of a block";
  return asked->checkpoints.count ? "by rules" : "none";
}

static void list_checkpoints(Grid *g) {
  enum { SHARES = 24 }; /* halves, thirds, quarters, eighths and what lies between */
  static const int shares[] = {0, 2, 3, 4, 6, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 22, SHARES};
  Axis *axis = &g->axes[AXIS_CHECKPOINT];
  const PlanSettings *asked = g->asked;
  bool open = asked->checkpoint == CHECKPOINT_AUTO && !asked->checkpoints.count && asked->executor.selective == SELECTIVE_NONE;
  if (!open || !g->block_count) {
    add(axis, stated_text(asked), AGAIN_PINNED);
    return;
  }
  int64_t last = -1;
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    int64_t count = (int64_t)g->block_count * shares[i] / SHARES;
    if (count == last) continue;
    last = count;
    if (count > 0 && count < g->block_count) pick_blocks(g, axis->count, count);
    add(axis, again_text(g, count), count);
  }
  add(axis, "operators", AGAIN_OPERATORS);
}

/* unit blocks_0_1 { h.0 h.1 }; the last one may stay gathered. */
static void group_blocks(Grid *g, uint32_t at, uint32_t size, bool keep_last) {
  uint32_t count = (g->block_count + size - 1) / size;
  g->units[at][keep_last].data = ARENA_ARRAY(g->arena, UnitRule, count);
  for (uint32_t u = 0; u < count; u++) {
    bool last = u + 1 == count;
    uint32_t first = u * size, end = last ? g->block_count : first + size;
    if (size == 1 && !(last && keep_last)) continue; /* wrap block says it */
    UnitRule rule = {.name = size == 1 ? "last_block" : arena_printf(g->arena, "blocks_%u_%u", first, end - 1),
                     .reshard = last && keep_last ? 0 : SETTING_AUTO,
                     .span = SPAN_NONE};
    for (uint32_t b = first; b < end; b++) vec_push(g->arena, &rule.patterns, g->blocks[b]);
    g->units[at][keep_last].data[g->units[at][keep_last].count++] = rule;
  }
}

static void list_units(Grid *g) {
  Axis *axis = &g->axes[AXIS_UNITS];
  const PlanSettings *asked = g->asked;
  bool blocks = asked->wrap <= WRAP_BLOCK && !asked->units.count && g->block_count > 0;
  bool open = blocks && asked->wrap == WRAP_AUTO && is_fsdp2(g);
  if (!blocks) {
    add(axis, asked->units.count ? "by hand" : asked->wrap == WRAP_SIZE ? "by size" : "whole", UNITS_PINNED);
    return;
  }
  for (uint32_t size = 1; size <= (open ? g->block_count : 1) && axis->count + 1 < AXIS_VALUES_MAX; size *= 2) {
    group_blocks(g, axis->count, size, false);
    group_blocks(g, axis->count, size, true);
    add(axis, size == 1 ? "block" : arena_printf(g->arena, "%u blocks", size), size);
  }
  if (asked->wrap == WRAP_AUTO && asked->reshard <= 1) add(axis, "whole", UNITS_WHOLE); /* groups are of units */
}

/* " but last_block": units by hand that say otherwise. */
static const char *exceptions(const Grid *g) {
  const PlanSettings *asked = g->asked;
  const char *name = NULL;
  uint32_t count = 0;
  for (uint32_t u = 0; u < asked->units.count; u++) {
    const UnitRule *rule = &asked->units.data[u];
    if (rule->reshard == SETTING_AUTO || rule->reshard == asked->reshard) continue;
    name = rule->name;
    count++;
  }
  return !count ? "" : count == 1 ? arena_printf(g->arena, " but %s", name) : arena_printf(g->arena, " but %u units", count);
}

static void list_reshards(Grid *g) {
  Axis *axis = &g->axes[AXIS_RESHARD];
  const PlanSettings *asked = g->asked;
  if (asked->strategy == STRATEGY_SHARD_GRAD_OP) {
    add(axis, "none", 0);
    return;
  }
  if (asked->reshard != SETTING_AUTO) {
    const char *groups = arena_printf(g->arena, "to %d ranks", asked->reshard);
    const char *rule = asked->reshard > 1 ? groups : asked->reshard ? "all" : "none";
    add(axis, arena_printf(g->arena, "%s%s", rule, exceptions(g)), asked->reshard);
    return;
  }
  bool by_hand = g->axes[AXIS_UNITS].values[0].value == UNITS_PINNED;
  if (by_hand) add(axis, "as stated", RESHARD_PINNED);
  if (!by_hand && is_fsdp2(g)) add(axis, "all but last", RESHARD_LAST);
  add(axis, "all", 1);
  add(axis, "none", 0);
  uint32_t node = g->world.ranks_per_node, group = node < g->world.ranks ? node : node / 2;
  for (; group > 1 && is_fsdp2(g); group /= 2)
    if (node % group == 0) add(axis, arena_printf(g->arena, "to %u ranks", group), group);
}

static void list_prefetches(Grid *g) {
  Axis *axis = &g->axes[AXIS_PREFETCH];
  int64_t asked = g->asked->prefetch;
  if (asked != SETTING_AUTO) {
    add(axis, number(g->arena, asked), asked);
    return;
  }
  for (int64_t depth = 1; depth <= (is_fsdp2(g) ? MOST_PREFETCH_DEPTH : 1); depth++) add(axis, number(g->arena, depth), depth);
}

/* Unasked only where the cluster says what the host can take. */
static void list_offloads(Grid *g) {
  Axis *axis = &g->axes[AXIS_OFFLOAD];
  const Device *device = &g->graph->cluster.device;
  int32_t asked = g->asked->offload;
  bool open = asked == SETTING_AUTO && is_fsdp2(g) && !g->asked->executor.offload && device->host_link > 0 &&
              device->host_memory > 0;
  if (asked <= 0) add(axis, g->asked->executor.offload ? "by the trainer" : "none", 0);
  if (asked > 0 || open) add(axis, "states", asked > 0 ? asked : OFFLOAD_STATES);
}

/* --- what is asked -------------------------------------------------------------------------------------------------------- */

bool executor_world(DiagSink *sink, const Graph *graph, const PlannerOptions *options, ExecutorWorld *out) {
  const PlanSettings *settings = &options->settings;
  int64_t micro = settings->micro_batch > 0 ? settings->micro_batch : 1, accumulation = 1;
  World world;
  if (!world_knows_device(sink, graph) || !world_choose(sink, graph, options, &world) ||
      !world_cuts_step(sink, graph, world.ranks, micro))
    return false;
  if (graph->recipe.samples_per_step) accumulation = (int64_t)(graph->recipe.samples_per_step / (uint64_t)(world.ranks * micro));
  int64_t shard = settings->strategy == STRATEGY_HYBRID_SHARD ? settings->shard : settings->strategy == STRATEGY_NO_SHARD ? 1 : world.ranks;
  *out = (ExecutorWorld){.ranks = world.ranks,
                         .shard = (uint32_t)shard,
                         .ranks_per_node = world.ranks_per_node,
                         .micro_batch = micro,
                         .accumulation = accumulation};
  return true;
}

static bool check_asked(DiagSink *sink, const PlanSettings *asked) {
  if (asked->executor.owners)
    diag_help(diag_error(sink, SPAN_NONE, "owners of whole tensors are predicted, not planned"),
              "fsdpc predict with strategy no_shard, or without owners");
  else if (asked->offload != SETTING_AUTO && asked->offload && asked->executor.id != EXECUTOR_NATIVE && !executor_is_fsdp2(asked->executor.id))
    diag_help(diag_error(sink, SPAN_NONE, "offload of %s is predicted, not planned", executor_name(asked->executor.id)),
              "--executor pytorch-fsdp2-eager has CPUOffloadPolicy; or --offload none");
  else if (asked->strategy == STRATEGY_SHARD_OPTIM)
    diag_help(diag_error(sink, SPAN_NONE, "%s has no strategy shard_optim", executor_name(asked->executor.id)), "shard_grad_op is the nearest");
  else
    return true;
  return false;
}

static void list_axes(Grid *g) {
  find_blocks(g);
  list_widths(g);
  list_micro_batches(g);
  list_reductions(g);
  list_checkpoints(g);
  list_units(g);
  list_reshards(g);
  list_prefetches(g);
  list_offloads(g);
}

bool grid_open(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, Grid *out) {
  *out = (Grid){.arena = arena, .graph = graph, .asked = &options->settings, .samples = graph->recipe.samples_per_step};
  if (!check_asked(sink, out->asked) || !executor_world(sink, graph, options, &out->world)) return false;
  list_axes(out);
  return true;
}

/* What is left open is predicted in its first value, but for reductions, of which executors have habits. */
void executor_policy_words(Arena *arena, const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world, const char **words) {
  Grid *g = ARENA_NEW(arena, Grid);
  GridPoint point = {.at = {[AXIS_REDUCE] = 0}};
  *g = (Grid){.arena = arena, .graph = graph, .asked = settings, .world = *world, .samples = graph->recipe.samples_per_step};
  list_axes(g);
  point.at[AXIS_REDUCE] = g->axes[AXIS_REDUCE].count > 1 && executor_profile(settings->executor.id)->reduce_each;
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    words[axis] = grid_idle(g, &point, world, (ExecutorAxis)axis) ? NULL : g->axes[axis].values[point.at[axis]].text;
  if (settings->strategy == STRATEGY_SHARD_OPTIM) words[AXIS_RESHARD] = words[AXIS_PREFETCH] = NULL; /* nothing is gathered by unit */
  words[AXIS_SHARD] = number(arena, world->shard);
  words[AXIS_MICRO_BATCH] = number(arena, world->micro_batch);
}

/* --- points --------------------------------------------------------------------------------------------------------------- */

static int64_t value_at(const Grid *g, const GridPoint *point, ExecutorAxis axis) {
  return g->axes[axis].values[point->at[axis]].value;
}

static void set_checkpoint(const Grid *g, const GridPoint *point, PlanSettings *s) {
  uint32_t at = point->at[AXIS_CHECKPOINT];
  int64_t count = value_at(g, point, AXIS_CHECKPOINT);
  if (count == AGAIN_PINNED && s->checkpoint != CHECKPOINT_AUTO) return;
  s->checkpoint = count == g->block_count && count > 0 ? CHECKPOINT_FULL : CHECKPOINT_NONE;
  if (count == AGAIN_PINNED) return;
  if (count == AGAIN_OPERATORS) s->executor.selective = SELECTIVE_OPERATORS;
  s->checkpoints.data = g->again[at].data;
  s->checkpoints.count = g->again[at].count;
}

/* Each rank keeps all parameters where it computes. */
static bool all_whole(const Grid *g, const GridPoint *point, const ExecutorWorld *w) {
  return w->shard == 1 && !value_at(g, point, AXIS_OFFLOAD);
}

static bool root_alone(const Grid *g, const GridPoint *point) {
  return g->asked->wrap == WRAP_WHOLE || !g->block_count || value_at(g, point, AXIS_UNITS) == UNITS_WHOLE;
}

/* Units and what they reshard go together: the last unit is named where it stays gathered. */
static void set_units(const Grid *g, const GridPoint *point, const ExecutorWorld *w, PlanSettings *s) {
  uint32_t at = point->at[AXIS_UNITS];
  int64_t reshard = value_at(g, point, AXIS_RESHARD), units = value_at(g, point, AXIS_UNITS);
  if (all_whole(g, point, w)) s->reshard = SETTING_AUTO; /* there is nothing to say it of */
  else if (reshard != RESHARD_PINNED) s->reshard = reshard == RESHARD_LAST ? 1 : (int32_t)reshard;
  if (units == UNITS_WHOLE) s->wrap = WRAP_WHOLE;
  if (units <= UNITS_PINNED) return;
  s->wrap = WRAP_BLOCK;
  s->units.data = g->units[at][reshard == RESHARD_LAST].data;
  s->units.count = g->units[at][reshard == RESHARD_LAST].count;
}

bool grid_idle(const Grid *g, const GridPoint *point, const ExecutorWorld *w, ExecutorAxis axis) {
  if (axis == AXIS_REDUCE) return w->accumulation == 1;
  return (axis == AXIS_RESHARD || axis == AXIS_PREFETCH) && (all_whole(g, point, w) || root_alone(g, point));
}

/* What makes no difference is tried once, in its first value. */
static bool repeats(const Grid *g, const GridPoint *point, const ExecutorWorld *w) {
  int64_t reshard = value_at(g, point, AXIS_RESHARD);
  bool pinned_whole = g->axes[AXIS_SHARD].count == 1 && all_whole(g, point, w);
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    if (point->at[axis] && grid_idle(g, point, w, (ExecutorAxis)axis)) return true;
  if (reshard <= 1 || pinned_whole || root_alone(g, point)) return false;
  return w->shard <= reshard || w->shard % reshard;
}

bool grid_point(const Grid *g, const GridPoint *point, PlanSettings *s, ExecutorWorld *w) {
  *s = *g->asked;
  *w = g->world;
  w->micro_batch = value_at(g, point, AXIS_MICRO_BATCH);
  w->accumulation = g->samples ? (int64_t)(g->samples / ((uint64_t)w->ranks * (uint64_t)w->micro_batch)) : 1;
  w->shard = (uint32_t)value_at(g, point, AXIS_SHARD);
  s->strategy = w->shard == 1 ? STRATEGY_NO_SHARD : w->shard < w->ranks ? STRATEGY_HYBRID_SHARD : STRATEGY_FULL_SHARD;
  s->shard = s->strategy == STRATEGY_HYBRID_SHARD ? w->shard : 0;
  s->micro_batch = w->micro_batch;
  s->prefetch = value_at(g, point, AXIS_PREFETCH);
  s->offload = (int32_t)value_at(g, point, AXIS_OFFLOAD);
  s->reduce = (Cadence)value_at(g, point, AXIS_REDUCE);
  s->executor.reduce = REDUCE_DEFAULT; /* the plan's says it */
  set_checkpoint(g, point, s);
  set_units(g, point, w, s);
  return !repeats(g, point, w);
}
