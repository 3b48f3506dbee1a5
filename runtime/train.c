/* Owns: the training loop. The parent checks everything that can be checked, then launches the ranks, which run the
 * plan's segments step by step. */
#include "runtime/train_job.h"

#include "base/clock.h"
#include "base/hash.h"
#include "runtime/alloc_guard.h"
#include "runtime/environment.h"
#include "runtime/mpi_lib.h"
#include "runtime/schedule.h"

#include "planner/plan/plan_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- a rank ------------------------------------------------------------------------------------------------------- */

bool train_share(Trainer *trainer, uint64_t word) {
  Comm *comm = trainer->machine.comm;
  return comm->share(comm, word, trainer->words) == COMM_OK ||
         fail(&trainer->failure, RUN_PEER_FAILED, "rank %u: another rank failed after step %llu", comm->rank,
              (unsigned long long)trainer->standing.step);
}

bool train_sum(Trainer *trainer, double *value) {
  uint64_t word;
  memcpy(&word, value, sizeof word);
  if (!train_share(trainer, word)) return false;
  *value = 0;
  for (uint32_t rank = 0; rank < trainer->env->ranks; rank++) {
    double one;
    memcpy(&one, &trainer->words[rank], sizeof one);
    *value += one;
  }
  return true;
}

static bool prepare_weights(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  const RankMachine *machine = &trainer->machine;
  if (job->checkpoint.path != NULL) return train_load_checkpoint(trainer, arena);
  if (job->options->init_path != NULL)
    return trained_load(&job->init, job->plan, machine->ranges, machine->backend, &trainer->failure);
  return weights_init(job->plan, machine->ranges, machine->backend, machine->kernels, &machine->context,
                      &trainer->failure);
}

static bool wants_times(const TrainOptions *options) { return options->observer != NULL || options->analyze; }

static bool open_report(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  if (wants_times(job->options)) trainer->timed_from = profile_begin(trainer->standing.step + 1, job->steps);
  if (trainer->env->rank != 0) return true;
  if (wants_times(job->options)) trainer->profile = profile_open(arena, job->plan, trainer->timed_from);
  ReportConfig config = {.plan = job->plan,
                         .options = job->options,
                         .data = &job->data,
                         .plan_hash = plan_hash(job->plan),
                         .steps = job->steps,
                         .samples_per_step = feed_samples_per_step(job->plan),
                         .samples = trainer->feed.samples,
                         .ctx = job->ctx,
                         .checkpoint_bytes = trainer->checkpointer != NULL ? runtime_checkpoint_bytes(job->plan) : 0,
                         .backend = job->kind->name,
                         .beside_bytes = trainer->machine.beside_bytes,
                         .gemm = trainer->machine.gemm_name,
                         .kernels = trainer->machine.kernels_name,
                         .threads = trainer->machine.threads,
                         .metrics = job->metrics};
  trainer->report = report_open(arena, &config, &trainer->failure);
  return trainer->report != NULL && report_start(trainer->report, &trainer->failure);
}

static bool run_segments(Trainer *trainer, StepState *state) {
  const Plan *plan = trainer->job->plan;
  Backend *backend = trainer->machine.backend;
  InstrTime *times = trainer->profile != NULL ? profile_times(trainer->profile, state->step) : NULL;
  state->micro_batch = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    bool feeds = plan_segment_feeds(plan, s);
    for (state->repetition = 0; state->repetition < plan->segments.data[s].count; state->repetition++) {
      if (!backend->run_segment(backend, (int32_t)s, state, times)) {
        CommStatus status = backend->comm_status(backend);
        return fail(&trainer->failure, status == COMM_OK ? RUN_INVALID : RUN_PEER_FAILED, "%s, in step %llu",
                    backend->error(backend), (unsigned long long)state->step);
      }
      if (times != NULL) profile_take(trainer->profile, (int32_t)s);
      state->micro_batch += feeds;
    }
  }
  return true;
}

static double read_scalar(const Trainer *trainer, int32_t buf) {
  Backend *backend = trainer->machine.backend;
  double value = NAN;
  if (buf != PLAN_NONE) backend->read(backend, buf, 0, &value, sizeof value);
  return value;
}

static bool check_data(Trainer *trainer) {
  uint64_t bad = atomic_load(&trainer->feed.bad);
  return bad == UINT64_MAX || data_fail_id(&trainer->job->data, bad, trainer->job->vocab, &trainer->failure);
}

static bool check_step(Trainer *trainer, const StepResult *result) {
  unsigned long long step = result->step;
  if (!isfinite(result->loss))
    return fail(&trainer->failure, RUN_INVALID,
                "the loss of step %llu is %g: training has diverged; lower the learning rate, warm up longer, or clip",
                step, result->loss);
  if (trainer->job->plan->norm_buf == PLAN_NONE || isfinite(result->grad_norm) || result->skipped) return true;
  return fail(
      &trainer->failure, RUN_INVALID,
      "the gradient norm of step %llu is %g (loss %g): training has diverged; lower the learning rate or warm up "
      "longer",
      step, result->grad_norm, result->loss);
}

/* --- evaluation: begin and forward of the plan on other data, then on with the training data ---------------------- */

/* The segment's last instruction that adds to the loss, PLAN_NONE when it has none. */
static int32_t find_turn(const Plan *plan, const PlanSegment *segment) {
  for (int32_t i = segment->end; i-- > segment->first;) {
    if (instr_is_loss(plan->instrs.data[i].op)) return i;
  }
  return PLAN_NONE;
}

/* One step's worth of held-out samples: the loss summed over this rank, the valid tokens of all. */
static bool eval_batch(Trainer *trainer, uint64_t batch, double *loss, double *count) {
  const TrainJob *job = trainer->job;
  StepState state = {.step = trainer->standing.step,
                     .first_sample = batch * feed_samples_per_step(job->plan),
                     .forward_only = true};
  for (int32_t s = 0; s < (int32_t)job->plan->segments.count; s++) {
    const PlanSegment *segment = &job->plan->segments.data[s];
    bool feeds = plan_segment_feeds(job->plan, (uint32_t)s);
    state.turn = feeds ? find_turn(job->plan, segment) : segment->end;
    if (!feeds && state.micro_batch > 0) break; /* the update */
    for (state.repetition = 0; state.repetition < segment->count; state.repetition++, state.micro_batch += feeds)
      if (!trainer->machine.backend->run_segment(trainer->machine.backend, s, &state, NULL))
        return fail(&trainer->failure, RUN_PEER_FAILED, "%s, while evaluating after step %llu",
                    trainer->machine.backend->error(trainer->machine.backend), (unsigned long long)state.step);
  }
  *loss += read_scalar(trainer, job->plan->loss_buf);
  *count += read_scalar(trainer, job->plan->count_buf);
  return true;
}

static bool evaluate(Trainer *trainer) {
  const TrainJob *job = trainer->job;
  double loss = 0, count = 0;
  bool ok = true;
  feed_switch(&trainer->feed, &job->eval_data, true);
  for (uint64_t batch = 0; ok && batch < job->eval_batches; batch++) ok = eval_batch(trainer, batch, &loss, &count);
  feed_switch(&trainer->feed, &job->data, false);
  if (!ok) return false;
  uint64_t bad = atomic_load(&trainer->feed.bad);
  if (bad != UINT64_MAX) return data_fail_id(&job->eval_data, bad, job->vocab, &trainer->failure);
  if (!train_sum(trainer, &loss)) return false;
  if (trainer->report == NULL) return true;
  return report_eval(trainer->report, trainer->standing.step, loss / count, (uint64_t)count, &trainer->failure);
}

static bool evaluate_if_due(Trainer *trainer) {
  const TrainJob *job = trainer->job;
  uint64_t number = trainer->standing.step, every = job->options->eval_every;
  if (job->eval_data.count == 0) return true;
  bool due = number == job->steps || (every != 0 && number % every == 0);
  return !due || evaluate(trainer);
}

static bool step(Trainer *trainer, uint64_t number) {
  const TrainJob *job = trainer->job;
  const Plan *plan = job->plan;
  StepState state = {.step = number,
                     .lr =
                         schedule_lr(&plan->recipe, plan->recipe.steps != 0 ? plan->recipe.steps : job->steps, number),
                     .first_sample = trainer->standing.samples,
                     .timed = number >= trainer->timed_from,
                     .skipped = (uint64_t)trainer->standing.scaler.word[SCALER_SKIPPED]};
  uint64_t begin = clock_ns();
  atomic_store(&trainer->env->status->step, number);
  if (job->kind->guarded) guard_enter();
  bool ran = run_segments(trainer, &state);
  if (job->kind->guarded) guard_leave();
  if (!ran || !check_data(trainer)) return false;
  StepResult result = {.step = number,
                       .loss = read_scalar(trainer, plan->loss_buf) / read_scalar(trainer, plan->count_buf),
                       .grad_norm = read_scalar(trainer, plan->norm_buf),
                       .lr = state.lr,
                       .step_ns = clock_ns() - begin,
                       .peak_bytes = trainer->machine.backend->high_water(trainer->machine.backend)};
  if (!scaler_end(&trainer->standing.scaler, plan, trainer->machine.backend, &result.skipped, &result.loss_scale,
                  &trainer->failure))
    return false;
  if (trainer->profile != NULL) profile_end_step(trainer->profile, result.step_ns);
  if (trainer->report != NULL && !report_step(trainer->report, &result, &trainer->failure)) return false;
  if (!check_step(trainer, &result)) return false;
  trainer->standing.step = number;
  trainer->standing.samples += feed_samples_per_step(plan);
  trainer->standing.tokens += feed_samples_per_step(plan) * job->ctx;
  return evaluate_if_due(trainer) && train_checkpoint_if_due(trainer);
}

static bool show_last_step(Trainer *trainer) {
  StepObserver *observer = trainer->job->options->observer;
  MeasuredStep last = trainer->profile != NULL ? profile_measured(trainer->profile) : (MeasuredStep){0};
  if (observer == NULL || last.run_count == 0) return true;
  const char *trouble = observer->take(observer, trainer->job->plan, &last);
  return trouble == NULL || fail(&trainer->failure, RUN_INVALID, "%s", trouble);
}

static bool finish(Trainer *trainer) {
  const TrainJob *job = trainer->job;
  bool exported;
  if (!train_finish_saving(trainer, &exported)) return false;
  if (trainer->report == NULL) return true;
  if (!report_end(trainer->report, exported ? job->saver.path : NULL, &trainer->failure)) return false;
  if (!show_last_step(trainer)) return false;
  if (job->options->analyze) profile_print(trainer->profile, stdout);
  return fflush(stdout) == 0 ||
         fail(&trainer->failure, RUN_INVALID, "cannot write to standard output: %s", strerror(errno));
}

/* Processes on one host have agreed before they had ranks. Rank 0's host says what is wrong. */
static bool agree_over_hosts(Trainer *trainer, Arena *arena) {
  const RankEnv *env = trainer->env;
  if (env->local_ranks == env->ranks) return true;
  if (join_agree_all(arena, trainer->machine.comm, &trainer->job->terms, &trainer->failure)) return true;
  if (env->arenas[0] == NULL) trainer->failure.text[0] = '\0';
  return false;
}

static bool run(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  feed_open(&trainer->feed, job->plan, &job->data, job->ctx, trainer->env->rank);
  RankSetup setup = {.plan = job->plan,
                     .kind = job->kind,
                     .env = trainer->env,
                     .feed = &trainer->feed.feed,
                     .gemm = job->options->gemm,
                     .threads = job->options->threads};
  trainer->words = ARENA_ARRAY(arena, uint64_t, trainer->env->ranks);
  if (!rank_open(arena, &trainer->machine, &setup, &trainer->failure) || !agree_over_hosts(trainer, arena)) return false;
  if (!prepare_weights(trainer, arena) || !train_open_checkpointer(trainer, arena) || !open_report(trainer, arena)) return false;
  if (!scaler_begin(&trainer->standing.scaler, job->plan, trainer->machine.backend, &trainer->failure)) return false;
  while (trainer->standing.step < job->steps && !trainer->stopped)
    if (!step(trainer, trainer->standing.step + 1)) return false;
  return finish(trainer);
}

/* A launcher that has asked the job to stop answers nobody until all have ended, so Open MPI could not be closed then: it
 * is enough that nobody needs this rank any more. */
static void leave(const Trainer *trainer) {
  Comm *comm = trainer->machine.comm;
  if (comm->close == NULL) return;
  if (trainer->stopped) comm->barrier(comm);
  else comm->close(comm);
}

static int rank_main(void *user, const RankEnv *env) {
  Arena *arena = arena_new();
  Trainer trainer = {.job = user, .env = env, .timed_from = UINT64_MAX};
  bool ok = run(&trainer, arena);
  if (ok) leave(&trainer);
  if (trainer.report != NULL) report_break(trainer.report);
  if (!ok) control_fail(env->control, env->rank, &trainer.failure);
  if (trainer.report != NULL) report_close(trainer.report);
  checkpointer_close(trainer.checkpointer);
  rank_close(&trainer.machine);
  arena_free(arena);
  return ok ? RUN_OK : trainer.failure.code;
}

/* --- the parent --------------------------------------------------------------------------------------------------- */

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
  uint64_t all = (job->eval_data.count - 1) / job->ctx / samples_per_step;
  if (all == 0)
    return fail(failure, RUN_INVALID,
                "eval: %s: it has %llu samples of %llu tokens, and one evaluation takes at least %llu",
                options->eval_data[0], (unsigned long long)((job->eval_data.count - 1) / job->ctx),
                (unsigned long long)job->ctx, (unsigned long long)samples_per_step);
  job->eval_batches = options->eval_batches != 0 && options->eval_batches < all ? options->eval_batches : all;
  return true;
}

static bool prepare(Arena *arena, TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  if (!check_options(job, failure) || !feed_shape(job->plan, &job->vocab, &job->ctx, failure)) return false;
  if (!data_open(arena, &job->data, options->data, options->data_count, job->vocab, job->ctx + 1, failure))
    return false;
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
                              job->eval_batches, options->save_dir != NULL, job->data.count,
                              job->data.width,   wants_times(options),
                              environment_setting(SETTING_FSDPC_NCCL_SUM),   environment_setting(SETTING_FSDPC_CUDA_COMM),
                              environment_setting(SETTING_FSDPC_CUDA_GRAPH), environment_setting(SETTING_FSDPC_CUDA_SYNC)};
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
    return fail(failure, RUN_INVALID, "launch: %s started %u processes, but the plan is for %u ranks",
                options->launcher->name, options->launcher->ranks, job->plan->world.ranks);
  if (launcher_spans_hosts(options->launcher) && !check_hosts(failure)) return false;
  job->terms = (JoinTerms){
      .plan_hash = plan_hash(job->plan),
      .options_hash = hash_options(job),
      .memory_bytes = shared_file_bytes(job->plan->world.ranks, job->kind->shared_bytes(job->plan)),
      .first_step = job->checkpoint.standing.step};
  uint32_t timeout_s =
      options->timeout_s != 0 && options->timeout_s < JOIN_TIMEOUT_S ? options->timeout_s : JOIN_TIMEOUT_S;
  return join_open(arena, join, options->launcher, &job->terms, timeout_s, failure);
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
                        .rank_main = rank_main,
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
