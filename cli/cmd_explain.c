/* Owns: `fsdpc explain`: the step as a tree: segments, phases, layers; then the units. With --no-costs the
 * text does not change when only the cost model does. */
#include "cli/cli.h"

typedef struct Explainer {
  const Planned *planned;
  Arena *arena;
  bool costs;
} Explainer;

/* Instructions [first, end) of one segment that serve one name in one phase, in a run. */
typedef struct Run {
  int32_t first, end;
} Run;

static const PlanInstr *instr_at(const Explainer *ex, int32_t i) {
  return &ex->planned->plan->instrs.data[i];
}

/* Where the run of instructions that starts at first stops being about one name in one phase. */
static Run run_from(const Explainer *ex, int32_t first, int32_t end) {
  const PlanInstr *head = instr_at(ex, first);
  int32_t last = first + 1;
  while (last < end && instr_at(ex, last)->phase == head->phase && instr_at(ex, last)->name == head->name)
    last++;
  return (Run){first, last};
}

static void print_time(const Explainer *ex, uint64_t ns) {
  char buffer[32];
  if (ex->costs) printf("  %s", text_time(buffer, (double)ns));
}

static void print_instr(const Explainer *ex, const InstrSpec *specs, int32_t i) {
  const PlanInstr *instr = instr_at(ex, i);
  printf("      %-20s on %s", specs[instr->op].name, stream_name(instr->stream));
  print_time(ex, instr->ns);
  if (ex->costs) {
    char buffer[32];
    const SimSpan *span = &ex->planned->sim.spans[i];
    printf("  at %s", text_time(buffer, (double)span->start));
  }
  printf("\n");
}

static void print_run(const Explainer *ex, const InstrSpec *specs, Run run) {
  const PlanInstr *head = instr_at(ex, run.first);
  printf("    %s\n", plan_str(ex->planned->plan, head->name));
  for (int32_t i = run.first; i < run.end; i++) print_instr(ex, specs, i);
}

static void print_segment(const Explainer *ex, const InstrSpec *specs, const PlanSegment *segment,
                          uint64_t ns) {
  printf("segment %s, %llu time%s a step", plan_str(ex->planned->plan, segment->name),
         (unsigned long long)segment->count, segment->count == 1 ? "" : "s");
  print_time(ex, ns);
  printf("\n");
  int phase = -1;
  for (int32_t i = segment->first; i < segment->end;) {
    Run run = run_from(ex, i, segment->end);
    if ((int)instr_at(ex, i)->phase != phase) printf("  %s\n", phase_name(instr_at(ex, i)->phase));
    phase = (int)instr_at(ex, i)->phase;
    print_run(ex, specs, run);
    i = run.end;
  }
}

static void print_units(const Explainer *ex) {
  const Plan *plan = ex->planned->plan;
  printf("units\n");
  for (uint32_t i = 0; i < plan->units.count; i++) {
    const PlanUnit *unit = &plan->units.data[i];
    printf("  %s: %llu elements, %s\n", plan_str(plan, unit->name), (unsigned long long)unit->numel,
           unit->reshard ? "released after forward" : "kept gathered");
    for (int32_t k = 0; k < unit->param_count; k++)
      printf("    %s\n", plan_str(plan, plan->params.data[unit->first_param + k].name));
  }
}

int cmd_explain(Cli *cli) {
  Planned planned;
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  Explainer ex = {&planned, cli->arena, !option_given(&cli->options, OPTION_NO_COSTS)};
  const InstrSpec *specs = instr_specs(cli->arena);
  print_units(&ex);
  for (uint32_t i = 0; i < planned.plan->segments.count; i++)
    print_segment(&ex, specs, &planned.plan->segments.data[i], planned.sim.segment_ns[i < 8 ? i : 7]);
  return EXIT_OK;
}
