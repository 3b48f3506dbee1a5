/* Owns: `plan --json`, field by field as the README lists them. Bytes, and ns per optimizer step, of one
 * rank. */
#include "cli/cli.h"

#include "runtime/beside.h"
#include "runtime/runtime.h"

#include <jansson.h>

static json_t *integer(uint64_t value) {
  return json_integer((json_int_t)value);
}
static json_t *text(const Plan *plan, StrId id) {
  return json_string(plan_str(plan, id));
}

static json_t *model_json(const Plan *plan) {
  json_t *object = json_object();
  json_object_set_new(object, "name", text(plan, plan->model));
  json_object_set_new(object, "params", integer(plan->param_numel));
  json_object_set_new(object, "layers", integer(plan->layers));
  return object;
}

static json_t *world_json(const PlanWorld *world) {
  json_t *object = json_object();
  json_object_set_new(object, "ranks", integer(world->ranks));
  json_object_set_new(object, "shard", integer(world->shard));
  json_object_set_new(object, "replicas", integer(world->replicas));
  json_object_set_new(object, "ranks_per_node", integer(world->ranks_per_node));
  return object;
}

/* Six classes for scripts: full and sharded gradients together, and everything small is workspace. */
static json_t *memory_json(const uint64_t by_class[BUF_CLASS_COUNT]) {
  json_t *object = json_object();
  json_object_set_new(object, "parameters", integer(by_class[BUF_PARAM]));
  json_object_set_new(object, "gradients", integer(by_class[BUF_GRAD] + by_class[BUF_GRADFULL]));
  json_object_set_new(object, "optimizer", integer(by_class[BUF_OPTIM]));
  json_object_set_new(object, "gathered", integer(by_class[BUF_GATHERED]));
  json_object_set_new(object, "activations", integer(by_class[BUF_ACTIVATION] + by_class[BUF_CACHE]));
  json_object_set_new(object, "workspace",
                      integer(by_class[BUF_WORKSPACE] + by_class[BUF_INPUT] + by_class[BUF_SCALAR]));
  return object;
}

static json_t *unit_json(const Plan *plan, const PlanUnit *unit, const UnitFigures *figures) {
  json_t *object = json_object();
  json_object_set_new(object, "name", text(plan, unit->name));
  json_object_set_new(object, "params", integer((uint64_t)unit->param_count));
  json_object_set_new(object, "numel", integer(unit->numel));
  json_object_set_new(object, "padded", integer(unit->shard * plan->world.shard));
  json_object_set_new(object, "reshard", json_boolean(unit->reshard));
  json_object_set_new(object, "frozen", json_boolean(plan_unit_frozen(plan, unit)));
  json_object_set_new(object, "gather_bytes", integer(figures->gather_bytes));
  json_object_set_new(object, "gather_ns", integer(figures->gather_ns));
  return object;
}

static json_t *units_json(Arena *arena, const Plan *plan, const SimResult *sim) {
  json_t *array = json_array();
  const UnitFigures *figures = unit_figures(arena, plan, sim);
  for (uint32_t i = 0; i < plan->units.count; i++)
    json_array_append_new(array, unit_json(plan, &plan->units.data[i], &figures[i]));
  return array;
}

json_t *relaxations_json(const Relaxations *relaxations) {
  json_t *array = json_array();
  for (uint32_t i = 0; i < relaxations->count; i++) json_array_append_new(array, json_string(relaxations->data[i].text));
  return array;
}

static json_t *infeasible_json(const Infeasible *why) {
  json_t *object = json_object(), *largest = json_array();
  for (uint32_t i = 0; i < why->largest.count; i++) {
    json_t *buffer = json_object();
    json_object_set_new(buffer, "name", json_string(why->largest.data[i].name));
    json_object_set_new(buffer, "class", json_string(why->largest.data[i].class));
    json_object_set_new(buffer, "bytes", integer(why->largest.data[i].bytes));
    json_array_append_new(largest, buffer);
  }
  if (why->lacks_host_bytes) json_object_set_new(object, "lacks_host_bytes", integer(why->lacks_host_bytes));
  json_object_set_new(object, "smallest_peak_bytes", integer(why->smallest_peak_bytes));
  json_object_set_new(object, "peak_at", json_string(why->peak_at));
  json_object_set_new(object, "largest", largest);
  json_object_set_new(object, "relaxations", relaxations_json(&why->relaxations));
  return object;
}

json_t *warnings_json(const char *warning) {
  return warning ? json_pack("[s]", warning) : json_array();
}

static void add_memory(Arena *arena, json_t *object, const Planned *planned, const PlanFigures *figures) {
  const Plan *plan = planned->plan;
  json_object_set_new(object, "budget_bytes", integer(plan->summary.budget_bytes));
  json_object_set_new(object, "fits", json_boolean(planned->fits));
  json_object_set_new(object, "peak_bytes", integer(plan->arena_bytes));
  json_object_set_new(object, "peak_at", json_string(figures->peak_at));
  json_object_set_new(object, "persistent_bytes", integer(plan->persistent_bytes));
  json_object_set_new(object, "arena_bytes", integer(plan->arena_bytes));
  json_object_set_new(object, "max_live_bytes", integer(plan->max_live_bytes));
  BesideArena beside = beside_arena(plan);
  json_object_set_new(object, "beside_bytes", plan->summary.device == PLAN_DEVICE_GPU ? integer(beside_total(&beside)) : json_null());
  json_object_set_new(object, "host_bytes", integer(plan->host_bytes));
  json_object_set_new(object, "warnings", warnings_json(planned_warning(arena, planned)));
  json_object_set_new(object, "memory", memory_json(figures->by_class));
}

static void add_time(json_t *object, const Planned *planned, const PlanFigures *figures) {
  const Plan *plan = planned->plan;
  json_object_set_new(object, "step_ns", integer(planned->sim.step_ns));
  json_object_set_new(object, "tokens_per_s_per_rank", json_real(figures->tokens_per_s_per_rank));
  json_object_set_new(object, "mfu", json_real(figures->mfu));
  json_object_set_new(object, "exposed_comm_ns", integer(planned->sim.exposed_comm_ns));
  json_object_set_new(object, "fast_ns", integer(planned->sim.fast_ns));
  json_object_set_new(object, "slow_ns", integer(planned->sim.slow_ns));
  bool bounded = plan->summary.lower_bound_ns > 0; /* not where nothing fits */
  json_object_set_new(object, "lower_bound_ns", bounded ? integer(plan->summary.lower_bound_ns) : json_null());
  json_object_set_new(object, "gap", bounded ? json_real(figures->gap) : json_null());
  json_object_set_new(object, "unplaced_step_ns", planned->unplaced_ns ? integer(planned->unplaced_ns) : json_null());
  json_object_set_new(object, "bound_by", text(plan, plan->summary.bound_by));
  json_object_set_new(object, "bound_of", planned->bound_of ? json_string(planned->bound_of) : json_null());
  json_object_set_new(object, "own_bound_ns", planned->own_bound_ns ? integer(planned->own_bound_ns) : json_null());
  json_object_set_new(object, "plan_seconds", json_real(planned->seconds));
}

static json_t *cadence_json(const Plan *plan, StreamId stream) {
  const char *cadence = plan_cadence(plan, stream);
  /* Of one micro-batch both words hold: the one that the strategy agrees with is said. */
  if (cadence && plan->world.accumulation == 1 && !strcmp(plan_str(plan, plan->summary.strategy), "shard_optim")) return json_string("step");
  return cadence ? json_string(cadence) : json_null();
}

static json_t *checkpoint_json(const Plan *plan, const PlanFigures *figures) {
  json_t *object = json_object();
  json_object_set_new(object, "policy", text(plan, plan->summary.checkpoint));
  json_object_set_new(object, "kept_bytes", integer(plan->summary.kept_bytes));
  json_object_set_new(object, "recompute_ns", integer(figures->recompute_ns));
  return object;
}

void report_json(const Cli *cli, const Planned *planned, FILE *out) {
  const Plan *plan = planned->plan;
  PlanFigures figures;
  plan_figures(cli->arena, plan, &planned->sim, &figures);
  json_t *object = json_object();
  json_object_set_new(object, "schema_version", integer(1));
  json_object_set_new(object, "model", model_json(plan));
  json_object_set_new(object, "world", world_json(&plan->world));
  json_object_set_new(object, "micro_batch", integer(plan->world.micro_batch));
  json_object_set_new(object, "accumulation", integer(plan->world.accumulation));
  json_object_set_new(object, "strategy", text(plan, plan->summary.strategy));
  json_object_set_new(object, "wrap", text(plan, plan->summary.wrap));
  json_object_set_new(object, "gather", cadence_json(plan, STREAM_GATHER));
  json_object_set_new(object, "reduce", cadence_json(plan, STREAM_REDUCE));
  add_memory(cli->arena, object, planned, &figures);
  add_time(object, planned, &figures);
  json_object_set_new(object, "units", units_json(cli->arena, plan, &planned->sim));
  json_object_set_new(object, "checkpoint", checkpoint_json(plan, &figures));
  json_object_set_new(object, "checkpoint_host_bytes", integer(runtime_checkpoint_bytes(plan)));
  json_object_set_new(object, "prefetch", integer(plan->summary.prefetch));
  json_object_set_new(object, "instructions", integer(plan->instrs.count));
  if (!planned->fits) json_object_set_new(object, "infeasible", infeasible_json(planned->infeasible));
  json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  fprintf(out, "\n");
  json_decref(object);
}
