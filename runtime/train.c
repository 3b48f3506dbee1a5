/* Owns: a training run as its parent sees it: everything that can be checked is checked, ranks are launched (train_loop.c), and what
 * the run held is given back. */
#include "runtime/train_job.h"

#include "base/hash.h"
#include "base/text.h"
#include "runtime/environment.h"
#include "runtime/comm/mpi_lib.h"
#include "runtime/launch/shared.h"

#include "planner/plan/plan_text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void describe(void *user, int32_t position, char *out, size_t bytes) {
  const Plan *plan = ((const TrainJob *)user)->plan;
  const PlanInstr *instr = &plan->instrs.data[position];
  snprintf(out, bytes, "%s (instruction %d, %s, stream %s)", plan_str(plan, instr->name), (int)position,
           phase_name(instr->phase), stream_name(instr->stream));
}

static bool check_options(TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  job->steps = options->steps != 0 ? options->steps : job->plan->recipe.steps;
  if (!environment_check(failure)) return false;
  if (train_leads(options)) environment_note_strays();
  job->kind = backend_find(options->backend, failure);
  if (job->kind == NULL) return false;
  if (!job->plan->training) return fail(failure, RUN_INVALID, "this plan only runs forward; it cannot train");
  if (job->steps == 0)
    return fail(failure, RUN_INVALID, "how long to train is not said: give --steps N, or `steps N` in the train block");
  return true;
}

static bool joins(const TrainOptions *options) {
  return options->launcher != NULL && options->launcher->ranks > 1;
}

bool train_leads(const TrainOptions *options) {
  return !joins(options) || options->launcher->rank == 0;
}

bool train_wants_times(const TrainOptions *options) { return options->observer != NULL || options->analyze; }

static bool open_metrics(TrainJob *job, Failure *failure) {
  const char *path = job->options->metrics_path;
  if (path == NULL || !train_leads(job->options)) return true;
  job->metrics = report_open_metrics(path, job->checkpoint.path != NULL, failure);
  return job->metrics != NULL;
}

static bool open_eval(Arena *arena, TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  uint64_t samples_per_step = feed_samples_per_step(job->plan);
  if (options->eval_count == 0) return true;
  if (!data_open(arena, &job->eval_data, options->eval_data, options->eval_count, job->vocab, job->ctx + 1, failure))
    return false;
  uint64_t samples = (job->eval_data.count - 1) / job->ctx, all = samples / samples_per_step;
  if (all == 0)
    return fail(failure, RUN_INVALID,
                "eval: %s%s: it has %llu sample%s of %llu tokens, and one evaluation takes at least the %llu of a step; give more data, or make "
                "steps smaller (batch, or tokens_per_step, of the train block)",
                options->eval_data[0], options->eval_count > 1 ? " ..." : "", (unsigned long long)samples, text_plural(samples),
                (unsigned long long)job->ctx, (unsigned long long)samples_per_step);
  job->eval_batches = options->eval_batches != 0 && options->eval_batches < all ? options->eval_batches : all;
  uint64_t left = job->eval_batches == all ? samples % samples_per_step : 0;
  if (left != 0 && train_leads(options))
    fprintf(stderr, "note: eval: the last %llu of %llu samples are left out, for an evaluation is of whole steps of %llu\n", (unsigned long long)left,
            (unsigned long long)samples, (unsigned long long)samples_per_step);
  return true;
}

static bool prepare(Arena *arena, TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  if (!check_options(job, failure) || !feed_shape(job->plan, &job->vocab, &job->ctx, failure)) return false;
  if (!data_open(arena, &job->data, options->data, options->data_count, job->vocab, job->ctx + 1, failure))
    return false;
  job->data_hash = data_hash(HASH_START, &job->data);
  if (job->kind->check != NULL && !job->kind->check(job->plan, failure)) return false;
  if (options->init_path != NULL &&
      !trained_open(arena, &job->init, job->plan, options->init_path, train_leads(options), failure))
    return false;
  if (options->save_dir != NULL && (!saver_open(arena, &job->saver, job->plan, options->save_dir, job->steps, failure) ||
                                    (train_leads(options) && !folder_lock(options->save_dir, &job->save_lock, failure))))
    return false;
  return open_eval(arena, job, failure) && train_open_resume(arena, job, failure) && train_check_save_folder(arena, job, failure) &&
         open_metrics(job, failure);
}

static uint64_t hash_text(uint64_t hash, const char *text) {
  return hash_word(text != NULL ? hash_bytes(hash, text, strlen(text)) : hash, 0);
}

/* What decides how often ranks meet, how they issue what they meet in, and what they compute. */
static uint64_t hash_options(const TrainJob *job) {
  const TrainOptions *options = job->options;
  uint64_t hash = HASH_START;
  const uint64_t numbers[] = {job->steps,        options->save_every,       options->eval_every,
                              job->eval_batches, options->save_dir != NULL, train_wants_times(options),
                              environment_setting(SETTING_FSDPC_NCCL_SUM),   environment_setting(SETTING_FSDPC_CUDA_COMM),
                              environment_setting(SETTING_FSDPC_CUDA_GRAPH), environment_setting(SETTING_FSDPC_CUDA_SYNC),
                              environment_setting(SETTING_FSDPC_CUDA_ATTENTION)};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) hash = hash_word(hash, numbers[i]);
  hash = hash_text(hash, options->init_path);
  return hash_text(hash, options->save_dir);
}

static bool check_hosts(Failure *failure) {
  char version[MPI_VERSION_BYTES];
  return mpi_lib_version(version, failure);
}

static bool open_join(Arena *arena, TrainJob *job, Join *join, Failure *failure) {
  const TrainOptions *options = job->options;
  if (!joins(options)) return true;
  if (options->launcher->ranks != job->plan->world.ranks)
    return fail(failure, RUN_INVALID, "launch: %s started %u process%s, but the plan is for %u rank%s", options->launcher->name,
                options->launcher->ranks, options->launcher->ranks == 1 ? "" : "es", job->plan->world.ranks, text_plural(job->plan->world.ranks));
  if (launcher_spans_hosts(options->launcher) && !check_hosts(failure)) return false;
  job->terms = (JoinTerms){
      .plan_hash = plan_hash(job->plan),
      .options_hash = hash_options(job),
      .data_hash = data_hash(job->data_hash, &job->eval_data),
      .memory_bytes = shared_file_bytes(job->plan->world.ranks, job->kind->shared_bytes(job->plan)),
      .first_step = job->checkpoint.standing.step};
  uint32_t timeout_s =
      options->timeout_s != 0 && options->timeout_s < JOIN_TIMEOUT_S ? options->timeout_s : JOIN_TIMEOUT_S;
  return join_open(arena, join, options->launcher, &job->terms, timeout_s, failure);
}

uint32_t runtime_patience_s(const Plan *plan, uint32_t least) {
  const uint64_t most = 999999;
  uint64_t steps = plan->summary.step_ns / (1000000000 / 3);
  if (steps > most) steps = most;
  return steps > least ? (uint32_t)steps : least;
}

int runtime_train(const Plan *plan, const TrainOptions *options) {
  Arena *arena = arena_new();
  TrainJob job = {.plan = plan, .options = options, .save_lock = -1};
  Join join = {.memory = -1};
  Failure failure = {0};
  int code;
  if (prepare(arena, &job, &failure) && open_join(arena, &job, &join, &failure)) {
    LaunchJob launch = {.join = joins(options) ? &join : NULL,
                        .ranks = plan->world.ranks,
                        .arena_bytes = job.kind->shared_bytes(plan),
                        .rank_main = train_rank,
                        .describe = describe,
                        .saves = options->save_dir != NULL,
                        .timeout_s = options->timeout_s,
                        .user = &job};
    code = launch_run(&launch);
    join_close(&join);
    if (options->save_dir != NULL && train_leads(options)) folder_clean(options->save_dir);
  } else {
    failure_say(failure.text);
    code = failure.code;
  }
  if (job.metrics != NULL) fclose(job.metrics);
  trained_close(&job.init);
  checkpoint_close(&job.checkpoint);
  if (job.save_lock >= 0) close(job.save_lock);
  data_close(&job.data);
  data_close(&job.eval_data);
  arena_free(arena);
  return code;
}
