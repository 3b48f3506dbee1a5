/* Owns: moves of single gathers. Issue rules treat all gathers alike; where a plan has few, each waits that is left may depend on one
 * of them. */
#include "planner/search/inner.h"

/* How far a gather is moved at once, in steps, and how often all are looked at. */
enum { FARTHEST = 16, ROUNDS = 8 };

typedef struct Slots {
  Trial *trial; /* its slots are `next` */
  Judge judge;
  int32_t *floor, *first; /* by gather: a slot is no earlier than its unit's last release and a pinned depth allow, and no later than its use */
  int32_t *best, *next;
  uint32_t count;
} Slots;

/* Where the trial's rule issues them. */
static void slots_start(Slots *s, const Inner *in) {
  Arena *arena = in->search->arena;
  Schedule schedule;
  Arena *scratch = arena_new();
  Decisions decisions = in->base;
  decisions.recompute = s->trial->recompute;
  decisions.away = s->trial->away;
  decisions.keep = s->trial->keep;
  decisions.issue = s->trial->issue;
  schedule_build(&schedule, scratch, in->skeleton, &decisions);
  s->count = schedule.use_count;
  s->floor = ARENA_ARRAY(arena, int32_t, s->count);
  s->first = ARENA_ARRAY(arena, int32_t, s->count);
  s->best = ARENA_ARRAY(arena, int32_t, s->count);
  s->next = ARENA_ARRAY(arena, int32_t, s->count);
  for (uint32_t i = 0; i < s->count; i++) {
    s->first[i] = schedule.uses[i].first;
    s->best[i] = s->next[i] = schedule.uses[i].issue;
    if (i >= in->base.prefetch) s->floor[i] = schedule.uses[i - in->base.prefetch].first;
    for (uint32_t j = 0; j < i; j++)
      if (schedule.uses[j].unit == schedule.uses[i].unit) s->floor[i] = schedule.uses[j].last >= s->floor[i] ? schedule.uses[j].last + 1 : s->floor[i];
  }
  arena_free(scratch);
}

/* Gather i by so many steps, and those that it meets in the queue with it. Whether that is possible. */
static bool slots_shift(Slots *s, uint32_t i, int32_t steps) {
  int32_t *next = s->next;
  memcpy(next, s->best, s->count * sizeof *next);
  next[i] += steps;
  if (next[i] < s->floor[i] || next[i] > s->first[i]) return false;
  for (uint32_t j = i; j-- > 0 && next[j] > next[j + 1];) {
    next[j] = next[j + 1];
    if (next[j] < s->floor[j]) return false;
  }
  for (uint32_t j = i + 1; j < s->count && next[j] < next[j - 1]; j++) next[j] = next[j - 1];
  return true;
}

/* Whether it is faster by that, or as fast in less memory. */
static bool slots_try(Slots *s, uint32_t i, int32_t steps) {
  Trial *trial = s->trial;
  const uint64_t ns = trial->ns;
  const int64_t live = trial->live;
  if (slots_shift(s, i, steps) && judge_rule(&s->judge, trial) && (trial->ns < ns || (trial->ns == ns && trial->live < live))) {
    memcpy(s->best, s->next, s->count * sizeof *s->best);
    return true;
  }
  trial->ns = ns;
  trial->live = live;
  return false;
}

static bool slots_round(Slots *s) {
  bool moved = false;
  for (uint32_t i = 0; i < s->count; i++)
    for (int32_t steps = FARTHEST; steps > 0; steps /= 2) moved |= slots_try(s, i, -steps) || slots_try(s, i, steps);
  return moved;
}

bool inner_move_slots(const Inner *in, Trial *trial) {
  Slots s = {.trial = trial};
  if (!inner_has_rules(in)) return false;
  slots_start(&s, in);
  trial->slots = s.next;
  judge_open(&s.judge, in, trial);
  bool moved = judge_rule(&s.judge, trial) && slots_round(&s);
  for (int round = 1; moved && round < ROUNDS && slots_round(&s); round++) continue;
  judge_close(&s.judge);
  trial->slots = s.best;
  return moved;
}
