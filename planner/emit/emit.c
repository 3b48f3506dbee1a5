/* Owns: emission: a schedule becomes instructions with their buffers, between a segment that begins the step and one that
 * updates the weights; for inference, segments that clear the caches, fill them, and end with the output. Memory depends on
 * list positions only, never on how long anything takes. */
#include "planner/emit/emitter.h"

#include "planner/cost.h"

/* --- lifetimes --------------------------------------------------------------------------------------------------------------- */

static void find_lifetimes(Emitter *e) {
  Plan *plan = e->plan;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    for (int k = 0; k < e->program->specs[instr->op].operand_count; k++) {
      int32_t b = plan_operand(plan, instr, k)->buf;
      if (b < 0) continue;
      if (plan->bufs.data[b].first < 0) plan->bufs.data[b].first = i;
      plan->bufs.data[b].last = i;
    }
  }
  for (uint32_t h = 0; h < e->holds.count; h++) {
    PlanBuf *buf = &plan->bufs.data[e->holds.data[h].buf];
    if (buf->last < e->holds.data[h].last) buf->last = e->holds.data[h].last;
  }
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    if (!plan->bufs.data[b].persistent) continue;
    plan->bufs.data[b].first = 0;
    plan->bufs.data[b].last = (int32_t)plan->instrs.count - 1;
  }
}

static void count_live(Emitter *e) {
  Plan *plan = e->plan;
  int64_t *delta = ARENA_ARRAY(e->arena, int64_t, plan->instrs.count + 1);
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->host) continue;
    if (buf->persistent) {
      plan->persistent_bytes += buf->bytes;
    } else {
      delta[buf->first] += (int64_t)buf->bytes;
      delta[buf->last + 1] -= (int64_t)buf->bytes;
    }
  }
  int64_t live = 0, most = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    live += delta[i];
    if (live > most) most = live;
  }
  plan->max_live_bytes = plan->persistent_bytes + (uint64_t)most;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------- */

static void add_plan_inputs(Emitter *e) {
  const Graph *graph = e->program->graph;
  const GraphOp *loss = &graph->ops.data[graph->loss_op];
  for (uint32_t i = 0; i < graph->inputs.count; i++) {
    const Shape *shape = &graph->tensors.data[graph->inputs.data[i].tensor].shape;
    PlanInput *input = vec_add(e->arena, &e->plan->inputs);
    input->name = plan_intern(e->arena, e->plan, graph->inputs.data[i].name);
    input->feed = loss->inputs[1] == graph->inputs.data[i].tensor ? FEED_TARGETS : FEED_TOKENS;
    uint64_t numel = 0;
    shape_numel(shape, 1, &numel);
    input->sample_numel = (int64_t)numel;
    input->vocab = loss->kind == LAYER_CROSS_ENTROPY ? shape_cols(&graph->tensors.data[loss->inputs[0]].shape) : 0;
    for (uint32_t o = 0; o < graph->ops.count; o++)
      if (graph->ops.data[o].kind == LAYER_EMBEDDING && graph->ops.data[o].inputs[0] == graph->inputs.data[i].tensor)
        input->vocab = graph->params.data[graph->ops.data[o].weight].shape.dim[0];
  }
}

static void set_queues(Plan *plan, const Device *device, const Skeleton *skeleton) {
  bool cpu = device->kind == DEVICE_CPU;
  plan->queue[STREAM_COMPUTE] = 0;
  plan->queue[STREAM_GATHER] = 1;
  plan->queue[STREAM_REDUCE] = skeleton->shared_queue ? 1 : 2;
  plan->queue[STREAM_REPLICATE] = skeleton->shared_sums ? plan->queue[STREAM_REDUCE] : 3;
  plan->queue[STREAM_COPY_IN] = cpu ? 0 : 4;
  plan->queue[STREAM_COPY_OUT] = cpu ? 0 : 5;
}

static Plan *new_plan(Emitter *e) {
  const Graph *graph = e->program->graph;
  const Decisions *decisions = e->decisions;
  Plan *plan = plan_new(e->arena);
  plan->model = plan_intern(e->arena, plan, graph->name);
  plan->source_path = plan_intern(e->arena, plan, graph->path);
  plan->cluster = plan_intern(e->arena, plan, e->in->cluster->name);
  plan->source_hash = graph->source_hash;
  plan->training = !e->program->window;
  plan->output_buf = plan->loss_buf = plan->count_buf = plan->norm_buf = PLAN_NONE;
  plan->recipe = graph->recipe;
  plan->world = (PlanWorld){.ranks = decisions->ranks,
                            .shard = decisions->shard,
                            .replicas = decisions->replicas,
                            .ranks_per_node = decisions->ranks_per_node,
                            .micro_batch = (uint64_t)e->program->batch,
                            .accumulation = decisions->accumulation};
  plan->overlap = cost_overlap(e->in->cluster, &plan->world);
  plan->recipe.samples_per_step = plan->world.micro_batch * plan->world.accumulation * plan->world.ranks;
  plan->layers = checkpoint_block_count(e->program);
  set_queues(plan, &e->in->cluster->device, e->in->skeleton);
  return plan;
}

static void start_program(Emitter *e, const Skeleton *skeleton) {
  const Program *program = skeleton->program;
  e->program = program;
  e->buf_of = ARENA_ARRAY(e->arena, int32_t, program->values.count);
  for (uint32_t i = 0; i < program->values.count; i++) e->buf_of[i] = PLAN_NONE;
  e->value_name = ARENA_ARRAY(e->arena, StrId, program->values.count);
  e->layer_name = ARENA_ARRAY(e->arena, StrId, program->graph->ops.count);
  schedule_build(&e->schedule, e->arena, skeleton, e->decisions);
  e->step_instr = ARENA_ARRAY(e->arena, int32_t, (uint32_t)e->schedule.step_count);
  e->away = ARENA_ARRAY(e->arena, int32_t, e->schedule.trip_count ? program->values.count : 0);
  e->left = ARENA_ARRAY(e->arena, int32_t, e->schedule.trip_count);
}

static void emit_training(Emitter *e) {
  start_program(e, e->in->skeleton); /* settles which units stay gathered, as their table says */
  emit_units(e);
  emit_scalars(e);
  emit_held(e);
  emit_begin(e);
  MicroPass passes[MICRO_PASSES];
  uint32_t count = schedule_passes(e->decisions, passes);
  for (uint32_t p = 0; p < count; p++) emit_pass(e, &passes[p]);
  emit_update(e);
  find_lifetimes(e);
}

static void emit_inference(Emitter *e) {
  emit_units(e);
  emit_caches(e);
  if (e->in->prefill) {
    start_program(e, e->in->prefill);
    emit_pass(e, &(MicroPass){"prefill", 1, true, false});
  }
  start_program(e, e->in->skeleton);
  emit_pass(e, &(MicroPass){"decode", 1, true, false});
  find_lifetimes(e);
  e->plan->output_buf = e->buf_of[e->program->output_value];
}

Plan *emit_plan(Arena *arena, const EmitInput *input) {
  const Program *program = input->program;
  uint32_t units = input->decisions->units->units.count;
  Emitter e = {.arena = arena, .in = input, .program = program, .decisions = input->decisions};
  e.gathered = ARENA_ARRAY(arena, int32_t, units);
  e.shard_image = ARENA_ARRAY(arena, int32_t, 2 * (size_t)units);
  e.grad_full = ARENA_ARRAY(arena, int32_t, units);
  e.grad_part = ARENA_ARRAY(arena, int32_t, units);
  e.grad_image = ARENA_ARRAY(arena, int32_t, units);
  for (uint32_t i = 0; i < units; i++) e.gathered[i] = e.grad_full[i] = e.grad_part[i] = e.grad_image[i] = PLAN_NONE;
  e.plan = new_plan(&e);
  add_plan_inputs(&e);
  if (e.plan->training)
    emit_training(&e);
  else
    emit_inference(&e);
  count_live(&e);
  return e.plan;
}
