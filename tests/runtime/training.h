/* Owns: what tests of whole training runs share: a text, options, verified plans, runs in this process or one of their
 * own, and their results. */
#ifndef FSDPC_TESTS_RUNTIME_TRAINING_H
#define FSDPC_TESTS_RUNTIME_TRAINING_H

#include "testing.h"

#include "bigram.h"
#include "runtime/runtime.h"

#include <sys/types.h>

/* A text with structure that a bigram can learn. */
const char *corpus(Scratch *scratch);
/* A bigram's plan for a number of ranks that divides 12 samples a step, shard x replicas. */
const Plan *plan_for(Arena *arena, uint32_t shard, uint32_t replicas, uint64_t steps);
/* Trains into DIR of the scratch folder; metrics into DIR.jsonl. `data` points to the corpus. */
TrainOptions options_for(Scratch *scratch, const char *const *data, const char *dir);
/* DIR/model.safetensors. */
char *weights_of(Scratch *scratch, const char *dir, size_t *bytes);
/* Fails the test unless both folders hold the same weights. */
void assert_same_weights(Scratch *scratch, const char *a, const char *b);
/* Losses of steps 1 to `steps` in DIR.jsonl; the last record of a step counts. */
double *losses_of(Scratch *scratch, const char *dir, uint64_t steps);
/* runtime_train in a process of its own, its stderr in the scratch folder's `log`. */
pid_t start_training(Scratch *scratch, const Plan *plan, const TrainOptions *options, const char *log);
/* Waits; the exit code, or -1 when it was killed. */
int end_training(pid_t job);
/* The n-th child of a process, 0 when there are not so many. */
pid_t child_of(pid_t parent, uint32_t n);
/* No unfinished checkpoint lies in DIR. */
void assert_clean(Scratch *scratch, const char *dir);

#endif
