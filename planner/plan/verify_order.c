/* Owns: rules never-recorded, wait-cycle and collective-order, and the vector clocks that say what happens
 * before what.
 *
 * A clock has one entry a queue: all of that queue's instructions at list positions below the entry have
 * finished. An instruction starts with the clock of its queue joined with the clocks of the events it waits
 * for. */
#include "planner/plan/check.h"

enum { NOT_RECORDED = -1 };

/* --- events ------------------------------------------------------------------------------------------ */

static int32_t *find_records(Check *check, Arena *scratch) {
  const Plan *plan = check->plan;
  int32_t *at = ARENA_ARRAY(scratch, int32_t, plan->event_count);
  for (uint32_t e = 0; e < plan->event_count; e++) at[e] = NOT_RECORDED;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    int32_t event = plan->instrs.data[i].record;
    if (event == PLAN_NONE) continue;
    if (at[event] == NOT_RECORDED)
      at[event] = i;
    else
      violate(check, VERIFY_WAIT_CYCLE, i, PLAN_NONE, "records e%d, which i%d records too", event, at[event]);
  }
  return at;
}

static bool wait_is_good(Check *check, int32_t i, int32_t event, int32_t recorded, int32_t segment_first) {
  if (recorded == NOT_RECORDED)
    violate(check, VERIFY_NEVER_RECORDED, i, PLAN_NONE, "waits for e%d, which nothing records", event);
  else if (recorded < segment_first)
    violate(check, VERIFY_NEVER_RECORDED, i, PLAN_NONE,
            "waits for e%d, which nothing records in this segment", event);
  else if (recorded >= i)
    violate(check, VERIFY_WAIT_CYCLE, i, PLAN_NONE, "waits for e%d, which i%d records only later in the list",
            event, recorded);
  return recorded >= segment_first && recorded < i;
}

/* --- clocks ------------------------------------------------------------------------------------------ */

typedef struct Clocks {
  int32_t now[STREAM_COUNT][STREAM_COUNT]; /* of each queue, after its last instruction */
  int32_t *event;                          /* [event * queues + q] */
  int32_t *recorded;                       /* list position by event */
} Clocks;

static void number_queues(Check *check) {
  bool used[STREAM_COUNT] = {false};
  int number[STREAM_COUNT];
  for (uint32_t i = 0; i < check->plan->instrs.count; i++)
    used[check->plan->queue[check->plan->instrs.data[i].stream]] = true;
  check->queues = 0;
  for (int q = 0; q < STREAM_COUNT; q++) number[q] = used[q] ? check->queues++ : 0;
  for (int s = 0; s < STREAM_COUNT; s++) check->queue_of[s] = number[check->plan->queue[s]];
}

static void step_clock(Check *check, Clocks *clocks, int32_t i, int32_t segment_first) {
  const Plan *plan = check->plan;
  const PlanInstr *instr = &plan->instrs.data[i];
  int own = check->queue_of[instr->stream], queues = check->queues;
  int32_t *now = clocks->now[own];
  for (uint32_t w = 0; w < instr->wait_count; w++) {
    int32_t event = plan->waits.data[instr->waits + w];
    if (!wait_is_good(check, i, event, clocks->recorded[event], segment_first)) continue;
    const int32_t *then = &clocks->event[(size_t)event * (size_t)queues];
    for (int q = 0; q < queues; q++)
      if (then[q] > now[q]) now[q] = then[q];
  }
  memcpy(&check->clock[(size_t)i * (size_t)queues], now, (size_t)queues * sizeof *now);
  now[own] = i + 1;
  if (instr->record != PLAN_NONE && clocks->recorded[instr->record] == i)
    memcpy(&clocks->event[(size_t)instr->record * (size_t)queues], now, (size_t)queues * sizeof *now);
}

static void run_clocks(Check *check, Arena *scratch) {
  const Plan *plan = check->plan;
  size_t queues = (size_t)check->queues;
  Clocks clocks = {.event = ARENA_ARRAY(scratch, int32_t, plan->event_count * queues),
                   .recorded = find_records(check, scratch)};
  check->clock = ARENA_ARRAY(check->arena, int32_t, plan->instrs.count * queues);
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (int q = 0; q < STREAM_COUNT; q++) /* all queues joined: whatever came before is done */
      for (int r = 0; r < STREAM_COUNT; r++) clocks.now[q][r] = segment->first;
    for (int32_t i = segment->first; i < segment->end; i++) step_clock(check, &clocks, i, segment->first);
  }
}

/* --- collectives ------------------------------------------------------------------------------------- */

static bool has_communicator(StreamId stream) {
  return stream == STREAM_GATHER || stream == STREAM_REDUCE || stream == STREAM_REPLICATE;
}

static void check_collectives(Check *check) {
  const Plan *plan = check->plan;
  int32_t first[STREAM_COUNT]; /* of each communicator, which the table's stream names */
  for (int s = 0; s < STREAM_COUNT; s++) first[s] = PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (!is_collective(instr->op)) continue;
    int32_t *other = &first[check->specs[instr->op].stream];
    if (!has_communicator(instr->stream))
      violate(check, VERIFY_COLLECTIVE_ORDER, i, PLAN_NONE, "%s is on stream %s, which has no communicator",
              check->specs[instr->op].name, stream_name(instr->stream));
    else if (*other == PLAN_NONE)
      *other = i;
    else if (plan->queue[plan->instrs.data[*other].stream] != plan->queue[instr->stream])
      violate(check, VERIFY_COLLECTIVE_ORDER, i, PLAN_NONE,
              "%s is on stream %s, but i%d uses its communicator from stream %s",
              check->specs[instr->op].name, stream_name(instr->stream), *other,
              stream_name(plan->instrs.data[*other].stream));
  }
}

void check_order(Check *check) {
  Arena *scratch = arena_new();
  number_queues(check);
  run_clocks(check, scratch);
  check_collectives(check);
  arena_free(scratch);
}
