/* Owns: figures that are sums over a plan; the text and the JSON report print the same ones. Times are as simulated, like those of
 * the views: streams beside each other are slower than an instruction alone. */
#include "cli/cli.h"

static uint64_t segment_count(const Plan *plan, int32_t instr) {
  for (uint32_t i = 0; i < plan->segments.count; i++) {
    const PlanSegment *segment = &plan->segments.data[i];
    if (instr >= segment->first && instr < segment->end) return segment->count;
  }
  return 0;
}

static uint64_t step_ns(const Plan *plan, const SimResult *sim, int32_t instr) {
  return (sim->spans[instr].end - sim->spans[instr].start) * segment_count(plan, instr);
}

static uint64_t recompute_ns(const Plan *plan, const SimResult *sim) {
  uint64_t ns = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->stream == STREAM_COMPUTE && instr->phase == PHASE_RECOMPUTE) ns += step_ns(plan, sim, (int32_t)i);
  }
  return ns;
}

static double tokens_per_step_per_rank(const Plan *plan) {
  double samples = (double)plan->world.micro_batch * (double)plan->world.accumulation;
  return plan->inputs.count ? samples * (double)plan->inputs.data[0].sample_numel : 0;
}

void plan_figures(Arena *arena, const Plan *plan, const SimResult *sim, PlanFigures *out) {
  const PlanSummary *summary = &plan->summary;
  double seconds = (double)sim->step_ns * 1e-9;
  double samples = (double)plan->world.micro_batch * (double)plan->world.accumulation;
  int32_t at = 0;
  *out = (PlanFigures){.recompute_ns = recompute_ns(plan, sim)};
  plan_peak(plan, out->by_class, &at);
  const PlanInstr *peak = &plan->instrs.data[at];
  out->peak_at = arena_printf(arena, "%s %s", plan_str(plan, peak->name), phase_name(peak->phase));
  if (seconds > 0) out->tokens_per_s_per_rank = tokens_per_step_per_rank(plan) / seconds;
  if (seconds > 0 && summary->peak_flops > 0)
    out->mfu = summary->model_flops_per_sample * samples / (seconds * summary->peak_flops);
  if (summary->lower_bound_ns) out->gap = (double)sim->step_ns / (double)summary->lower_bound_ns - 1;
}

const char *rank_speed(Arena *arena, double tokens_per_s) {
  return arena_printf(arena, "%.*f tokens/s a rank", tokens_per_s < 10 ? 2 : tokens_per_s < 100 ? 1 : 0, tokens_per_s);
}

UnitFigures *unit_figures(Arena *arena, const Plan *plan, const SimResult *sim) {
  UnitFigures *figures = ARENA_ARRAY(arena, UnitFigures, plan->units.count);
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->op != INSTR_ALLGATHER) continue;
    UnitFigures *unit = &figures[plan_int(plan, instr, 0)];
    unit->gather_bytes = plan->bufs.data[plan_operand(plan, instr, 1)->buf].bytes;
    unit->gather_ns += step_ns(plan, sim, (int32_t)i);
  }
  return figures;
}
