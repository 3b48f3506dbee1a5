/* Owns: the training loop of a rank: opening its parts, step after step the plan's segments, evaluation between steps, the end. */
#include "runtime/train_job.h"

#include "base/clock.h"
#include "base/remedy.h"
#include "runtime/alloc_guard.h"
#include "runtime/schedule.h"

#include "planner/plan/plan_text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { AFTER_RANK_0_MS = 300 };

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

static bool open_report(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  if (train_wants_times(job->options)) trainer->timed_from = profile_begin(trainer->standing.step + 1, job->steps);
  if (trainer->env->rank != 0) return true;
  if (train_wants_times(job->options)) trainer->profile = profile_open(arena, job->plan, trainer->timed_from);
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
                         .device = job->kind->device,
                         .beside_bytes = trainer->machine.beside_bytes,
                         .gemm = trainer->machine.gemm_name,
                         .kernels = trainer->machine.kernels_name,
                         .threads = trainer->machine.threads,
                         .control = trainer->env->control,
                         .metrics = job->metrics,
                         .goes_on = job->checkpoint.path != NULL};
  trainer->report = report_open(arena, &config, &trainer->failure);
  return trainer->report != NULL;
}

/* Of earlier runs nothing is touched before all ranks have what they need: what ends before its first step costs nothing. */
static bool begin(Trainer *trainer) {
  return train_share(trainer, 0) && train_leave_others(trainer) &&
         (trainer->report == NULL || report_start(trainer->report, &trainer->failure));
}

static bool run_segments(Trainer *trainer, StepState *state) {
  const Plan *plan = trainer->job->plan;
  Backend *backend = trainer->machine.backend;
  InstrTime *times = trainer->profile != NULL ? profile_times(trainer->profile, state->step) : NULL;
  state->micro_batch = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    bool feeds = plan_segment_feeds(plan, s);
    for (state->repetition = 0; state->repetition < plan->segments.data[s].count; state->repetition++) {
      if (!backend->run_segment(backend, (int32_t)s, state, times))
        return fail(&trainer->failure, backend->exit_code(backend), "%s, in step %llu", backend->error(backend),
                    (unsigned long long)state->step);
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
  return isnan(value) ? NAN : value; /* its sign, which is printed, means nothing */
}

static bool check_data(Trainer *trainer) {
  uint64_t bad = atomic_load(&trainer->feed.bad);
  return bad == UINT64_MAX || data_fail_id(&trainer->job->data, bad, trainer->job->vocab, &trainer->failure);
}

static bool check_targets(Trainer *trainer, uint64_t number, double count) {
  return count != 0 || fail(&trainer->failure, RUN_INVALID,
                            "no target of step %llu counts: each is what cross_entropy ignores (ignore_index); leave such data out, or make steps larger",
                            (unsigned long long)number);
}

/* Before any update it is what the run began with: weights of a file, or initial values. */
static bool fail_at_once(Trainer *trainer, double loss) {
  DType compute = trainer->job->plan->recipe.compute;
  if (trainer->job->options->init_path != NULL)
    return fail(&trainer->failure, RUN_INVALID,
                "the loss is %g before any update: the weights that the run begins with hold numbers that are none, or are too large for its precision", loss);
  return fail(&trainer->failure, RUN_INVALID,
              "the loss is %g before any update: with the model's initial values a result leaves the range of %s; look at what the model states of init, scale "
              "and eps%s",
              loss, dtype_name(compute), compute == DTYPE_F32 ? "" : ", or try precision f32");
}

static bool check_step(Trainer *trainer, const StepResult *result) {
  unsigned long long step = result->step;
  if (!isfinite(result->loss) && step == 1) return fail_at_once(trainer, result->loss);
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

/* All ranks saw the same numbers: none says so before rank 0 has reported the step, since the first failure ends the run. */
static bool diverged(Trainer *trainer) {
  Comm *comm = trainer->machine.comm;
  comm->barrier(comm); /* whatever it returns, the run ends */
  return false;
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
  Backend *backend = trainer->machine.backend;
  StepState state = {.step = trainer->standing.step,
                     .first_sample = batch * feed_samples_per_step(job->plan),
                     .forward_only = true};
  for (int32_t s = 0; s < (int32_t)job->plan->segments.count; s++) {
    const PlanSegment *segment = &job->plan->segments.data[s];
    bool feeds = plan_segment_feeds(job->plan, (uint32_t)s);
    state.turn = feeds ? find_turn(job->plan, segment) : segment->end;
    if (!feeds && state.micro_batch > 0) break; /* the update */
    for (state.repetition = 0; state.repetition < segment->count; state.repetition++, state.micro_batch += feeds)
      if (!backend->run_segment(backend, s, &state, NULL))
        return fail(&trainer->failure, backend->exit_code(backend), "%s, while evaluating after step %llu", backend->error(backend),
                    (unsigned long long)state.step);
  }
  *loss += read_scalar(trainer, job->plan->loss_buf);
  *count += read_scalar(trainer, job->plan->count_buf);
  return true;
}

/* Where a step cannot be reported the run ends, as a failure, but what was trained is saved before. False: nothing saves here. */
static bool saves_first(Trainer *trainer) {
  if (trainer->checkpointer == NULL) return false;
  trainer->unreported = true;
  atomic_fetch_or(&trainer->env->control->request, REQUEST_SAVE | REQUEST_STOP);
  return true;
}

/* May take much longer than a step, and who asks the run to stop may not wait: so it saves meanwhile, and breaks off. */
static bool evaluate(Trainer *trainer) {
  const TrainJob *job = trainer->job;
  double loss = 0, count = 0;
  bool ok = true;
  feed_switch(&trainer->feed, &job->eval_data, true);
  for (uint64_t batch = 0; ok && !trainer->stopped && batch < job->eval_batches; batch++)
    ok = eval_batch(trainer, batch, &loss, &count) && train_checkpoint_if_due(trainer);
  feed_switch(&trainer->feed, &job->data, false);
  if (!ok) return false;
  if (trainer->stopped) {
    if (trainer->report != NULL) report_no_eval(trainer->report, trainer->standing.step);
    return true;
  }
  uint64_t bad = atomic_load(&trainer->feed.bad);
  if (bad != UINT64_MAX) return data_fail_id(&job->eval_data, bad, job->vocab, &trainer->failure);
  if (!train_sum(trainer, &loss)) return false;
  if (trainer->report == NULL) return true;
  return report_eval(trainer->report, trainer->standing.step, loss / count, (uint64_t)count, &trainer->failure) || saves_first(trainer);
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
  double count = read_scalar(trainer, plan->count_buf);
  if (!check_targets(trainer, number, count)) return false;
  StepResult result = {.step = number,
                       .loss = read_scalar(trainer, plan->loss_buf) / count,
                       .grad_norm = read_scalar(trainer, plan->norm_buf),
                       .lr = state.lr,
                       .step_ns = clock_ns() - begin,
                       .peak_bytes = trainer->machine.backend->high_water(trainer->machine.backend)};
  if (!scaler_end(&trainer->standing.scaler, plan, trainer->machine.backend, &result.skipped, &result.loss_scale,
                  &trainer->failure))
    return false;
  if (trainer->profile != NULL) profile_end_step(trainer->profile, result.step_ns);
  if (trainer->report != NULL && !report_step(trainer->report, &result, &trainer->failure) && !saves_first(trainer)) return false;
  if (!check_step(trainer, &result)) return diverged(trainer);
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

static bool finish(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  bool exported;
  if (!train_finish_saving(trainer, arena, &exported)) return false;
  if (trainer->unreported) return false;
  if (trainer->report == NULL) return true;
  if (!report_end(trainer->report, exported ? job->saver.path : NULL, &trainer->failure)) return false;
  if (!show_last_step(trainer)) return false;
  if (job->options->analyze) profile_print(trainer->profile, stdout);
  return fflush(stdout) == 0 ||
         fail(&trainer->failure, RUN_INVALID, "cannot write to standard output: %s%s", strerror(errno), remedy_of(errno));
}

/* Processes on one host have agreed before they had ranks. Rank 0's host says what is wrong: the others leave after it, since a launcher ends
 * all that is left of a job when the first does. */
static bool agree_over_hosts(Trainer *trainer, Arena *arena) {
  const RankEnv *env = trainer->env;
  if (env->local_ranks == env->ranks) return true;
  if (join_agree_all(arena, trainer->machine.comm, &trainer->job->terms, &trainer->failure)) return true;
  if (env->arenas[0] != NULL) return false;
  const struct timespec pause = {.tv_nsec = AFTER_RANK_0_MS * 1000000L};
  trainer->failure.text[0] = '\0';
  nanosleep(&pause, NULL);
  return false;
}

/* Of a run that had come to its end before, evaluation is what is left to ask for, and another folder to save in. */
static bool finish_again(Trainer *trainer) {
  return (trainer->job->eval_data.count == 0 || evaluate(trainer)) && train_checkpoint_if_due(trainer);
}

static bool run(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  feed_open(&trainer->feed, job->plan, &job->data, job->ctx, trainer->env->rank);
  RankSetup setup = {.plan = job->plan,
                     .kind = job->kind,
                     .env = trainer->env,
                     .feed = &trainer->feed.feed,
                     .gemm = job->options->gemm,
                     .threads = job->options->threads,
                     .quiet = job->options->quiet};
  trainer->words = ARENA_ARRAY(arena, uint64_t, trainer->env->ranks);
  if (!rank_open(arena, &trainer->machine, &setup, &trainer->failure) || !agree_over_hosts(trainer, arena)) return false;
  if (!prepare_weights(trainer, arena) || !train_open_checkpointer(trainer, arena) || !open_report(trainer, arena)) return false;
  if (!scaler_begin(&trainer->standing.scaler, job->plan, trainer->machine.backend, &trainer->failure) || !begin(trainer)) return false;
  if (trainer->standing.step >= job->steps && !finish_again(trainer)) return false;
  while (trainer->standing.step < job->steps && !trainer->stopped)
    if (!step(trainer, trainer->standing.step + 1)) return false;
  return finish(trainer, arena);
}

/* A launcher that has asked the job to stop answers nobody until all have ended, so Open MPI could not be closed then: it
 * is enough that nobody needs this rank any more. */
static void leave(const Trainer *trainer) {
  Comm *comm = trainer->machine.comm;
  if (comm->close == NULL) return;
  if (trainer->stopped) comm->barrier(comm);
  else comm->close(comm);
}

int train_rank(void *user, const RankEnv *env) {
  Arena *arena = arena_new();
  Trainer trainer = {.job = user, .env = env, .timed_from = UINT64_MAX};
  bool ok = run(&trainer, arena);
  if (ok) leave(&trainer);
  if (trainer.report != NULL) report_break(trainer.report);
  if (!ok) {
    train_break_off_saving(&trainer);
    control_fail(env->control, env->rank, &trainer.failure);
  }
  if (trainer.report != NULL) report_close(trainer.report);
  checkpointer_close(trainer.checkpointer);
  rank_close(&trainer.machine);
  arena_free(arena);
  return ok ? RUN_OK : trainer.failure.code;
}
