/* Owns: emitting the bigram plan. */
#include "bigram.h"

#include "base/checked.h"

#include <stdio.h>

typedef struct Emit {
  Arena *arena;
  Plan *plan;
  const InstrSpec *specs;
  const BigramOptions *options;
  uint64_t rows;
  int32_t full[2], grad_full[2], tokens, targets, x, logits, row_loss, dx, acc, scale;
} Emit;

/* Tensors by buffer; add: flag '+'. */
typedef struct Arg {
  int32_t buf;
  uint64_t offset;
  bool add;
} Arg;

#define A(buffer)      ((Arg){(buffer), 0, false})
#define PLUS(buffer)   ((Arg){(buffer), 0, true})
#define AT(buffer, at) ((Arg){(buffer), (at), false})

static int32_t buf(Emit *e, const char *name, BufClass class, DType dtype, uint64_t numel, bool persistent, int32_t unit) {
  PlanBuf *b = vec_add(e->arena, &e->plan->bufs);
  *b = (PlanBuf){.name = plan_intern(e->arena, e->plan, name),
                 .class = class,
                 .dtype = dtype,
                 .numel = numel,
                 .bytes = numel * dtype_bytes(dtype),
                 .offset = e->plan->arena_bytes,
                 .persistent = persistent,
                 .first = persistent ? 0 : INT32_MAX,
                 .unit = unit};
  e->plan->arena_bytes += round_up(b->bytes, PLAN_ALIGN_BYTES);
  return (int32_t)e->plan->bufs.count - 1;
}

static void operand(Emit *e, const Arg *arg) {
  vec_push(e->arena, &e->plan->operands, ((PlanOperand){arg->buf, 0, arg->offset, arg->add}));
  if (arg->buf == PLAN_NONE) return;
  PlanBuf *b = &e->plan->bufs.data[arg->buf];
  int32_t position = (int32_t)e->plan->instrs.count; /* the instruction is added after its operands */
  if (b->persistent) return;
  if (position < b->first) b->first = position;
  if (position > b->last) b->last = position;
}

/* Appends an instruction; wait and record are events or PLAN_NONE. */
static void emit(Emit *e, InstrOp op, const Arg *args, const int64_t *ints, const double *reals, int32_t wait,
                 int32_t record) {
  Plan *plan = e->plan;
  const InstrSpec *spec = &e->specs[op];
  PlanInstr instr = {.op = op,
                     .stream = spec->stream,
                     .operands = plan->operands.count,
                     .ints = plan->ints.count,
                     .reals = plan->reals.count,
                     .waits = plan->waits.count,
                     .record = record,
                     .name = plan_intern(e->arena, plan, spec->name),
                     .ns = 1000};
  for (int k = 0; k < spec->operand_count; k++) operand(e, &args[k]);
  for (int k = 0; k < spec->int_count; k++) vec_push(e->arena, &plan->ints, ints[k]);
  for (int k = 0; k < spec->real_count; k++) vec_push(e->arena, &plan->reals, reals[k]);
  if (wait != PLAN_NONE) {
    vec_push(e->arena, &plan->waits, wait);
    instr.wait_count = 1;
  }
  if (record != PLAN_NONE && (uint32_t)record >= plan->event_count) plan->event_count = (uint32_t)record + 1;
  vec_push(e->arena, &plan->instrs, instr);
}

#define INTS(...)  ((int64_t[]){__VA_ARGS__})
#define ARGS(...)  ((Arg[]){__VA_ARGS__})
#define NO_EVENT   PLAN_NONE, PLAN_NONE

static void segment(Emit *e, const char *name, int32_t first, uint64_t count) {
  vec_push(e->arena, &e->plan->segments,
           ((PlanSegment){plan_intern(e->arena, e->plan, name), first, (int32_t)e->plan->instrs.count, count}));
}

static void param(Emit *e, const char *name, int32_t unit, uint64_t offset, int32_t rank, int64_t a, int64_t b) {
  Init init = rank == 2 ? (Init){INIT_NORMAL, 0.3} : (Init){INIT_ZEROS, 0};
  vec_push(e->arena, &e->plan->params,
           ((PlanParam){plan_intern(e->arena, e->plan, name), unit, offset, rank, {a, b}, init, rank == 2}));
}

static int32_t persistent(Emit *e, const char *unit, const char *what, BufClass class, uint64_t numel, int32_t u) {
  return buf(e, arena_printf(e->arena, "%s.%s", unit, what), class, DTYPE_F32, numel, true, u);
}

static void unit(Emit *e, const char *name, int32_t first, int32_t count, uint64_t numel, uint64_t end) {
  int32_t u = (int32_t)e->plan->units.count;
  uint64_t shard = round_up((end + e->options->shard - 1) / e->options->shard, PLAN_ALIGN_ELEMENTS);
  bool trains = e->plan->training;
  PlanUnit added = {.name = plan_intern(e->arena, e->plan, name),
                    .first_param = first,
                    .param_count = count,
                    .numel = numel,
                    .shard = shard,
                    .reshard = true,
                    .grad_buf = PLAN_NONE,
                    .m_buf = PLAN_NONE,
                    .v_buf = PLAN_NONE,
                    .cast_buf = PLAN_NONE};
  added.param_buf = persistent(e, name, "param", BUF_PARAM, shard, u);
  if (trains) added.grad_buf = persistent(e, name, "grad", BUF_GRAD, shard, u);
  if (trains) added.m_buf = persistent(e, name, "m", BUF_OPTIM, shard, u);
  if (trains && !e->options->sgd) added.v_buf = persistent(e, name, "v", BUF_OPTIM, shard, u);
  vec_push(e->arena, &e->plan->units, added);
}

static void temporaries(Emit *e) {
  uint32_t f = e->options->shard;
  for (int32_t u = 0; u < 2; u++) {
    uint64_t full = e->plan->units.data[u].shard * f;
    e->full[u] = buf(e, arena_printf(e->arena, "u%d.full", u), BUF_GATHERED, DTYPE_F32, full, false, u);
    if (e->plan->training)
      e->grad_full[u] = buf(e, arena_printf(e->arena, "u%d.gradfull", u), BUF_GRADFULL, DTYPE_F32, full, false, u);
  }
  e->tokens = buf(e, "tokens", BUF_INPUT, DTYPE_I32, e->rows, false, PLAN_NONE);
  e->x = buf(e, "x", BUF_ACTIVATION, DTYPE_F32, e->rows * BIGRAM_WIDTH, false, PLAN_NONE);
  e->logits = buf(e, "logits", BUF_ACTIVATION, DTYPE_F32, e->rows * BIGRAM_VOCAB, false, PLAN_NONE);
  if (!e->plan->training) return;
  e->targets = buf(e, "targets", BUF_INPUT, DTYPE_I32, e->rows, false, PLAN_NONE);
  e->row_loss = buf(e, "row_loss", BUF_WORKSPACE, DTYPE_F32, e->rows, false, PLAN_NONE);
  e->dx = buf(e, "dx", BUF_ACTIVATION, DTYPE_F32, e->rows * BIGRAM_WIDTH, false, PLAN_NONE);
}

enum { BIAS_AT = BIGRAM_VOCAB * BIGRAM_WIDTH }; /* a multiple of 64 */

static int64_t shard_of(const Emit *e, int u) { return (int64_t)e->plan->units.data[u].shard; }

static void emit_begin(Emit *e) {
  Plan *plan = e->plan;
  int32_t first = (int32_t)plan->instrs.count;
  emit(e, INSTR_COUNT_TARGETS, ARGS(A(plan->count_buf)), INTS(1, -100), NULL, PLAN_NONE, 0);
  emit(e, INSTR_ZERO, ARGS(A(plan->loss_buf)), INTS(1), NULL, NO_EVENT);
  emit(e, INSTR_ZERO, ARGS(A(e->acc)), INTS(EXACT_DIGITS), NULL, NO_EVENT);
  for (int u = 0; u < 2; u++)
    emit(e, INSTR_ZERO, ARGS(A(plan->units.data[u].grad_buf)), INTS(shard_of(e, u)), NULL, NO_EVENT);
  emit(e, INSTR_ALLREDUCE_SUM, ARGS(A(plan->count_buf)), INTS(1), NULL, 0, PLAN_NONE);
  segment(e, "begin", first, 1);
}

static void emit_forward(Emit *e) {
  int64_t rows = (int64_t)e->rows;
  const PlanUnit *units = e->plan->units.data;
  emit(e, INSTR_ALLGATHER, ARGS(A(units[0].param_buf), A(e->full[0])), INTS(0, shard_of(e, 0)), NULL, PLAN_NONE, 1);
  emit(e, INSTR_ALLGATHER, ARGS(A(units[1].param_buf), A(e->full[1])), INTS(1, shard_of(e, 1)), NULL, PLAN_NONE, 2);
  emit(e, INSTR_INPUT, ARGS(A(e->tokens)), INTS(rows, 0), NULL, NO_EVENT);
  emit(e, INSTR_EMBEDDING_FWD, ARGS(A(e->tokens), A(e->full[0]), A(e->x)), INTS(rows, BIGRAM_VOCAB, BIGRAM_WIDTH), NULL, 1,
       PLAN_NONE);
  emit(e, INSTR_LINEAR_FWD, ARGS(A(e->x), A(e->full[1]), AT(e->full[1], BIAS_AT), A(e->logits)),
       INTS(rows, BIGRAM_VOCAB, BIGRAM_WIDTH), NULL, 2, PLAN_NONE);
}

static void emit_micro(Emit *e) {
  Plan *plan = e->plan;
  int64_t rows = (int64_t)e->rows;
  int32_t first = (int32_t)plan->instrs.count;
  const PlanUnit *units = plan->units.data;
  emit_forward(e);
  emit(e, INSTR_INPUT, ARGS(A(e->targets)), INTS(rows, 1), NULL, NO_EVENT);
  emit(e, INSTR_CROSS_ENTROPY,
       ARGS(A(e->logits), A(e->targets), A(plan->count_buf), A(plan->loss_buf), A(e->row_loss)),
       INTS(rows, BIGRAM_VOCAB, -100), NULL, NO_EVENT);
  for (int u = 0; u < 2; u++) /* also the padding, which is summed over ranks */
    emit(e, INSTR_ZERO, ARGS(A(e->grad_full[u])), INTS(shard_of(e, u) * e->options->shard), NULL, NO_EVENT);
  emit(e, INSTR_LINEAR_BWD_W, ARGS(A(e->x), A(e->logits), A(e->grad_full[1]), AT(e->grad_full[1], BIAS_AT)),
       INTS(rows, BIGRAM_VOCAB, BIGRAM_WIDTH), NULL, PLAN_NONE, 3);
  emit(e, INSTR_REDUCE_SCATTER, ARGS(A(e->grad_full[1]), PLUS(units[1].grad_buf)), INTS(1, shard_of(e, 1)), NULL, 3,
       PLAN_NONE);
  emit(e, INSTR_LINEAR_BWD_X, ARGS(A(e->logits), A(e->full[1]), A(e->dx)), INTS(rows, BIGRAM_VOCAB, BIGRAM_WIDTH), NULL,
       NO_EVENT);
  emit(e, INSTR_EMBEDDING_BWD, ARGS(A(e->tokens), A(e->dx), A(e->grad_full[0])), INTS(rows, BIGRAM_VOCAB, BIGRAM_WIDTH),
       NULL, PLAN_NONE, 4);
  emit(e, INSTR_REDUCE_SCATTER, ARGS(A(e->grad_full[0]), PLUS(units[0].grad_buf)), INTS(0, shard_of(e, 0)), NULL, 4,
       PLAN_NONE);
  segment(e, "micro", first, e->options->accumulation);
}

static void emit_optimizer(Emit *e, int u) {
  const PlanUnit *unit = &e->plan->units.data[u];
  if (e->options->sgd)
    emit(e, INSTR_SGD, ARGS(A(unit->grad_buf), A(e->scale), A(unit->param_buf), A(unit->m_buf), A(PLAN_NONE)),
         INTS(u, shard_of(e, u)), NULL, NO_EVENT);
  else
    emit(e, INSTR_ADAMW,
         ARGS(A(unit->grad_buf), A(e->scale), A(unit->param_buf), A(unit->m_buf), A(unit->v_buf), A(PLAN_NONE)),
         INTS(u, shard_of(e, u)), NULL, NO_EVENT);
}

static void emit_update(Emit *e) {
  Plan *plan = e->plan;
  int32_t first = (int32_t)plan->instrs.count;
  for (int u = 0; u < 2; u++) {
    int32_t grad = plan->units.data[u].grad_buf, done = 5 + u;
    if (e->options->replicas > 1)
      emit(e, INSTR_ALLREDUCE, ARGS(A(grad), A(grad)), INTS(u, shard_of(e, u)), NULL, PLAN_NONE, done);
    emit(e, INSTR_SUM_SQUARES, ARGS(A(grad), A(e->acc)), INTS(u, shard_of(e, u)), NULL,
         e->options->replicas > 1 ? done : PLAN_NONE, u == 1 ? 7 : PLAN_NONE);
  }
  emit(e, INSTR_ALLREDUCE_EXACT, ARGS(A(e->acc)), NULL, NULL, 7, 8);
  emit(e, INSTR_ALLREDUCE_SUM, ARGS(A(plan->loss_buf)), INTS(1), NULL, PLAN_NONE, PLAN_NONE);
  emit(e, INSTR_CLIP, ARGS(A(e->acc), A(plan->norm_buf), A(e->scale)), NULL, (double[]){plan->recipe.clip}, 8, PLAN_NONE);
  for (int u = 0; u < 2; u++) emit_optimizer(e, u);
  segment(e, "update", first, 1);
}

static void settle(Emit *e) {
  Plan *plan = e->plan;
  uint64_t by_class[BUF_CLASS_COUNT];
  int32_t at;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *added = &plan->bufs.data[b];
    if (!added->persistent) continue;
    added->last = (int32_t)plan->instrs.count - 1;
    plan->persistent_bytes += added->bytes;
  }
  plan_peak(plan, by_class, &at);
  for (int c = 0; c < BUF_CLASS_COUNT; c++) plan->max_live_bytes += by_class[c];
}

static Recipe recipe(const BigramOptions *o) {
  return (Recipe){.optimizer = o->sgd ? OPTIMIZER_SGD : OPTIMIZER_ADAMW,
                  .schedule = SCHEDULE_COSINE,
                  .lr = o->sgd ? 1.0 : 0.03,
                  .min_lr = o->sgd ? 0.1 : 0.003,
                  .warmup_steps = 3,
                  .beta1 = 0.9,
                  .beta2 = 0.95,
                  .eps = 1e-8,
                  .momentum = o->sgd ? 0.5 : 0,
                  .decay = 0.01,
                  .clip = 1.0,
                  .steps = o->steps,
                  .seed = 42,
                  .samples_per_step = o->shard * o->replicas * o->micro_batch * o->accumulation,
                  .compute = DTYPE_F32,
                  .reduce = DTYPE_F32};
}

Plan *bigram_plan(Arena *arena, const BigramOptions *options) {
  Plan *plan = plan_new(arena);
  Emit e = {.arena = arena, .plan = plan, .specs = instr_specs(arena), .options = options};
  uint32_t ranks = options->shard * options->replicas;
  e.rows = options->inference ? 1 : options->micro_batch * BIGRAM_CTX;
  plan->model = plan_intern(arena, plan, "bigram");
  plan->training = !options->inference;
  plan->world = (PlanWorld){ranks, options->shard, options->replicas, ranks, options->micro_batch, options->accumulation};
  plan->recipe = recipe(options);
  for (int s = 0; s < STREAM_COUNT; s++)
    plan->queue[s] = !options->one_queue && (s == STREAM_GATHER || s == STREAM_REDUCE || s == STREAM_REPLICATE);
  vec_push(arena, &plan->inputs, ((PlanInput){plan_intern(arena, plan, "tokens"), FEED_TOKENS, BIGRAM_CTX, BIGRAM_VOCAB}));
  if (plan->training)
    vec_push(arena, &plan->inputs, ((PlanInput){plan_intern(arena, plan, "targets"), FEED_TARGETS, BIGRAM_CTX, BIGRAM_VOCAB}));

  const uint64_t table = BIGRAM_VOCAB * BIGRAM_WIDTH;
  param(&e, "wte.weight", 0, 0, 2, BIGRAM_VOCAB, BIGRAM_WIDTH);
  param(&e, "head.weight", 1, 0, 2, BIGRAM_VOCAB, BIGRAM_WIDTH);
  param(&e, "head.bias", 1, BIAS_AT, 1, BIGRAM_VOCAB, 0);
  plan->param_numel = 2 * table + BIGRAM_VOCAB;
  unit(&e, "wte", 0, 1, table, table);
  unit(&e, "head", 1, 2, table + BIGRAM_VOCAB, BIAS_AT + BIGRAM_VOCAB);

  plan->loss_buf = plan->count_buf = plan->norm_buf = plan->output_buf = PLAN_NONE;
  if (plan->training) {
    plan->loss_buf = buf(&e, "loss", BUF_SCALAR, DTYPE_F64, 1, true, PLAN_NONE);
    plan->count_buf = buf(&e, "count", BUF_SCALAR, DTYPE_F64, 1, true, PLAN_NONE);
    plan->norm_buf = buf(&e, "norm", BUF_SCALAR, DTYPE_F64, 1, true, PLAN_NONE);
    e.acc = buf(&e, "acc", BUF_SCALAR, DTYPE_I64, EXACT_DIGITS, true, PLAN_NONE);
    e.scale = buf(&e, "scale", BUF_SCALAR, DTYPE_F32, 1, true, PLAN_NONE);
  }
  temporaries(&e);
  if (plan->training) {
    emit_begin(&e);
    emit_micro(&e);
    emit_update(&e);
  } else {
    emit_forward(&e);
    segment(&e, "decode", 0, 1);
    plan->output_buf = e.logits;
  }
  settle(&e);
  return plan;
}
