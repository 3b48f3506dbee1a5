/* Owns: the time of the segments that begin and end a step, in the order of the plan (emit_state.c, emit_update.c), as if addresses
 * made nothing wait and communication slowed nothing down: no plan's take less. */
#include "planner/schedule/schedule_build.h"

/* When each queue is free. Copies that do not run beside compute take its time. */
typedef struct Ends {
  uint64_t compute, reduce, fetched, stored;
  bool beside;
} Ends;

static uint64_t *fetches(Ends *c) { return c->beside ? &c->fetched : &c->compute; }
static uint64_t *stores(Ends *c) { return c->beside ? &c->stored : &c->compute; }

static uint64_t begin_ns(const Skeleton *skeleton) {
  Ends c = {.beside = skeleton->copies_beside};
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    const UnitFigures *of = &skeleton->figures[u];
    c.compute += of->clear_ns;
    if (of->clears_image) *stores(&c) = later(*stores(&c), c.compute) + of->image_ns;
  }
  return later(skeleton->step.count_ns, later(c.compute, c.stored));
}

static void norm(Ends *c, const Skeleton *skeleton) {
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    *fetches(c) += skeleton->figures[u].image_ns;
    c->compute = later(c->compute, *fetches(c)) + skeleton->figures[u].squares_ns;
  }
  if (skeleton->step.norm_ns) c->reduce = c->compute += skeleton->step.norm_ns;
  c->reduce += skeleton->step.loss_ns;
}

/* A unit after the other, what is offloaded of them on its way beside that. */
static void elementwise(Ends *c, const Skeleton *skeleton) {
  for (uint32_t u = 0; u < skeleton->units->units.count; u++) {
    const UnitFigures *of = &skeleton->figures[u];
    *fetches(c) += of->bring_ns;
    c->compute = later(c->compute, *fetches(c)) + of->optimizer_ns;
    *stores(c) = later(*stores(c), c->compute) + of->return_ns;
  }
}

/* Passes over all units, with sums over the shard group between them. */
static void adafactor(Ends *c, Arena *arena, const Skeleton *skeleton) {
  uint32_t count = skeleton->units->units.count;
  uint64_t *there = ARENA_ARRAY(arena, uint64_t, count); /* by unit: the sums of the pass before */
  for (int pass = 0; pass < FACTORED_PASSES; pass++)
    for (uint32_t u = 0; u < count; u++) {
      const UnitFigures *of = &skeleton->figures[u];
      c->compute = later(c->compute, there[u]) + of->factored_ns[pass];
      if (of->factored_sum_ns[pass]) there[u] = c->reduce = later(c->reduce, c->compute) + of->factored_sum_ns[pass];
    }
  for (uint32_t u = 0; u < count; u++) c->compute = later(c->compute, there[u]) + skeleton->figures[u].optimizer_ns;
}

uint64_t schedule_ends(Arena *arena, const Skeleton *skeleton) {
  Ends c = {.beside = skeleton->copies_beside};
  norm(&c, skeleton);
  if (skeleton->program->graph->recipe.optimizer == OPTIMIZER_ADAFACTOR)
    adafactor(&c, arena, skeleton);
  else
    elementwise(&c, skeleton);
  return begin_ns(skeleton) + later(later(c.compute, c.stored), c.reduce);
}
