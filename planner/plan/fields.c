/* Owns: the tables of fields.h. */
#include "planner/plan/fields.h"

static const char *const optimizer_names[] = {OPTIMIZER_NAMES NULL};
static const char *const schedule_names[] = {SCHEDULE_NAMES NULL};
static const char *const order_names[] = {"sequential", "shuffled", NULL};
static const char *const rounding_names[] = {ROUNDING_NAMES NULL};
static const char *const device_names[] = {"cpu", "gpu", NULL};
static const char *const feed_names[] = {"tokens", "targets", NULL};
const char *const init_names[] = {"zeros", "ones", "normal", "uniform", NULL};

#define X(id, name, bytes) name,
const char *const dtype_names[] = {DTYPES(X) NULL};
#undef X
#define X(id, name) name,
const char *const stream_names[] = {STREAMS(X) NULL};
const char *const phase_names[] = {PHASES(X) NULL};
const char *const class_names[] = {BUF_CLASSES(X) NULL};
#undef X

/* Enums are read and written as 32-bit words. */
_Static_assert(sizeof(DType) == 4 && sizeof(OptimizerKind) == 4 && sizeof(FeedKind) == 4 && sizeof(PlanDevice) == 4,
               "enums are 32 bits wide");

#define OF(T, kind, key, member)                                                                             \
  { key, FIELD_##kind, offsetof(T, member), NULL }
#define ENUM_OF(T, key, member, names)                                                                       \
  { key, FIELD_ENUM, offsetof(T, member), names }
#define PLAN(kind, key, member) OF(Plan, kind, key, member)
#define RECIPE(kind, member)    OF(Plan, kind, #member, recipe.member)

const LineSpec header_lines[HEADER_LINES] = {
    [LINE_MODEL] = {"model",
                    {PLAN(TEXT, "", model), PLAN(SIZE, "params", param_numel), PLAN(U32, "layers", layers),
                     PLAN(BOOL, "training", training), PLAN(BUF, "output", output_buf)}},
    [LINE_SOURCE] = {"source",
                     {PLAN(PATH, "", source_path), PLAN(HEX, "hash", source_hash),
                      PLAN(TEXT, "cluster", cluster)}},
    [LINE_WORLD] = {"world",
                    {PLAN(U32, "ranks", world.ranks), PLAN(U32, "shard", world.shard),
                     PLAN(U32, "replicas", world.replicas), PLAN(U32, "ranks_per_node", world.ranks_per_node),
                     PLAN(SIZE, "micro_batch", world.micro_batch),
                     PLAN(SIZE, "accumulation", world.accumulation)}},
    [LINE_RECIPE] = {"recipe",
                     {ENUM_OF(Plan, "optimizer", recipe.optimizer, optimizer_names),
                      ENUM_OF(Plan, "schedule", recipe.schedule, schedule_names), RECIPE(REAL, lr),
                      RECIPE(REAL, min_lr), RECIPE(U64, warmup_steps), RECIPE(U64, cooldown_steps), RECIPE(REAL, beta1),
                      RECIPE(REAL, beta2), RECIPE(REAL, eps), RECIPE(REAL, momentum), RECIPE(REAL, decay),
                      RECIPE(REAL, clip), RECIPE(U64, steps), RECIPE(U64, seed),
                      ENUM_OF(Plan, "order", recipe.order, order_names), RECIPE(U64, samples_per_step),
                      ENUM_OF(Plan, "compute", recipe.compute, dtype_names),
                      ENUM_OF(Plan, "reduce", recipe.reduce, dtype_names)}},
    [LINE_ADAFACTOR] = {"adafactor", {RECIPE(REAL, beta2_decay), RECIPE(REAL, eps2), RECIPE(REAL, threshold)}},
    [LINE_MASTER] = {"master",
                     {ENUM_OF(Plan, "", recipe.master, dtype_names),
                      ENUM_OF(Plan, "rounding", recipe.rounding, rounding_names)}},
    [LINE_SUMMARY] = {"summary",
                      {PLAN(TEXT, "strategy", summary.strategy), PLAN(TEXT, "wrap", summary.wrap),
                       PLAN(TEXT, "checkpoint", summary.checkpoint), PLAN(U32, "prefetch", summary.prefetch),
                       PLAN(U64, "budget", summary.budget_bytes), PLAN(U64, "step_ns", summary.step_ns),
                       PLAN(U64, "lower_bound_ns", summary.lower_bound_ns),
                       PLAN(TEXT, "bound_by", summary.bound_by), PLAN(U64, "kept", summary.kept_bytes),
                       PLAN(REAL, "flops_per_sample", summary.model_flops_per_sample),
                       PLAN(REAL, "peak_flops", summary.peak_flops), PLAN(U64, "launch_ns", summary.launch_ns)}},
    [LINE_DEVICE] = {"device",
                     {ENUM_OF(Plan, "", summary.device, device_names), PLAN(SIZE, "memory", summary.device_bytes)}},
    [LINE_MEMORY] = {"memory",
                     {PLAN(SIZE, "arena", arena_bytes), PLAN(SIZE, "persistent", persistent_bytes),
                      PLAN(SIZE, "max_live", max_live_bytes)}},
    [LINE_HOST] = {"host", {PLAN(SIZE, "arena", host_bytes)}},
    [LINE_QUEUES] = {"queues",
                     {
#define X(id, name) PLAN(U32, name, queue[STREAM_##id]),
                         STREAMS(X)
#undef X
                     }},
    [LINE_OVERLAP] = {"overlap",
                      {PLAN(REAL, "contention", overlap.contention),
                       PLAN(REAL, "comm_slowdown", overlap.comm_slowdown),
                       PLAN(REAL, "compute_spread", overlap.compute_spread),
                       PLAN(REAL, "comm_spread", overlap.comm_spread)}},
    [LINE_RESULTS] = {"results",
                      {PLAN(BUF, "loss", loss_buf), PLAN(BUF, "count", count_buf),
                       PLAN(BUF, "norm", norm_buf)}},
    [LINE_EVENTS] = {"events", {PLAN(U32, "", event_count)}},
};

const LineSpec input_line = {"input",
                             {OF(PlanInput, TEXT, "", name), ENUM_OF(PlanInput, "feed", feed, feed_names),
                              OF(PlanInput, SIZE, "sample", sample_numel),
                              OF(PlanInput, SIZE, "vocab", vocab)}};

const LineSpec unit_line = {"unit",
                            {OF(PlanUnit, TEXT, "", name), OF(PlanUnit, PARAM, "first", first_param),
                             OF(PlanUnit, U32, "params", param_count), OF(PlanUnit, SIZE, "numel", numel),
                             OF(PlanUnit, SIZE, "shard", shard), OF(PlanUnit, BOOL, "reshard", reshard),
                             OF(PlanUnit, BUF, "param", param_buf), OF(PlanUnit, BUF, "grad", grad_buf),
                             OF(PlanUnit, BUF, "m", m_buf), OF(PlanUnit, BUF, "v", v_buf),
                             OF(PlanUnit, BUF, "cast", cast_buf)}};

const LineSpec param_line = {"param",
                             {OF(PlanParam, TEXT, "", name), OF(PlanParam, UNIT, "unit", unit),
                              OF(PlanParam, SIZE, "offset", offset), OF(PlanParam, BOOL, "decay", decay)}};

int field_count(const LineSpec *line) {
  int count = 0;
  while (count < LINE_MAX_FIELDS && line->fields[count].key) count++;
  return count;
}
