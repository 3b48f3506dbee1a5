/* Owns: the order of planning: check what is asked, search, describe what was found, verify it. */
#include "planner/planner.h"

#include "base/checked.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include "planner/search.h"

#include <stdlib.h>
#include <time.h>

enum { MAX_MICRO_BATCHES = 8, MAX_RANKS = 1 << 20 };

static double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- what is asked ------------------------------------------------------------------------------------------------------ */

static bool check_graph(DiagSink *sink, const Graph *graph) {
  uint32_t errors = sink->errors;
  if (graph->cluster.device.kind == DEVICE_NONE) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%s names no cluster, so nothing is known about time and memory", graph->path);
    diag_help(diag, "add `cluster { use \"clusters/cpu.fsdp\" }` to the file or pass --cluster FILE");
  } else if (graph->cluster.device.peak[graph->recipe.compute] <= 0) {
    diag_error(sink, SPAN_NONE, "cluster \"%s\" does not state the peak rate of its device in %s", graph->cluster.name,
               dtype_name(graph->recipe.compute));
  }
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const GraphTensor *tensor = &graph->tensors.data[graph->inputs.data[i].tensor];
    if (!tensor->is_index)
      diag_error(sink, tensor->span, "input \"%s\" is float, but only int inputs can be fed from data so far",
                 graph->inputs.data[i].name);
  }
  return sink->errors == errors;
}

static bool check_settings(DiagSink *sink, const Graph *graph, const PlanSettings *settings) {
  uint32_t errors = sink->errors;
  if (settings->strategy == STRATEGY_SHARD_OPTIM || settings->strategy == STRATEGY_HYBRID_SHARD) {
    Diag *diag = diag_error(sink, SPAN_NONE, "strategy %s is not available in this version",
                            settings->strategy == STRATEGY_SHARD_OPTIM ? "shard_optim" : "hybrid_shard");
    diag_help(diag, "use full_shard, shard_grad_op, no_shard or auto");
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

static bool choose_world(DiagSink *sink, const Graph *graph, const PlannerOptions *options, Search *search) {
  const Cluster *cluster = &graph->cluster;
  uint64_t ranks = options->inference ? 1 : (uint64_t)options->ranks;
  uint64_t devices = 0;
  if (!checked_mul((uint64_t)cluster->node_devices, (uint64_t)cluster->nodes, &devices)) devices = MAX_RANKS + 1;
  if (!ranks) ranks = devices ? devices : 1;
  uint64_t per_node = (uint64_t)options->ranks_per_node;
  if (!per_node) per_node = cluster->node_devices > 0 ? (uint64_t)cluster->node_devices : ranks;
  if (per_node > ranks) per_node = ranks;
  if (ranks > MAX_RANKS) {
    diag_error(sink, SPAN_NONE, "%llu ranks are more than the %d this version plans for", (unsigned long long)ranks, MAX_RANKS);
    return false;
  }
  if (ranks % per_node) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu ranks do not fill nodes of %llu", (unsigned long long)ranks,
                            (unsigned long long)per_node);
    diag_help(diag, "choose --ranks as a multiple of --ranks-per-node");
    return false;
  }
  if (ranks > per_node && cluster->network.bandwidth <= 0) {
    Diag *diag = diag_error(sink, SPAN_NONE, "%llu ranks need %llu nodes, but cluster \"%s\" states no network between nodes",
                            (unsigned long long)ranks, (unsigned long long)(ranks / per_node), cluster->name);
    diag_help(diag, "add a `network { bandwidth ... latency ... }` block to the cluster, or pass --ranks-per-node %llu",
              (unsigned long long)ranks);
    return false;
  }
  search->ranks = (uint32_t)ranks;
  search->ranks_per_node = (uint32_t)per_node;
  return true;
}

static bool indivisible(DiagSink *sink, uint64_t samples, uint64_t ranks, int64_t micro) {
  Diag *diag = diag_error(sink, SPAN_NONE, "a step of %llu samples cannot be split into micro-batches of %lld on %llu ranks",
                          (unsigned long long)samples, (long long)micro, (unsigned long long)ranks);
  uint64_t unit = ranks * (uint64_t)micro, below = samples / unit * unit;
  diag_help(diag, "a step of %llu or %llu samples can; or change --micro-batch or --ranks",
            (unsigned long long)(below ? below : unit), (unsigned long long)(below + unit));
  return false;
}

/* Micro-batches to try, largest first: powers of two, so that rows stay friendly to products, and the whole. */
static bool list_micro_batches(DiagSink *sink, const Search *search, const PlanSettings *settings, int64_t *out,
                               uint32_t *count) {
  *count = 0;
  uint64_t samples = search->samples;
  if (search->inference || (!samples && settings->micro_batch == SETTING_AUTO)) {
    out[(*count)++] = 1;
    return true;
  }
  if (settings->micro_batch != SETTING_AUTO) {
    out[(*count)++] = settings->micro_batch;
    return !samples || samples % (search->ranks * (uint64_t)settings->micro_batch) == 0
               ? true
               : indivisible(sink, samples, search->ranks, settings->micro_batch);
  }
  if (samples % search->ranks) return indivisible(sink, samples, search->ranks, 1);
  uint64_t share = samples / search->ranks;
  for (uint64_t m = share < 64 ? share : 64; m >= 1 && *count < MAX_MICRO_BATCHES; m--)
    if (share % m == 0) out[(*count)++] = (int64_t)m;
  return true;
}

static void find_spans(Arena *arena, const DiagSink *sink, const Graph *graph, PlanSpan *spans, const char **paths) {
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    Span span = graph->ops.data[i].span;
    paths[i] = "";
    if (span.file < 0) continue;
    paths[i] = sink->sources->files.data[span.file].path;
    if (i > 0 && graph->ops.data[i - 1].span.file == span.file && graph->ops.data[i - 1].span.begin == span.begin) {
      spans[i] = spans[i - 1];
      continue;
    }
    Position at = source_position(sink->sources, span.file, span.begin);
    spans[i] = (PlanSpan){0, at.line, at.column};
  }
  (void)arena;
}

/* --- what was found ------------------------------------------------------------------------------------------------------ */

static const char *const strategy_names[] = {
    [STRATEGY_AUTO] = "auto",         [STRATEGY_FULL_SHARD] = "full_shard",   [STRATEGY_SHARD_GRAD_OP] = "shard_grad_op",
    [STRATEGY_NO_SHARD] = "no_shard", [STRATEGY_SHARD_OPTIM] = "shard_optim", [STRATEGY_HYBRID_SHARD] = "hybrid_shard"};

static const char *wrap_text(Arena *arena, const Choice *choice, const PlanSettings *settings) {
  const char *by_hand = settings->units.count ? "units by hand, then " : "";
  if (choice->wrap == WRAP_SIZE)
    return arena_printf(arena, "%ssize:%llu", by_hand, (unsigned long long)choice->wrap_numel);
  return arena_printf(arena, "%s%s", by_hand, choice->wrap == WRAP_WHOLE ? "whole" : "block");
}

static const char *checkpoint_text(Arena *arena, const Choice *choice, uint32_t blocks, const PlanSettings *settings) {
  const char *by_hand = settings->checkpoints.count ? " and by hand" : "";
  if (!choice->full_blocks) return arena_printf(arena, "none%s", by_hand);
  if (choice->full_blocks == blocks) return arena_printf(arena, "full%s", by_hand);
  return arena_printf(arena, "%u of %u blocks%s", choice->full_blocks, blocks, by_hand);
}

static int32_t turn_instr(const Plan *plan) {
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].phase == PHASE_BACKWARD && plan->instrs.data[i].stream == STREAM_COMPUTE) return (int32_t)i;
  return (int32_t)plan->instrs.count;
}

static uint64_t kept_bytes(const Plan *plan) {
  int32_t turn = turn_instr(plan);
  uint64_t bytes = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->class == BUF_ACTIVATION && buf->first < turn && buf->last > turn) bytes += buf->bytes;
  }
  return bytes;
}

static double model_flops(const Plan *plan) {
  double flops = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].phase != PHASE_RECOMPUTE) flops += (double)plan->instrs.data[i].flops;
  return flops / (double)plan->world.micro_batch;
}

static void summarise(Arena *arena, Search *search, const Found *found) {
  Plan *plan = found->plan;
  uint32_t blocks = checkpoint_block_count(search_program(search, found->choice.micro_batch));
  PlanSummary *summary = &plan->summary;
  summary->strategy = plan_intern(arena, plan, strategy_names[found->choice.strategy]);
  summary->wrap = plan_intern(arena, plan, wrap_text(arena, &found->choice, search->settings));
  summary->checkpoint = plan_intern(arena, plan, checkpoint_text(arena, &found->choice, blocks, search->settings));
  summary->prefetch = found->choice.prefetch;
  summary->budget_bytes = search->budget;
  summary->step_ns = found->sim.step_ns;
  summary->lower_bound_ns = found->bound.ns < found->sim.step_ns ? found->bound.ns : found->sim.step_ns;
  summary->bound_by = plan_intern(arena, plan, found->bound.by);
  summary->kept_bytes = kept_bytes(plan);
  summary->model_flops_per_sample = model_flops(plan);
  summary->peak_flops = search->cluster->device.peak[plan->recipe.compute];
  summary->launch_ns = (uint64_t)search->cluster->device.launch_ns;
}

/* --- why a budget cannot be met -------------------------------------------------------------------------------------------- */

static int compare_largest(const void *a, const void *b) {
  const LargestBuffer *x = a, *y = b;
  return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void list_largest(Arena *arena, const Plan *plan, int32_t at, Infeasible *out) {
  VEC(LargestBuffer) all = {0};
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->first > at || buf->last < at) continue;
    LargestBuffer entry = {plan_str(plan, buf->name), buf_class_name(buf->class), buf->bytes};
    vec_push(arena, &all, entry);
  }
  qsort(all.data, all.count, sizeof *all.data, compare_largest);
  for (uint32_t i = 0; i < all.count && i < 8; i++) vec_push(arena, &out->largest, all.data[i]);
}

static void try_relaxation(Search *search, Choice choice, const char *what, Infeasible *out) {
  Arena *scratch = arena_new();
  Plan *plan = search_build(search, scratch, &choice);
  char peak[32];
  if (plan)
    vec_push(search->arena, &out->relaxations,
             arena_printf(search->arena, "%s: peak %s, %s", what, text_bytes(peak, plan->arena_bytes),
                          plan->arena_bytes <= search->budget ? "fits" : "still too much"));
  arena_free(scratch);
}

static void explain_infeasible(Arena *arena, Search *search, const Found *found, Infeasible *out) {
  const Plan *plan = found->plan;
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  char size[32];
  plan_peak(plan, by_class, &at);
  const PlanInstr *instr = &plan->instrs.data[at];
  out->smallest_peak_bytes = plan->arena_bytes;
  out->peak_at = arena_printf(arena, "%s of %s (%s)", search->specs[instr->op].name, plan_str(plan, instr->name),
                              phase_name(instr->phase));
  list_largest(arena, plan, at, out);
  vec_push(arena, &out->relaxations, arena_printf(arena, "memory %s", text_bytes(size, plan->arena_bytes)));
  Choice choice = found->choice;
  uint32_t blocks = checkpoint_block_count(search_program(search, choice.micro_batch));
  if (choice.full_blocks < blocks && search->settings->checkpoint != CHECKPOINT_AUTO) {
    choice.full_blocks = blocks;
    try_relaxation(search, choice, "checkpoint full", out);
    choice = found->choice;
  }
  if (choice.strategy != STRATEGY_FULL_SHARD && search->ranks > 1) {
    choice.strategy = STRATEGY_FULL_SHARD;
    try_relaxation(search, choice, "strategy full_shard", out);
    choice = found->choice;
  }
  if (choice.micro_batch > 1 && !(choice.micro_batch % 2)) {
    choice.micro_batch /= 2;
    try_relaxation(search, choice, arena_printf(arena, "micro_batch %lld", (long long)choice.micro_batch), out);
  }
  bool more_ranks = found->choice.strategy != STRATEGY_NO_SHARD && search->ranks <= MAX_RANKS / 2 && !search->inference;
  if (more_ranks && (!search->samples || search->samples % (2ull * search->ranks * (uint64_t)found->choice.micro_batch) == 0)) {
    search->ranks *= 2;
    try_relaxation(search, found->choice, arena_printf(arena, "ranks %u", search->ranks), out);
    search->ranks /= 2;
  }
}

/* --- the door ------------------------------------------------------------------------------------------------------------------ */

static void verify_own(Arena *arena, const Plan *plan) {
  VerifyResult verdict = {0};
  if (plan_verify(arena, plan, &verdict)) return;
  fprintf(stderr, "fsdpc: internal error: the planner emitted a plan that the verifier rejects:\n");
  for (uint32_t i = 0; i < verdict.violations.count && i < 5; i++)
    fprintf(stderr, "  %s: %s\n", verify_rule_name(verdict.violations.data[i].rule), verdict.violations.data[i].text);
  exit(70);
}

static void write_dumps(Search *search, const Found *found, unsigned dump, Text *out) {
  const Program *program = search_program(search, found->choice.micro_batch);
  if (dump & DUMP_GRAPH) graph_print(out, search->graph);
  if (dump & DUMP_PROGRAM) program_print(out, program);
  if (dump & DUMP_UNITS) units_print(out, program, search_units(search, search->arena, &found->choice));
  if (dump & DUMP_CHECKPOINT) {
    bool *recompute = ARENA_ARRAY(search->arena, bool, program->ops.count);
    search_recompute(search, &found->choice, recompute);
    checkpoint_print(out, program, recompute);
  }
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
  find_spans(arena, sink, graph, spans, paths);
  *search = (Search){.arena = arena,
                     .sink = sink,
                     .graph = graph,
                     .cluster = &graph->cluster,
                     .settings = &options->settings,
                     .specs = instr_specs(arena),
                     .spans = spans,
                     .span_paths = paths,
                     .samples = graph->recipe.samples_per_step,
                     .inference = options->inference};
  search->budget = options->settings.memory_bytes ? options->settings.memory_bytes : graph->cluster.device.memory_bytes;
  if (!search->budget) {
    Diag *diag = diag_error(sink, SPAN_NONE, "no memory budget: neither the plan block nor the cluster states one");
    diag_help(diag, "pass --memory 16GiB or add `memory 16GiB` to the plan block");
    return false;
  }
  return choose_world(sink, graph, options, search);
}

void planner_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump,
                  Text *dump_text, PlannerResult *result) {
  double start = now_seconds();
  Search search;
  Found found = {0};
  int64_t micro[MAX_MICRO_BATCHES];
  uint32_t micro_count;
  *result = (PlannerResult){0};
  if (!prepare(arena, sink, graph, options, &search)) return;
  if (!list_micro_batches(sink, &search, &options->settings, micro, &micro_count)) return;
  if (!search_best(&search, micro, micro_count, &found)) return;
  summarise(arena, &search, &found);
  if (found.fits)
    verify_own(arena, found.plan);
  else
    explain_infeasible(arena, &search, &found, &result->infeasible);
  if (dump) write_dumps(&search, &found, dump, dump_text);
  result->plan = found.plan;
  result->sim = found.sim;
  result->fits = found.fits;
  result->candidates = search.candidates;
  result->seconds = now_seconds() - start;
}
