/* Owns: the good plan of build.h. */
#include "tests/plan/build.h"

#include <assert.h>

enum { ROWS = 8, D = 64, VOCAB = 32, SHARD0 = 1024, SHARD1 = 2112, SHARD2 = 1024 };

typedef struct Good {
  Build b;
  int32_t tokens, targets, f0, f1, f2, f1b, x0, x1, logits, row_loss, dx1, dx0, g0, g1, g2, loss, count, norm,
      acc, scale;
} Good;

static void settings(Plan *plan, Arena *arena) {
  plan->world = (PlanWorld){
      .ranks = 2, .shard = 2, .replicas = 1, .ranks_per_node = 2, .micro_batch = 2, .accumulation = 2};
  plan->recipe = (Recipe){.optimizer = OPTIMIZER_ADAMW,
                          .schedule = SCHEDULE_COSINE,
                          .lr = 6e-4,
                          .min_lr = 6e-5,
                          .warmup_steps = 200,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .decay = 0.1,
                          .clip = 1,
                          .steps = 1000,
                          .seed = 1337,
                          .samples_per_step = 8,
                          .compute = DTYPE_BF16,
                          .reduce = DTYPE_F32};
  plan->summary = (PlanSummary){.strategy = plan_intern(arena, plan, "full_shard"),
                                .wrap = plan_intern(arena, plan, "block"),
                                .checkpoint = plan_intern(arena, plan, "none"),
                                .prefetch = 1,
                                .step_ns = 12345,
                                .lower_bound_ns = 12000,
                                .bound_by = plan_intern(arena, plan, "compute"),
                                .kept_bytes = 4096,
                                .model_flops_per_sample = 1.0 / 3,
                                .peak_flops = 989.4e12};
  *vec_add(arena, &plan->inputs) = (PlanInput){plan_intern(arena, plan, "tokens"), FEED_TOKENS, 4, VOCAB};
  *vec_add(arena, &plan->inputs) = (PlanInput){plan_intern(arena, plan, "targets"), FEED_TARGETS, 4, VOCAB};
}

static void add_units(Build *b) {
  build_param(b, build_unit(b, "wte", SHARD0), "wte.weight", 0, VOCAB, D);
  int32_t fc = build_unit(b, "fc", SHARD1);
  build_param(b, fc, "fc.weight", 0, D, D);
  build_param(b, fc, "fc.bias", D * D, 0, D);
  build_param(b, build_unit(b, "head", SHARD2), "head.weight", 0, VOCAB, D);
}

static int32_t transient(Build *b, const char *name, BufClass class, DType dtype, uint64_t numel,
                         int32_t unit) {
  return build_buf(b, name, class, dtype, numel, unit, false);
}

static void add_bufs(Good *g) {
  Build *b = &g->b;
  g->loss = build_buf(b, "loss", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  g->count = build_buf(b, "count", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  g->norm = build_buf(b, "norm", BUF_SCALAR, DTYPE_F64, 1, PLAN_NONE, true);
  g->acc = transient(b, "acc", BUF_WORKSPACE, DTYPE_I64, EXACT_DIGITS, PLAN_NONE);
  g->scale = transient(b, "scale", BUF_WORKSPACE, DTYPE_F32, 1, PLAN_NONE);
  g->tokens = transient(b, "tokens", BUF_INPUT, DTYPE_I32, ROWS, PLAN_NONE);
  g->targets = transient(b, "targets", BUF_INPUT, DTYPE_I32, ROWS, PLAN_NONE);
  g->f0 = transient(b, "wte.full", BUF_GATHERED, DTYPE_BF16, 2 * SHARD0, 0);
  g->f1 = transient(b, "fc.full", BUF_GATHERED, DTYPE_BF16, 2 * SHARD1, 1);
  g->f2 = transient(b, "head.full", BUF_GATHERED, DTYPE_BF16, 2 * SHARD2, 2);
  g->f1b = transient(b, "fc.full.2", BUF_GATHERED, DTYPE_BF16, 2 * SHARD1, 1);
  b->plan->bufs.data[g->f2].offset = b->plan->bufs.data[g->f0].offset;
  b->plan->bufs.data[g->f1b].offset = b->plan->bufs.data[g->f1].offset;
  g->x0 = transient(b, "x0", BUF_ACTIVATION, DTYPE_BF16, ROWS * D, PLAN_NONE);
  g->x1 = transient(b, "x1", BUF_ACTIVATION, DTYPE_BF16, ROWS * D, PLAN_NONE);
  g->logits = transient(b, "logits", BUF_ACTIVATION, DTYPE_BF16, ROWS * VOCAB, PLAN_NONE);
  g->row_loss = transient(b, "row_loss", BUF_WORKSPACE, DTYPE_F32, ROWS, PLAN_NONE);
  g->dx1 = transient(b, "dx1", BUF_ACTIVATION, DTYPE_BF16, ROWS * D, PLAN_NONE);
  g->dx0 = transient(b, "dx0", BUF_ACTIVATION, DTYPE_BF16, ROWS * D, PLAN_NONE);
  g->g0 = transient(b, "wte.gradfull", BUF_GRADFULL, DTYPE_F32, 2 * SHARD0, 0);
  g->g1 = transient(b, "fc.gradfull", BUF_GRADFULL, DTYPE_F32, 2 * SHARD1, 1);
  g->g2 = transient(b, "head.gradfull", BUF_GRADFULL, DTYPE_F32, 2 * SHARD2, 2);
  b->plan->bufs.data[g->g0].offset = b->plan->bufs.data[g->g2].offset;
  b->plan->loss_buf = g->loss, b->plan->count_buf = g->count, b->plan->norm_buf = g->norm;
}

static const PlanUnit *unit(const Good *g, int u) {
  return &g->b.plan->units.data[u];
}
static const char *unit_name(const Good *g, int u) {
  return plan_str(g->b.plan, unit(g, u)->name);
}

static void add_begin(Good *g) {
  Build *b = &g->b;
  build_segment(b, "begin", 1);
  int32_t count = build_instr(b, INSTR_COUNT_TARGETS, PHASE_BEGIN, "loss", OPERANDS(B(g->count)),
                              INTS(1, -100), NULL, 10);
  int32_t sum =
      build_instr(b, INSTR_ALLREDUCE_SUM, PHASE_BEGIN, "loss", OPERANDS(B(g->count)), INTS(1), NULL, 20);
  build_edge(b, count, sum);
  for (int u = 0; u < 3; u++)
    build_instr(b, INSTR_ZERO, PHASE_BEGIN, unit_name(g, u), OPERANDS(B(unit(g, u)->grad_buf)),
                INTS((int64_t)unit(g, u)->shard), NULL, 10);
  build_instr(b, INSTR_ZERO, PHASE_BEGIN, "loss", OPERANDS(B(g->loss)), INTS(1), NULL, 10);
}

static int32_t gather(Good *g, int u, Phase phase, int32_t full) {
  return build_instr(&g->b, INSTR_ALLGATHER, phase, unit_name(g, u),
                     OPERANDS(B(unit(g, u)->cast_buf), B(full)), INTS(u, (int64_t)unit(g, u)->shard), NULL,
                     100);
}

static int32_t reduce(Good *g, int u, int32_t full) {
  return build_instr(&g->b, INSTR_REDUCE_SCATTER, PHASE_BACKWARD, unit_name(g, u),
                     OPERANDS(B(full), B_ADD(unit(g, u)->grad_buf)), INTS(u, (int64_t)unit(g, u)->shard),
                     NULL, 200);
}

static void add_forward(Good *g) {
  Build *b = &g->b;
  int32_t tokens =
      build_instr(b, INSTR_INPUT, PHASE_FORWARD, "tokens", OPERANDS(B(g->tokens)), INTS(ROWS, 0), NULL, 5);
  int32_t targets =
      build_instr(b, INSTR_INPUT, PHASE_FORWARD, "targets", OPERANDS(B(g->targets)), INTS(ROWS, 1), NULL, 5);
  int32_t g0 = gather(g, 0, PHASE_FORWARD, g->f0), g1 = gather(g, 1, PHASE_FORWARD, g->f1);
  int32_t embed = build_instr(b, INSTR_EMBEDDING_FWD, PHASE_FORWARD, "wte",
                              OPERANDS(B(g->tokens), B(g->f0), B(g->x0)), INTS(ROWS, VOCAB, D), NULL, 50);
  build_edge(b, tokens, embed);
  build_edge(b, g0, embed);
  int32_t g2 = gather(g, 2, PHASE_FORWARD, g->f2);
  build_edge(b, embed, g2);
  int32_t linear =
      build_instr(b, INSTR_LINEAR_FWD, PHASE_FORWARD, "fc",
                  OPERANDS(B(g->x0), B(g->f1), B_AT(g->f1, D * D), B(g->x1)), INTS(ROWS, D, D), NULL, 150);
  build_edge(b, g1, linear);
  int32_t head =
      build_instr(b, INSTR_LINEAR_FWD, PHASE_FORWARD, "head",
                  OPERANDS(B(g->x1), B(g->f2), B_NONE, B(g->logits)), INTS(ROWS, VOCAB, D), NULL, 150);
  build_edge(b, g2, head);
  int32_t loss = build_instr(b, INSTR_CROSS_ENTROPY, PHASE_FORWARD, "loss",
                             OPERANDS(B(g->logits), B(g->targets), B(g->count), B(g->loss), B(g->row_loss)),
                             INTS(ROWS, VOCAB, -100), NULL, 50);
  build_edge(b, targets, loss);
}

static void add_backward(Good *g) {
  Build *b = &g->b;
  int32_t g1 = gather(g, 1, PHASE_BACKWARD, g->f1b);
  build_edge(b, AT_LINEAR, g1);
  int32_t head_dw =
      build_instr(b, INSTR_LINEAR_BWD_W, PHASE_BACKWARD, "head",
                  OPERANDS(B(g->x1), B(g->logits), B(g->g2), B_NONE), INTS(ROWS, VOCAB, D), NULL, 150);
  build_instr(b, INSTR_LINEAR_BWD_X, PHASE_BACKWARD, "head", OPERANDS(B(g->logits), B(g->f2), B(g->dx1)),
              INTS(ROWS, VOCAB, D), NULL, 150);
  int32_t r2 = reduce(g, 2, g->g2);
  build_edge(b, head_dw, r2);
  int32_t fc_dw =
      build_instr(b, INSTR_LINEAR_BWD_W, PHASE_BACKWARD, "fc",
                  OPERANDS(B(g->x0), B(g->dx1), B(g->g1), B_AT(g->g1, D * D)), INTS(ROWS, D, D), NULL, 150);
  int32_t fc_dx = build_instr(b, INSTR_LINEAR_BWD_X, PHASE_BACKWARD, "fc",
                              OPERANDS(B(g->dx1), B(g->f1b), B(g->dx0)), INTS(ROWS, D, D), NULL, 150);
  build_edge(b, g1, fc_dx);
  int32_t r1 = reduce(g, 1, g->g1);
  build_edge(b, fc_dw, r1);
  int32_t embed_dw = build_instr(b, INSTR_EMBEDDING_BWD, PHASE_BACKWARD, "wte",
                                 OPERANDS(B(g->tokens), B(g->dx0), B(g->g0)), INTS(ROWS, VOCAB, D), NULL, 50);
  build_edge(b, r2, embed_dw);
  int32_t r0 = reduce(g, 0, g->g0);
  build_edge(b, embed_dw, r0);
}

static void add_update(Good *g) {
  Build *b = &g->b;
  build_segment(b, "update", 1);
  build_instr(b, INSTR_ALLREDUCE_SUM, PHASE_UPDATE, "loss", OPERANDS(B(g->loss)), INTS(1), NULL, 20);
  build_instr(b, INSTR_ZERO, PHASE_UPDATE, "clip", OPERANDS(B(g->acc)), INTS(EXACT_DIGITS), NULL, 10);
  int32_t squares = 0;
  for (int u = 0; u < 3; u++)
    squares = build_instr(b, INSTR_SUM_SQUARES, PHASE_UPDATE, unit_name(g, u),
                          OPERANDS(B(unit(g, u)->grad_buf), B(g->acc)), INTS(u, (int64_t)unit(g, u)->shard),
                          NULL, 30);
  int32_t norm =
      build_instr(b, INSTR_ALLREDUCE_EXACT, PHASE_UPDATE, "clip", OPERANDS(B(g->acc)), NULL, NULL, 20);
  build_edge(b, squares, norm);
  int32_t clip = build_instr(b, INSTR_CLIP, PHASE_UPDATE, "clip",
                             OPERANDS(B(g->acc), B(g->norm), B(g->scale)), NULL, REALS(1.0), 10);
  build_edge(b, norm, clip);
  for (int u = 0; u < 3; u++)
    build_instr(b, INSTR_ADAMW, PHASE_UPDATE, unit_name(g, u),
                OPERANDS(B(unit(g, u)->grad_buf), B(g->scale), B(unit(g, u)->param_buf), B(unit(g, u)->m_buf),
                         B(unit(g, u)->v_buf), B(unit(g, u)->cast_buf)),
                INTS(u, (int64_t)unit(g, u)->shard), NULL, 60);
}

Plan *good_plan(Arena *arena) {
  Good g = {.b = build_new(arena)};
  settings(g.b.plan, arena);
  add_units(&g.b);
  add_bufs(&g);
  add_begin(&g);
  build_segment(&g.b, "micro", 2);
  add_forward(&g);
  add_backward(&g);
  add_update(&g);
  build_finish(&g.b);
  assert(g.b.plan->instrs.count == GOOD_INSTRS);
  return g.b.plan;
}
