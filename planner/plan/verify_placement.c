/* Owns: rules misaligned, out-of-arena, over-budget, overlap and summary: addresses and sizes, by list
 * positions alone. */
#include "planner/plan/check.h"
#include "base/checked.h"

typedef unsigned long long Wide; /* what %llu prints */

static void check_addresses(Check *check) {
  const Plan *plan = check->plan;
  for (int32_t b = 0; b < (int32_t)plan->bufs.count; b++) {
    const PlanBuf *buf = check_buf(check, b);
    if (buf->offset % PLAN_ALIGN_BYTES)
      violate(check, VERIFY_MISALIGNED, PLAN_NONE, b, "b%d \"%s\" is at %llu, not a multiple of %d", b,
              check_buf_name(check, b), (Wide)buf->offset, PLAN_ALIGN_BYTES);
    uint64_t end = buf->host ? plan->host_bytes : plan->arena_bytes;
    if (buf->offset + buf->bytes > end)
      violate(check, VERIFY_OUT_OF_ARENA, PLAN_NONE, b, "b%d \"%s\" ends at %llu, %s at %llu", b, check_buf_name(check, b),
              (Wide)(buf->offset + buf->bytes), buf->host ? "the host arena" : "the arena", (Wide)end);
  }
  uint64_t budget = plan->summary.budget_bytes; /* 0: no budget was given */
  if (budget && plan->arena_bytes > budget)
    violate(check, VERIFY_OVER_BUDGET, PLAN_NONE, PLAN_NONE,
            "the arena takes %llu bytes, %llu more than the budget of %llu", (Wide)plan->arena_bytes,
            (Wide)(plan->arena_bytes - budget), (Wide)budget);
}

/* --- overlap ----------------------------------------------------------------------------------------- */

typedef struct Sweep {
  IntervalPool pool;
  IntervalMap live; /* address -> buffer */
  bool *placed;
} Sweep;

static void place(Check *check, Sweep *sweep, int32_t b) {
  const PlanBuf *buf = check_buf(check, b);
  uint64_t begin = plan_address(check->plan, buf), end = begin + buf->bytes;
  const Interval *other = intervals_after(&sweep->pool, sweep->live, begin);
  if (other && other->begin < end) {
    violate(check, VERIFY_OVERLAP, buf->first, b,
            "b%d \"%s\" and b%d \"%s\" share addresses from %llu while both live at i%d", b,
            check_buf_name(check, b), other->value, check_buf_name(check, other->value),
            (Wide)(other->begin > begin ? other->begin : begin), buf->first);
    return;
  }
  intervals_set(&sweep->pool, &sweep->live, begin, end, b);
  sweep->placed[b] = true;
}

static void take_away(Check *check, Sweep *sweep, int32_t b) {
  const PlanBuf *buf = check_buf(check, b);
  uint64_t begin = plan_address(check->plan, buf);
  if (sweep->placed[b]) intervals_clear(&sweep->pool, &sweep->live, begin, begin + buf->bytes);
}

static uint64_t device_bytes(const PlanBuf *buf) { return buf->host ? 0 : buf->bytes; }

/* Returns the largest sum of live sizes on the device. */
static uint64_t sweep_list(Check *check, Arena *scratch) {
  Sweep sweep = {.pool = {.arena = scratch}, .placed = ARENA_ARRAY(scratch, bool, check->plan->bufs.count)};
  const Lives *lives = &check->lives;
  uint64_t live = 0, most = 0;
  for (uint32_t i = 0; i < check->plan->instrs.count; i++) {
    for (int32_t b = lives->born[i]; b; b = lives->next_born[b - 1]) {
      place(check, &sweep, b - 1);
      live += device_bytes(check_buf(check, b - 1));
    }
    if (live > most) most = live;
    for (int32_t b = lives->dead[i]; b; b = lives->next_dead[b - 1]) {
      take_away(check, &sweep, b - 1);
      live -= device_bytes(check_buf(check, b - 1));
    }
  }
  return most;
}

static void check_sum(Check *check, const char *what, uint64_t stated, uint64_t found) {
  if (stated != found)
    violate(check, VERIFY_SUMMARY, PLAN_NONE, PLAN_NONE,
            "the plan states %llu %s bytes, its buffers say %llu", (Wide)stated, what, (Wide)found);
}

/* A buffer behind the arena's end is out-of-arena; an arena that is too long is a wrong summary. */
static void check_end(Check *check, const char *what, uint64_t stated, uint64_t end) {
  if (stated > round_up(end, PLAN_ALIGN_BYTES)) check_sum(check, what, stated, end);
}

void check_placement(Check *check) {
  const Plan *plan = check->plan;
  Arena *scratch = arena_new();
  check_addresses(check);
  uint64_t persistent = 0, ends[2] = {0}, max_live = sweep_list(check, scratch);
  for (int32_t b = 0; b < (int32_t)plan->bufs.count; b++) {
    const PlanBuf *buf = check_buf(check, b);
    if (buf->persistent) persistent += device_bytes(buf);
    if (buf->offset + buf->bytes > ends[buf->host]) ends[buf->host] = buf->offset + buf->bytes;
  }
  check_sum(check, "persistent", plan->persistent_bytes, persistent);
  check_sum(check, "max-live", plan->max_live_bytes, max_live);
  check_end(check, "arena", plan->arena_bytes, ends[0]);
  check_end(check, "host arena", plan->host_bytes, ends[1]);
  arena_free(scratch);
}
