/* Owns: nothing; what the files of the inner search share. inner.c opens, seeds and decides, inner_trials.c judges trials and keeps
 * the best, inner_moves.c changes them. */
#ifndef FSDPC_PLANNER_INNER_TRIALS_H
#define FSDPC_PLANNER_INNER_TRIALS_H

#include "planner/search/inner.h"

/* Of inner_rules: tried everywhere; those before which compute may run ahead of reductions. */
enum { ISSUE_RULES = 11, FIRST_RULES = 2, WAITING_RULES = 9 };

void inner_copy_trial(const Inner *in, Trial *to, const Trial *from);
/* What starts away, and trials that start with that or with something else. */
const bool *inner_start_away(const Inner *in);
void inner_start_trial(const Inner *in, Trial *trial);
void inner_start_from(const Inner *in, const bool *away, Trial *trial);
/* Judges it and puts it into the pool; whether it is the best yet. */
bool inner_try(Inner *in, Trial *trial);
/* Under issue rules [from, end). */
void inner_try_rules(Inner *in, Trial *trial, uint32_t from, uint32_t end);

#endif
