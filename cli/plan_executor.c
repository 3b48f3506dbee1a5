/* Owns: `fsdpc plan --executor`: the policy chosen for somebody else's executor, what else was considered and why it lost, as text
 * and as JSON, and the file that pins it. */
#include "cli/cli.h"

#include "base/clock.h"
#include "cli/executor.h"

#include <jansson.h>
#include <math.h>

/* What of a prediction rests on assumptions alone, or NULL. */
static const char *uncalibrated(const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world) {
  Generation generation = graph->cluster.device.generation;
  if (generation != GENERATION_AMPERE && generation != GENERATION_HOPPER)
    return "no published run calibrates this device";
  if (world->ranks > world->ranks_per_node) return "no published run calibrates several nodes";
  if (settings->executor.id == EXECUTOR_FSDP1_AUTOCAST || settings->executor.attention == ATTENTION_UNFUSED)
    return "no published run calibrates these kernels";
  return NULL;
}

void executor_note_assumed(const Graph *graph, const PlanSettings *settings, const ExecutorWorld *world) {
  const char *assumed = uncalibrated(graph, settings, world);
  if (assumed) fprintf(stderr, "note: %s: the figures that time rests on are assumed (docs/cost-model.md)\n", assumed);
}

enum { MOST_RIVALS = 4 }; /* that fit, shown of each decision */

/* --- text --------------------------------------------------------------------------------------------- */

static uint64_t numel_of(const Graph *graph) {
  uint64_t numel = 0, one;
  for (uint32_t p = 0; p < graph->params.count; p++)
    if (shape_numel(&graph->params.data[p].shape, 1, &one)) numel += one;
  return numel;
}

static uint32_t blocks_of(const ExecutorPlan *plan) {
  uint32_t blocks = 0;
  for (uint32_t u = 0; u < plan->units.count; u++) blocks += plan->units.data[u].blocks;
  return blocks;
}

static const char *strategy_text(Arena *arena, const PlanSettings *settings) {
  if (settings->strategy == STRATEGY_HYBRID_SHARD) return arena_printf(arena, "hybrid_shard:%lld", (long long)settings->shard);
  if (settings->strategy == STRATEGY_NO_SHARD) return "no_shard";
  return settings->reshard == 0 ? "shard_grad_op" : "full_shard";
}

static void print_head(const Graph *graph, const ExecutorPlan *plan) {
  const ExecutorWorld *w = &plan->world;
  char count[32];
  printf("Model %s: %s parameters, %u block%s, run by %s\n", graph->name, text_count(count, (double)numel_of(graph)), blocks_of(plan),
         text_plural(blocks_of(plan)), executor_name(plan->settings.executor.id));
  printf("World: %u rank%s, sharded over %u, %u replica%s, %u rank%s a node, on %s\n", w->ranks, text_plural(w->ranks), w->shard,
         w->ranks / w->shard, text_plural(w->ranks / w->shard), w->ranks_per_node, text_plural(w->ranks_per_node), graph->cluster.name);
  printf("Batch: %llu sample%s a step = micro-batch %lld x %lld accumulated x %u rank%s\n",
         (unsigned long long)w->ranks * (uint64_t)(w->micro_batch * w->accumulation),
         text_plural(w->ranks * (uint64_t)(w->micro_batch * w->accumulation)), (long long)w->micro_batch, (long long)w->accumulation, w->ranks,
         text_plural(w->ranks));
}

void executor_print_decisions(const char *const *words) {
  const char *separator = "";
  for (int axis = 0; axis < AXIS_COUNT; axis++) {
    if (!words[axis]) continue;
    printf("%s%s %s", separator, executor_axis_name((ExecutorAxis)axis), words[axis]);
    separator = ", ";
  }
}

static void print_choice(const ExecutorPlan *plan) {
  const char *words[AXIS_COUNT];
  for (int axis = 0; axis < AXIS_COUNT; axis++) words[axis] = plan->idle[axis] ? NULL : plan->chosen[axis];
  printf("%s of %u polic%s: ", plan->fits ? "Chosen" : "Smallest", plan->candidates, plan->candidates == 1 ? "y" : "ies");
  executor_print_decisions(words);
  printf("\n\n");
}

static void print_figures(Arena *arena, const ExecutorPlan *plan) {
  const ExecutorPrediction *p = &plan->prediction;
  const struct { const char *name; double bytes; } classes[] = {
      {"parameters", p->peak.parameters}, {"gradients", p->peak.gradients},     {"optimizer", p->peak.optimizer},
      {"gathered", p->peak.gathered},     {"activations", p->peak.activations}, {"workspace", p->peak.workspace}};
  char a[32], b[32];
  printf("Memory of one rank at the peak (%s):\n", p->peak_at);
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (classes[i].bytes >= 1) printf("  %-12s %12s\n", classes[i].name, text_bytes(a, (uint64_t)classes[i].bytes));
  printf("  %-12s %12s\n", "active", text_bytes(a, (uint64_t)p->active_bytes));
  printf("  %-12s %12s   of a budget of %s\n", "reserved", text_bytes(a, (uint64_t)p->reserved_bytes),
         text_bytes(b, (uint64_t)plan->budget_bytes));
  if (p->host_bytes > 0)
    printf("  %-12s %12s   of the host's memory: parameters, gradients, moments\n", "host", text_bytes(a, (uint64_t)p->host_bytes));
  printf("\nTime of one step:\n  %-12s %12s   %s, MFU %.1f %%\n", "predicted", text_time(a, p->step_ns),
         rank_speed(arena, p->tokens_per_s_per_rank), 100 * p->mfu);
  printf("  %-12s %12s   communication that compute waits for\n", "exposed", text_time(a, p->exposed_ns));
  if (p->recompute_ns > 0) printf("  %-12s %12s   activations computed again\n", "recompute", text_time(a, p->recompute_ns));
}

static double ns_per_sample(const ExecutorPlan *plan) {
  return plan->prediction.step_ns / ((double)plan->world.micro_batch * (double)plan->world.accumulation * plan->world.ranks);
}

/* A share of the chosen one's time. The chosen of those as fast may differ in the last digits. */
static double slower(const ExecutorPlan *plan, const RunnerUp *row) {
  return fmax(0, row->ns_per_sample / ns_per_sample(plan) - 1);
}

/* Of those that fit the fastest, and of those that do not the smallest. */
static bool is_shown(const ExecutorPlan *plan, const RunnerUp *row) {
  uint32_t better = 0;
  for (uint32_t i = 0; i < plan->runners.count; i++) {
    const RunnerUp *other = &plan->runners.data[i];
    if (other->axis != row->axis || other->fits != row->fits) continue;
    better += row->fits ? other->ns_per_sample < row->ns_per_sample : other->reserved_bytes < row->reserved_bytes;
  }
  return better < (row->fits ? MOST_RIVALS : 1);
}

/* The best policies with other values of each decision. */
static void print_runners(const ExecutorPlan *plan) {
  char size[32];
  printf("\nWhat else was considered: the fastest policy that fits with one decision changed, the others chosen anew.\n");
  printf("  %-12s %-16s %9s %12s   %s\n", "decision", "instead", "slower", "reserved", "why");
  for (uint32_t i = 0; i < plan->runners.count; i++) {
    const RunnerUp *row = &plan->runners.data[i];
    if (!is_shown(plan, row)) continue;
    printf("  %-12s %-16s ", executor_axis_name(row->axis), row->value);
    if (row->fits)
      printf("%7.2f %% %12s   %s\n", 100 * slower(plan, row),
             text_bytes(size, (uint64_t)row->reserved_bytes), row->lost);
    else
      printf("%9s %12s   %s\n", "no fit", "", row->lost);
  }
}

static void print_text(Arena *arena, const Graph *graph, const ExecutorPlan *plan) {
  print_head(graph, plan);
  print_choice(plan);
  print_figures(arena, plan);
  if (plan->fits) print_runners(plan);
}

bool executor_print_host_lack(const ExecutorPrediction *p) {
  char need[32];
  if (p->host_fits) return false;
  fprintf(stderr, "fsdpc: error: what is offloaded takes %s of a rank's host memory, more than the cluster's host_memory\n",
          text_bytes(need, (uint64_t)p->host_bytes));
  return true;
}

void executor_print_infeasible(const ExecutorPlan *plan) {
  char size[32], more[32];
  if (executor_print_host_lack(&plan->prediction)) {
    report_relaxations(&plan->relaxations, stderr);
    return;
  }
  fprintf(stderr, "fsdpc: error: no policy of %s fits the budget of %s\n", executor_name(plan->settings.executor.id),
          text_bytes(size, (uint64_t)plan->budget_bytes));
  fprintf(stderr, "note: the smallest reserves %s, %s too much, at its peak (%s)\n",
          text_bytes(size, (uint64_t)plan->prediction.reserved_bytes),
          text_bytes(more, (uint64_t)(plan->prediction.reserved_bytes - plan->budget_bytes)), plan->prediction.peak_at);
  report_relaxations(&plan->relaxations, stderr);
}

/* --- JSON: the names of `plan --json` where they apply ---------------------------------------------------------- */

static json_t *units_json(const ExecutorPlan *plan) {
  json_t *units = json_array();
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlannedUnit *unit = &plan->units.data[u];
    json_array_append_new(units, json_pack("{s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I}", "name", unit->name, "last", unit->last, "blocks",
                                           (json_int_t)unit->blocks, "numel", (json_int_t)unit->numel, "reshard", unit->reshard != 0,
                                           "reshard_ranks", (json_int_t)(unit->reshard > 1 ? unit->reshard : 0), "gather_bytes",
                                           (json_int_t)unit->gather_bytes, "gather_ns", (json_int_t)unit->gather_ns));
  }
  return units;
}

static json_t *runners_json(const ExecutorPlan *plan) {
  json_t *runners = json_array();
  for (uint32_t i = 0; i < plan->runners.count; i++) {
    const RunnerUp *row = &plan->runners.data[i];
    json_t *object = json_pack("{s:s, s:s, s:b, s:I, s:s}", "decision", executor_axis_name(row->axis), "value", row->value, "fits",
                               row->fits, "reserved_bytes", (json_int_t)row->reserved_bytes, "why", row->lost);
    if (row->fits) json_object_set_new(object, "slower", json_real(slower(plan, row)));
    json_array_append_new(runners, object);
  }
  return runners;
}

static json_t *chosen_json(const ExecutorPlan *plan) {
  json_t *object = json_object();
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    json_object_set_new(object, executor_axis_name((ExecutorAxis)axis), json_string(plan->chosen[axis]));
  return object;
}

static void add_memory(json_t *object, const ExecutorPlan *plan) {
  const ExecutorPrediction *p = &plan->prediction;
  json_object_set_new(object, "budget_bytes", json_integer((json_int_t)plan->budget_bytes));
  json_object_set_new(object, "fits", json_boolean(plan->fits));
  json_object_set_new(object, "peak_bytes", json_integer((json_int_t)p->reserved_bytes));
  json_object_set_new(object, "active_bytes", json_integer((json_int_t)p->active_bytes));
  json_object_set_new(object, "reserved_bytes", json_integer((json_int_t)p->reserved_bytes));
  json_object_set_new(object, "peak_at", json_string(p->peak_at));
  json_object_set_new(object, "host_bytes", json_integer((json_int_t)p->host_bytes));
  json_object_set_new(object, "persistent_bytes", json_integer((json_int_t)p->states_bytes));
  json_object_set_new(object, "memory",
                      json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "parameters", (json_int_t)p->peak.parameters, "gradients",
                                (json_int_t)p->peak.gradients, "optimizer", (json_int_t)p->peak.optimizer, "gathered",
                                (json_int_t)p->peak.gathered, "activations", (json_int_t)p->peak.activations, "workspace",
                                (json_int_t)p->peak.workspace));
}

static void add_time(json_t *object, const ExecutorPlan *plan, double seconds) {
  const ExecutorPrediction *p = &plan->prediction;
  json_object_set_new(object, "step_ns", json_integer((json_int_t)p->step_ns));
  json_object_set_new(object, "tokens_per_s_per_rank", json_real(p->tokens_per_s_per_rank));
  json_object_set_new(object, "mfu", json_real(p->mfu));
  json_object_set_new(object, "exposed_comm_ns", json_integer((json_int_t)p->exposed_ns));
  json_object_set_new(object, "plan_seconds", json_real(seconds));
  json_object_set_new(object, "checkpoint",
                      json_pack("{s:I, s:I}", "kept_bytes", (json_int_t)p->saved_bytes, "recompute_ns", (json_int_t)p->recompute_ns));
}

static void print_json(Arena *arena, const Graph *graph, const ExecutorPlan *plan, double seconds) {
  const ExecutorWorld *w = &plan->world;
  json_t *object = json_pack("{s:i, s:s, s:{s:s, s:I, s:I}, s:{s:i, s:i, s:i, s:i}, s:I, s:I, s:s}", "schema_version", 1, "executor",
                             executor_name(plan->settings.executor.id), "model", "name", graph->name, "params",
                             (json_int_t)numel_of(graph), "layers", (json_int_t)blocks_of(plan), "world", "ranks", (int)w->ranks,
                             "shard", (int)w->shard, "replicas", (int)(w->ranks / w->shard), "ranks_per_node", (int)w->ranks_per_node,
                             "micro_batch", (json_int_t)w->micro_batch, "accumulation", (json_int_t)w->accumulation, "strategy",
                             strategy_text(arena, &plan->settings));
  add_memory(object, plan);
  add_time(object, plan, seconds);
  json_object_set_new(object, "units", units_json(plan));
  json_object_set_new(object, "prefetch", json_integer(plan->settings.prefetch));
  json_object_set_new(object, "chosen", chosen_json(plan));
  json_object_set_new(object, "candidates", json_integer(plan->candidates));
  json_object_set_new(object, "runners_up", runners_json(plan));
  if (!plan->fits)
    json_object_set_new(object, "infeasible", json_pack("{s:I, s:s, s:o}", "smallest_peak_bytes",
                                                        (json_int_t)plan->prediction.reserved_bytes, "peak_at",
                                                        plan->prediction.peak_at, "relaxations", relaxations_json(&plan->relaxations)));
  json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  putchar('\n');
  json_decref(object);
}

/* --- the command ---------------------------------------------------------------------------------------- */

/* The model file with the policy as its plan block. */
static int save_policy(Cli *cli, const Graph *graph, const ExecutorPlan *plan, const char *path) {
  Text block = {.arena = cli->arena};
  settings_write_plan(&block, &plan->settings);
  const char *text = frontend_with_plan(cli->arena, &cli->sources, &cli->sink, graph->path, block.data, path, cli->models);
  if (!cli_print_diags(cli) || !text) return EXIT_INVALID;
  static const OptionId outside[] = {OPTION_SET, OPTION_CLUSTER, OPTION_RANKS, OPTION_RANKS_PER_NODE, OPTION_PRECISION};
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
    if (option_given(&cli->options, outside[i]))
      fprintf(stderr, "note: %s keeps the policy, not --%s: give it again\n", path, option_info(outside[i])->name);
  return cli_write_file(cli, path, text, strlen(text)) ? EXIT_OK : EXIT_INVALID;
}

int plan_for_executor(Cli *cli, const Graph *graph, const PlannerOptions *options) {
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL);
  ExecutorPlan plan;
  double start = clock_seconds();
  if (option_given(&cli->options, OPTION_DUMP) || option_given(&cli->options, OPTION_AGAINST))
    return usage_error(NULL, "--dump and --against need a plan of our own runtime, not of %s",
                       executor_name(options->settings.executor.id));
  if (option_given(&cli->options, OPTION_THOROUGH))
    return usage_error("leave it out", "--thorough is for plans of our own runtime; what %s can be told is tried in full anyway",
                       executor_name(options->settings.executor.id));
  bool good = plan_executor_watched(cli, graph, options, &plan);
  if (!cli_print_diags(cli) || !good) return EXIT_INVALID;
  int code = plan.fits && output ? save_policy(cli, graph, &plan, output) : EXIT_OK;
  if (code != EXIT_OK) return code;
  if (option_given(&cli->options, OPTION_JSON))
    print_json(cli->arena, graph, &plan, clock_seconds() - start);
  else
    print_text(cli->arena, graph, &plan);
  executor_note_assumed(graph, &plan.settings, &plan.world);
  if (!plan.fits) return fflush(stdout), executor_print_infeasible(&plan), EXIT_NO_FIT;
  return EXIT_OK;
}
