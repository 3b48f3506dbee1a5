/* Owns: bound.h. */
#include "planner/bound.h"

#include "planner/cost.h"
#include "planner/figures.h"

#include <stdlib.h>

typedef struct Slice {
  double bytes, ns; /* an item: what keeping it takes and saves */
} Slice;

typedef struct Relaxed {
  Slice *slices; /* by ns per byte, best first */
  uint32_t count;
  double compute, recompute; /* A without items; all items again */
  double comm, again;        /* B with nothing gathered twice; everything that could be */
  double resident;           /* bytes that pay for `again` */
  double room;
  double contention; /* compute lost for a second of B beside it */
} Relaxed;

static int compare_slices(const void *a, const void *b) {
  const Slice *x = a, *y = b;
  double p = x->ns * y->bytes, q = y->ns * x->bytes;
  return (p < q) - (p > q);
}

/* Least w (A + contention B) + (1 - w) B under the memory row. *again: recompute time that is left in A. */
static double weigh(const Relaxed *r, double w, double *left) {
  double room = r->room > 0 ? r->room : 0, a = r->compute + r->recompute, b = r->comm + r->again;
  double weight = 1 - w + w * r->contention; /* of B */
  double rate = r->resident > 0 ? weight * r->again / r->resident : 0;
  bool taken = r->resident <= 0;
  for (uint32_t i = 0; i <= r->count; i++) {
    double worth = i < r->count ? w * r->slices[i].ns / (r->slices[i].bytes + 1e-9) : -1;
    if (!taken && rate >= worth) {
      double bytes = room < r->resident ? room : r->resident;
      b -= r->again * bytes / r->resident;
      room -= bytes;
      taken = true;
    }
    if (i == r->count) break;
    double share = r->slices[i].bytes <= room ? 1 : room / r->slices[i].bytes;
    a -= share * r->slices[i].ns;
    room -= share * r->slices[i].bytes;
  }
  *left = a - r->compute;
  return w * a + weight * b;
}

static uint64_t param_bytes(const Graph *graph, uint32_t param, DType dtype) {
  uint64_t numel = 0;
  shape_numel(&graph->params.data[param].shape, 1, &numel);
  return numel * dtype_bytes(dtype);
}

/* Bytes of parameters (or their gradients) that an op touches. */
static uint64_t op_params(const Program *program, int32_t index, ValueKind kind, DType dtype) {
  const ProgramOp *op = &program->ops.data[index];
  uint64_t bytes = 0;
  for (int32_t k = 0; k < op->ref_count; k++) {
    if (op->refs[k].value < 0) continue;
    const Value *value = &program->values.data[op->refs[k].value];
    if (value->kind == kind) bytes += param_bytes(program->graph, (uint32_t)value->param, dtype);
  }
  return bytes;
}

/* Live while the loss runs, whatever is decided: what it reads and writes, and pinned activations. */
static double loss_bytes(const BoundInput *in) {
  const Program *program = in->program;
  const Recipe *recipe = &program->graph->recipe;
  double bytes = 0;
  if (program->turn >= (int32_t)program->ops.count) return 0;
  const ProgramOp *turn = &program->ops.data[program->turn];
  for (int32_t k = 0; k < turn->ref_count; k++) {
    if (turn->refs[k].value < 0) continue;
    const Value *value = &program->values.data[turn->refs[k].value];
    bool transient = value->kind == VALUE_GRADIENT || value->kind == VALUE_WORKSPACE || value->kind == VALUE_INPUT;
    if (transient) bytes += (double)value->numel * dtype_bytes(value->dtype);
  }
  if (in->world->shard > 1) bytes += (double)op_params(program, program->turn, VALUE_PARAM, recipe->compute);
  if (in->world->ranks > 1) bytes += (double)op_params(program, program->turn, VALUE_PARAM_GRADIENT, recipe->reduce);
  return bytes;
}

static double pinned_bytes(const BoundInput *in) {
  const Program *program = in->program;
  bool *counted = calloc(program->values.count, 1);
  double bytes = 0;
  for (uint32_t i = (uint32_t)program->turn; counted && i < program->ops.count; i++) {
    const ProgramOp *op = &program->ops.data[i];
    for (int32_t k = 0; k < op->ref_count; k++) {
      int32_t v = op->refs[k].value;
      if (v < 0 || counted[v] || program->specs[op->op].operands[k].mode == MODE_WRITE) continue;
      const Value *value = &program->values.data[v];
      if (value->kind != VALUE_ACTIVATION || value->producer < 0 || !in->kept[value->producer]) continue;
      counted[v] = true;
      bytes += (double)value->numel * dtype_bytes(value->dtype);
    }
  }
  free(counted);
  return bytes;
}

static uint64_t all_params(const Graph *graph, DType dtype) {
  uint64_t bytes = 0;
  for (uint32_t p = 0; p < graph->params.count; p++) bytes += param_bytes(graph, p, dtype);
  return bytes;
}

static uint64_t learning_params(const Graph *graph, DType dtype) {
  uint64_t bytes = 0;
  for (uint32_t p = 0; p < graph->params.count; p++)
    if (!graph->params.data[p].frozen) bytes += param_bytes(graph, p, dtype);
  return bytes;
}

static double persistent_bytes(const BoundInput *in) {
  const Graph *graph = in->program->graph;
  const Recipe *recipe = &graph->recipe;
  double all = 4 + (recipe->compute != DTYPE_F32 ? dtype_bytes(recipe->compute) : 0);
  double learning = dtype_bytes(recipe->reduce) + figures_moment_bytes(recipe);
  return (all * (double)all_params(graph, DTYPE_U8) + learning * (double)learning_params(graph, DTYPE_U8)) / in->world->shard;
}

static double reduce_ns(const BoundInput *in, uint64_t bytes) {
  const PlanWorld *world = in->world;
  double ns = world->shard > 1 ? (double)cost_collective(in->cluster, world, INSTR_REDUCE_SCATTER, bytes) : 0;
  if (world->replicas > 1) ns += (double)cost_collective(in->cluster, world, INSTR_ALLREDUCE, bytes / world->shard);
  return ns;
}

/* The first op that reads a parameter waits for it; the last gradient is reduced after everything. What runs meanwhile is slowed. */
static double head_and_tail(const BoundInput *in, double contention) {
  const Program *program = in->program;
  const Recipe *recipe = &program->graph->recipe;
  if (contention >= 1) return 0;
  double ns = 0, slower = 1 / (1 - contention);
  for (int32_t i = 0; i < program->turn && in->world->shard > 1; i++) {
    uint64_t bytes = op_params(program, i, VALUE_PARAM, recipe->compute);
    if (!bytes) {
      ns -= slower * (double)program->ops.data[i].ns; /* runs meanwhile */
      continue;
    }
    ns += (double)cost_collective(in->cluster, in->world, INSTR_ALLGATHER, bytes);
    break;
  }
  if (ns < 0) ns = 0;
  for (int32_t i = (int32_t)program->ops.count - 1; i >= program->turn && in->world->ranks > 1; i--) {
    uint64_t bytes = op_params(program, i, VALUE_PARAM_GRADIENT, recipe->reduce);
    double after = 0;
    for (int32_t j = i + 1; j < (int32_t)program->ops.count; j++) after += slower * (double)program->ops.data[j].ns;
    if (bytes && reduce_ns(in, bytes) > after) ns += reduce_ns(in, bytes) - after;
    if (bytes) break;
  }
  return ns;
}

static double update_ns(const BoundInput *in) {
  const Graph *graph = in->program->graph;
  const Recipe *recipe = &graph->recipe;
  double numel = (double)learning_params(graph, DTYPE_U8) / in->world->shard;
  double moved = 2 * (4 + figures_moment_bytes(recipe)) + 2 * dtype_bytes(recipe->reduce);
  if (recipe->compute != DTYPE_F32) moved += dtype_bytes(recipe->compute);
  static const int64_t none[INSTR_MAX_INTS] = {0};
  uint64_t flops, ns;
  cost_work(in->cluster, in->program->specs, INSTR_ADAMW, none, recipe->compute, (uint64_t)(numel * moved), &flops, &ns);
  return (double)ns + (double)figures_fixed_update(in->program, in->cluster, in->world);
}

static void relax(Arena *scratch, const BoundInput *in, Relaxed *r) {
  const Graph *graph = in->program->graph;
  const Recipe *recipe = &graph->recipe;
  *r = (Relaxed){.slices = ARENA_ARRAY(scratch, Slice, in->items->count)};
  for (uint32_t i = 0; i < in->items->count; i++) {
    if (in->items->data[i].op < 0) continue;
    r->slices[r->count] = (Slice){(double)in->items->data[i].bytes, (double)in->items->data[i].least_ns};
    r->recompute += r->slices[r->count++].ns;
  }
  qsort(r->slices, r->count, sizeof *r->slices, compare_slices);
  for (uint32_t i = 0; i < in->program->ops.count; i++) r->compute += (double)in->program->ops.data[i].ns;
  r->contention = cost_overlap(in->cluster, in->world).contention;
  r->compute += (1 - r->contention) * head_and_tail(in, r->contention);
  uint64_t bytes = all_params(graph, recipe->compute);
  double latency = in->world->shard > 1 ? (double)cost_collective(in->cluster, in->world, INSTR_ALLGATHER, 0) : 0;
  if (in->world->shard > 1) r->comm = (double)cost_collective(in->cluster, in->world, INSTR_ALLGATHER, bytes);
  if (in->shared_queue) r->comm += reduce_ns(in, learning_params(graph, recipe->reduce));
  if (in->world->shard > 1 && !in->keep_all && in->program->turn < (int32_t)in->program->ops.count) {
    /* The embedding's table is not read again in backward, and the loss's parameters are there anyway. */
    uint64_t twice = 0;
    bool *forward = ARENA_ARRAY(scratch, bool, graph->params.count), *again = ARENA_ARRAY(scratch, bool, graph->params.count);
    for (uint32_t i = 0; i < in->program->ops.count; i++)
      for (int32_t k = 0; k < in->program->ops.data[i].ref_count; k++) {
        int32_t v = in->program->ops.data[i].refs[k].value;
        if (v < 0 || in->program->values.data[v].kind != VALUE_PARAM) continue;
        *((int32_t)i < in->program->turn ? &forward[in->program->values.data[v].param] : &again[in->program->values.data[v].param]) = true;
      }
    for (uint32_t p = 0; p < graph->params.count; p++)
      if (forward[p] && again[p]) twice += param_bytes(graph, p, recipe->compute);
    r->resident = in->keep_free ? (double)twice : 0;
    r->again = twice ? (double)cost_collective(in->cluster, in->world, INSTR_ALLGATHER, twice) - latency : 0;
    if (!in->keep_free) r->again = 0;
  }
  r->room = (double)in->budget - persistent_bytes(in) - loss_bytes(in) - pinned_bytes(in);
}

static const char *binding(const BoundInput *in, double w, double recompute_left) {
  if (w > 0.5) return recompute_left > 0 ? "memory through recompute" : "compute";
  return in->shared_queue ? "communication" : "gather";
}

typedef struct Most {
  double ns, w, left;
} Most;

/* The best weight: weigh is concave in w. */
static Most maximise(const Relaxed *r) {
  double low = 0, high = 1, left = 0;
  for (int i = 0; i < 50; i++) {
    double a = low + (high - low) / 3, b = high - (high - low) / 3;
    if (weigh(r, a, &left) < weigh(r, b, &left))
      low = a;
    else
      high = b;
  }
  double candidates[] = {(low + high) / 2, 0, 1};
  Most most = {-1, 0, 0};
  for (int i = 0; i < 3; i++) {
    double ns = weigh(r, candidates[i], &left);
    if (ns > most.ns) most = (Most){ns, candidates[i], left};
  }
  return most;
}

Bound bound_of(const BoundInput *in) {
  Arena *scratch = arena_new();
  Relaxed r;
  relax(scratch, in, &r);
  Most most = maximise(&r);
  bool reduces = in->program->output_value < 0;
  double reduce = reduce_ns(in, learning_params(in->program->graph, in->program->graph->recipe.reduce));
  if (reduces && !in->shared_queue) {
    /* Every parameter is first gathered before the loss and every gradient reduced after it: these never run at once, so
     * compute is slowed by both, whatever is gathered again beside the reductions. */
    r.compute += r.contention * (r.comm + reduce);
    r.contention = 0;
    Most both = maximise(&r);
    if (both.ns > most.ns) most = both;
  }
  const char *by = binding(in, most.w, most.left);
  if (reduces && !in->shared_queue && r.comm + reduce > most.ns) { /* one before the loss, the other after it */
    most.ns = r.comm + reduce;
    by = reduce > r.comm ? "reduce" : "gather";
  }
  arena_free(scratch);
  return (Bound){(uint64_t)(most.ns * (double)in->world->accumulation + update_ns(in)), by};
}
