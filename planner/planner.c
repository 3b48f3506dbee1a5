/* Owns: the order of planning: check what is asked, search, describe what was found, verify it. */
#include "planner/planner.h"

#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include "planner/inference.h"
#include "planner/pins.h"
#include "planner/world.h"

#include <stdlib.h>
#include <time.h>

enum { MAX_MICRO_BATCHES = 8 };

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
  Diag *diag = diag_error(sink, SPAN_NONE, "hybrid_shard:%lld does not divide %u ranks", (long long)settings->shard, search->ranks);
  diag_help(diag, "the shard group's size must be above 1 and divide the number of ranks; one node's is %u", search->ranks_per_node);
  return false;
}

/* Micro-batches to try, largest first: powers of two, so that rows stay friendly to products, and the whole. */
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
  for (uint64_t m = share < 64 ? share : 64; m >= 1 && *count < MAX_MICRO_BATCHES; m--)
    if (share % m == 0) out[(*count)++] = (int64_t)m;
  return true;
}

/* Layers of a block that is repeated come from the same lines again and again. */
static void find_spans(const DiagSink *sink, const Graph *graph, PlanSpan *spans, const char **paths) {
  enum { RECENT = 64 };
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

/* --- what was found ------------------------------------------------------------------------------------------------------ */

static const char *strategy_text(const Plan *plan, const Decisions *decisions) {
  if (plan->world.shard == 1) return "no_shard";
  if (plan->world.replicas > 1) return "hybrid_shard";
  if (decisions->gather_once && decisions->reduce_once) return "shard_optim";
  for (uint32_t u = 0; u < plan->units.count; u++)
    if (plan->units.data[u].reshard) return "full_shard";
  return "shard_grad_op";
}

static const char *wrap_text(Arena *arena, const Found *found, const PlanSettings *settings) {
  const char *by_hand = settings->units.count ? "units by hand, then " : "";
  if (found->grouping.wrap == WRAP_SIZE)
    return arena_printf(arena, "%ssize:%llu", by_hand, (unsigned long long)found->grouping.numel);
  return arena_printf(arena, "%s%s", by_hand, found->grouping.wrap == WRAP_WHOLE ? "whole" : "block");
}

static const char *checkpoint_text(Arena *arena, const Plan *plan, const PlanSettings *settings) {
  uint32_t again = 0, forward = 0;
  const PlanSegment *micro = plan_first_micro(plan);
  for (int32_t i = micro->first; i < micro->end; i++) {
    again += plan->instrs.data[i].phase == PHASE_RECOMPUTE;
    forward += plan->instrs.data[i].phase == PHASE_FORWARD && plan->instrs.data[i].stream == STREAM_COMPUTE;
  }
  if (!again) return "none";
  if (settings->checkpoint == CHECKPOINT_FULL && !settings->checkpoints.count) return "full";
  return arena_printf(arena, "%u of %u operators run again", again, forward);
}

/* Gathers issued whose parameters are not in use yet: at most this many besides the next. */
static uint32_t prefetch_depth(const Plan *plan, const InstrSpec *specs) {
  Arena *scratch = arena_new();
  bool *waiting = ARENA_ARRAY(scratch, bool, plan->bufs.count);
  uint32_t ahead = 0, most = 1;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->op == INSTR_ALLGATHER) {
      waiting[plan_operand(plan, instr, 1)->buf] = true;
      if (++ahead > most) most = ahead;
      continue;
    }
    for (int k = 0; k < specs[instr->op].operand_count; k++) {
      int32_t b = plan_operand(plan, instr, k)->buf;
      if (b < 0 || !waiting[b]) continue;
      waiting[b] = false;
      ahead--;
    }
  }
  arena_free(scratch);
  return most - 1;
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
    if (!buf->host && buf->class == BUF_ACTIVATION && buf->first < turn && buf->last > turn) bytes += buf->bytes;
  }
  return bytes;
}

static double model_flops(const Plan *plan) {
  double flops = 0;
  const PlanSegment *micro = plan_first_micro(plan);
  for (int32_t i = micro->first; i < micro->end; i++)
    if (plan->instrs.data[i].phase != PHASE_RECOMPUTE) flops += (double)plan->instrs.data[i].flops;
  return flops / (double)plan->world.micro_batch;
}

static void summarise(Arena *arena, Search *search, const Found *found) {
  Plan *plan = found->plan;
  PlanSummary *summary = &plan->summary;
  summary->strategy = plan_intern(arena, plan, strategy_text(plan, &found->decisions));
  summary->wrap = plan_intern(arena, plan, wrap_text(arena, found, search->settings));
  summary->checkpoint = plan_intern(arena, plan, checkpoint_text(arena, plan, search->settings));
  summary->prefetch = prefetch_depth(plan, search->specs);
  summary->budget_bytes = search->budget;
  summary->step_ns = found->sim.step_ns;
  summary->lower_bound_ns = found->bound.ns;
  summary->bound_by = plan_intern(arena, plan, found->bound.by);
  summary->kept_bytes = kept_bytes(plan);
  summary->model_flops_per_sample = model_flops(plan);
  summary->peak_flops = search->cluster->device.peak[plan->recipe.compute];
  summary->launch_ns = (uint64_t)search->cluster->device.launch_ns;
  summary->device = search->cluster->device.kind == DEVICE_GPU ? PLAN_DEVICE_GPU : PLAN_DEVICE_CPU;
  summary->device_bytes = summary->device == PLAN_DEVICE_GPU ? search->cluster->device.allocator_bytes : 0;
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
    if (buf->host || buf->first > at || buf->last < at) continue;
    const char *name = plan_str(plan, buf->name);
    if (buf->unit >= 0) name = arena_printf(arena, "%s of unit %s", name, plan_str(plan, plan->units.data[buf->unit].name));
    LargestBuffer entry = {name, buf_class_name(buf->class), buf->bytes};
    vec_push(arena, &all, entry);
  }
  qsort(all.data, all.count, sizeof *all.data, compare_largest);
  for (uint32_t i = 0; i < all.count && i < 8; i++) vec_push(arena, &out->largest, all.data[i]);
}

/* The smallest plan under changed settings, as one line. */
static void try_relaxation(Search *search, const Outer *outer, const PlanSettings *settings, const char *what, Infeasible *out) {
  Arena *scratch = arena_new();
  const PlanSettings *own = search->settings;
  Found found;
  char peak[32];
  search->settings = settings;
  Plan *plan = search_smallest(search, scratch, outer, &found);
  search->settings = own;
  if (plan)
    vec_push(search->arena, &out->relaxations,
             arena_printf(search->arena, "%s: peak %s, %s", what, text_bytes(peak, plan->arena_bytes),
                          plan->arena_bytes <= search->budget ? "fits" : "still too much"));
  arena_free(scratch);
}

/* Twice the ranks in the cluster's nodes, which may be as many as it takes where there is a network. */
static bool can_double(const Search *search) {
  PlannerOptions twice = {.ranks = 2 * (int64_t)search->ranks};
  DiagSink sink = {.arena = search->scratch, .sources = search->sink->sources}; /* what is impossible is not proposed */
  World world;
  return world_choose(&sink, search->graph, &twice, &world);
}

static void list_relaxations(Arena *arena, Search *search, const Found *found, Infeasible *out) {
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
  bool divides = !search->samples || search->samples % (2ull * search->ranks * (uint64_t)outer.micro_batch) == 0;
  if (outer.shard > 1 && can_double(search) && divides) {
    outer.shard = search->ranks *= 2;
    try_relaxation(search, &outer, &relaxed, arena_printf(arena, "ranks %u", search->ranks), out);
    search->ranks /= 2;
  }
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
}

/* --- the door ------------------------------------------------------------------------------------------------------------------ */

/* A plan states its times as integers. What is beyond them comes from a batch, or from rates, that are off by powers of ten. */
static bool check_time(DiagSink *sink, const Plan *plan) {
  double ns = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    for (int32_t i = plan->segments.data[s].first; i < plan->segments.data[s].end; i++)
      ns += (double)plan->instrs.data[i].ns * (double)plan->segments.data[s].count;
  if (ns < 0x1p61) return true;
  uint64_t samples = plan->recipe.samples_per_step;
  Diag *diag = diag_error(sink, SPAN_NONE, "a step of %llu sample%s would take %.0f years or more by the cluster's rates, which no plan can state",
                          (unsigned long long)samples, text_plural(samples), ns * 1e-9 / 31557600);
  diag_help(diag, "look at the samples of a step (tokens_per_step, batch) and at the rates of the cluster");
  return false;
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
  if (dump & DUMP_CHECKPOINT) checkpoint_print(out, program, found->decisions.recompute);
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
                     .placing = options->brief ? 0 : PLACING_EFFORT};
  search->budget = options->settings.memory_bytes ? options->settings.memory_bytes : graph->cluster.device.memory_bytes;
  if (!search->budget) {
    Diag *diag = diag_error(sink, SPAN_NONE, "no memory budget: neither the plan block nor the cluster states one");
    diag_help(diag, "pass --memory 16GiB or add `memory 16GiB` to the plan block");
    return false;
  }
  World world;
  if (!world_choose(sink, graph, options, &world)) return false;
  search->ranks = world.ranks;
  search->ranks_per_node = world.ranks_per_node;
  return check_width(sink, search);
}

static void plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text,
                 Search *search, PlannerResult *result) {
  Found found = {0};
  int64_t micro[MAX_MICRO_BATCHES];
  uint32_t micro_count;
  if (!prepare(arena, sink, graph, options, search)) return;
  if (options->inference) {
    if (!inference_plan(search, &found)) return;
  } else if (!list_micro_batches(sink, search, &options->settings, micro, &micro_count) ||
             !search_best(search, micro, micro_count, &found)) {
    return;
  }
  if (!check_time(sink, found.plan)) return;
  summarise(arena, search, &found);
  if (found.fits)
    verify_own(arena, found.plan);
  else
    explain_infeasible(arena, search, &found, &result->infeasible);
  if (!found.fits && !options->inference) list_relaxations(arena, search, &found, &result->infeasible);
  if (dump) write_dumps(search, &found, dump, dump_text);
  result->plan = found.plan;
  result->sim = found.sim;
  result->fits = found.fits;
  result->unplaced_ns = found.fits ? search->unplaced_ns : 0;
}

void planner_plan(Arena *arena, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump,
                  Text *dump_text, PlannerResult *result) {
  double start = now_seconds();
  Search search = {.scratch = arena_new()};
  *result = (PlannerResult){0};
  plan(arena, sink, graph, options, dump, dump_text, &search, result);
  arena_free(search.scratch);
  result->seconds = now_seconds() - start;
}
