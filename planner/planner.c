/* Owns: the order of planning: check what is asked, search, describe what was found, verify it. */
#include "planner/planner.h"

#include "base/clock.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include "planner/infeasible.h"
#include "planner/inference.h"
#include "planner/pins.h"
#include "planner/summary.h"
#include "planner/world.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST_MICRO_BATCH = 64, MOST_MICRO_BATCHES = 12 };

/* --- what is asked ------------------------------------------------------------------------------------------------------ */

static bool check_graph(DiagSink *sink, const Graph *graph) {
  uint32_t errors = sink->errors;
  world_knows_device(sink, graph);
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[graph->inputs.data[i].tensor];
    if (tensor->is_index) continue;
    Diag *diag = diag_error(sink, tensor->span, "input \"%s\" is float, but only int inputs can be fed from data so far",
                            graph->inputs.data[i].name);
    diag_help(diag, "'fsdpc plan --executor pytorch-fsdp2-compiled' plans it for PyTorch, and 'fsdpc predict' times it");
  }
  return sink->errors == errors;
}

static bool check_settings(DiagSink *sink, const Graph *graph, const PlanSettings *settings) {
  uint32_t errors = sink->errors;
  bool partly = settings->reshard > 1;
  for (uint32_t u = 0; u < settings->units.count; u++) partly |= settings->units.data[u].reshard > 1;
  if (partly) {
    Diag *diag = diag_error(sink, SPAN_NONE, "resharding to fewer ranks is what PyTorch executors can do, this runtime cannot");
    diag_help(diag, "use reshard yes, no or auto; 'fsdpc plan --executor pytorch-fsdp2' plans for PyTorch");
  }
  pins_agree(sink, settings);
  uint32_t states = OFFLOAD_PARAMETERS | OFFLOAD_GRADIENTS | OFFLOAD_OPTIMIZER;
  if (settings->offload != SETTING_AUTO && ((uint32_t)settings->offload & states) && graph->recipe.optimizer == OPTIMIZER_ADAFACTOR) {
    Diag *diag = diag_error(sink, SPAN_NONE, "parameters, gradients and optimizer state cannot be offloaded with adafactor");
    diag_help(diag, "use offload activations, or another optimizer");
  }
  for (uint32_t r = 0; r < settings->checkpoints.count; r++) {
    const CheckpointRule *rule = &settings->checkpoints.data[r];
    bool matched = false;
    for (uint32_t i = 0; i < graph->ops.count; i++) matched |= path_matches(rule->pattern, graph->ops.data[i].name);
    if (matched) continue;
    Diag *diag = diag_error(sink, rule->span, "pattern \"%s\" matches no layer", rule->pattern);
    diag_help(diag, "`fsdpc plan FILE --dump=graph` lists the layers by name");
  }
  return sink->errors == errors;
}

static bool check_width(DiagSink *sink, const Search *search) {
  const PlanSettings *settings = search->settings;
  if (settings->strategy != STRATEGY_HYBRID_SHARD) return true;
  if (settings->shard > 1 && settings->shard <= (int64_t)search->ranks && search->ranks % settings->shard == 0) return true;
  Diag *diag = settings->shard == 1
                   ? diag_error(sink, SPAN_NONE, "hybrid_shard:1 makes groups of one rank, which shard nothing")
                   : diag_error(sink, SPAN_NONE, "hybrid_shard:%lld does not divide %u rank%s", (long long)settings->shard, search->ranks,
                                text_plural(search->ranks));
  if (search->ranks == 1)
    diag_help(diag, "one rank makes no groups; leave the strategy to the planner, or change --ranks");
  else
    diag_help(diag, "the shard group's size must be above 1 and divide the number of ranks; one node's is %u", search->ranks_per_node);
  return false;
}

static bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

/* Leaves so many of these, largest first: of those that are too many, powers of two, whose rows are friendly to products, and small ones. */
static void thin_out(int64_t *micro, uint32_t *count, uint32_t most) {
  while (*count > most) {
    uint32_t at = 0;
    while (at + 1 < *count && is_power_of_two(micro[at])) at++;
    if (is_power_of_two(micro[at])) at = 0;
    memmove(&micro[at], &micro[at + 1], (--*count - at) * sizeof *micro);
  }
}

/* Micro-batches to try, largest first: all that divide a rank's share, up to LARGEST_MICRO_BATCH samples. */
static bool list_micro_batches(DiagSink *sink, const Search *search, const PlanSettings *settings, int64_t *out,
                               uint32_t *count) {
  *count = 0;
  uint64_t samples = search->samples;
  if (!samples && settings->micro_batch == SETTING_AUTO) {
    out[(*count)++] = 1;
    return true;
  }
  if (settings->micro_batch != SETTING_AUTO) {
    out[(*count)++] = settings->micro_batch;
    return world_cuts_step(sink, search->graph, search->ranks, settings->micro_batch);
  }
  if (!world_cuts_step(sink, search->graph, search->ranks, 1)) return false;
  uint64_t share = samples / search->ranks;
  for (uint64_t m = share < LARGEST_MICRO_BATCH ? share : LARGEST_MICRO_BATCH; m >= 1; m--)
    if (share % m == 0) out[(*count)++] = (int64_t)m;
  thin_out(out, count, MOST_MICRO_BATCHES);
  return true;
}

/* Layers of a block that is repeated come from the same lines again and again. */
static void find_spans(const DiagSink *sink, const Graph *graph, PlanSpan *spans, const char **paths) {
  enum { RECENT = 1024 };
  uint32_t recent[RECENT] = {0}; /* by offset in its file, the last op that came from there */
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    Span span = graph->ops.data[i].span;
    paths[i] = "";
    if (span.file < 0) continue;
    paths[i] = sink->sources->files.data[span.file].path;
    uint32_t *last = &recent[span.begin % RECENT];
    if (*last < i && graph->ops.data[*last].span.file == span.file && graph->ops.data[*last].span.begin == span.begin) {
      spans[i] = spans[*last];
    } else {
      Position at = source_position(sink->sources, span.file, span.begin);
      spans[i] = (PlanSpan){0, at.line, at.column};
    }
    *last = i;
  }
}

/* --- the door ------------------------------------------------------------------------------------------------------------------ */

static bool check_time(DiagSink *sink, const Graph *graph, const Plan *plan) {
  double ns = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++)
      ns += (double)plan->instrs.data[i].ns * (double)plan->segments.data[s].count;
  return world_states_time(sink, graph, ns);
}

static void verify_own(Arena *arena, const Plan *plan) {
  VerifyResult verdict = {0};
  if (plan_verify(arena, plan, &verdict)) return;
  fprintf(stderr, "fsdpc: internal error: the planner emitted a plan that the verifier rejects:\n");
  for (uint32_t i = 0; i < verdict.violations.count && i < 5; i++)
    fprintf(stderr, "  %s: %s\n", verify_rule_name(verdict.violations.data[i].rule), verdict.violations.data[i].text);
  exit(70);
}

static void write_dumps(Search *search, const Found *found, unsigned dump, Text *out) {
  const Program *program = search_program(search, found->outer.micro_batch);
  if (dump & DUMP_GRAPH) graph_print(out, search->graph);
  if (dump & DUMP_PROGRAM) program_print(out, program);
  if (dump & DUMP_UNITS) units_print(out, program, found->units);
  if (dump & DUMP_CHECKPOINT) checkpoint_print(out, program, found->decisions.recompute, found->decisions.away);
  for (uint32_t b = 0; (dump & DUMP_MEMORY) && b < found->plan->bufs.count; b++) {
    const PlanBuf *buf = &found->plan->bufs.data[b];
    text_printf(out, "0x%010llx..0x%010llx %s i%d..i%d %s\n", (unsigned long long)buf->offset,
                (unsigned long long)(buf->offset + buf->bytes), buf_class_name(buf->class), buf->first, buf->last,
                plan_str(found->plan, buf->name));
  }
  if (dump & DUMP_PLAN) plan_write(out, found->plan);
}

static bool prepare(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, Search *search) {
  if (!check_graph(sink, graph) || !check_settings(sink, graph, &options->settings)) return false;
  PlanSpan *spans = ARENA_ARRAY(arena, PlanSpan, graph->ops.count);
  const char **paths = ARENA_ARRAY(arena, const char *, graph->ops.count);
  find_spans(sink, graph, spans, paths);
  PlanSettings *settings = ARENA_NEW(arena, PlanSettings);
  *settings = pins_completed(options->settings);
  *search = (Search){.arena = arena,
                     .scratch = search->scratch,
                     .sink = sink,
                     .graph = graph,
                     .cluster = &graph->cluster,
                     .settings = settings,
                     .specs = instr_specs(arena),
                     .spans = spans,
                     .span_paths = paths,
                     .samples = graph->recipe.samples_per_step,
                     .brief = options->brief,
                     .thorough = options->thorough,
                     .asked_per_node = options->ranks_per_node,
                     .progress = options->progress,
                     .watcher = options->watcher,
                     .placing = options->brief ? 0 : PLACING_EFFORT,
                     .pairing = PAIRING_EFFORT};
  search->budget = options->settings.memory_bytes ? options->settings.memory_bytes : graph->cluster.device.memory_bytes;
  if (!search->budget) {
    Diag *diag = diag_error(sink, SPAN_NONE, "no memory budget: neither the plan block nor the cluster states one");
    diag_help(diag, "pass --memory 16GiB or add `memory 16GiB` to the plan block");
    return false;
  }
  World world;
  if (!world_choose(sink, graph, options, &world)) return false;
  search->ranks = search->stage.ranks = world.ranks;
  search->ranks_per_node = world.ranks_per_node;
  return check_width(sink, search);
}

static void plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text,
                 Search *search, PlannerResult *result) {
  Found found = {0};
  int64_t micro[LARGEST_MICRO_BATCH];
  uint32_t micro_count;
  if (!prepare(arena, sink, graph, options, search)) return;
  if (options->inference) {
    if (!inference_plan(search, &found)) return;
  } else if (!list_micro_batches(sink, search, &options->settings, micro, &micro_count) ||
             !search_best(search, micro, micro_count, &found)) {
    return;
  }
  if (!check_time(sink, graph, found.plan)) return;
  summary_fill(arena, search, &found);
  if (found.fits)
    verify_own(arena, found.plan);
  else
    infeasible_explain(arena, search, &found, &result->infeasible);
  if (!found.fits && !options->inference) infeasible_relax(search, &found, &result->infeasible);
  if (dump) write_dumps(search, &found, dump, dump_text);
  result->plan = found.plan;
  result->sim = found.sim;
  result->fits = found.fits;
  result->unplaced_ns = found.fits ? found.unplaced_ns : 0;
  result->bound_of = summary_bound_of(arena, search, &found);
  result->own_bound_ns = found.own_bound_ns;
}

void planner_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump,
                  Text *dump_text, PlannerResult *result) {
  double start = clock_seconds();
  Search search = {.scratch = arena_new()};
  *result = (PlannerResult){0};
  plan(arena, sink, graph, options, dump, dump_text, &search, result);
  arena_free(search.scratch);
  result->seconds = clock_seconds() - start;
}
