/* Owns: see alternatives.h. The outer choices (strategy, micro-batch, prefetch) are held as the plan has them, so that
 * the difference is that of the one decision; what depends on it (addresses, how many blocks are recomputed) may move. */
#include "cli/alternatives.h"

typedef struct Asked {
  Cli *cli;
  const Graph *graph;
  PlannerOptions held; /* the plan's outer choices */
  const Planned *planned;
  bool costs;
} Asked;

static const char *signed_time(Arena *arena, uint64_t now, uint64_t then) {
  char buffer[32];
  return arena_printf(arena, "%s%s", now < then ? "-" : "+",
                      text_time(buffer, now < then ? (double)(then - now) : (double)(now - then)));
}

static const char *signed_bytes(Arena *arena, uint64_t now, uint64_t then) {
  char buffer[32];
  return arena_printf(arena, "%s%s", now < then ? "-" : "+", text_bytes(buffer, now < then ? then - now : now - then));
}

static void print_outcome(const Asked *asked, const char *what, const PlannerResult *result, const DiagSink *sink) {
  Arena *arena = asked->cli->arena;
  const Plan *plan = asked->planned->plan;
  char arena_size[32], time[32];
  if (!result->plan) {
    printf("    %-44s not possible%s%s\n", what, sink->list.count ? ": " : "", sink->list.count ? sink->list.data[0]->text : "");
    return;
  }
  printf("    %-44s", what);
  if (asked->costs)
    printf(" step %s (%s),", text_time(time, (double)result->sim.step_ns),
           signed_time(arena, result->sim.step_ns, asked->planned->sim.step_ns));
  printf(" arena %s (%s)", text_bytes(arena_size, result->plan->arena_bytes),
         signed_bytes(arena, result->plan->arena_bytes, plan->arena_bytes));
  if (!result->fits)
    printf(": does not fit");
  else if (asked->costs && result->sim.step_ns < asked->planned->sim.step_ns)
    printf("; faster");
  if (result->fits && strcmp(plan_str(result->plan, result->plan->summary.checkpoint), plan_str(plan, plan->summary.checkpoint)))
    printf("; checkpoint %s", plan_str(result->plan, result->plan->summary.checkpoint));
  printf("\n");
}

static void try_out(const Asked *asked, const char *what, const PlannerOptions *options) {
  Cli *cli = asked->cli;
  DiagSink sink = {.arena = cli->arena, .sources = &cli->sources}; /* what is impossible is an answer, not an error */
  PlannerResult result = {0};
  plan_watched(cli, &sink, asked->graph, options, 0, NULL, &result);
  print_outcome(asked, what, &result, &sink);
}

/* --- units --------------------------------------------------------------------------------------------- */

/* The planned unit of this name holds one of these parameters: the file's rule for it gives way. */
static bool holds_any(const Asked *asked, const char *name, int32_t first, int32_t count) {
  const Plan *plan = asked->planned->plan;
  for (int32_t p = first; p < first + count; p++)
    if (!strcmp(plan_str(plan, plan->units.data[plan->params.data[p].unit].name), name)) return true;
  return false;
}

/* A unit of exactly these parameters, as a person would have pinned it. */
static void pin_unit(const Asked *asked, PlanSettings *settings, const char *name, int32_t first, int32_t count,
                     int32_t reshard) {
  Arena *arena = asked->cli->arena;
  const Plan *plan = asked->planned->plan;
  UnitRule rule = {.name = name, .reshard = reshard, .span = SPAN_NONE};
  for (int32_t p = first; p < first + count; p++)
    vec_push(arena, &rule.patterns, plan_str(plan, plan->params.data[p].name));
  PlanSettings before = *settings; /* the graph's array is not ours: a new one, with this rule first */
  memset(&settings->units, 0, sizeof settings->units);
  vec_push(arena, &settings->units, rule);
  for (uint32_t u = 0; u < before.units.count; u++)
    if (!holds_any(asked, before.units.data[u].name, first, count)) vec_push(arena, &settings->units, before.units.data[u]);
}

static int64_t as_planned(const Plan *plan, int32_t u) {
  return plan->units.data[u].reshard ? 1 : 0;
}

static void turn_reshard(const Asked *asked, int32_t u) {
  const PlanUnit *unit = &asked->planned->plan->units.data[u];
  PlannerOptions options = asked->held;
  pin_unit(asked, &options.settings, plan_str(asked->planned->plan, unit->name), unit->first_param, unit->param_count,
           unit->reshard ? 0 : 1);
  try_out(asked, unit->reshard ? "kept gathered until backward" : "released after forward", &options);
}

static void halve(const Asked *asked, int32_t u) {
  const Plan *plan = asked->planned->plan;
  const PlanUnit *unit = &plan->units.data[u];
  if (unit->param_count < 2) return;
  PlannerOptions options = asked->held;
  int32_t half = unit->param_count / 2;
  const char *name = plan_str(plan, unit->name);
  pin_unit(asked, &options.settings, arena_printf(asked->cli->arena, "%s.a", name), unit->first_param, half,
           (int32_t)as_planned(plan, u));
  pin_unit(asked, &options.settings, arena_printf(asked->cli->arena, "%s.b", name), unit->first_param + half,
           unit->param_count - half, (int32_t)as_planned(plan, u));
  try_out(asked, "cut into two units", &options);
}

/* Units have contiguous parameters, and neighbours in the list are neighbours in the model. */
static void join(const Asked *asked, int32_t u) {
  const Plan *plan = asked->planned->plan;
  if (u + 1 >= (int32_t)plan->units.count) return;
  const PlanUnit *unit = &plan->units.data[u], *next = unit + 1;
  PlannerOptions options = asked->held;
  const char *name = arena_printf(asked->cli->arena, "%s+%s", plan_str(plan, unit->name), plan_str(plan, next->name));
  pin_unit(asked, &options.settings, name, unit->first_param, unit->param_count + next->param_count,
           (int32_t)as_planned(plan, u));
  try_out(asked, arena_printf(asked->cli->arena, "joined with %s", plan_str(plan, next->name)), &options);
}

static void ask_about_unit(const Asked *asked, int32_t u) {
  const Plan *plan = asked->planned->plan;
  if (plan->world.shard > 1) turn_reshard(asked, u);
  halve(asked, u);
  join(asked, u);
  if (plan->world.shard > 1 && plan->summary.prefetch) { /* a depth is the most: more would allow what there is */
    PlannerOptions options = asked->held;
    options.settings.prefetch = (int64_t)plan->summary.prefetch - 1;
    try_out(asked, arena_printf(asked->cli->arena, "prefetch %u", plan->summary.prefetch - 1), &options);
  }
}

/* --- results ------------------------------------------------------------------------------------------- */

static void try_rule(const Asked *asked, const char *what, CheckpointRule rule) {
  PlannerOptions options = asked->held;
  options.settings.checkpoints.capacity = options.settings.checkpoints.count; /* the graph's array is not ours: a new one */
  vec_push(asked->cli->arena, &options.settings.checkpoints, rule);
  try_out(asked, what, &options);
}

/* Whichever of the three the plan did not decide, for all results of a module at once. */
static void ask_about_results(const Asked *asked, const Subject *subject) {
  CheckpointRule rule = {.pattern = subject->tensor ? subject->tensor : subject->module, .span = SPAN_NONE}, again = rule, host = rule;
  again.recompute = host.host = true;
  bool gpu = asked->planned->plan->summary.device == PLAN_DEVICE_GPU;
  if (!subject->recomputed && !subject->saved && !subject->away) {
    printf(subject->backward_only ? "    (none: nothing of it is kept for backward)\n" : "    (none: backward does not read it)\n");
    return;
  }
  if (subject->recomputed || subject->away) try_rule(asked, "kept from forward to backward", rule);
  if (subject->saved || subject->away) try_rule(asked, "computed again in backward", again);
  if (gpu && (subject->recomputed || subject->saved)) try_rule(asked, "kept in host memory meanwhile", host);
}

/* Where its parameters are neighbours, and not a unit already. */
static void ask_about_module(const Asked *asked, const Subject *subject) {
  const Plan *plan = asked->planned->plan;
  int32_t first = subject->first_param, count = subject->own_params;
  bool together = count > 0 && subject->end_param - first == count;
  const PlanUnit *unit = together ? &plan->units.data[plan->params.data[first].unit] : NULL;
  if (together && !(unit->first_param == first && unit->param_count == count)) {
    PlannerOptions options = asked->held;
    pin_unit(asked, &options.settings, subject->module, first, count, (int32_t)as_planned(plan, plan->params.data[first].unit));
    try_out(asked, "a unit of its own", &options);
  }
  ask_about_results(asked, subject);
}

/* --- the outer choices --------------------------------------------------------------------------------- */

/* With one micro-batch a step there is nothing to hold. */
static Cadence held_cadence(const Plan *plan, StreamId stream) {
  const char *cadence = plan_cadence(plan, stream);
  if (plan->world.accumulation == 1 || !cadence) return CADENCE_AUTO;
  return strcmp(cadence, "step") ? CADENCE_MICRO_BATCH : CADENCE_STEP;
}

static void hold(PlannerOptions *options, const Plan *plan) {
  static const struct {
    const char *name;
    Strategy strategy;
  } strategies[] = {{"full_shard", STRATEGY_FULL_SHARD}, {"shard_grad_op", STRATEGY_SHARD_GRAD_OP},
                    {"no_shard", STRATEGY_NO_SHARD},     {"shard_optim", STRATEGY_SHARD_OPTIM},
                    {"hybrid_shard", STRATEGY_HYBRID_SHARD}};
  for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
    if (!strcmp(plan_str(plan, plan->summary.strategy), strategies[s].name))
      options->settings.strategy = strategies[s].strategy;
  if (options->settings.strategy == STRATEGY_HYBRID_SHARD) options->settings.shard = plan->world.shard;
  options->settings.micro_batch = (int64_t)plan->world.micro_batch;
  options->settings.prefetch = plan->summary.prefetch;
  options->settings.gather = held_cadence(plan, STREAM_GATHER);
  options->settings.reduce = held_cadence(plan, STREAM_REDUCE);
  if (!strcmp(plan_str(plan, plan->summary.checkpoint), "none")) options->settings.checkpoint = CHECKPOINT_NONE;
  if (!strcmp(plan_str(plan, plan->summary.wrap), "block")) options->settings.wrap = WRAP_BLOCK;
  if (!strcmp(plan_str(plan, plan->summary.wrap), "whole")) options->settings.wrap = WRAP_WHOLE;
  unsigned long long numel;
  if (sscanf(plan_str(plan, plan->summary.wrap), "size:%llu", &numel) == 1) {
    options->settings.wrap = WRAP_SIZE;
    options->settings.wrap_numel = numel;
  }
}

int print_alternatives(Cli *cli, const Planned *planned, const Subject *subject, bool costs) {
  Graph *graph;
  Asked asked = {.cli = cli, .planned = planned, .costs = costs};
  int code = compile_graph(cli, cli->options.operands.data[0], &graph);
  if (code != EXIT_OK) return code;
  if (!compile_options_of_planner(cli, graph, &asked.held)) return EXIT_USAGE;
  asked.graph = graph;
  asked.held.ranks = planned->plan->world.ranks;
  hold(&asked.held, planned->plan);
  printf("  rejected alternatives, with the same strategy and micro-batch:\n");
  if (subject->module)
    ask_about_module(&asked, subject);
  else if (subject->tensor)
    ask_about_results(&asked, subject);
  else
    ask_about_unit(&asked, subject->unit);
  return EXIT_OK;
}
