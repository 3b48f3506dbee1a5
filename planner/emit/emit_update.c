/* Owns: emission of the segment that ends a step: the norm of all gradients, then every unit's update. What is offloaded comes
 * to the device for it, a unit ahead of the one that is updated, and what changed goes back. */
#include "planner/emit/emitter.h"

/* --- units one after the other ---------------------------------------------------------------------------------------- */

/* A unit's state on the device: the buffers themselves, or images of what is offloaded. */
typedef struct Images {
  int32_t grad, param, m, v, cast;
} Images;

typedef struct UnitStep {
  void (*bring)(Emitter *e, int32_t u, Images *images); /* fetches what the unit needs */
  int32_t (*work)(Emitter *e, int32_t u, const Images *images); /* and stores what changed; returns what computes */
} UnitStep;

static int32_t next_unit(const Emitter *e, int32_t u) {
  do u++;
  while (u < (int32_t)e->plan->units.count && plan_unit_frozen(e->plan, &e->plan->units.data[u]));
  return u;
}

static void hold_images(Emitter *e, const Images *images, int32_t instr) {
  const int32_t bufs[] = {images->grad, images->param, images->m, images->v, images->cast};
  for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
    if (bufs[i] != PLAN_NONE && !e->plan->bufs.data[bufs[i]].persistent) emit_hold(e, bufs[i], instr);
}

/* A unit's fetches come before the work on the one before it, and its images last through the work on the next, so that both
 * directions of the host link run beside it. */
static void each_unit(Emitter *e, UnitStep step) {
  int32_t count = (int32_t)e->plan->units.count, u = next_unit(e, -1);
  const Images none = {PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE};
  Images before = none, now = none, next = none;
  if (u < count) step.bring(e, u, &now);
  for (int32_t after; u < count; u = after) {
    after = next_unit(e, u);
    if (after < count) step.bring(e, after, &next);
    int32_t instr = step.work(e, u, &now);
    hold_images(e, &before, instr);
    before = now;
    now = next;
  }
}

static void bring_gradient(Emitter *e, int32_t u, Images *images) {
  *images = (Images){emit_image(e, e->plan->units.data[u].grad_buf, PHASE_UPDATE, true), PLAN_NONE, PLAN_NONE, PLAN_NONE, PLAN_NONE};
}

static int32_t emit_squares(Emitter *e, int32_t u, const Images *images) {
  const PlanUnit *unit = &e->plan->units.data[u];
  return emit_instr(e, INSTR_SUM_SQUARES, PHASE_UPDATE, plan_str(e->plan, unit->name),
                    OPERANDS(WHOLE(images->grad), WHOLE(e->acc_buf)), INTS(u, (int64_t)unit->shard), NULL);
}

/* A skipped update leaves the copy as it was, so that it must be there. */
static void bring_state(Emitter *e, int32_t u, Images *images) {
  PlanUnit unit = e->plan->units.data[u];
  images->grad = emit_image(e, unit.grad_buf, PHASE_UPDATE, true);
  images->param = emit_image(e, unit.param_buf, PHASE_UPDATE, true);
  images->m = emit_image(e, unit.m_buf, PHASE_UPDATE, true);
  images->v = emit_image(e, unit.v_buf, PHASE_UPDATE, true);
  images->cast = emit_image(e, unit.cast_buf, PHASE_UPDATE, graph_scales_loss(e->program->graph));
}

static int32_t emit_elementwise(Emitter *e, int32_t u, const Images *images) {
  static const InstrOp ops[OPTIMIZER_COUNT] = {
      [OPTIMIZER_ADAMW] = INSTR_ADAMW, [OPTIMIZER_SGD] = INSTR_SGD, [OPTIMIZER_LION] = INSTR_LION};
  Plan *plan = e->plan;
  PlanUnit unit = plan->units.data[u];
  InstrOp op = ops[plan->recipe.optimizer];
  PlanOperand operands[6] = {WHOLE(images->grad), WHOLE(e->scale_buf), WHOLE(images->param), WHOLE(images->m)};
  int count = 4;
  if (op == INSTR_ADAMW) operands[count++] = (PlanOperand)WHOLE(images->v);
  operands[count] = (PlanOperand)WHOLE(images->cast);
  int32_t instr = emit_instr(e, op, PHASE_UPDATE, plan_str(plan, unit.name), operands, INTS((int64_t)u, (int64_t)unit.shard), NULL);
  emit_store_image(e, unit.param_buf, images->param, PHASE_UPDATE);
  emit_store_image(e, unit.m_buf, images->m, PHASE_UPDATE);
  emit_store_image(e, unit.v_buf, images->v, PHASE_UPDATE);
  emit_store_image(e, unit.cast_buf, images->cast, PHASE_UPDATE);
  return instr;
}

/* --- the segment --------------------------------------------------------------------------------------------------------- */

static void emit_norm(Emitter *e) {
  Plan *plan = e->plan;
  emit_instr(e, INSTR_ZERO, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf)), INTS(EXACT_DIGITS), NULL);
  each_unit(e, (UnitStep){bring_gradient, emit_squares});
  if (plan->world.shard > 1)
    emit_instr(e, INSTR_ALLREDUCE_EXACT, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf)), NULL, NULL);
  if (!graph_scales_loss(e->program->graph)) {
    emit_instr(e, INSTR_CLIP, PHASE_UPDATE, "norm", OPERANDS(WHOLE(e->acc_buf), WHOLE(plan->norm_buf), WHOLE(e->scale_buf)),
              NULL, &plan->recipe.clip);
    return;
  }
  const LossScaling *scaling = &e->program->graph->loss_scaling;
  const double reals[] = {plan->recipe.clip, scaling->growth, scaling->backoff, scaling->init};
  emit_instr(e, INSTR_CLIP_SCALED, PHASE_UPDATE, "norm",
            OPERANDS(WHOLE(e->acc_buf), WHOLE(e->scaler_buf), WHOLE(plan->norm_buf), WHOLE(e->scale_buf)),
            INTS((int64_t)scaling->interval), reals);
}

/* Integer sums over the shard group come between the passes; units follow each other, so that they overlap. */
static void emit_adafactor(Emitter *e) {
  Plan *plan = e->plan;
  bool sharded = plan->world.shard > 1;
  int32_t *sums = ARENA_ARRAY(e->arena, int32_t, plan->units.count), *norms = ARENA_ARRAY(e->arena, int32_t, plan->units.count);
  for (int pass = 0; pass < 3; pass++)
    for (uint32_t u = 0; u < plan->units.count; u++) {
      const PlanUnit *unit = &plan->units.data[u];
      const char *name = plan_str(plan, unit->name);
      if (plan_unit_frozen(plan, unit)) continue;
      uint64_t words = plan_factored_words(plan, unit), moments = plan_factored_numel(plan, unit);
      const int64_t ints[] = {(int64_t)u, (int64_t)unit->shard, (int64_t)words, (int64_t)moments, unit->param_count};
      if (pass == 0) {
        sums[u] = emit_buf(e, emit_unit_text(e, u, "sums"), BUF_WORKSPACE, DTYPE_I64, words, (int32_t)u, false);
        emit_instr(e, INSTR_ADAFACTOR_SUMS, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(unit->param_buf), WHOLE(e->acc_buf), WHOLE(sums[u])), ints, NULL);
        if (sharded)
          emit_instr(e, INSTR_ALLREDUCE_INT, PHASE_UPDATE, name, OPERANDS(WHOLE(sums[u])), INTS((int64_t)words), NULL);
      } else if (pass == 1) {
        uint64_t digits = words - moments;
        norms[u] = emit_buf(e, emit_unit_text(e, u, "norms"), BUF_WORKSPACE, DTYPE_I64, digits, (int32_t)u, false);
        emit_instr(e, INSTR_ADAFACTOR_MOMENTS, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(e->acc_buf), WHOLE(e->scale_buf), WHOLE(sums[u]), WHOLE(unit->v_buf),
                           WHOLE(norms[u])),
                  ints, NULL);
        if (sharded)
          emit_instr(e, INSTR_ALLREDUCE_INT, PHASE_UPDATE, name, OPERANDS(WHOLE(norms[u])), INTS((int64_t)digits), NULL);
      } else {
        emit_instr(e, INSTR_ADAFACTOR, PHASE_UPDATE, name,
                  OPERANDS(WHOLE(unit->grad_buf), WHOLE(e->scale_buf), WHOLE(sums[u]), WHOLE(norms[u]), WHOLE(unit->v_buf),
                           WHOLE(unit->param_buf), WHOLE(unit->cast_buf)),
                  ints, NULL);
      }
    }
}

void emit_update(Emitter *e) {
  Plan *plan = e->plan;
  emit_begin_segment(e, "update", 1);
  emit_norm(e);
  if (plan->world.ranks > 1)
    emit_instr(e, INSTR_ALLREDUCE_SUM, PHASE_UPDATE, "loss", OPERANDS(WHOLE(plan->loss_buf)), INTS(1), NULL);
  if (plan->recipe.optimizer == OPTIMIZER_ADAFACTOR)
    emit_adafactor(e);
  else
    each_unit(e, (UnitStep){bring_state, emit_elementwise});
  emit_end_segment(e);
}

