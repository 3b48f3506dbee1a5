/* Owns: see trace.h. */
#include "planner/view/trace.h"

#include "planner/plan/plan_text.h"
#include "planner/view/curve.h"
#include "planner/view/json.h"
#include "planner/view/owner.h"

enum { LANE_STEP = 1, LANE_STREAM = 2, LANE_OPTIMIZER = LANE_STREAM + STREAM_COUNT, RANKS_LISTED = 16 };

struct Trace {
  Arena *arena;
  Text *out;
  const Plan *plan;
  const InstrSpec *specs;
  int32_t *owner;
  uint32_t pid, rank, flows, sequence;
  bool any; /* event so far */
};

/* --- one event ----------------------------------------------------------------------------------------- */

/* Microseconds with all their digits. */
static void add_us(Text *out, const char *key, uint64_t ns) {
  text_printf(out, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
}

/* {"ph":"X","pid":0,"tid":2,"ts":.. and the caller goes on; tid 0: none */
static void open_event(Trace *t, char phase, uint32_t tid, uint64_t ns) {
  text_printf(t->out, "%s\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u", t->any ? "," : "", phase, t->pid, tid);
  add_us(t->out, "ts", ns);
  t->any = true;
}

static void add_name(Trace *t, const char *name) {
  text_printf(t->out, ",\"name\":");
  json_text(t->out, name);
}

static void metadata(Trace *t, const char *what, uint32_t tid, const char *name, uint32_t sort) {
  bool sorts = !name;
  text_printf(t->out, "%s\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"name\":\"%s\",\"args\":{", t->any ? "," : "", t->pid, tid, what);
  if (sorts)
    text_printf(t->out, "\"sort_index\":%u}}", sort);
  else {
    text_printf(t->out, "\"name\":");
    json_text(t->out, name);
    text_printf(t->out, "}}");
  }
  t->any = true;
}

static uint32_t lane_of(const PlanInstr *instr) {
  if (instr->stream == STREAM_COMPUTE && instr->phase == PHASE_UPDATE) return LANE_OPTIMIZER;
  return LANE_STREAM + (uint32_t)instr->stream;
}

/* --- collectives, in kineto's words -------------------------------------------------------------------- */

static const char *dtype_text(DType dtype) {
  switch (dtype) {
  case DTYPE_F32: return "Float";
  case DTYPE_BF16: return "BFloat16";
  case DTYPE_F16: return "Half";
  case DTYPE_F64: return "Double";
  case DTYPE_I64: return "Long";
  default: return dtype_name(dtype);
  }
}

static const char *collective_text(InstrOp op) {
  if (op == INSTR_ALLGATHER) return "_allgather_base";
  return op == INSTR_REDUCE_SCATTER ? "_reduce_scatter_base" : "allreduce";
}

/* The ranks of a group: `count` of them from `first`, `stride` apart; the middle of long lists is left out as kineto does. */
static void add_group(Trace *t, const char *name, uint32_t first, uint32_t count, uint32_t stride) {
  text_printf(t->out, ",\"Group size\":%u,\"Process Group Name\":\"%s\",\"Process Group Ranks\":\"[", count, name);
  for (uint32_t k = 0; k < count; k++) {
    if (count > RANKS_LISTED && k == RANKS_LISTED - 2) {
      text_printf(t->out, ", ...");
      k = count - 1;
    }
    text_printf(t->out, "%s%u", k ? ", " : "", first + k * stride);
  }
  text_printf(t->out, "]\"");
}

static void add_collective(Trace *t, const PlanInstr *instr) {
  const PlanWorld *world = &t->plan->world;
  const PlanOperand *in = plan_operand(t->plan, instr, 0);
  uint64_t rows = 1, sent = 0, received = 0;
  plan_operand_dims(t->plan, t->specs, instr, 0, &rows, &sent);
  sent *= rows;
  received = sent;
  if (t->specs[instr->op].operand_count > 1 && plan_operand_dims(t->plan, t->specs, instr, 1, &rows, &received)) received *= rows;
  text_printf(t->out, ",\"Collective name\":\"%s\",\"dtype\":\"%s\",\"In msg nelems\":%llu,\"Out msg nelems\":%llu",
              collective_text(instr->op), dtype_text(t->plan->bufs.data[in->buf].dtype), (unsigned long long)sent,
              (unsigned long long)received);
  if (instr->op == INSTR_ALLREDUCE)
    add_group(t, "replicate", t->rank % world->shard, world->replicas, world->shard);
  else if (instr->op == INSTR_ALLREDUCE_SUM)
    add_group(t, "world", 0, world->ranks, 1);
  else
    add_group(t, "shard", t->rank / world->shard * world->shard, world->shard, 1);
  text_printf(t->out, ",\"Seq\":%u", t->sequence++);
}

static bool is_collective(const PlanInstr *instr) {
  return instr->stream == STREAM_GATHER || instr->stream == STREAM_REDUCE || instr->stream == STREAM_REPLICATE;
}

/* --- slices -------------------------------------------------------------------------------------------- */

typedef struct Piece {
  Trace *t;
  const PlanSegment *segment;
  const SimSpan *spans;
  uint64_t stands_for, begin, end, shift;
} Piece;

static uint64_t begin_of(const Piece *p, int32_t i) {
  return p->spans[i].start - p->shift;
}
static uint64_t end_of(const Piece *p, int32_t i) {
  return p->spans[i].end - p->shift;
}
static bool is_shown(const Piece *p, int32_t i) {
  return p->spans[i].end > p->spans[i].start;
}

static void instr_slice(const Piece *p, int32_t i) {
  Trace *t = p->t;
  const PlanInstr *instr = &t->plan->instrs.data[i];
  open_event(t, 'X', lane_of(instr), begin_of(p, i));
  add_us(t->out, "dur", end_of(p, i) - begin_of(p, i));
  add_name(t, arena_printf(t->arena, "%s %s", t->specs[instr->op].name, plan_str(t->plan, instr->name)));
  text_printf(t->out, ",\"cat\":\"%s\",\"args\":{\"instr\":%d,\"phase\":\"%s\",\"predicted_ns\":%llu,\"repetitions\":%llu",
              stream_name(instr->stream), i, phase_name(instr->phase), (unsigned long long)instr->ns,
              (unsigned long long)p->stands_for);
  if (instr->flops) text_printf(t->out, ",\"flops\":%llu", (unsigned long long)instr->flops);
  if (instr->bytes) text_printf(t->out, ",\"bytes\":%llu", (unsigned long long)instr->bytes);
  if (is_collective(instr)) add_collective(t, instr);
  text_printf(t->out, "}}");
}

/* A slice around instructions [first, last]: a unit's, or a phase's. */
static void around(const Piece *p, uint32_t lane, const char *category, const char *name, uint64_t begin, uint64_t end) {
  if (end <= begin) return;
  open_event(p->t, 'X', lane, begin);
  add_us(p->t->out, "dur", end - begin);
  add_name(p->t, name);
  text_printf(p->t->out, ",\"cat\":\"%s\"}", category);
}

static const char *pass_text(const PlanInstr *instr) {
  return instr->phase == PHASE_RECOMPUTE ? phase_name(PHASE_BACKWARD) : phase_name(instr->phase);
}

/* Runs of compute that share a unit (or, with units false, a pass) as slices that hold their instructions. */
static void group_slices(const Piece *p, bool units) {
  Trace *t = p->t;
  const char *name = NULL, *pass = NULL;
  uint64_t begin = 0, end = 0;
  uint32_t lane = 0;
  for (int32_t i = p->segment->first; i < p->segment->end; i++) {
    const PlanInstr *instr = &t->plan->instrs.data[i];
    if (instr->stream != STREAM_COMPUTE || !is_shown(p, i)) continue;
    int32_t u = t->owner[i];
    const char *now_pass = pass_text(instr),
               *now = !units ? now_pass : u == PLAN_NONE ? NULL : plan_str(t->plan, t->plan->units.data[u].name);
    if (now != name || now_pass != pass) {
      if (name) around(p, lane, units ? "unit" : "pass", name, begin, end);
      begin = begin_of(p, i);
      name = now, pass = now_pass;
    }
    lane = units ? lane_of(instr) : LANE_STEP;
    end = end_of(p, i);
  }
  if (name) around(p, lane, units ? "unit" : "pass", name, begin, end);
}

/* --- flows --------------------------------------------------------------------------------------------- */

static void flow(const Piece *p, const char *name, int32_t from, int32_t to) {
  Trace *t = p->t;
  if (!is_shown(p, from) || !is_shown(p, to)) return;
  uint32_t id = ++t->flows;
  for (int side = 0; side < 2; side++) {
    const PlanInstr *instr = &t->plan->instrs.data[side ? to : from];
    open_event(t, side ? 'f' : 's', lane_of(instr), side ? begin_of(p, to) : end_of(p, from) - 1);
    add_name(t, name);
    text_printf(t->out, ",\"cat\":\"%s\",\"id\":%u%s}", name, id, side ? ",\"bp\":\"e\"" : "");
  }
}

/* Gather -> the first computation that reads it; the last computation before a reduction that touches its gradient -> it. */
static void flows(const Piece *p) {
  const Plan *plan = p->t->plan;
  Arena *scratch = arena_new();
  int32_t *gather = ARENA_ARRAY(scratch, int32_t, plan->bufs.count), *touched = ARENA_ARRAY(scratch, int32_t, plan->bufs.count);
  for (uint32_t b = 0; b < plan->bufs.count; b++) gather[b] = touched[b] = PLAN_NONE;
  for (int32_t i = p->segment->first; i < p->segment->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->op == INSTR_ALLGATHER) gather[plan_operand(plan, instr, 1)->buf] = i;
    if (instr->op == INSTR_REDUCE_SCATTER) {
      int32_t full = plan_operand(plan, instr, 0)->buf;
      if (touched[full] != PLAN_NONE) flow(p, "reduce", touched[full], i);
    }
    if (instr->stream != STREAM_COMPUTE) continue;
    for (int k = 0; k < p->t->specs[instr->op].operand_count; k++) {
      int32_t buf = plan_operand(plan, instr, k)->buf;
      if (buf == PLAN_NONE) continue;
      touched[buf] = i;
      if (gather[buf] != PLAN_NONE) flow(p, "gather", gather[buf], i);
      gather[buf] = PLAN_NONE;
    }
  }
  arena_free(scratch);
}

/* --- counters ------------------------------------------------------------------------------------------ */

static void counter(Trace *t, uint64_t ns, int class, uint64_t bytes) {
  open_event(t, 'C', 0, ns);
  text_printf(t->out, ",\"name\":\"memory %s\",\"args\":{\"bytes\":%llu}}", buf_class_name((BufClass)class),
              (unsigned long long)bytes);
}

static void counters(const Piece *p) {
  Trace *t = p->t;
  Arena *scratch = arena_new();
  Curve curve = memory_curve(scratch, t->plan, t->specs, p->segment, p->spans, p->begin);
  for (uint32_t k = 0; k < curve.count; k++)
    for (int c = 0; c < BUF_CLASS_COUNT; c++)
      if (!k || curve.data[k].by_class[c] != curve.data[k - 1].by_class[c])
        counter(t, curve.data[k].ns - p->shift, c, curve.data[k].by_class[c]);
  arena_free(scratch);
}

/* --- the whole ----------------------------------------------------------------------------------------- */

Trace *trace_begin(Arena *arena, Text *out, const Plan *plan, uint32_t rank) {
  Trace *t = ARENA_NEW(arena, Trace);
  *t = (Trace){.arena = arena, .out = out, .plan = plan, .specs = instr_specs(arena), .rank = rank};
  t->owner = owners_of(arena, plan, t->specs);
  text_printf(out, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ns\",\n\"distributedInfo\":{\"backend\":\"fsdpc\",\"rank\":%u,"
                   "\"world_size\":%u},\n\"plan\":\"%016llx\",\"model\":",
              rank, plan->world.ranks, (unsigned long long)plan_hash(plan));
  json_text(out, plan_str(plan, plan->model));
  text_printf(out, ",\n\"traceEvents\":[");
  return t;
}

static bool lane_is_used(const Plan *plan, uint32_t lane) {
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (lane_of(&plan->instrs.data[i]) == lane) return true;
  return lane == LANE_STEP;
}

void trace_process(Trace *t, uint32_t pid, uint32_t rank, const char *name) {
  static const char *const lanes[] = {[LANE_STEP] = "step",
                                      [LANE_STREAM + STREAM_COMPUTE] = "compute",
                                      [LANE_STREAM + STREAM_GATHER] = "all-gather",
                                      [LANE_STREAM + STREAM_REDUCE] = "reduce-scatter",
                                      [LANE_STREAM + STREAM_REPLICATE] = "all-reduce",
                                      [LANE_STREAM + STREAM_COPY_IN] = "copy in",
                                      [LANE_STREAM + STREAM_COPY_OUT] = "copy out",
                                      [LANE_OPTIMIZER] = "optimizer"};
  t->pid = pid;
  t->rank = rank;
  t->sequence = 0;
  metadata(t, "process_name", 0, name, 0);
  metadata(t, "process_sort_index", 0, NULL, pid);
  for (uint32_t lane = LANE_STEP; lane <= LANE_OPTIMIZER; lane++) {
    if (!lane_is_used(t->plan, lane)) continue;
    metadata(t, "thread_name", lane, lanes[lane], 0);
    metadata(t, "thread_sort_index", lane, NULL, lane);
  }
}

void trace_segment(Trace *t, uint32_t s, uint64_t stands_for, const SimSpan *spans, uint64_t begin, uint64_t end, uint64_t shift) {
  const PlanSegment *segment = &t->plan->segments.data[s];
  Piece p = {t, segment, spans, stands_for, begin, end, shift};
  const char *name = plan_str(t->plan, segment->name);
  if (stands_for > 1) name = arena_printf(t->arena, "%s x%llu", name, (unsigned long long)stands_for);
  around(&p, LANE_STEP, "segment", name, begin - shift, end - shift);
  group_slices(&p, false);
  group_slices(&p, true);
  for (int32_t i = segment->first; i < segment->end; i++)
    if (is_shown(&p, i)) instr_slice(&p, i);
  flows(&p);
  counters(&p);
}

void trace_end(Trace *t) {
  text_printf(t->out, "\n]}\n");
}

/* --- a predicted step ---------------------------------------------------------------------------------- */

static uint64_t executions(const Plan *plan) {
  uint64_t count = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    count += (uint64_t)(plan->segments.data[s].end - plan->segments.data[s].first) * plan->segments.data[s].count;
  return count;
}

/* Spans are those of a segment's first repetition; a later one is the same, later: a negative shift, modulo 2^64. */
void trace_predicted(Trace *t, uint32_t pid, const SimResult *sim) {
  const Plan *plan = t->plan;
  bool each = executions(plan) <= TRACE_INSTRS_MOST;
  uint64_t simulated = 0, written = 0;
  trace_process(t, pid, 0, plan->world.ranks > 1 ? "each rank (predicted)" : "rank 0 (predicted)");
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    uint64_t count = plan->segments.data[s].count, ns = sim->segment_ns[s];
    for (uint64_t k = 0; k < (each ? count : 1); k++) {
      trace_segment(t, s, each ? 1 : count, sim->spans, simulated, simulated + ns, simulated - written);
      written += ns;
    }
    simulated += ns * count;
  }
}

void view_trace(Text *out, const Plan *plan, const SimResult *sim) {
  Arena *scratch = arena_new();
  Trace *t = trace_begin(scratch, out, plan, 0);
  trace_predicted(t, 0, sim);
  trace_end(t);
  arena_free(scratch);
}
