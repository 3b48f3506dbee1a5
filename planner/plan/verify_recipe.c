/* Owns: rule attribute where instructions say again what the recipe and the inputs say, or what another instruction does: the optimizer, clipping,
 * dtypes, which targets count. What a run reports, and what checkpoints are compared by, is the recipe. */
#include "planner/plan/check.h"

#define WRONG(...) violate(check, VERIFY_ATTRIBUTE, i, PLAN_NONE, __VA_ARGS__)

static const struct {
  InstrOp op;
  OptimizerKind optimizer;
} updates[] = {{INSTR_ADAMW, OPTIMIZER_ADAMW},
               {INSTR_LION, OPTIMIZER_LION},
               {INSTR_SGD, OPTIMIZER_SGD},
               {INSTR_ADAFACTOR_SUMS, OPTIMIZER_ADAFACTOR},
               {INSTR_ADAFACTOR_MOMENTS, OPTIMIZER_ADAFACTOR},
               {INSTR_ADAFACTOR, OPTIMIZER_ADAFACTOR}};

static void check_optimizer(Check *check, int32_t i) {
  static const char *const names[] = {OPTIMIZER_NAMES};
  const OptimizerKind kind = check->plan->recipe.optimizer;
  for (size_t u = 0; u < sizeof updates / sizeof *updates; u++)
    if (updates[u].op == check->plan->instrs.data[i].op && updates[u].optimizer != kind)
      WRONG("the recipe's optimizer is %s", kind < OPTIMIZER_COUNT ? names[kind] : "not known");
}

static double real_named(const Check *check, const PlanInstr *instr, const char *name, double none) {
  const InstrSpec *spec = &check->specs[instr->op];
  for (int k = 0; k < spec->real_count; k++)
    if (!strcmp(spec->reals[k], name)) return plan_real(check->plan, instr, k);
  return none;
}

/* By instruction, the operand called so; -1: it has none. */
typedef struct Named {
  int at[INSTR_COUNT];
} Named;

static Named operands_named(const Check *check, const char *name, bool written) {
  Named out;
  for (int op = 0; op < INSTR_COUNT; op++) {
    const InstrSpec *spec = &check->specs[op];
    out.at[op] = -1;
    for (int k = 0; k < spec->operand_count; k++)
      if (!strcmp(spec->operands[k].name, name) && (!written || spec->operands[k].mode != MODE_READ)) out.at[op] = k;
  }
  return out;
}
static int32_t buf_of(const Check *check, const Named *named, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  return named->at[instr->op] < 0 ? PLAN_NONE : plan_operand(check->plan, instr, named->at[instr->op])->buf;
}

static void check_clip(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const double norm = real_named(check, instr, "max_norm", 0), clip = check->plan->recipe.clip;
  if (norm != clip) WRONG("max_norm=%g, but the recipe clips at %g", norm, clip);
  if (instr->op != INSTR_CLIP_SCALED) return;
  const double growth = real_named(check, instr, "growth", 0), backoff = real_named(check, instr, "backoff", 0), init = real_named(check, instr, "init", 0);
  if (growth < 1) WRONG("growth=%g, but the loss scale does not shrink by growing", growth);
  if (backoff <= 0 || backoff > 1) WRONG("backoff=%g is not above 0 and at most 1", backoff);
  if (init <= 0) WRONG("init=%g, but a loss scale is above 0", init);
}

/* Before i, what feeds the buffer has this input. */
static void check_fed(Check *check, int32_t i, int32_t targets, int64_t input) {
  const Named data = operands_named(check, "data", true);
  for (int32_t j = 0; j < i; j++)
    if (buf_of(check, &data, j) == targets && check_int(check, &check->plan->instrs.data[j], "input") != input)
      WRONG("its targets are those of i%d, input %lld, but those of input %lld are counted", j,
            (long long)check_int(check, &check->plan->instrs.data[j], "input"), (long long)input);
}

/* The targets that losses take are those that are counted: of one input, but for the same ignored ones. */
static void check_count(Check *check, int32_t count) {
  const Plan *plan = check->plan;
  const Named targets = operands_named(check, "targets", false);
  const int64_t ignore = check_int(check, &plan->instrs.data[count], "ignore"), input = check_int(check, &plan->instrs.data[count], "input");
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const int32_t buf = buf_of(check, &targets, i);
    if (buf == PLAN_NONE) continue;
    const int64_t ignored = check_int(check, &plan->instrs.data[i], "ignore");
    if (ignored != ignore) WRONG("ignore=%lld, but i%d counts all but %lld", (long long)ignored, count, (long long)ignore);
    check_fed(check, i, buf, input);
  }
}

static void check_instr(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const double eps = real_named(check, instr, "eps", 1);
  if (!(eps >= RECIPE_LEAST_EPS)) WRONG("eps=%g is not above 0 in f32", eps);
  if (!check->plan->training) return;
  check_optimizer(check, i);
  if (instr->op == INSTR_CLIP || instr->op == INSTR_CLIP_SCALED) check_clip(check, i);
  if (instr->op == INSTR_COUNT_TARGETS) check_count(check, i);
}
#undef WRONG

/* Where instructions write such a thing, one of them writes it there. */
static bool is_written_as(const Check *check, int32_t buf, const char *name) {
  const Named named = operands_named(check, name, true);
  bool elsewhere = false;
  for (int32_t i = 0; i < (int32_t)check->plan->instrs.count; i++) {
    const int32_t written = buf_of(check, &named, i);
    if (written == buf) return true;
    elsewhere |= written != PLAN_NONE;
  }
  return !elsewhere;
}

/* What a run reports of a step. */
static void check_results(Check *check) {
  const struct {
    const char *name;
    int32_t buf;
  } results[] = {{"loss", check->plan->loss_buf}, {"count", check->plan->count_buf}, {"norm", check->plan->norm_buf}};
  for (size_t r = 0; r < sizeof results / sizeof *results; r++)
    if (results[r].buf != PLAN_NONE && !is_written_as(check, results[r].buf, results[r].name))
      violate(check, VERIFY_ATTRIBUTE, PLAN_NONE, results[r].buf, "the step's %s is b%d \"%s\", but instructions write it elsewhere", results[r].name, results[r].buf,
              check_buf_name(check, results[r].buf));
}

static void check_dtypes(Check *check) {
  const Recipe *recipe = &check->plan->recipe;
  for (uint32_t b = 0; b < check->plan->bufs.count; b++) {
    const PlanBuf *buf = &check->plan->bufs.data[b];
    const DType dtype = buf->class == BUF_GRADFULL ? recipe->reduce : recipe->compute;
    if ((buf->class == BUF_GRADFULL || buf->class == BUF_GATHERED) && buf->dtype != dtype)
      violate(check, VERIFY_ATTRIBUTE, PLAN_NONE, (int32_t)b, "b%u \"%s\" is %s, but the recipe's %s", b, plan_str(check->plan, buf->name),
              dtype_name(buf->dtype), dtype_name(dtype));
  }
}

static void check_samples(Check *check) {
  const PlanWorld *world = &check->plan->world;
  const uint64_t stated = check->plan->recipe.samples_per_step;
  if (stated != 0 && stated != world->micro_batch * world->accumulation * world->ranks)
    violate(check, VERIFY_ATTRIBUTE, PLAN_NONE, PLAN_NONE, "the recipe takes %llu samples a step, but %u ranks take %llu x %llu each",
            (unsigned long long)stated, world->ranks, (unsigned long long)world->accumulation, (unsigned long long)world->micro_batch);
}

void check_recipe_followed(Check *check) {
  for (int32_t i = 0; i < (int32_t)check->plan->instrs.count; i++) check_instr(check, i);
  if (!check->plan->training) return;
  check_results(check);
  check_dtypes(check);
  check_samples(check);
}
