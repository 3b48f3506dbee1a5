/* Owns: what tests of whole training runs share: a text, options, verified plans, runs in this process or one of their
 * own, and their results. */
#ifndef FSDPC_TESTS_RUNTIME_TRAINING_H
#define FSDPC_TESTS_RUNTIME_TRAINING_H

#include "testing.h"

#include "bigram.h"
#include "runtime/runtime.h"

#include <jansson.h>
#include <sys/types.h>

/* A text with structure that a bigram can learn. */
const char *corpus(Scratch *scratch);
/* A bigram's plan, which the verifier accepts. */
Plan *verified_plan(Arena *arena, const BigramOptions *options);
/* The same for a number of ranks that divides 12 samples a step, shard x replicas. */
const Plan *plan_for(Arena *arena, uint32_t shard, uint32_t replicas, uint64_t steps);
/* Trains into DIR of the scratch folder; metrics into DIR.jsonl. `data` points to the corpus. */
TrainOptions options_for(Scratch *scratch, const char *const *data, const char *dir);
/* An array of a metrics file's records; the caller drops it. */
json_t *read_metrics(const char *path);
/* DIR/model.safetensors. */
char *weights_of(Scratch *scratch, const char *dir, size_t *bytes);
/* Fails the test unless both folders hold the same weights. */
void assert_same_weights(Scratch *scratch, const char *a, const char *b);
/* Losses of steps 1 to `steps` in DIR.jsonl; the last record of a step counts. */
double *losses_of(Scratch *scratch, const char *dir, uint64_t steps);
/* Every record of a step in B.jsonl has the loss and norm that A.jsonl has for it, and every step is there. */
void assert_same_steps(Scratch *scratch, const char *a, const char *b, uint64_t steps);
/* runtime_train in a process and a session of its own, its stderr in the scratch folder's `log`. */
pid_t start_training(Scratch *scratch, const Plan *plan, const TrainOptions *options, const char *log);
/* Waits; the exit code, or -n when signal n killed it. */
int end_training(pid_t job);
/* The n-th child of a process, 0 when there are not so many. */
pid_t child_of(pid_t parent, uint32_t n);
/* Nothing of the session that a job began runs on; those whose parent was killed are given a moment to die. */
void assert_session_ends(pid_t job);
/* 0 when there is no such file. */
long file_bytes(const char *path);
void wait_for_bytes(const char *path, long bytes);
/* Until a folder has so many entries that are not hidden. */
void wait_for_entries(const char *dir, uint32_t count);
/* Until no signal that was sent to a process waits to be seen by it. */
void wait_until_taken(pid_t job);
/* No unfinished checkpoint lies in DIR. */
void assert_clean(Scratch *scratch, const char *dir);

#endif
