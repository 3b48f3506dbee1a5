/* Owns: the summary of a plan for people. Like units are folded into one row, so that a model of 126 blocks
 * prints as few lines as one of two. */
#include "cli/cli.h"

#include "runtime/beside.h"

static const char *bytes(Arena *arena, uint64_t value) {
  char buffer[32];
  return arena_strdup(arena, text_bytes(buffer, value));
}

static const char *duration(Arena *arena, uint64_t ns) {
  char buffer[32];
  return arena_strdup(arena, text_time(buffer, (double)ns));
}

static const char *count(Arena *arena, double value) {
  char buffer[32];
  return arena_strdup(arena, text_count(buffer, value));
}

/* --- head ---------------------------------------------------------------------------------------------- */

/* With one micro-batch a step there is nothing to say. */
static void print_cadence(const Plan *plan, const char *what, StreamId stream, FILE *out) {
  const char *cadence = plan_cadence(plan, stream);
  if (plan->world.accumulation > 1 && cadence) fprintf(out, ", %s %s", what, cadence);
}

static void print_head(Arena *arena, const Plan *plan, FILE *out) {
  const PlanWorld *world = &plan->world;
  uint64_t frozen = plan_frozen_numel(plan);
  fprintf(out, "Model %s: %s parameters%s%s\n", plan_str(plan, plan->model), count(arena, (double)plan->param_numel),
          frozen ? arena_printf(arena, ", %s of them frozen", count(arena, (double)frozen)) : "",
          plan->layers ? arena_printf(arena, ", %u layer%s", plan->layers, text_plural(plan->layers)) : "");
  const char *cluster = plan_str(plan, plan->cluster);
  fprintf(out, "World: %u rank%s, sharded over %u, %u replica%s, %u rank%s a node%s%s\n", world->ranks, text_plural(world->ranks),
          world->shard, world->replicas, text_plural(world->replicas), world->ranks_per_node, text_plural(world->ranks_per_node),
          *cluster ? ", on " : "", cluster);
  fprintf(out, "Batch: %llu sample%s a step = micro-batch %llu x %llu accumulated x %u rank%s\n",
          (unsigned long long)(world->micro_batch * world->accumulation * world->ranks),
          text_plural(world->micro_batch * world->accumulation * world->ranks), (unsigned long long)world->micro_batch,
          (unsigned long long)world->accumulation, world->ranks, text_plural(world->ranks));
  fprintf(out, "Chosen: strategy %s, wrap %s, checkpoint %s, prefetch %u", plan_strategy(arena, plan),
          plan_str(plan, plan->summary.wrap), plan_str(plan, plan->summary.checkpoint), plan->summary.prefetch);
  print_cadence(plan, "gather", STREAM_GATHER, out);
  print_cadence(plan, "reduce", STREAM_REDUCE, out);
  fputs("\n\n", out);
}

/* --- units --------------------------------------------------------------------------------------------- */

/* Units of one row differ in nothing but their name and gather time, which is shown for all together. */
typedef struct UnitTable {
  Arena *arena;
  const Plan *plan;
  const UnitFigures *figures;
} UnitTable;

static bool alike(const void *context, uint32_t a, uint32_t b) {
  const UnitTable *t = context;
  return units_alike(t->plan, (int32_t)a, (int32_t)b) && t->figures[a].gather_bytes == t->figures[b].gather_bytes;
}

static DType unit_dtype(const Plan *plan, const PlanUnit *unit) { return plan->bufs.data[unit->param_buf].dtype; }

/* "f32 shard", unless what is frozen is kept otherwise. */
static const char *shard_heading(Arena *arena, const Plan *plan) {
  DType dtype = unit_dtype(plan, &plan->units.data[0]);
  for (uint32_t u = 1; u < plan->units.count; u++)
    if (unit_dtype(plan, &plan->units.data[u]) != dtype) return "shard";
  return arena_printf(arena, "%s shard", dtype_name(dtype));
}

/* Every `period`-th unit from `first` on. */
static const char *row_name(const UnitTable *t, uint32_t first, Repeat repeat) {
  uint32_t last = first + (repeat.count - 1) * repeat.period;
  return range_name(t->arena, plan_str(t->plan, t->plan->units.data[first].name), plan_str(t->plan, t->plan->units.data[last].name));
}

static void print_row(const UnitTable *t, uint32_t first, Repeat repeat, int width, FILE *out) {
  const PlanUnit *unit = &t->plan->units.data[first];
  uint64_t gather_ns = 0;
  for (uint32_t k = 0; k < repeat.count; k++) gather_ns += t->figures[first + k * repeat.period].gather_ns;
  fprintf(out, "  %-*s %5u  %9s  %10s  %10s  %-7s  %s%s\n", width, row_name(t, first, repeat),
          repeat.count, count(t->arena, (double)unit->numel), bytes(t->arena, unit->shard * dtype_bytes(unit_dtype(t->plan, unit))),
          t->figures[first].gather_bytes ? bytes(t->arena, t->figures[first].gather_bytes) : "-",
          unit->reshard ? "yes" : "no", gather_ns ? duration(t->arena, gather_ns) : "-",
          plan_unit_frozen(t->plan, unit) ? "  frozen" : "");
}

static int widest_row(const UnitTable *t) {
  int width = 4;
  for (uint32_t first = 0; first < t->plan->units.count;) {
    Repeat repeat = find_repeat(first, t->plan->units.count, alike, t);
    for (uint32_t place = first; place < first + repeat.period; place++) {
      int length = (int)strlen(row_name(t, place, repeat));
      if (length > width) width = length;
    }
    first += repeat.period * repeat.count;
  }
  return width;
}

static void print_units(Arena *arena, const Plan *plan, const SimResult *sim, FILE *out) {
  UnitTable table = {arena, plan, unit_figures(arena, plan, sim)};
  int width = widest_row(&table);
  fprintf(out, "  %-*s %5s  %9s  %10s  %10s  %-7s  %s\n", width, "unit", "units", "elements",
          shard_heading(arena, plan), "gathered", "reshard", "gathering, all");
  for (uint32_t first = 0; first < plan->units.count;) {
    Repeat repeat = find_repeat(first, plan->units.count, alike, &table);
    for (uint32_t place = first; place < first + repeat.period; place++) print_row(&table, place, repeat, width, out);
    first += repeat.period * repeat.count;
  }
}

/* --- memory and time ----------------------------------------------------------------------------------- */

/* What a run on GPUs takes that no plan decides, and what CUDA and NCCL may take. */
Beside planned_beside(Arena *arena, const Planned *planned) {
  BesideArena beside = beside_arena(planned->plan);
  char parts[256];
  if (planned->plan->summary.device != PLAN_DEVICE_GPU) return (Beside){0, NULL};
  return (Beside){beside_total(&beside), arena_printf(arena, "%s; CUDA and NCCL take some %s more", beside_text(&beside, parts, sizeof parts),
                                                      bytes(arena, BESIDE_LIBRARIES_BYTES))};
}

const char *planned_warning(Arena *arena, const Planned *planned) {
  const Plan *plan = planned->plan;
  if (!planned->fits) return NULL; /* there is an error that says more */
  uint64_t all = plan->arena_bytes + planned_beside(arena, planned).bytes + BESIDE_LIBRARIES_BYTES, device = plan->summary.device_bytes;
  if (plan->summary.device != PLAN_DEVICE_GPU || !device || all <= device) return NULL;
  return arena_printf(arena, "arena and what is beside it are %s in all, and the device has %s: a run may be refused; plan with a smaller --memory",
                      bytes(arena, all), bytes(arena, device));
}

/* A figure and what is said of it, on as many lines as the terminal takes. */
static void print_noted(Arena *arena, const char *name, const char *figure, const char *note, FILE *out) {
  Text text = {.arena = arena};
  text_printf(&text, "  %-16s %12s   ", name, figure);
  text_wrap(&text, note, 34, cli_width(out));
  fprintf(out, "%s\n", text.data);
}

static void print_beside(Arena *arena, const Planned *planned, FILE *out) {
  Beside beside = planned_beside(arena, planned);
  const char *warning = planned_warning(arena, planned);
  print_noted(arena, "beside the arena", bytes(arena, beside.bytes), beside.parts, out);
  if (warning) fprintf(out, "  warning: %s\n", warning);
}

static void print_memory(Arena *arena, const Planned *planned, const PlanFigures *figures, FILE *out) {
  const Plan *plan = planned->plan;
  fprintf(out, "\nMemory of one rank at the peak (%s):\n", figures->peak_at);
  for (int class = 0; class < BUF_CLASS_COUNT; class ++)
    if (figures->by_class[class])
      fprintf(out, "  %-16s %12s\n", buf_class_name((BufClass) class),
              bytes(arena, figures->by_class[class]));
  fprintf(out, "  %-16s %12s   (%s persistent)\n", "live", bytes(arena, plan->max_live_bytes),
          bytes(arena, plan->persistent_bytes));
  fprintf(out, "  %-16s %12s   of a budget of %s\n", "arena", bytes(arena, plan->arena_bytes),
          bytes(arena, plan->summary.budget_bytes));
  if (plan->summary.device == PLAN_DEVICE_GPU) print_beside(arena, planned, out);
  if (plan->host_bytes) print_noted(arena, "host memory", bytes(arena, plan->host_bytes), plan_host_text(arena, plan), out);
}

/* A gap of this much may be one between choices. */
static const double WORTH_EXPLAINING = 0.01;

static void print_time(Arena *arena, const Planned *planned, const PlanFigures *figures, FILE *out) {
  const PlanSummary *summary = &planned->plan->summary;
  fprintf(out, "\nTime of one step:\n  %-16s %12s   %s, MFU %.1f %%\n", "predicted",
          duration(arena, planned->sim.step_ns), rank_speed(arena, figures->tokens_per_s_per_rank),
          100 * figures->mfu);
  if (planned->plan->overlap.compute_spread > 0 || planned->plan->overlap.comm_spread > 0)
    print_noted(arena, "between", duration(arena, planned->sim.fast_ns),
                arena_printf(arena, "to %s, when each duration is off by as much as the cluster file admits", duration(arena, planned->sim.slow_ns)), out);
  if (summary->lower_bound_ns)
    fprintf(out, "  %-16s %12s   gap %.1f %%, bound by %s\n", "lower bound",
            duration(arena, summary->lower_bound_ns), 100 * (figures->gap > 0 ? figures->gap : 0),
            plan_str(planned->plan, summary->bound_by));
  if (planned->bound_of && figures->gap >= WORTH_EXPLAINING)
    print_noted(arena, "as chosen", duration(arena, planned->own_bound_ns),
                arena_printf(arena, "gap %.1f %%; the lower bound is that of another choice, which may not reach it: %s", 100 * ((double)planned->sim.step_ns / (double)planned->own_bound_ns - 1), planned->bound_of), out);
  fprintf(out, "  %-16s %12s   communication that compute waits for\n", "exposed",
          duration(arena, planned->sim.exposed_comm_ns));
  if (figures->recompute_ns)
    fprintf(out, "  %-16s %12s   activations computed again\n", "recompute",
            duration(arena, figures->recompute_ns));
}

/* "61.2/80.0 GiB": both in the unit of the larger; "79.7 MiB/4.00 GiB" where that would show nothing of the smaller. */
static const char *share(Arena *arena, uint64_t part, uint64_t whole) {
  static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double scale = 1;
  int unit = 0;
  uint64_t larger = part > whole ? part : whole, smaller = part > whole ? whole : part;
  while (unit < 4 && (double)larger / scale >= 1024) scale *= 1024, unit++;
  char one[32], other[32];
  if ((double)smaller / scale < 1) return arena_printf(arena, "%s/%s", text_bytes(one, part), text_bytes(other, whole));
  return arena_printf(arena, "%.1f/%.1f %s", (double)part / scale, (double)whole / scale, names[unit]);
}

void report_line(const Cli *cli, const Planned *planned, FILE *out) {
  const Plan *plan = planned->plan;
  PlanFigures figures;
  plan_figures(cli->arena, plan, &planned->sim, &figures);
  fprintf(out, "Plan: %u unit%s, peak %s (%s), %s/step predicted, %s\n", plan->units.count, text_plural(plan->units.count),
          share(cli->arena, plan->arena_bytes, plan->summary.budget_bytes), figures.peak_at,
          duration(cli->arena, planned->sim.step_ns), planned->fits ? "fits" : "does not fit");
}

void report_print(const Cli *cli, const Planned *planned, FILE *out) {
  const Plan *plan = planned->plan;
  PlanFigures figures;
  plan_figures(cli->arena, plan, &planned->sim, &figures);
  print_head(cli->arena, plan, out);
  print_units(cli->arena, plan, &planned->sim, out);
  print_memory(cli->arena, planned, &figures, out);
  print_time(cli->arena, planned, &figures, out);
  fprintf(out, "\n");
  report_line(cli, planned, out);
}

void report_relaxations(const Relaxations *relaxations, FILE *out) {
  for (uint32_t i = 0; i < relaxations->count; i++) {
    const Relaxation *relaxation = &relaxations->data[i];
    fprintf(out, "%s%s\n", !relaxation->fits ? "note: not enough: " : i == 0 ? "help: cheapest way out: " : "help: or: ", relaxation->text);
  }
}

static void report_host_lack(const Planned *planned, FILE *out) {
  const uint64_t need = planned->plan->host_bytes, lack = planned->infeasible->lacks_host_bytes;
  char needed[32], there[32];
  fprintf(out, "fsdpc: error: what is offloaded takes %s of a rank's host memory, and the cluster states %s\n", text_bytes(needed, need),
          text_bytes(there, need - lack));
}

void report_infeasible(const Planned *planned, FILE *out) {
  const Infeasible *why = planned->infeasible;
  char buffer[32];
  if (why->lacks_host_bytes) {
    report_host_lack(planned, out);
    report_relaxations(&why->relaxations, out);
    fprintf(out, "help: offload less, spread it over more ranks, or state more host_memory if the machine has it\n");
    return;
  }
  fprintf(out, "fsdpc: error: no plan found within the budget of %s\n",
          text_bytes(buffer, planned->plan->summary.budget_bytes));
  fprintf(out, "note: the smallest peak found is %s, at %s; largest buffers there:\n",
          text_bytes(buffer, why->smallest_peak_bytes), why->peak_at);
  for (uint32_t i = 0; i < why->largest.count; i++)
    fprintf(out, "  %12s  %-16s %s\n", text_bytes(buffer, why->largest.data[i].bytes),
            why->largest.data[i].class, why->largest.data[i].name);
  report_relaxations(&why->relaxations, out);
}
