/* Owns: see reasons.h. */
#include "planner/view/reasons.h"

static const char *size(const Facts *f, uint64_t bytes) {
  char buffer[32];
  return arena_strdup(f->arena, text_bytes(buffer, bytes));
}

static const char *time(const Facts *f, uint64_t ns) {
  char buffer[32];
  return arena_strdup(f->arena, text_time(buffer, (double)ns));
}

/* How units are gathered in a step. */
typedef struct Gathering {
  uint32_t kept, once, again;  /* units: until backward or longer, for forward alone, for both */
  uint64_t ns, again_ns, released_bytes; /* of all gathers, and of those for backward; what is not there between them */
} Gathering;

static Gathering gathering_of(const Facts *f) {
  Gathering g = {0};
  for (uint32_t u = 0; u < f->plan->units.count; u++) {
    const UnitFact *unit = &f->units[u];
    ++*(unit->gathers_again ? &g.again : f->plan->units.data[u].reshard ? &g.once : &g.kept);
    g.ns += unit->gather_ns;
    g.again_ns += unit->again_ns;
    if (unit->gathers_again) g.released_bytes += unit->gather_bytes;
  }
  return g;
}

/* "12 of 14 units stay", of the first that is said; else ", 2 are". */
static void print_count(const Facts *f, Text *out, uint32_t count, const char *one, const char *many, const char *what) {
  const uint32_t units = f->plan->units.count;
  if (!count) return;
  if (out->length) text_printf(out, ", %u ", count);
  else if (count < units) text_printf(out, "%u of %u units ", count, units);
  else if (units == 1) text_printf(out, "The one unit ");
  else if (units == 2) text_printf(out, "Both units ");
  else text_printf(out, "All %u units ", units);
  text_printf(out, "%s %s", count == 1 ? one : many, what);
}

static const char *sharding(const Facts *f, bool costs) {
  const Gathering g = gathering_of(f);
  Text text = {.arena = f->arena};
  if (f->plan->world.shard == 1) return "Every rank holds all parameters, so that nothing is gathered.";
  print_count(f, &text, g.kept, "stays", "stay", arena_printf(f->arena, "gathered %s", gathered_until(f->plan)));
  print_count(f, &text, g.once, "is", "are", "gathered for forward alone");
  print_count(f, &text, g.again, "is", "are", "released after forward and gathered again");
  text_printf(&text, ".");
  if (g.again) text_printf(&text, " Keeping %s would take up to %s more.", g.again == 1 ? "it" : "them", size(f, g.released_bytes));
  if (!costs) return text.data;
  const char *again = g.again ? arena_printf(f->arena, ", %s of it for backward", time(f, g.again_ns)) : "";
  text_printf(&text, " Gathers take %s a step%s; %s are exposed.", time(f, g.ns), again, time(f, f->share_ns[SHARE_GATHER]));
  return text.data;
}

static bool is_recomputation(const PlanInstr *instr) {
  return instr->stream == STREAM_COMPUTE && instr->phase == PHASE_RECOMPUTE;
}

/* Of what recomputations of one micro-batch write. */
static uint64_t recomputed_bytes(const Facts *f, uint32_t *count) {
  const PlanSegment *micro = plan_first_micro(f->plan);
  uint64_t bytes = 0;
  for (int32_t i = micro->first; i < micro->end; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    if (!is_recomputation(instr)) continue;
    ++*count;
    for (int k = 0; k < f->specs[instr->op].operand_count; k++) {
      int32_t buf = plan_operand(f->plan, instr, k)->buf;
      if (buf != PLAN_NONE && f->specs[instr->op].operands[k].mode == MODE_WRITE) bytes += f->plan->bufs.data[buf].bytes;
    }
  }
  return bytes;
}

static const char *checkpointing(const Facts *f, bool costs) {
  uint64_t by_class[BUF_CLASS_COUNT];
  uint32_t count = 0;
  int32_t at;
  uint64_t bytes = recomputed_bytes(f, &count);
  plan_peak(f->plan, by_class, &at);
  if (!count)
    return arena_printf(f->arena, "Nothing is computed twice: what backward needs is kept, %s at the peak.", size(f, by_class[BUF_ACTIVATION]));
  const char *cost = costs ? arena_printf(f->arena, ", %s a step", time(f, f->share_ns[SHARE_RECOMPUTE])) : "";
  return arena_printf(f->arena, "%u operator%s again in backward%s: keeping %s would take up to %s more.", count, count == 1 ? " runs" : "s run", cost,
                      count == 1 ? "its result" : "their results", size(f, bytes));
}

/* Time of one step on one direction of the host link. */
static uint64_t link_ns(const Facts *f, InstrOp op) {
  uint64_t ns = 0;
  for (uint32_t s = 0; s < f->plan->segments.count; s++) {
    const PlanSegment *segment = &f->plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end; i++)
      if (f->plan->instrs.data[i].op == op) ns += (f->sim->spans[i].end - f->sim->spans[i].start) * segment->count;
  }
  return ns;
}

static const char *offloading(const Facts *f, bool costs) {
  const char *what = plan_host_text(f->arena, f->plan);
  if (!costs) return arena_printf(f->arena, "Host memory holds %s.", what);
  return arena_printf(f->arena, "Host memory holds %s: %s a step of storing and %s of fetching, beside compute where they have not to be waited for.",
                      what, time(f, link_ns(f, INSTR_STORE)), time(f, link_ns(f, INSTR_FETCH)));
}

static const char *room(const Facts *f) {
  uint64_t budget = f->plan->summary.budget_bytes, arena = f->plan->arena_bytes;
  return arena_printf(f->arena, "Of the budget of %s, %s are left.", size(f, budget), size(f, budget > arena ? budget - arena : 0));
}

static const char *bound(const Facts *f) {
  const PlanSummary *s = &f->plan->summary;
  double gap = 100 * ((double)f->sim->step_ns / (double)s->lower_bound_ns - 1);
  return arena_printf(f->arena, "The step is bound by %s: no plan for this machine, with units of the sizes tried, is faster than %s under the "
                                "same cost model, and this one is %.1f %% above that.",
                      plan_str(f->plan, s->bound_by), time(f, s->lower_bound_ns), gap > 0 ? gap : 0);
}

Reasons reasons_of(const Facts *f, bool costs) {
  Reasons reasons = {0};
  vec_push(f->arena, &reasons, sharding(f, costs));
  vec_push(f->arena, &reasons, checkpointing(f, costs));
  if (f->plan->host_bytes) vec_push(f->arena, &reasons, offloading(f, costs));
  if (f->plan->summary.budget_bytes) vec_push(f->arena, &reasons, room(f));
  if (costs && f->plan->summary.lower_bound_ns) vec_push(f->arena, &reasons, bound(f));
  return reasons;
}
