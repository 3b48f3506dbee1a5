/* Owns: trials of the inner search: how one is judged, issue rules, the pool of the best. */
#include "planner/search/inner_trials.h"

/* As late as is harmless takes the least memory; one or two uses ahead lines gathers up with reductions, so that both slow
 * compute at once instead of one after the other. */
static const IssueRule issue_rules[] = {{AS_FAR_AS_MAY_BE, true, 1, false},  {2, false, 1, false}, {1, false, 1, false},
                                        {AS_FAR_AS_MAY_BE, false, 1, false}, {3, false, 1, false}, {0, false, 1, false},
                                        {AS_FAR_AS_MAY_BE, true, 3, false},  {2, false, 3, false}, {AS_FAR_AS_MAY_BE, true, 1, true},
                                        {AS_FAR_AS_MAY_BE, true, 0, false},  {0, false, 0, false}};
_Static_assert(sizeof issue_rules / sizeof *issue_rules == ISSUE_RULES, "rules");

const IssueRule *inner_rules(uint32_t *count) {
  *count = ISSUE_RULES;
  return issue_rules;
}

/* --- judging -------------------------------------------------------------------------------------------------------------- */

void judge_open(Judge *judge, const Inner *in, const Trial *trial) {
  Arena *scratch = in->search->scratch;
  *judge = (Judge){.in = in, .decisions = in->base};
  judge->decisions.recompute = trial->recompute;
  judge->decisions.away = trial->away;
  judge->decisions.slots = trial->slots;
  judge->decisions.keep = trial->keep;
  judge->builder = schedule_open(&judge->schedule, scratch, in->skeleton, &judge->decisions, in->room, in->host_room);
  judge->least_ns = judge->builder ? judge->schedule.step_ns : UINT64_MAX;
  judge->least_live = judge->schedule.max_live;
}

bool judge_rule(Judge *judge, Trial *trial) {
  bool fits = judge->builder && schedule_under(judge->builder, trial->issue);
  trial->ns = fits ? judge->schedule.step_ns : UINT64_MAX;
  trial->live = judge->schedule.max_live;
  return fits;
}

void judge_close(Judge *judge) { arena_reset(judge->in->search->scratch); }

bool inner_judge(const Inner *in, Trial *trial) {
  Judge judge;
  judge_open(&judge, in, trial);
  bool fits = judge_rule(&judge, trial);
  judge_close(&judge);
  return fits;
}

/* --- trials ----------------------------------------------------------------------------------------------------------------- */

void inner_copy_trial(const Inner *in, Trial *to, const Trial *from) {
  memcpy(to->recompute, from->recompute, in->program->ops.count * sizeof(bool));
  memcpy(to->away, from->away, in->program->ops.count * sizeof(bool));
  memcpy(to->keep, from->keep, in->units->units.count * sizeof(bool));
  to->issue = from->issue;
  to->slots = from->slots;
  to->ns = from->ns;
  to->live = from->live;
}

void inner_start_from(const Inner *in, const bool *away, Trial *trial) {
  memcpy(trial->recompute, in->base.recompute, in->program->ops.count * sizeof(bool));
  memcpy(trial->away, away, in->program->ops.count * sizeof(bool));
  memcpy(trial->keep, in->base.keep, in->units->units.count * sizeof(bool));
  trial->slots = NULL;
  trial->ns = UINT64_MAX;
}

const bool *inner_start_away(const Inner *in) { return in->start_away ? in->start_away : in->base.away; }

void inner_start_trial(const Inner *in, Trial *trial) { inner_start_from(in, inner_start_away(in), trial); }

Trial inner_new_trial(const Inner *in) {
  uint32_t ops = in->program->ops.count;
  Trial trial = {ARENA_ARRAY(in->arena, bool, ops), ARENA_ARRAY(in->arena, bool, ops), ARENA_ARRAY(in->arena, bool, in->units->units.count),
                 in->base.issue, NULL, UINT64_MAX, 0};
  inner_start_trial(in, &trial);
  return trial;
}

Trial inner_trial_of(const Inner *in, const Decisions *decisions) {
  Trial trial = inner_new_trial(in);
  memcpy(trial.recompute, decisions->recompute, in->program->ops.count * sizeof(bool));
  memcpy(trial.away, decisions->away, in->program->ops.count * sizeof(bool));
  memcpy(trial.keep, decisions->keep, in->units->units.count * sizeof(bool));
  trial.issue = decisions->issue;
  return trial;
}

/* Room for one more: drops the entry that is hardly smaller than the one before. */
static void thin_pool(Inner *in) {
  int drop = 1;
  for (int i = 2; i < POOL; i++)
    if (in->pool[i - 1].live - in->pool[i].live < in->pool[drop - 1].live - in->pool[drop].live) drop = i;
  Trial freed = in->pool[drop];
  memmove(in->pool + drop, in->pool + drop + 1, (size_t)(POOL - 1 - drop) * sizeof(Trial));
  in->pool[POOL - 1] = freed;
  in->pool[POOL - 1].ns = UINT64_MAX;
}

/* Whether something as fast is as small. */
static bool is_beaten(const Inner *in, uint64_t ns, int64_t live) {
  for (int i = 0; i < POOL; i++)
    if (in->pool[i].ns <= ns && in->pool[i].ns != UINT64_MAX && in->pool[i].live <= live) return true;
  return false;
}

/* Into the pool, unless something beats it; out goes what is neither faster nor smaller. */
static void pool_trial(Inner *in, const Trial *trial) {
  Trial next[POOL], spare[POOL];
  int kept = 0, spares = 0, at = PLAN_NONE;
  if (is_beaten(in, trial->ns, trial->live)) return;
  if (in->pool[POOL - 1].ns != UINT64_MAX) thin_pool(in);
  for (int i = 0; i < POOL; i++) {
    const Trial *entry = &in->pool[i];
    bool beaten = entry->ns != UINT64_MAX && entry->ns >= trial->ns && entry->live >= trial->live;
    if (at < 0 && (entry->ns > trial->ns || beaten)) at = kept++;
    if (beaten || entry->ns == UINT64_MAX)
      spare[spares++] = *entry;
    else
      next[kept++] = *entry;
  }
  next[at] = spare[--spares].recompute ? spare[spares] : inner_new_trial(in);
  inner_copy_trial(in, &next[at], trial);
  for (int i = 0; i < spares; i++) spare[i].ns = UINT64_MAX;
  memcpy(in->pool, next, (size_t)kept * sizeof(Trial));
  memcpy(in->pool + kept, spare, (size_t)spares * sizeof(Trial));
}

/* --- trials seen before ------------------------------------------------------------------------------------------------------ */

static uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u; /* 2^64 over the golden ratio */
  return hash ^ hash >> 32;
}

static uint64_t mix_flags(uint64_t hash, const bool *flags, size_t count) {
  for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    memcpy(&word, flags + i, count - i < sizeof word ? count - i : sizeof word);
    hash = mix(hash, word);
  }
  return hash;
}

static uint64_t fingerprint(const Inner *in, const Trial *trial) {
  size_t ops = (size_t)in->program->turn;
  uint64_t hash = mix(mix(0, (uint64_t)trial->issue.ahead << 32 | trial->issue.behind), 2 * trial->issue.first + trial->issue.late);
  hash = mix_flags(mix_flags(hash, trial->recompute, ops), trial->away, ops);
  return mix_flags(hash, trial->keep, in->units->units.count);
}

/* Different seeds and moves meet in the same trial, in nearly half of all cases: judging it again would change nothing. */
static bool seen_before(Inner *in, const Trial *trial) {
  if (!in->judged) in->judged = ARENA_ARRAY(in->arena, uint64_t, JUDGED);
  uint64_t hash = fingerprint(in, trial), *entry = &in->judged[hash % JUDGED];
  if (*entry == hash) return true;
  *entry = hash;
  return false;
}

/* Judges a trial that is new, unless no rule can make it any good. judge: of this trial's other decisions, opened here. */
static void try_rule(Inner *in, Trial *trial, Judge *judge) {
  if (seen_before(in, trial)) return;
  if (!judge->in) judge_open(judge, in, trial);
  if (!is_beaten(in, judge->least_ns, judge->least_live) && judge_rule(judge, trial)) pool_trial(in, trial);
}

bool inner_try(Inner *in, Trial *trial) {
  uint64_t best = in->pool[0].ns;
  Judge judge = {0};
  try_rule(in, trial, &judge);
  if (judge.in) judge_close(&judge);
  return in->pool[0].ns < best;
}

bool inner_has_rules(const Inner *in) {
  return decisions_gather(&in->base) && !in->base.gather_once;
}

/* Whether anything is, or may be, in host memory. */
static bool may_copy(const Inner *in) { return in->movable || in->base.offload; }

bool inner_same_rule(const Inner *in, const IssueRule *a, const IssueRule *b) {
  bool gathers = inner_has_rules(in), reduces = decisions_reduce(&in->base);
  bool alike = decisions_ahead(&in->base, a) == decisions_ahead(&in->base, b) && a->late == b->late && (a->first == b->first || !may_copy(in));
  return (!gathers || alike) && (!reduces || a->behind == b->behind);
}

bool inner_new_rule(const Inner *in, uint32_t from, uint32_t r) {
  for (uint32_t k = from; k < r; k++)
    if (inner_same_rule(in, &issue_rules[k], &issue_rules[r])) return false;
  return true;
}

/* Large plans' gathers start as early as they can: one use ahead, third in the table, leaves more room, and is tried before two. */
static uint32_t rule_in_turn(const Inner *in, uint32_t r) { return inner_is_large(in) && (r == 1 || r == 2) ? 3 - r : r; }

void inner_try_rules(Inner *in, Trial *trial, uint32_t from, uint32_t end) {
  Judge judge = {0};
  for (uint32_t i = from; i < end; i++) {
    const uint32_t r = rule_in_turn(in, i);
    if (!inner_new_rule(in, from, r)) continue;
    trial->issue = issue_rules[r];
    try_rule(in, trial, &judge);
  }
  if (judge.in) judge_close(&judge);
}
