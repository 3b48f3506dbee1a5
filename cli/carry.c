/* Owns: what FSDP2 can be told of a plan of our own runtime: the plan's model, found again, with the plan's decisions as pins of its
 * plan block. What options of the command line decide is left to them. A plan decides by operator and by issue slot, and no other
 * executor is told that much: what changes on the way is said in notes. */
#include "cli/executor.h"

enum { UNIT_UNKNOWN = -1, UNIT_SEVERAL = -2 };

/* An iteration of an outermost repeat: what FSDP2 gathers and checkpoints, whole. */
typedef struct Block {
  const char *name;
  int32_t unit; /* of the plan, which holds all its parameters; UNIT_SEVERAL: none does */
  bool reshard; /* some of it is released after forward */
  uint64_t made, away; /* bytes that its operators write in forward; of these such as run again or lie in host memory meanwhile */
} Block;

typedef struct Carry {
  const Cli *cli;
  Arena *arena;
  const char *path;
  const Plan *plan;
  PlanSettings *settings;
  VEC(Block) blocks; /* in order */
  uint32_t found;    /* the block that was looked for last: names come in order */
} Carry;

static bool decided(const Carry *c, OptionId id) {
  return option_given(&c->cli->options, id);
}

static void note(const Carry *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(const Carry *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "note: not as in %s: ", c->path);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
}

/* --- blocks --------------------------------------------------------------------------------------------------------------- */

/* The block that a parameter or an operator lies in, or NULL. */
static Block *block_of(Carry *c, const char *name) {
  for (uint32_t i = 0; i < c->blocks.count; i++) {
    uint32_t b = (c->found + i) % c->blocks.count;
    if (!path_matches(c->blocks.data[b].name, name)) continue;
    c->found = b;
    return &c->blocks.data[b];
  }
  return NULL;
}

static void find_blocks(Carry *c, const Graph *graph) {
  for (uint32_t m = 0; m < graph->modules.count; m++)
    if (graph_is_block(graph, m)) vec_push(c->arena, &c->blocks, ((Block){.name = graph->modules.data[m].name, .unit = UNIT_UNKNOWN}));
}

static void find_units(Carry *c) {
  for (uint32_t p = 0; p < c->plan->params.count; p++) {
    const PlanParam *param = &c->plan->params.data[p];
    Block *block = block_of(c, plan_str(c->plan, param->name));
    if (!block) continue;
    block->unit = block->unit == UNIT_UNKNOWN || block->unit == param->unit ? param->unit : UNIT_SEVERAL;
    block->reshard |= c->plan->units.data[param->unit].reshard;
  }
}

/* Bytes of activations that an instruction writes. */
static uint64_t written_bytes(const Plan *plan, const InstrSpec *specs, const PlanInstr *instr) {
  const InstrSpec *spec = &specs[instr->op];
  uint64_t bytes = 0;
  for (int k = 0; k < spec->operand_count; k++) {
    int32_t buf = plan_operand(plan, instr, k)->buf;
    uint64_t rows, cols;
    if (buf == PLAN_NONE || spec->operands[k].mode != MODE_WRITE || plan->bufs.data[buf].class != BUF_ACTIVATION) continue;
    if (plan_operand_dims(plan, specs, instr, k, &rows, &cols)) bytes += rows * cols * dtype_bytes(plan->bufs.data[buf].dtype);
  }
  return bytes;
}

/* In one micro-batch: all are alike. */
static void find_kept(Carry *c) {
  const InstrSpec *specs = instr_specs(c->arena);
  const PlanSegment *micro = plan_first_micro(c->plan);
  for (int32_t i = micro->first; i < micro->end; i++) {
    const PlanInstr *instr = &c->plan->instrs.data[i];
    bool forward = instr->phase == PHASE_FORWARD, stores = forward && instr->op == INSTR_STORE;
    if (!stores && (instr->stream != STREAM_COMPUTE || (!forward && instr->phase != PHASE_RECOMPUTE))) continue;
    Block *block = block_of(c, plan_str(c->plan, instr->name));
    if (block) *(forward && !stores ? &block->made : &block->away) += written_bytes(c->plan, specs, instr);
  }
}

/* --- decisions ------------------------------------------------------------------------------------------------------------ */

static void carry_width(Carry *c) {
  const PlanWorld *w = &c->plan->world;
  c->settings->strategy = w->shard == w->ranks ? STRATEGY_FULL_SHARD : w->shard == 1 ? STRATEGY_NO_SHARD : STRATEGY_HYBRID_SHARD;
  c->settings->shard = c->settings->strategy == STRATEGY_HYBRID_SHARD ? w->shard : 0;
}

static void carry_micro_batch(Carry *c) {
  c->settings->micro_batch = (int64_t)c->plan->world.micro_batch;
}

static void carry_reductions(Carry *c) {
  const char *reduce = plan_cadence(c->plan, STREAM_REDUCE);
  c->settings->reduce = !reduce ? CADENCE_AUTO : !strcmp(reduce, "step") ? CADENCE_STEP : CADENCE_MICRO_BATCH;
  c->settings->executor.reduce = REDUCE_DEFAULT; /* the plan's says it */
}

/* How far ahead parameters are gathered once a step says nothing about gathering them in each micro-batch. */
static void carry_prefetch(Carry *c) {
  const char *gather = plan_cadence(c->plan, STREAM_GATHER);
  bool once = gather && !strcmp(gather, "step");
  c->settings->gather = CADENCE_AUTO;
  int64_t ahead = c->plan->summary.prefetch;
  c->settings->prefetch = once ? SETTING_AUTO : ahead ? ahead : 1; /* PyTorch's least */
  if (once) note(c, "what is gathered once a step is gathered in each micro-batch");
}

/* In another unit than the block before it. */
static bool begins_unit(const Carry *c, uint32_t b) {
  const Block *block = &c->blocks.data[b];
  return !b || block->unit < 0 || block->unit != block[-1].unit;
}

static void note_units(const Carry *c) {
  uint32_t parted = 0, apart = 0;
  bool *seen = ARENA_ARRAY(c->arena, bool, c->plan->units.count);
  for (uint32_t b = 0; b < c->blocks.count; b++) {
    int32_t unit = c->blocks.data[b].unit;
    parted += unit == UNIT_SEVERAL;
    if (unit < 0 || !begins_unit(c, b)) continue;
    apart += seen[unit];
    seen[unit] = true;
  }
  if (parted) note(c, "%u block%s that several units hold parts of: each becomes one unit", parted, text_plural(parted));
  if (apart) note(c, "units of blocks that are not neighbours: each row of neighbours becomes one");
  note(c, "what lies outside of blocks is one unit, the root, and stays gathered");
}

/* Neighbouring blocks in one unit of the plan. */
static void carry_units(Carry *c) {
  bool stated = !decided(c, OPTION_RESHARD) && !decided(c, OPTION_STRATEGY);
  c->settings->wrap = c->blocks.count ? WRAP_BLOCK : WRAP_WHOLE;
  memset(&c->settings->units, 0, sizeof c->settings->units);
  for (uint32_t b = 0; b < c->blocks.count; b++) {
    const Block *block = &c->blocks.data[b];
    UnitRule rule = {.name = block->name, .reshard = stated ? block->reshard : SETTING_AUTO, .span = SPAN_NONE};
    if (begins_unit(c, b)) vec_push(c->arena, &c->settings->units, rule);
    vec_push(c->arena, &c->settings->units.data[c->settings->units.count - 1].patterns, block->name);
  }
  note_units(c);
}

/* Where blocks differ the rules of units say it. */
static void carry_reshard(Carry *c) {
  uint32_t released = 0;
  for (uint32_t b = 0; b < c->blocks.count; b++) released += c->blocks.data[b].reshard;
  c->settings->reshard = released && released == c->blocks.count ? 1 : released || !c->blocks.count ? SETTING_AUTO : 0;
}

/* A block is checkpointed when the device keeps less than half of the bytes that its operators write: FSDP2 has no host memory for
 * them, but can compute them again. */
static void carry_checkpoints(Carry *c) {
  uint64_t made = 0, away = 0;
  PlanSettings *s = c->settings;
  memset(&s->checkpoints, 0, sizeof s->checkpoints);
  s->executor.selective = SELECTIVE_NONE;
  for (uint32_t b = 0; b < c->blocks.count; b++) {
    const Block *block = &c->blocks.data[b];
    made += block->made;
    away += block->away;
    if (2 * block->away > block->made)
      vec_push(c->arena, &s->checkpoints, ((CheckpointRule){.pattern = block->name, .recompute = true, .span = SPAN_NONE}));
  }
  uint32_t whole = s->checkpoints.count;
  s->checkpoint = whole && whole == c->blocks.count ? CHECKPOINT_FULL : CHECKPOINT_NONE;
  if (away)
    note(c, "%.0f %% of what blocks write, chosen by operator, runs again or lies in host memory; %u of %u blocks are checkpointed, those of "
            "which it is more than half", 100 * (double)away / (double)made, whole, c->blocks.count);
}

static void carry_offload(Carry *c) {
  static const int32_t kinds[BUF_CLASS_COUNT] = {
      [BUF_PARAM] = OFFLOAD_PARAMETERS, [BUF_GRAD] = OFFLOAD_GRADIENTS, [BUF_OPTIM] = OFFLOAD_OPTIMIZER};
  int32_t away = 0;
  for (uint32_t i = 0; i < c->plan->bufs.count; i++)
    if (c->plan->bufs.data[i].host) away |= kinds[c->plan->bufs.data[i].class];
  bool all = away == OFFLOAD_STATES;
  c->settings->offload = all ? OFFLOAD_STATES : 0;
  if (away && !all)
    note(c, "parameters, gradients or moments that lie in host memory stay on the device: FSDP2 moves all three "
            "(--offload parameters,gradients,optimizer) or none");
}

/* What an option decides is not carried over, nor what changes on the way noted. */
static void carry_decisions(Carry *c) {
  static const struct {
    OptionId option;
    void (*carry)(Carry *);
  } decisions[] = {{OPTION_STRATEGY, carry_width},      {OPTION_MICRO_BATCH, carry_micro_batch}, {OPTION_REDUCE, carry_reductions},
                   {OPTION_PREFETCH, carry_prefetch},   {OPTION_WRAP, carry_units},              {OPTION_RESHARD, carry_reshard},
                   {OPTION_CHECKPOINT, carry_checkpoints}, {OPTION_OFFLOAD, carry_offload}};
  for (size_t i = 0; i < sizeof decisions / sizeof *decisions; i++)
    if (!decided(c, decisions[i].option)) decisions[i].carry(c);
}

/* --- the plan's model ----------------------------------------------------------------------------------------------------- */

/* As it was when the plan was made of it, on the cluster that the plan names if not on its own. */
static int open_model(Cli *cli, const char *path, const Plan *plan, Graph **graph, PlannerOptions *options) {
  const char *model = plan_str(plan, plan->source_path);
  int code = compile_settings(cli, model, graph, options);
  if (code == EXIT_INVALID) fprintf(stderr, "note: %s was planned from %s, which names modules and blocks\n", path, model);
  if (code != EXIT_OK || (*graph)->source_hash == plan->source_hash) return code;
  if (compile_on_cluster(cli, model, plan_str(plan, plan->cluster), graph, options, &code) &&
      (code != EXIT_OK || (*graph)->source_hash == plan->source_hash))
    return code;
  cli_error("%s is not what %s was planned from: it, or a file that it uses, has changed since, or --set or --cluster was given then", model, path);
  fprintf(stderr, "help: give --set and --cluster as they were given for the plan, or plan again; 'fsdpc export %s' chooses a policy without the plan\n",
          model);
  return EXIT_INVALID;
}

int carry_plan(Cli *cli, const char *path, Graph **graph, PlannerOptions *options, const Plan **from) {
  Planned planned;
  int code = read_plan_alone(cli, path, &planned);
  if (code != EXIT_OK) return code;
  const Plan *plan = *from = planned.plan;
  if (!plan->training) return cli_error("%s has no backward pass: it was made to generate", path);
  code = open_model(cli, path, plan, graph, options);
  if (code != EXIT_OK) return code;
  Carry carry = {.cli = cli, .arena = cli->arena, .path = path, .plan = plan, .settings = &(*graph)->plan};
  find_blocks(&carry, *graph);
  find_units(&carry);
  find_kept(&carry);
  carry_decisions(&carry);
  compile_options_of_planner(cli, *graph, options);
  if (!decided(&carry, OPTION_RANKS)) options->ranks = plan->world.ranks;
  if (!decided(&carry, OPTION_RANKS_PER_NODE) && !decided(&carry, OPTION_RANKS)) options->ranks_per_node = plan->world.ranks_per_node;
  return EXIT_OK;
}
