/* Owns: rules misaligned, out-of-arena, over-budget and summary: addresses and sizes, by list positions alone. */
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

/* --- sums -------------------------------------------------------------------------------------------- */

static uint64_t device_bytes(const PlanBuf *buf) { return buf->host ? 0 : buf->bytes; }

/* The largest sum of live sizes on the device. */
static uint64_t find_max_live(const Check *check) {
  const Lives *lives = &check->lives;
  uint64_t live = 0, most = 0;
  for (uint32_t i = 0; i < check->plan->instrs.count; i++) {
    for (int32_t b = lives->born[i]; b; b = lives->next_born[b - 1]) live += device_bytes(check_buf(check, b - 1));
    if (live > most) most = live;
    for (int32_t b = lives->dead[i]; b; b = lives->next_dead[b - 1]) live -= device_bytes(check_buf(check, b - 1));
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
  check_addresses(check);
  uint64_t persistent = 0, ends[2] = {0};
  for (int32_t b = 0; b < (int32_t)plan->bufs.count; b++) {
    const PlanBuf *buf = check_buf(check, b);
    if (buf->persistent) persistent += device_bytes(buf);
    if (buf->offset + buf->bytes > ends[buf->host]) ends[buf->host] = buf->offset + buf->bytes;
  }
  check_sum(check, "persistent", plan->persistent_bytes, persistent);
  check_sum(check, "max-live", plan->max_live_bytes, find_max_live(check));
  check_end(check, "arena", plan->arena_bytes, ends[0]);
  check_end(check, "host arena", plan->host_bytes, ends[1]);
}
