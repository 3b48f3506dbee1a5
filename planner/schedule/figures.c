/* Owns: figures.h. */
#include "planner/schedule/figures.h"

#include "base/checked.h"
#include "planner/cost.h"

/* adding: where the op adds to what gradients of parameters hold already. */
static uint64_t op_bytes(const Program *program, const ProgramOp *op, uint64_t *adding) {
  uint64_t bytes = 0, read_again = 0;
  for (int32_t k = 0; k < op->ref_count; k++) {
    uint64_t rows, cols;
    const OperandSpec *spec = &program->specs[op->op].operands[k];
    if (op->refs[k].value < 0 || !operand_dims(spec, op->ints, 1, &rows, &cols)) continue;
    const Value *value = &program->values.data[op->refs[k].value];
    uint64_t once = rows * cols * dtype_bytes(value->dtype);
    bool twice = spec->mode == MODE_UPDATE || (spec->mode == MODE_ADD && op->refs[k].add);
    bytes += twice ? 2 * once : once;
    if (!twice && spec->mode == MODE_ADD && value->kind == VALUE_PARAM_GRADIENT) read_again += once;
  }
  *adding = bytes + read_again;
  return bytes;
}

/* Without what pads its buffer. */
static uint64_t content_bytes(const Value *value) { return value->numel * dtype_bytes(value->dtype); }

void figures_of_program(Program *program, const Cluster *cluster) {
  for (uint32_t i = 0; i < program->ops.count; i++) {
    ProgramOp *op = &program->ops.data[i];
    uint64_t adding, *adding_ns = &program->flow.adding_ns[i];
    op->bytes = op_bytes(program, op, &adding);
    cost_work(cluster, program->specs, op->op, op->ints, program->graph->recipe.compute, op->bytes, &op->flops, &op->ns);
    program->flow.op_ns[i] = *adding_ns = op->ns;
    if (adding != op->bytes) cost_work(cluster, program->specs, op->op, op->ints, program->graph->recipe.compute, adding, &op->flops, adding_ns);
    int32_t moved = program->flow.moved[i];
    if (moved >= 0) program->flow.moved_ns[i] = cost_transfer(cluster, content_bytes(&program->values.data[moved]));
  }
}

static uint64_t unit_shard(const Unit *unit, uint32_t shards) {
  return round_up((unit->elements + shards - 1) / shards, PLAN_ALIGN_ELEMENTS);
}

/* Of the optimizer's state of one parameter element. */
static uint32_t moment_bytes(const Recipe *recipe) {
  switch (recipe->optimizer) {
  case OPTIMIZER_ADAMW: return 8;
  case OPTIMIZER_LION: return 4;
  case OPTIMIZER_ADAFACTOR: return 0; /* see factored_bytes */
  default: return recipe->momentum != 0 ? 4 : 0;
  }
}

/* Of one element: the copy in the compute dtype, where parameters are kept in another. */
static uint64_t cast_bytes(const Recipe *recipe, DType kept) { return recipe->compute != kept ? dtype_bytes(recipe->compute) : 0; }

/* One buffer of `bytes` that lies in host memory, in the optimizer's pass. */
static void add_image(const Cluster *cluster, uint64_t bytes, bool fetched, bool stored, UnitFigures *f) {
  if (!bytes) return;
  f->state_bytes += bytes;
  if (fetched) f->brought_bytes += bytes, f->bring_ns += cost_transfer(cluster, bytes);
  if (stored) f->return_ns += cost_transfer(cluster, bytes);
}

/* The copy is fetched only where the update may be skipped. */
static void add_state(const Program *program, const Cluster *cluster, uint32_t offload, uint64_t shard, UnitFigures *f) {
  const Recipe *recipe = &program->graph->recipe;
  uint64_t copy = shard * cast_bytes(recipe, recipe->master), moments = shard * moment_bytes(recipe);
  add_image(cluster, f->image_bytes, true, false, f);
  if (offload & (copy ? OFFLOAD_OPTIMIZER : OFFLOAD_PARAMETERS)) add_image(cluster, shard * dtype_bytes(recipe->master), true, true, f);
  for (uint64_t moment = 4 * shard; offload & OFFLOAD_OPTIMIZER && moments; moments -= moment) add_image(cluster, moment, true, true, f);
  if (offload & OFFLOAD_PARAMETERS) add_image(cluster, copy, graph_scales_loss(program->graph), true, f);
}

static void add_transfers(const Program *program, const Cluster *cluster, uint32_t offload, bool alone, bool learns, uint64_t shard,
                          UnitFigures *f) {
  uint64_t compute = dtype_bytes(program->graph->recipe.compute), reduce = dtype_bytes(program->graph->recipe.reduce);
  if (offload & OFFLOAD_PARAMETERS) {
    f->shard_bytes = alone ? 0 : shard * compute; /* without a shard group they are fetched to where they are used */
    f->fetch_ns = cost_transfer(cluster, shard * compute);
  }
  if (!learns) return;
  if (offload & OFFLOAD_GRADIENTS) f->image_bytes = shard * reduce, f->image_ns = cost_transfer(cluster, shard * reduce);
  add_state(program, cluster, offload, shard, f);
}

/* Adafactor's moments of a unit, which every rank holds whole. */
static uint64_t factored_bytes(const Program *program, const Unit *unit) {
  uint64_t numel = 0;
  if (program->graph->recipe.optimizer != OPTIMIZER_ADAFACTOR || unit->frozen) return 0;
  for (uint32_t i = 0; i < unit->params.count; i++) {
    const Shape *shape = &program->graph->params.data[unit->params.data[i]].shape;
    numel += factored_numel(shape->rank, shape->dim);
  }
  return numel * 4;
}

static uint64_t time_of(const Program *program, const Cluster *cluster, InstrOp op, uint64_t bytes) {
  static const int64_t no_ints[INSTR_MAX_INTS] = {0};
  uint64_t flops, ns;
  cost_work(cluster, program->specs, op, no_ints, program->graph->recipe.compute, bytes, &flops, &ns);
  return ns;
}

/* The two passes before Adafactor's update. */
static void add_factored(const Program *program, const Cluster *cluster, const PlanWorld *world, const Unit *unit, uint64_t shard, UnitFigures *f) {
  uint64_t reduce = dtype_bytes(program->graph->recipe.reduce), norms = 8 * EXACT_DIGITS * (uint64_t)unit->params.count;
  uint64_t sums = 2 * factored_bytes(program, unit) + norms;
  f->factored_ns[0] = time_of(program, cluster, INSTR_ADAFACTOR_SUMS, shard * (reduce + dtype_bytes(program->graph->recipe.master)) + sums);
  f->factored_ns[1] = time_of(program, cluster, INSTR_ADAFACTOR_MOMENTS, shard * reduce + 2 * sums);
  if (world->shard == 1) return;
  f->factored_sum_ns[0] = cost_collective(cluster, world, INSTR_ALLREDUCE_INT, sums);
  f->factored_sum_ns[1] = cost_collective(cluster, world, INSTR_ALLREDUCE_INT, norms);
}

/* What all units have in common. */
typedef struct Figuring {
  const Program *program;
  const Cluster *cluster;
  const PlanWorld *world;
  const Decisions *outer;
  double slower; /* communication by compute, which runs beside nearly all of it */
} Figuring;

static void add_update(const Figuring *in, uint64_t shard, uint64_t reduced_bytes, UnitFigures *f) {
  const Recipe *recipe = &in->program->graph->recipe;
  InstrOp update = recipe->optimizer == OPTIMIZER_ADAMW ? INSTR_ADAMW : INSTR_SGD;
  uint64_t state = dtype_bytes(recipe->master) + moment_bytes(recipe), moved = 2 * state + cast_bytes(recipe, recipe->master);
  f->squares_ns = time_of(in->program, in->cluster, INSTR_SUM_SQUARES, reduced_bytes);
  f->optimizer_ns = time_of(in->program, in->cluster, update, shard * moved + reduced_bytes);
}

static void add_gradient(const Figuring *in, const Unit *unit, uint64_t shard, UnitFigures *f) {
  const Recipe *recipe = &in->program->graph->recipe;
  const PlanWorld *world = in->world;
  uint64_t reduced = shard * dtype_bytes(recipe->reduce), whole = reduced * world->shard;
  if (world->shard > 1) f->reduce_ns = (uint64_t)((double)cost_collective(in->cluster, world, INSTR_REDUCE_SCATTER, whole) * in->slower);
  if (world->shard > 1 && world->replicas > 1) f->part_bytes = reduced;
  if (world->replicas > 1) f->replicate_ns = (uint64_t)((double)cost_collective(in->cluster, world, INSTR_ALLREDUCE, reduced) * in->slower);
  f->gradient_bytes = round_up(whole, PLAN_ALIGN_BYTES);
  add_update(in, shard, reduced, f);
  if (recipe->optimizer == OPTIMIZER_ADAFACTOR) add_factored(in->program, in->cluster, world, unit, shard, f);
  if (in->outer->accumulation == 1) return;
  f->clear_ns = time_of(in->program, in->cluster, INSTR_ZERO, decisions_holds_gradients(in->outer) ? whole : reduced);
  f->clears_image = f->image_ns && !decisions_holds_gradients(in->outer);
}

static UnitFigures figures_of_unit(const Figuring *in, const Unit *unit, uint64_t shard) {
  uint64_t full = shard * in->world->shard * dtype_bytes(in->program->graph->recipe.compute);
  UnitFigures f = {.full_bytes = round_up(full, PLAN_ALIGN_BYTES)};
  if (in->world->shard > 1) f.gather_ns = (uint64_t)((double)cost_collective(in->cluster, in->world, INSTR_ALLGATHER, full) * in->slower);
  add_transfers(in->program, in->cluster, in->outer->offload, in->world->shard == 1, !unit->frozen, shard, &f);
  if (!unit->frozen) add_gradient(in, unit, shard, &f);
  return f;
}

/* But for Adafactor, which takes what its moments take. */
static bool has_like_figures(const Program *program, const Unit *a, const Unit *b) {
  return a->elements == b->elements && a->frozen == b->frozen && program->graph->recipe.optimizer != OPTIMIZER_ADAFACTOR;
}

/* Layers repeat, and so do sizes of units. */
UnitFigures *figures_of_units(Arena *arena, const Program *program, const UnitSet *units, const Cluster *cluster,
                              const PlanWorld *world, const Decisions *outer) {
  enum { RECENT = 256 };
  uint32_t recent[RECENT] = {0}; /* by size, the last unit that was so large */
  const Figuring in = {program, cluster, world, outer, 1 + cost_overlap(cluster, world).comm_slowdown};
  UnitFigures *figures = ARENA_ARRAY(arena, UnitFigures, units->units.count);
  for (uint32_t u = 0; u < units->units.count; u++) {
    const Unit *unit = &units->units.data[u];
    const uint64_t shard = unit_shard(unit, world->shard);
    uint32_t *last = &recent[shard / 64 % RECENT];
    const bool known = *last < u && has_like_figures(program, unit, &units->units.data[*last]);
    figures[u] = known ? figures[*last] : figures_of_unit(&in, unit, shard);
    *last = u;
  }
  return figures;
}

/* Of a unit's shard, of so many kinds of state: masters of parameters are the optimizer's. */
static uint64_t state_bytes(const Program *program, const Unit *unit, uint64_t elements, uint32_t kinds) {
  const Recipe *recipe = &program->graph->recipe;
  DType kept = unit_kept(program, unit);
  uint64_t bytes = 0, cast = cast_bytes(recipe, kept);
  if (kinds & (cast ? OFFLOAD_OPTIMIZER : OFFLOAD_PARAMETERS)) bytes += round_up(elements * dtype_bytes(kept), PLAN_ALIGN_BYTES);
  if (kinds & OFFLOAD_PARAMETERS) bytes += round_up(elements * cast, PLAN_ALIGN_BYTES);
  if (unit->frozen) return bytes;
  if (kinds & OFFLOAD_OPTIMIZER) bytes += elements * moment_bytes(recipe);
  if (kinds & OFFLOAD_GRADIENTS) bytes += elements * dtype_bytes(recipe->reduce);
  return bytes;
}

uint64_t figures_persistent(const Program *program, const UnitSet *units, const Decisions *decisions) {
  uint32_t shard = decisions->shard;
  const Recipe *recipe = &program->graph->recipe;
  uint64_t bytes = 4 * PLAN_ALIGN_BYTES + round_up(8 * EXACT_DIGITS, PLAN_ALIGN_BYTES); /* scalars */
  for (uint32_t u = 0; u < units->units.count; u++) {
    const Unit *unit = &units->units.data[u];
    uint64_t elements = unit_shard(unit, shard);
    bytes += state_bytes(program, unit, elements, OFFLOAD_STATES & ~decisions->offload);
    bytes += round_up(factored_bytes(program, unit), PLAN_ALIGN_BYTES);
    if (decisions->gather_once && decisions_gather(decisions)) bytes += round_up(elements * shard * dtype_bytes(recipe->compute), PLAN_ALIGN_BYTES);
    if (!unit->frozen && decisions_holds_gradients(decisions)) bytes += round_up(elements * shard * dtype_bytes(recipe->reduce), PLAN_ALIGN_BYTES);
  }
  return bytes;
}

uint64_t figures_host(const Program *program, const UnitSet *units, const Decisions *decisions) {
  uint64_t bytes = 0;
  for (uint32_t u = 0; u < units->units.count; u++)
    bytes += state_bytes(program, &units->units.data[u], unit_shard(&units->units.data[u], decisions->shard), decisions->offload);
  return bytes;
}

StepFigures figures_of_step(const Program *program, const Cluster *cluster, const PlanWorld *world) {
  StepFigures of = {.rest_ns = 4 * time_of(program, cluster, INSTR_ZERO, 8)};
  if (world->ranks > 1) of.count_ns = of.loss_ns = cost_collective(cluster, world, INSTR_ALLREDUCE_SUM, 8);
  if (world->shard > 1) of.norm_ns = cost_collective(cluster, world, INSTR_ALLREDUCE_EXACT, 8 * EXACT_DIGITS);
  return of;
}
