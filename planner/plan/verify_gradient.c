/* Owns: rule gradient. Follows each unit's gradient from the instructions that contribute to it, through the
 * collectives, to the update:
 *
 *   contributions -> LOCAL --reduce_scatter--> SHARDED --allreduce--> GLOBAL --adamw, lion, sgd, adafactor--> updated
 *
 * With one rank a shard LOCAL is SHARDED already, with one replica SHARDED is GLOBAL. Whatever was
 * contributed is taken exactly once: not dropped, not overwritten, not taken twice, not added to after it was
 * taken. A segment that repeats is followed twice, which shows what a second micro-batch does to the first
 * one's gradient. A gradient that is offloaded moves between its host buffer and images of it: an image may be dropped where it
 * is as it was fetched. */
#include "planner/plan/check.h"

typedef enum { LEVEL_EMPTY, LEVEL_LOCAL, LEVEL_SHARDED, LEVEL_GLOBAL } Level;

typedef struct Gradient {
  Level level;
  bool tracked, taken, updated;
  bool image; /* as its host buffer holds it */
  Coverage parts; /* contributed directly */
} Gradient;

typedef struct Flow {
  Check *check;
  CoveragePool pool;
  Gradient *bufs;
  uint32_t *updates, *norms; /* by unit, in one step */
  bool *blamed;              /* by instruction: said once */
  int32_t instr;
} Flow;

static void blame(Flow *flow, int32_t buf, const char *what) {
  if (flow->blamed[flow->instr]) return;
  flow->blamed[flow->instr] = true;
  violate(flow->check, VERIFY_GRADIENT, flow->instr, buf, "%s: b%d \"%s\"", what, buf,
          check_buf_name(flow->check, buf));
}

static Level effective(const Flow *flow, Level level) {
  if (level == LEVEL_LOCAL && flow->check->plan->world.shard == 1) level = LEVEL_SHARDED;
  if (level == LEVEL_SHARDED && flow->check->plan->world.replicas == 1) level = LEVEL_GLOBAL;
  return level;
}

static void empty(Flow *flow, Gradient *gradient) {
  coverage_drop(&flow->pool, &gradient->parts);
  gradient->level = LEVEL_EMPTY;
  gradient->taken = false;
}

/* --- what instructions do to a gradient -------------------------------------------------------------- */

static void contribute(Flow *flow, int32_t buf, Region region, bool add) {
  Gradient *gradient = &flow->bufs[buf];
  if (gradient->taken || gradient->updated)
    blame(flow, buf, "adds to a gradient after it was reduced");
  else if (gradient->level > LEVEL_LOCAL)
    blame(flow, buf, "adds an unreduced gradient to a reduced one");
  else if (!add && coverage_touches(&flow->pool, &gradient->parts, region))
    blame(flow, buf, "overwrites an earlier contribution");
  gradient->level = LEVEL_LOCAL;
  gradient->image = false;
  coverage_add(&flow->pool, &gradient->parts, region);
}

static void take(Flow *flow, int32_t buf, bool right_level) {
  Gradient *gradient = &flow->bufs[buf];
  if (!gradient->tracked)
    blame(flow, buf, "reduces what is no gradient of a unit");
  else if (gradient->level == LEVEL_EMPTY)
    blame(flow, buf, "reduces a gradient that nothing contributed to");
  else if (gradient->taken)
    blame(flow, buf, "reduces a gradient a second time");
  else if (!right_level)
    blame(flow, buf, "reduces a gradient that is already reduced, or not yet over the shard group");
  gradient->taken = true;
}

static void deliver(Flow *flow, int32_t buf, Level level, bool add) {
  Gradient *gradient = &flow->bufs[buf];
  if (!gradient->tracked) blame(flow, buf, "reduces into what is no gradient of a unit");
  if (gradient->updated)
    blame(flow, buf, "reduces a gradient after the update");
  else if (gradient->level == LEVEL_EMPTY || (gradient->taken && !add))
    empty(flow, gradient);
  else if (!add)
    blame(flow, buf, "overwrites the gradient of earlier micro-batches");
  else if (gradient->taken || effective(flow, gradient->level) != effective(flow, level))
    blame(flow, buf, "adds gradients that are not reduced alike");
  gradient->level = level;
  gradient->image = false;
}

static void collective(Flow *flow, const PlanInstr *instr, bool scatter) {
  const PlanOperand *from = plan_operand(flow->check->plan, instr, 0),
                    *to = plan_operand(flow->check->plan, instr, 1);
  Level level = flow->bufs[from->buf].level;
  bool right = scatter
                   ? level == LEVEL_LOCAL
                   : level == LEVEL_SHARDED || (level == LEVEL_LOCAL && flow->check->plan->world.shard == 1);
  take(flow, from->buf, right);
  deliver(flow, to->buf, scatter ? LEVEL_SHARDED : LEVEL_GLOBAL, to->add);
}

static void zero(Flow *flow, int32_t buf) {
  Gradient *gradient = &flow->bufs[buf];
  if (gradient->level != LEVEL_EMPTY && !gradient->taken && !gradient->updated)
    blame(flow, buf, "clears a gradient that was not reduced");
  empty(flow, gradient);
}

/* Looks at what must be the sum over all ranks. */
static void look(Flow *flow, int32_t buf) {
  const Gradient *gradient = &flow->bufs[buf];
  if (!gradient->tracked)
    blame(flow, buf, "uses what is no gradient of a unit");
  else if (gradient->level == LEVEL_EMPTY)
    blame(flow, buf, "uses a gradient that nothing contributed to");
  else if (gradient->taken || effective(flow, gradient->level) != LEVEL_GLOBAL)
    blame(flow, buf, "uses a gradient that is not the sum over all ranks");
}

/* Updates and sum_squares, once a step each. */
static void consume(Flow *flow, const PlanInstr *instr, bool update) {
  int32_t buf = plan_operand(flow->check->plan, instr, 0)->buf;
  Gradient *gradient = &flow->bufs[buf];
  int64_t unit = plan_int(flow->check->plan, instr, check_find_int(&flow->check->specs[instr->op], "unit"));
  ++(update ? flow->updates : flow->norms)[unit];
  look(flow, buf);
  if (update && gradient->updated) blame(flow, buf, "updates a second time");
  if (update) gradient->updated = true;
  int32_t host = flow->check->image[buf];
  if (update && host != PLAN_NONE) flow->bufs[host].updated = true;
}

/* A copy from one gradient buffer to another moves what it holds. */
static void copy(Flow *flow, const PlanInstr *instr) {
  const PlanOperand *from = plan_operand(flow->check->plan, instr, 0),
                    *to = plan_operand(flow->check->plan, instr, 1);
  Level level = flow->bufs[from->buf].level;
  flow->bufs[from->buf].taken = true;
  if (level <= LEVEL_LOCAL)
    contribute(flow, to->buf, operand_region(flow->check, instr, 1), to->add);
  else
    deliver(flow, to->buf, level, to->add);
}

/* Between a gradient's host buffer and its image. What lies in another image is no longer of interest. */
static void transfer(Flow *flow, const PlanInstr *instr) {
  int32_t from = plan_operand(flow->check->plan, instr, 0)->buf, to = plan_operand(flow->check->plan, instr, 1)->buf;
  Gradient *source = &flow->bufs[from], *target = &flow->bufs[to];
  if (!source->tracked || !target->tracked) return;
  if (instr->op == INSTR_FETCH && target->level != LEVEL_EMPTY && !target->image && !target->taken)
    blame(flow, to, "fetches over a gradient that was not reduced");
  empty(flow, target);
  target->level = source->level;
  target->taken = source->taken;
  target->updated = source->updated;
  target->parts = source->parts;
  source->parts = (Coverage){0};
  *(instr->op == INSTR_FETCH ? &target->image : &source->image) = true;
}

static void compute(Flow *flow, const PlanInstr *instr) {
  const InstrSpec *spec = &flow->check->specs[instr->op];
  for (int k = 0; k < spec->operand_count; k++) {
    const PlanOperand *operand = plan_operand(flow->check->plan, instr, k);
    if (operand->buf == PLAN_NONE || spec->operands[k].mode == MODE_READ || !flow->bufs[operand->buf].tracked)
      continue;
    contribute(flow, operand->buf, operand_region(flow->check, instr, k),
               !operand_overwrites(&spec->operands[k], operand));
  }
}

static bool is_gradient(const Flow *flow, const PlanInstr *instr, int k) {
  return flow->bufs[plan_operand(flow->check->plan, instr, k)->buf].tracked;
}

static void follow(Flow *flow, int32_t i) {
  const PlanInstr *instr = &flow->check->plan->instrs.data[i];
  flow->instr = i;
  switch (instr->op) {
  case INSTR_ZERO:
    if (is_gradient(flow, instr, 0)) zero(flow, plan_operand(flow->check->plan, instr, 0)->buf);
    break;
  case INSTR_REDUCE_SCATTER:
    collective(flow, instr, true);
    break;
  case INSTR_ALLREDUCE:
    collective(flow, instr, false);
    break;
  case INSTR_SUM_SQUARES:
    consume(flow, instr, false);
    break;
  case INSTR_ADAMW:
  case INSTR_LION:
  case INSTR_SGD:
  case INSTR_ADAFACTOR:
    consume(flow, instr, true);
    break;
  case INSTR_ADAFACTOR_SUMS:
  case INSTR_ADAFACTOR_MOMENTS:
    look(flow, plan_operand(flow->check->plan, instr, 0)->buf);
    break;
  case INSTR_FETCH:
  case INSTR_STORE:
    transfer(flow, instr);
    break;
  case INSTR_COPY:
    if (is_gradient(flow, instr, 0) && is_gradient(flow, instr, 1))
      copy(flow, instr);
    else
      compute(flow, instr);
    break;
  default:
    compute(flow, instr);
  }
}

/* --- a pass and a step ------------------------------------------------------------------------------- */

/* Nothing may be left behind in a buffer that ends here. */
static void end_pass(Flow *flow, const PlanSegment *segment) {
  for (int32_t b = 0; b < (int32_t)flow->check->plan->bufs.count; b++) {
    Gradient *gradient = &flow->bufs[b];
    const PlanBuf *buf = check_buf(flow->check, b);
    if (!gradient->tracked || gradient->level == LEVEL_EMPTY) continue;
    if (!buf->persistent && !gradient->taken && !gradient->updated && !gradient->image && !flow->blamed[buf->last] &&
        segment->end > buf->last) {
      flow->instr = buf->last;
      blame(flow, b, "the gradient is never reduced");
    }
    if (!buf->persistent || gradient->taken) empty(flow, gradient);
  }
}

static void check_step(Flow *flow) {
  Check *check = flow->check;
  bool clipped = false;
  for (uint32_t i = 0; i < check->plan->instrs.count; i++)
    clipped |= check->plan->instrs.data[i].op == INSTR_CLIP || check->plan->instrs.data[i].op == INSTR_CLIP_SCALED;
  for (uint32_t u = 0; u < check->plan->units.count; u++) {
    const PlanUnit *unit = &check->plan->units.data[u];
    uint32_t expected = unit->grad_buf != PLAN_NONE; /* a frozen unit has none */
    if (flow->updates[u] != expected)
      violate(check, VERIFY_GRADIENT, PLAN_NONE, unit->grad_buf,
              "u%u \"%s\" is updated %u times a step instead of %u", u, plan_str(check->plan, unit->name),
              flow->updates[u], expected);
    if (clipped && flow->norms[u] != expected)
      violate(check, VERIFY_GRADIENT, PLAN_NONE, unit->grad_buf,
              "u%u \"%s\" enters the gradient norm %u times instead of %u", u,
              plan_str(check->plan, unit->name), flow->norms[u], expected);
  }
  for (int32_t b = 0; b < (int32_t)check->plan->bufs.count; b++)
    if (flow->bufs[b].level != LEVEL_EMPTY && !flow->bufs[b].updated && !flow->bufs[b].image)
      violate(check, VERIFY_GRADIENT, PLAN_NONE, b, "the gradient in b%d \"%s\" is never reduced or used", b,
              check_buf_name(check, b));
}

static const PlanInstr *find_op(const Plan *plan, InstrOp op) {
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].op == op) return &plan->instrs.data[i];
  return NULL;
}

/* Index of the operand that a loss divides by, or -1 of another instruction. */
static int count_operand(const Check *check, const PlanInstr *instr) {
  for (int k = 0; instr_is_loss(instr->op) && k < check->specs[instr->op].operand_count; k++)
    if (!strcmp(check->specs[instr->op].operands[k].name, "count")) return k;
  return -1;
}

/* Gradients are multiplied by the loss scale where the loss is taken, and divided by the same where they are clipped. */
static void check_scaling(Check *check) {
  const Plan *plan = check->plan;
  const PlanInstr *scale = find_op(plan, INSTR_SCALE_COUNT), *clip = find_op(plan, INSTR_CLIP_SCALED);
  if (scale == NULL && clip == NULL) return;
  if (scale == NULL || clip == NULL || plan_operand(plan, scale, 1)->buf != plan_operand(plan, clip, 1)->buf) {
    violate(check, VERIFY_GRADIENT, PLAN_NONE, PLAN_NONE, "gradients are not divided by what the loss is multiplied by");
    return;
  }
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    int k = count_operand(check, &plan->instrs.data[i]);
    if (k >= 0 && plan_operand(plan, &plan->instrs.data[i], k)->buf != plan_operand(plan, scale, 2)->buf)
      violate(check, VERIFY_GRADIENT, i, PLAN_NONE, "gradients are divided by the loss scale, but this loss is not scaled");
  }
}

void check_gradients(Check *check) {
  const Plan *plan = check->plan;
  if (!plan->training) return;
  Arena *scratch = arena_new();
  Flow flow = {.check = check,
               .pool = {.intervals = {.arena = scratch}},
               .bufs = ARENA_ARRAY(scratch, Gradient, plan->bufs.count),
               .updates = ARENA_ARRAY(scratch, uint32_t, plan->units.count),
               .norms = ARENA_ARRAY(scratch, uint32_t, plan->units.count),
               .blamed = ARENA_ARRAY(scratch, bool, plan->instrs.count)};
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    flow.bufs[b].tracked = (buf->class == BUF_GRAD || buf->class == BUF_GRADFULL) && buf->unit != PLAN_NONE;
  }
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (uint64_t pass = 0; pass < segment->count && pass < 2; pass++) {
      for (int32_t i = segment->first; i < segment->end; i++) follow(&flow, i);
      end_pass(&flow, segment);
    }
  }
  check_step(&flow);
  check_scaling(check);
  arena_free(scratch);
}
