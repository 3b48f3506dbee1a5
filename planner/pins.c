/* Owns: see pins.h. */
#include "planner/pins.h"

/* The unit that is to be released after forward, or NULL. */
static const UnitRule *released_unit(const PlanSettings *s) {
  for (uint32_t u = 0; u < s->units.count; u++)
    if (s->units.data[u].reshard > 0) return &s->units.data[u];
  return NULL;
}

bool pins_release(const PlanSettings *settings) { return settings->reshard > 0 || released_unit(settings); }

/* PyTorch gathers what lies in host memory anew, on a single rank too. */
static bool fetches(const PlanSettings *s) {
  return s->offload > 0 && s->executor.id != EXECUTOR_NATIVE;
}

static void check_reshard(DiagSink *sink, const PlanSettings *s) {
  const UnitRule *unit = released_unit(s);
  bool optim = s->strategy == STRATEGY_SHARD_OPTIM;
  if (s->reshard > 0 && (optim || s->strategy == STRATEGY_SHARD_GRAD_OP))
    diag_help(diag_error(sink, s->span, "strategy %s keeps parameters gathered until backward, but reshard asks to release them after forward",
                         optim ? "shard_optim" : "shard_grad_op"),
              "use strategy full_shard, or leave reshard to the strategy");
  else if (unit && optim)
    diag_help(diag_error(sink, unit->span, "unit \"%s\" is to be released after forward, but strategy shard_optim gathers once a step", unit->name),
              "use strategy auto or full_shard, or leave reshard to the strategy");
  else if (s->reshard > 0 && s->strategy == STRATEGY_NO_SHARD && !fetches(s))
    diag_help(diag_warning(sink, s->span, "reshard has no effect: with strategy no_shard every rank holds all parameters"),
              "use strategy full_shard or auto, or leave reshard out");
}

static void check_cadences(DiagSink *sink, const PlanSettings *s) {
  bool gathers_once = s->gather == CADENCE_STEP, releases = pins_release(s);
  if (s->strategy == STRATEGY_SHARD_OPTIM && (s->gather == CADENCE_MICRO_BATCH || s->reduce == CADENCE_MICRO_BATCH))
    diag_help(diag_error(sink, s->span, "strategy shard_optim gathers and reduces once a step, not every micro-batch"),
              "use strategy shard_grad_op or auto, or leave gather and reduce to the strategy");
  if (s->strategy == STRATEGY_SHARD_GRAD_OP && gathers_once && s->reduce == CADENCE_STEP)
    diag_help(diag_error(sink, s->span, "strategy shard_grad_op cannot both gather and reduce once a step"), "that is strategy shard_optim");
  if (gathers_once && (s->strategy == STRATEGY_FULL_SHARD || releases))
    diag_help(diag_error(sink, s->span, "%s releases parameters after use, but gather step keeps them over all of a step's micro-batches",
                         releases ? "reshard" : "strategy full_shard"),
              "use gather micro_batch or auto, or strategy shard_grad_op without reshard");
}

bool pins_agree(DiagSink *sink, const PlanSettings *settings) {
  uint32_t errors = sink->errors;
  check_reshard(sink, settings);
  check_cadences(sink, settings);
  return sink->errors == errors;
}

PlanSettings pins_completed(PlanSettings s) {
  bool releases = s.strategy == STRATEGY_FULL_SHARD || pins_release(&s);
  if (s.gather == CADENCE_AUTO && releases) s.gather = CADENCE_MICRO_BATCH;
  if (s.strategy != STRATEGY_SHARD_GRAD_OP) return s;
  if (s.gather == CADENCE_AUTO && s.reduce == CADENCE_STEP) s.gather = CADENCE_MICRO_BATCH;
  if (s.gather != CADENCE_MICRO_BATCH) s.reduce = CADENCE_MICRO_BATCH;
  return s;
}
