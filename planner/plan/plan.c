/* Owns: names of the contract's enums, building a Plan, its string table, and the two derived facts that
 * every reader needs: an operand's shape and the memory peak. */
#include "planner/plan/plan.h"
#include "base/checked.h"
#include "base/text.h"
#include "planner/plan/fields.h"

const char *stream_name(StreamId stream) {
  return stream_names[stream];
}
const char *phase_name(Phase phase) {
  return phase_names[phase];
}
const char *buf_class_name(BufClass class) {
  return class_names[class];
}

/* --- strings ----------------------------------------------------------------------------------------- */

Plan *plan_new(Arena *arena) {
  Plan *plan = ARENA_NEW(arena, Plan);
  vec_push(arena, &plan->strings, 0);
  plan->output_buf = plan->loss_buf = plan->count_buf = plan->norm_buf = PLAN_NONE;
  return plan;
}

static uint32_t hash_text(const char *text) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 16777619u;
  return hash;
}

/* The entry of plan->string_index that holds text, or the free one where it belongs. text NULL: nothing equals it. */
static StrSlot *find_slot(Plan *plan, uint32_t hash, const char *text) {
  uint32_t mask = plan->string_index.capacity - 1;
  for (uint32_t at = hash & mask;; at = (at + 1) & mask) {
    StrSlot *slot = &plan->string_index.data[at];
    if (!slot->id || (text && slot->hash == hash && !strcmp(plan_str(plan, slot->id), text))) return slot;
  }
}

static void grow_index(Arena *arena, Plan *plan) {
  StrSlot *old = plan->string_index.data;
  uint32_t count = plan->string_index.capacity;
  plan->string_index.capacity = count ? 2 * count : 64;
  plan->string_index.data = ARENA_ARRAY(arena, StrSlot, plan->string_index.capacity);
  for (uint32_t i = 0; i < count; i++)
    if (old[i].id) *find_slot(plan, old[i].hash, NULL) = old[i];
}

StrId plan_append(Arena *arena, Plan *plan, const char *text) {
  StrId id = plan->strings.count;
  uint32_t size = (uint32_t)strlen(text) + 1;
  vec_reserve(arena, &plan->strings, id + size);
  memcpy(plan->strings.data + id, text, size);
  plan->strings.count += size;
  return id;
}

StrId plan_intern(Arena *arena, Plan *plan, const char *text) {
  if (!*text) return 0;
  if (2 * plan->string_index.count >= plan->string_index.capacity) grow_index(arena, plan);
  uint32_t hash = hash_text(text);
  StrSlot *slot = find_slot(plan, hash, text);
  if (!slot->id) {
    *slot = (StrSlot){hash, plan_append(arena, plan, text)};
    plan->string_index.count++;
  }
  return slot->id;
}

/* --- shapes ------------------------------------------------------------------------------------------ */

static bool product(const int64_t *ints, uint32_t shard, const DimFactor *factors, int count, uint64_t *out) {
  *out = 1;
  for (int i = 0; i < count; i++) {
    int64_t value = factors[i].value;
    if (factors[i].kind == FACTOR_INT) value = ints[value];
    if (factors[i].kind == FACTOR_F) value = shard;
    if (value <= 0 || !checked_mul(*out, (uint64_t)value, out)) return false;
  }
  return true;
}

bool operand_dims(const OperandSpec *spec, const int64_t *ints, uint32_t shard, uint64_t *rows, uint64_t *cols) {
  uint64_t total;
  return product(ints, shard, spec->rows, spec->rows_count, rows) &&
         product(ints, shard, spec->cols, spec->cols_count, cols) && checked_mul(*rows, *cols, &total);
}

bool plan_operand_dims(const Plan *plan, const InstrSpec *specs, const PlanInstr *instr, int k,
                       uint64_t *rows, uint64_t *cols) {
  const int64_t *ints = plan->ints.data ? plan->ints.data + instr->ints : NULL;
  return operand_dims(&specs[instr->op].operands[k], ints, plan->world.shard, rows, cols);
}

uint64_t factored_numel(int32_t rank, const int64_t *dim) {
  uint64_t rows = 1;
  for (int32_t d = 0; d + 1 < rank; d++) rows *= (uint64_t)dim[d];
  uint64_t cols = rank > 0 ? (uint64_t)dim[rank - 1] : 1;
  return rank < 2 ? cols : rows + cols;
}

uint64_t plan_factored_numel(const Plan *plan, const PlanUnit *unit) {
  uint64_t numel = 0;
  for (int32_t p = unit->first_param; p < unit->first_param + unit->param_count; p++)
    numel += factored_numel(plan->params.data[p].rank, plan->params.data[p].dim);
  return numel;
}

uint64_t plan_frozen_numel(const Plan *plan) {
  uint64_t numel = 0;
  for (uint32_t u = 0; u < plan->units.count; u++)
    if (plan_unit_frozen(plan, &plan->units.data[u])) numel += plan->units.data[u].numel;
  return numel;
}

/* --- memory ------------------------------------------------------------------------------------------ */

/* change[i]: bytes that become live at list position i, less those that died at i - 1. */
static int32_t find_peak(const Plan *plan) {
  Arena *scratch = arena_new();
  int64_t *change = ARENA_ARRAY(scratch, int64_t, (size_t)plan->instrs.count + 1);
  for (uint32_t i = 0; i < plan->bufs.count; i++) {
    const PlanBuf *buf = &plan->bufs.data[i];
    if (buf->host) continue;
    change[buf->first] += (int64_t)buf->bytes;
    change[buf->last + 1] -= (int64_t)buf->bytes;
  }
  int64_t live = 0, most = -1;
  int32_t at = 0;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    live += change[i];
    if (live > most) {
      most = live;
      at = (int32_t)i;
    }
  }
  arena_free(scratch);
  return at;
}

bool plan_segment_feeds(const Plan *plan, uint32_t segment) {
  const PlanSegment *range = &plan->segments.data[segment];
  for (int32_t i = range->first; i < range->end; i++)
    if (plan->instrs.data[i].op == INSTR_INPUT) return true;
  return false;
}

const char *plan_strategy(Arena *arena, const Plan *plan) {
  const char *name = plan_str(plan, plan->summary.strategy);
  return plan->world.shard > 1 && plan->world.replicas > 1 ? arena_printf(arena, "%s:%u", name, plan->world.shard) : name;
}

static bool segment_has(const Plan *plan, const PlanSegment *segment, StreamId stream) {
  for (int32_t i = segment->first; i < segment->end; i++) {
    StreamId own = plan->instrs.data[i].stream;
    if (own == stream || (stream == STREAM_REDUCE && own == STREAM_REPLICATE)) return true;
  }
  return false;
}

const char *plan_cadence(const Plan *plan, StreamId stream) {
  uint64_t times = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    if (plan_segment_feeds(plan, s) && segment_has(plan, &plan->segments.data[s], stream)) times += plan->segments.data[s].count;
  return times == 0 ? NULL : times == plan->world.accumulation ? "micro_batch" : "step";
}

const PlanSegment *plan_first_micro(const Plan *plan) {
  const PlanSegment *longest = plan->segments.data;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    if (plan_segment_feeds(plan, s)) return segment;
    if (segment->end - segment->first > longest->end - longest->first) longest = segment;
  }
  return longest;
}

static bool is_of_segment(const PlanBuf *buf, const PlanSegment *segment) {
  return buf->persistent || (buf->first >= segment->first && buf->first < segment->end);
}

static void sum_host(const Plan *plan, uint64_t by_class[BUF_CLASS_COUNT]) {
  uint64_t most = 0;
  memset(by_class, 0, BUF_CLASS_COUNT * sizeof by_class[0]);
  for (uint32_t s = 0; s < plan->segments.count && plan->host_bytes; s++) {
    uint64_t here[BUF_CLASS_COUNT] = {0}, total = 0;
    for (uint32_t b = 0; b < plan->bufs.count; b++) {
      const PlanBuf *buf = &plan->bufs.data[b];
      if (!buf->host || !is_of_segment(buf, &plan->segments.data[s])) continue;
      here[buf->class] += buf->bytes;
      total += buf->bytes;
    }
    if (total <= most) continue;
    most = total;
    memcpy(by_class, here, sizeof here);
  }
}

const char *plan_host_text(Arena *arena, const Plan *plan) {
  uint64_t by_class[BUF_CLASS_COUNT];
  Text text = {.arena = arena};
  char size[32];
  sum_host(plan, by_class);
  for (int c = 0; c < BUF_CLASS_COUNT; c++)
    if (by_class[c]) text_printf(&text, "%s%s %s", text.length ? ", " : "", buf_class_name((BufClass)c), text_bytes(size, by_class[c]));
  return text.length ? text.data : "";
}

void plan_peak(const Plan *plan, uint64_t by_class[BUF_CLASS_COUNT], int32_t *at) {
  *at = find_peak(plan);
  memset(by_class, 0, BUF_CLASS_COUNT * sizeof by_class[0]);
  for (uint32_t i = 0; i < plan->bufs.count; i++) {
    const PlanBuf *buf = &plan->bufs.data[i];
    if (!buf->host && buf->first <= *at && *at <= buf->last) by_class[buf->class] += buf->bytes;
  }
}
