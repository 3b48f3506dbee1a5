/* Owns: what a plan says about one unit, parameter, result or module: what was decided and what follows from it. */
#include "planner/view/explain.h"

static const char *ms(const Facts *f, uint64_t ns) {
  char buffer[32];
  return arena_strdup(f->arena, text_time(buffer, (double)ns));
}

static const char *size(const Facts *f, uint64_t bytes) {
  char buffer[32];
  return arena_strdup(f->arena, text_bytes(buffer, bytes));
}

/* --- names --------------------------------------------------------------------------------------------- */

static bool writes(OperandMode mode) {
  return mode == MODE_WRITE || mode == MODE_ADD || mode == MODE_UPDATE;
}

/* The first instruction of backward on the compute stream: what lives across it is saved. */
static int32_t turn_of(const Plan *plan, const PlanSegment *micro) {
  for (int32_t i = micro->first; i < micro->end; i++)
    if (plan->instrs.data[i].stream == STREAM_COMPUTE && plan->instrs.data[i].phase == PHASE_BACKWARD) return i;
  return INT32_MAX;
}

/* Results of one micro-batch: the others hold the same at other times. */
typedef struct Results {
  const Facts *f;
  const PlanSegment *micro;
  int32_t turn;
  const bool *stored; /* by buffer: host memory takes it in forward */
} Results;

static Results results_of(const Facts *f) {
  const Plan *plan = f->plan;
  const PlanSegment *micro = plan_first_micro(plan);
  bool *stored = ARENA_ARRAY(f->arena, bool, plan->bufs.count);
  for (int32_t i = micro->first; i < micro->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->op == INSTR_STORE && instr->phase == PHASE_FORWARD) stored[plan_operand(plan, instr, 0)->buf] = true;
  }
  return (Results){f, micro, turn_of(plan, micro), stored};
}

static void note_result(const Results *all, Subject *s, const PlanInstr *instr) {
  const Plan *plan = all->f->plan;
  const InstrSpec *spec = &all->f->specs[instr->op];
  if (instr->phase == PHASE_RECOMPUTE) s->recomputed = true;
  for (int k = 0; k < spec->operand_count; k++) {
    int32_t buf = plan_operand(plan, instr, k)->buf;
    if (buf == PLAN_NONE || !writes(spec->operands[k].mode)) continue;
    const PlanBuf *b = &plan->bufs.data[buf];
    if (b->class != BUF_ACTIVATION) continue;
    if (instr->phase != PHASE_FORWARD) continue;
    s->bytes += b->bytes;
    if (b->last > all->turn) s->saved = true;
    if (all->stored[buf]) s->away = true;
  }
}

static bool computes_result(const PlanInstr *instr) {
  return instr->stream == STREAM_COMPUTE && (instr->phase == PHASE_FORWARD || instr->phase == PHASE_RECOMPUTE);
}

static bool find_tensor(const Facts *f, const char *name, Subject *s) {
  const Results all = results_of(f);
  bool forward = false;
  for (int32_t i = all.micro->first; i < all.micro->end; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    if (instr->stream != STREAM_COMPUTE || strcmp(plan_str(f->plan, instr->name), name)) continue;
    if (!s->tensor || computes_result(instr)) s->unit = f->unit_of[i];
    s->tensor = plan_str(f->plan, instr->name);
    forward |= computes_result(instr);
    if (computes_result(instr)) note_result(&all, s, instr);
  }
  s->backward_only = s->tensor && !forward;
  return s->tensor != NULL;
}

static bool inside(const char *module, const char *name) {
  size_t length = strlen(module);
  return !strncmp(name, module, length) && name[length] == '.';
}

/* A layer has its parameters' names before the last dot, so that this comes after layers. */
static bool find_module(const Facts *f, const char *name, Subject *s) {
  const Plan *plan = f->plan;
  const Results all = results_of(f);
  for (int32_t p = (int32_t)plan->params.count - 1; p >= 0; p--) {
    if (!inside(name, plan_str(plan, plan->params.data[p].name))) continue;
    if (!s->own_params++) s->end_param = p + 1;
    s->first_param = p;
    s->module = name;
  }
  for (int32_t i = all.micro->first; i < all.micro->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (!computes_result(instr) || !inside(name, plan_str(plan, instr->name))) continue;
    s->module = name;
    note_result(&all, s, instr);
  }
  return s->module != NULL;
}

typedef VEC(const char *) Names;

/* A name, and those of the modules that it lies in. */
static void add_with_modules(const Facts *f, Names *names, const char *name) {
  vec_push(f->arena, names, name);
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
    vec_push(f->arena, names, arena_strndup(f->arena, name, (size_t)(dot - name)));
}

static const char *nearest(const Facts *f, const char *name) {
  const Plan *plan = f->plan;
  Names names = {0};
  for (uint32_t u = 0; u < plan->units.count; u++) vec_push(f->arena, &names, plan_str(plan, plan->units.data[u].name));
  for (uint32_t p = 0; p < plan->params.count; p++) add_with_modules(f, &names, plan_str(plan, plan->params.data[p].name));
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].phase == PHASE_FORWARD && plan->instrs.data[i].stream == STREAM_COMPUTE)
      vec_push(f->arena, &names, plan_str(plan, plan->instrs.data[i].name));
  return text_nearest(name, names.data, names.count);
}

bool view_subject(Facts *f, const char *name, Subject *s, const char **meant) {
  const Plan *plan = f->plan;
  *s = (Subject){.unit = PLAN_NONE, .param = PLAN_NONE};
  for (uint32_t u = 0; u < plan->units.count; u++)
    if (!strcmp(plan_str(plan, plan->units.data[u].name), name)) return s->unit = (int32_t)u, true;
  if (find_tensor(f, name, s)) return true;
  for (uint32_t p = 0; p < plan->params.count; p++)
    if (!strcmp(plan_str(plan, plan->params.data[p].name), name)) {
      s->param = (int32_t)p;
      s->unit = plan->params.data[p].unit;
      return true;
    }
  if (find_module(f, name, s)) return true;
  *meant = nearest(f, name);
  return false;
}

/* --- a unit -------------------------------------------------------------------------------------------- */

/* One line a collective of the first repetition: when it runs and what waits for it. */
static void list_collectives(Text *out, const Facts *f, int32_t unit, bool costs) {
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    if (f->unit_of[i] != unit || instr->stream == STREAM_COMPUTE || instr->stream >= STREAM_COPY_IN) continue;
    const PlanSegment *segment = &f->plan->segments.data[f->segment_of[i]];
    text_printf(out, "  i%-6u %-14s %-8s in %s", i, f->specs[instr->op].name, phase_name(instr->phase),
                plan_str(f->plan, segment->name));
    if (segment->count > 1) text_printf(out, " x%llu", (unsigned long long)segment->count);
    if (costs) {
      text_printf(out, "  at %s, takes %s", ms(f, f->sim->spans[i].start - f->segment_begin[f->segment_of[i]]),
                  ms(f, f->sim->spans[i].end - f->sim->spans[i].start));
      if (f->exposed_ns[i]) text_printf(out, ", compute waits %s", ms(f, f->exposed_ns[i]));
    }
    text_printf(out, "\n");
  }
}

static void why_unit(Text *out, const Facts *f, int32_t u, bool costs) {
  const Plan *plan = f->plan;
  const PlanUnit *unit = &plan->units.data[u];
  const UnitFact *fact = &f->units[u];
  const char *name = plan_str(plan, unit->name);
  text_printf(out, "unit %s: %d tensor%s, %llu elements, padded to %llu; %llu a rank\n", name, unit->param_count, text_plural((uint64_t)unit->param_count),
              (unsigned long long)unit->numel, (unsigned long long)(unit->shard * plan->world.shard),
              (unsigned long long)unit->shard);
  text_printf(out, "  wrap %s put these together:", plan_str(plan, plan->summary.wrap));
  for (int32_t p = 0; p < unit->param_count && p < 6; p++)
    text_printf(out, "%s %s", p ? "," : "", plan_str(plan, plan->params.data[unit->first_param + p].name));
  text_printf(out, unit->param_count > 6 ? ", and %d more\n" : "\n", unit->param_count - 6);
  if (plan_unit_frozen(plan, unit)) text_printf(out, "  frozen: no gradient, no moments, no reduction, no update\n");
  if (plan->world.shard == 1) {
    text_printf(out, "  whole on every rank: nothing to gather\n");
  } else {
    const char *policy = fact->gathers_again ? "released after forward and gathered again"
                         : unit->reshard     ? "gathered for forward alone: backward needs none of it"
                                             : arena_printf(f->arena, "kept gathered %s", gathered_until(plan));
    text_printf(out, "  %s: %s while gathered\n", policy, size(f, fact->gather_bytes));
  }
  list_collectives(out, f, u, costs);
  if (!costs) return;
  text_printf(out, "  in a step: compute %s, recompute %s, gathers %s, reductions %s, of these exposed %s\n",
              ms(f, fact->compute_ns), ms(f, fact->recompute_ns), ms(f, fact->gather_ns),
              ms(f, fact->reduce_ns + fact->replicate_ns), ms(f, fact->exposed_ns));
}

/* --- a result ------------------------------------------------------------------------------------------ */

static bool is_about(const Facts *f, const Subject *s, const PlanInstr *instr) {
  const char *name = plan_str(f->plan, instr->name);
  return s->tensor ? !strcmp(name, s->tensor) : inside(s->module, name);
}

static uint64_t ns_of(const Facts *f, const Subject *s, Phase phase) {
  uint64_t ns = 0;
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    if (instr->phase == phase && instr->stream == STREAM_COMPUTE && is_about(f, s, instr))
      ns += (f->sim->spans[i].end - f->sim->spans[i].start) * f->plan->segments.data[f->segment_of[i]].count;
  }
  return ns;
}

static void print_times(Text *out, const Facts *f, const Subject *s) {
  text_printf(out, "  in a step: forward %s", ms(f, ns_of(f, s, PHASE_FORWARD)));
  if (s->recomputed) text_printf(out, ", again %s", ms(f, ns_of(f, s, PHASE_RECOMPUTE)));
  text_printf(out, ", backward %s\n", ms(f, ns_of(f, s, PHASE_BACKWARD)));
}

static void why_tensor(Text *out, const Facts *f, const Subject *s, bool costs) {
  const char *unit = s->unit == PLAN_NONE ? "(none)" : plan_str(f->plan, f->plan->units.data[s->unit].name);
  if (s->backward_only) {
    text_printf(out, "%s: computed with its gradient as backward begins, in unit %s\n", s->tensor, unit);
    if (costs) print_times(out, f, s);
    return;
  }
  text_printf(out, "%s: %s of results, in unit %s\n", s->tensor, size(f, s->bytes), unit);
  text_printf(out, "  checkpoint %s: ", plan_str(f->plan, f->plan->summary.checkpoint));
  if (s->recomputed)
    text_printf(out, "released after use in forward and computed again in backward");
  else if (s->away)
    text_printf(out, "kept in host memory from forward to backward");
  else if (s->saved)
    text_printf(out, "kept from forward to backward");
  else
    text_printf(out, "not needed by backward, released after its last use");
  text_printf(out, "\n");
  if (costs) print_times(out, f, s);
}

/* --- a module ------------------------------------------------------------------------------------------ */

/* "h.3", "wpe+23 (9 tensors), h.3.mlp.c_proj+20 (3 tensors)", the first few of many */
static void list_units(Text *out, const Facts *f, const Subject *s) {
  enum { LISTED = 6 };
  const Plan *plan = f->plan;
  uint32_t count = 0;
  for (uint32_t u = 0; u < plan->units.count; u++) {
    const PlanUnit *unit = &plan->units.data[u];
    uint32_t held = 0;
    for (int32_t p = unit->first_param; p < unit->first_param + unit->param_count; p++)
      held += inside(s->module, plan_str(plan, plan->params.data[p].name));
    if (!held || ++count > LISTED) continue;
    text_printf(out, "%s%s", count > 1 ? ", " : "", plan_str(plan, unit->name));
    if (held < (uint32_t)s->own_params) text_printf(out, " (%u tensor%s)", held, text_plural(held));
  }
  if (count > LISTED) text_printf(out, " and %u more units", count - LISTED);
}

static uint64_t own_numel(const Facts *f, const Subject *s) {
  uint64_t numel = 0;
  for (int32_t p = s->first_param; p < s->end_param; p++)
    if (inside(s->module, plan_str(f->plan, f->plan->params.data[p].name))) numel += tensor_numel(&f->plan->params.data[p]);
  return numel;
}

typedef enum { FATE_AGAIN, FATE_AWAY, FATE_SAVED, FATE_UNUSED, FATE_COUNT } Fate;

/* How many of the module's results became what; how many there are. */
static uint32_t count_fates(const Facts *f, const Subject *s, uint32_t fates[FATE_COUNT]) {
  const Results all = results_of(f);
  uint8_t *seen = ARENA_ARRAY(f->arena, uint8_t, f->plan->strings.count); /* by name: bits by fate, FATE_COUNT's: there is such a result */
  for (int32_t i = all.micro->first; i < all.micro->end; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    Subject one = {0};
    if (!computes_result(instr) || !inside(s->module, plan_str(f->plan, instr->name))) continue;
    note_result(&all, &one, instr);
    seen[instr->name] |= (uint8_t)(1 << FATE_COUNT | one.recomputed << FATE_AGAIN | one.away << FATE_AWAY | one.saved << FATE_SAVED);
  }
  uint32_t count = 0;
  for (uint32_t name = 0; name < f->plan->strings.count; name++) {
    Fate fate = FATE_AGAIN;
    while (fate < FATE_UNUSED && !(seen[name] & 1 << fate)) fate++;
    if (seen[name]) count++, fates[fate]++;
  }
  return count;
}

static void why_module(Text *out, const Facts *f, const Subject *s, bool costs) {
  static const char *const words[] = {[FATE_AGAIN] = "computed again in backward", [FATE_AWAY] = "kept in host memory",
                                      [FATE_SAVED] = "kept from forward to backward", [FATE_UNUSED] = "not needed by backward"};
  uint32_t fates[FATE_COUNT] = {0};
  text_printf(out, "module %s: %d tensor%s, %llu elements", s->module, s->own_params, text_plural((uint64_t)s->own_params),
              (unsigned long long)own_numel(f, s));
  if (s->own_params) text_printf(out, ", in ");
  list_units(out, f, s);
  if (!count_fates(f, s, fates)) { /* the logits of a loss in chunks */
    text_printf(out, "\n  no results of its own: the instruction of the layer that reads it computes it\n");
    return;
  }
  text_printf(out, "\n  checkpoint %s: of its results, %s a micro-batch,", plan_str(f->plan, f->plan->summary.checkpoint), size(f, s->bytes));
  const char *separator = "";
  for (int fate = 0; fate < FATE_COUNT; fate++) {
    if (!fates[fate]) continue;
    text_printf(out, "%s %u %s %s", separator, fates[fate], fates[fate] == 1 ? "is" : "are", words[fate]);
    separator = ",";
  }
  text_printf(out, "\n");
  if (costs) print_times(out, f, s);
}

void view_why(Text *out, Facts *f, const Subject *s, const ExplainStyle *style) {
  if (s->tensor || s->module) {
    (s->tensor ? why_tensor : why_module)(out, f, s, style->costs);
    return;
  }
  if (s->param != PLAN_NONE)
    text_printf(out, "%s lies at element %llu of its unit\n", plan_str(f->plan, f->plan->params.data[s->param].name),
                (unsigned long long)f->plan->params.data[s->param].offset);
  why_unit(out, f, s->unit, style->costs);
}
