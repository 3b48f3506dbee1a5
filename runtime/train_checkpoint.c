/* Owns: when a run saves, and what it goes on from: before the fork the parent chooses a checkpoint, then all ranks load one,
 * save together between steps, and write the weights at the end. What a checkpoint is, checkpoint.h says. */
#include "runtime/train_job.h"

#include <libgen.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- the parent ------------------------------------------------------------------------------------------------------ */

/* Weights that no run of ours left: its checkpoints would stand beside them. */
static bool check_foreign_weights(Arena *arena, const char *dir, Failure *failure) {
  static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = arena_printf(arena, "%s/%s", dir, names[i]);
    if (access(path, F_OK) == 0)
      return fail(failure, RUN_INVALID, "save: %s is not of this run, which would write over it; save elsewhere, or remove it", path);
  }
  return true;
}

static bool is_same_folder(const char *a, const char *b) {
  struct stat one, two;
  return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_ino == two.st_ino && one.st_dev == two.st_dev;
}

/* By its name, or, where that is such as ".", by where it lies: a link to it may stand in the folder. */
static bool is_checkpoint_in(Arena *arena, const char *path, const char *dir) {
  return is_same_folder(dirname(arena_strdup(arena, path)), dir) || is_same_folder(arena_printf(arena, "%s/..", path), dir);
}

bool train_check_save_folder(Arena *arena, const TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  const char *newest = NULL, *path = job->checkpoint.path;
  if (options->save_dir == NULL || !train_leads(options)) return true;
  if (!folder_latest(arena, options->save_dir, UINT64_MAX, &newest, failure)) return false;
  if (newest == NULL) return check_foreign_weights(arena, options->save_dir, failure);
  if (is_same_folder(newest, options->save_dir))
    return fail(failure, RUN_INVALID, "save: %s is a checkpoint itself; name the folder of its run, in which it lies, to go on there, or another",
                newest);
  if (path != NULL && is_checkpoint_in(arena, path, options->save_dir)) return true;
  return fail(failure, RUN_INVALID,
              "save: %s is of an earlier run; go on from it with --resume auto, save elsewhere, or "
              "remove it",
              newest);
}

static bool has_other_data(const TrainJob *job) {
  const Checkpoint *from = &job->checkpoint;
  return from->data_tokens != job->data.count || (from->data_hash != 0 && from->data_hash != job->data_hash);
}

static void say_other_data(const TrainJob *job) {
  const Checkpoint *from = &job->checkpoint;
  unsigned long long sample = from->standing.samples;
  if (from->data_tokens != job->data.count)
    fprintf(stderr, "note: the data has %llu tokens, and had %llu at the checkpoint; samples go on from number %llu\n",
            (unsigned long long)job->data.count, (unsigned long long)from->data_tokens, sample);
  else if (has_other_data(job))
    fprintf(stderr, "note: the data has other tokens than at the checkpoint, if as many; samples go on from number %llu\n", sample);
}

static void say_resume(const TrainJob *job) {
  const Checkpoint *from = &job->checkpoint;
  if (!train_leads(job->options)) return;
  if (!job->options->quiet)
    fprintf(stderr, "resuming from %s, after step %llu\n", from->path, (unsigned long long)from->standing.step);
  say_other_data(job);
  for (uint32_t i = 0; i < from->changes.count; i++) fprintf(stderr, "note: %s\n", from->changes.data[i]);
}

/* Nobody has seen that the data changed under a run that goes on by itself; who began it with --resume has been told of earlier changes. */
static bool check_same_data(const TrainJob *job, Failure *failure) {
  if (!job->options->restarted || job->options->resume != NULL || !has_other_data(job)) return true;
  return fail(failure, RUN_INVALID,
              "restart: the data has changed since the run began: %llu tokens, and %llu at the checkpoint; put it back, or go on as it is with --resume auto",
              (unsigned long long)job->data.count, (unsigned long long)job->checkpoint.data_tokens);
}

static bool open_newest(Arena *arena, TrainJob *job, const char *dir, bool passes, Failure *failure) {
  job->resume = (CheckpointChoice){.dir = dir, .passes = passes, .speaks = train_leads(job->options)};
  if (!checkpoint_choose(arena, &job->checkpoint, job->plan, &job->resume, UINT64_MAX, failure)) return false;
  if (job->checkpoint.path == NULL) return true;
  if (!check_same_data(job, failure)) return false;
  say_resume(job);
  return true;
}

/* --resume DIR */
static bool open_stated(Arena *arena, TrainJob *job, const char *dir, Failure *failure) {
  struct stat info;
  if (stat(dir, &info) != 0) return fail_file(failure, "resume", dir, "cannot be found");
  if (!S_ISDIR(info.st_mode))
    return fail(failure, RUN_INVALID,
                "resume: %s is neither a checkpoint nor the folder of a run; where it holds weights, --init begins a new run with them", dir);
  if (!open_newest(arena, job, dir, false, failure)) return false;
  return job->checkpoint.path != NULL || fail(failure, RUN_INVALID, "resume: %s: there is no checkpoint in it", dir);
}

bool train_open_resume(Arena *arena, TrainJob *job, Failure *failure) {
  const TrainOptions *options = job->options;
  bool newest = options->resume != NULL && strcmp(options->resume, "auto") == 0;
  if (newest && options->save_dir == NULL)
    return fail(failure, RUN_INVALID, "resume: auto needs a folder to look in: add --save DIR");
  if ((newest || options->restarted) && !open_newest(arena, job, options->save_dir, true, failure)) return false;
  if (newest || options->resume == NULL || job->checkpoint.path != NULL)
    return true; /* perhaps without: the first start of a run that may be restarted */
  return open_stated(arena, job, folder_of_file(arena, options->resume), failure);
}

/* --- a rank: going on ------------------------------------------------------------------------------------------------ */

/* How many ranks found the checkpoint damaged, which only shows when values are read. False: failed otherwise. */
static bool try_checkpoint(Trainer *trainer, double *damaged) {
  const TrainJob *job = trainer->job;
  const RankMachine *machine = &trainer->machine;
  Failure reason = {0};
  bool ok = checkpoint_load(&trainer->checkpoint, job->plan, machine->ranges, machine->backend, STATE_V, &reason);
  if (!ok && (!reason.damaged || !job->resume.passes)) {
    trainer->failure = reason;
    return false;
  }
  if (!ok) fprintf(stderr, "warning: %s\n", reason.text);
  *damaged = ok ? 0 : 1;
  if (!job->resume.passes || train_sum(trainer, damaged)) return true;
  return fail(&trainer->failure, RUN_PEER_FAILED, "rank %u: another rank failed while resuming", trainer->env->rank);
}

bool train_load_checkpoint(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  bool leader = trainer->env->rank == 0;
  CheckpointChoice older = job->resume;
  double damaged;
  older.speaks = leader;
  trainer->checkpoint = job->checkpoint;
  for (;;) {
    if (!try_checkpoint(trainer, &damaged)) return false;
    if (!(damaged > 0)) break;
    uint64_t step = trainer->checkpoint.standing.step;
    checkpoint_close(&trainer->checkpoint);
    if (!checkpoint_choose(arena, &trainer->checkpoint, job->plan, &older, step, &trainer->failure)) return false;
    step = trainer->checkpoint.standing.step;
    if (leader)
      fprintf(stderr, "resuming from %s, after step %llu\n", trainer->checkpoint.path, (unsigned long long)step);
  }
  trainer->standing = trainer->checkpoint.standing;
  const char *dir = job->options->save_dir;
  if (dir != NULL && is_checkpoint_in(arena, trainer->checkpoint.path, dir)) trainer->saved_step = trainer->standing.step;
  if (leader) atomic_store(&trainer->env->control->saved_step, trainer->standing.step);
  return true;
}

bool train_leave_others(Trainer *trainer) {
  const char *dir = trainer->job->options->save_dir;
  if (trainer->env->rank != 0 || dir == NULL || trainer->checkpoint.path == NULL) return true;
  return folder_set_aside(dir, trainer->standing.step, &trainer->failure);
}

/* --- a rank: saving --------------------------------------------------------------------------------------------------- */

bool train_open_checkpointer(Trainer *trainer, Arena *arena) {
  const TrainJob *job = trainer->job;
  const RankEnv *env = trainer->env;
  if (job->options->save_dir == NULL) return true;
  CheckpointerConfig config = {.plan = job->plan,
                               .dir = job->options->save_dir,
                               .keep = job->options->keep,
                               .rank = env->rank,
                               .data_tokens = job->data.count,
                               .data_hash = job->data_hash,
                               .ranges = trainer->machine.ranges,
                               .backend = trainer->machine.backend,
                               .statuses = env->statuses,
                               .control = env->control};
  trainer->checkpointer = checkpointer_open(arena, &config, &trainer->failure);
  return trainer->checkpointer != NULL;
}

/* What any host's parent has asked for since the last step, all ranks do. */
static bool take_requests(Trainer *trainer, uint32_t *requests) {
  if (!train_share(trainer, atomic_exchange(&trainer->env->control->request, 0))) return false;
  *requests = 0;
  for (uint32_t rank = 0; rank < trainer->env->ranks; rank++) *requests |= (uint32_t)trainer->words[rank];
  return true;
}

bool train_checkpoint_if_due(Trainer *trainer) {
  const TrainJob *job = trainer->job;
  uint64_t number = trainer->standing.step, every = job->options->save_every;
  uint32_t requests = 0;
  if (trainer->checkpointer == NULL) return true;
  if (!take_requests(trainer, &requests)) return false;
  trainer->stopped |= (requests & REQUEST_STOP) != 0;
  bool due = number >= job->steps || requests != 0 || (every != 0 && number % every == 0);
  if (!due || number == trainer->saved_step) return true;
  trainer->saved_step = number;
  return checkpointer_save(trainer->checkpointer, &trainer->standing, &trainer->failure);
}

/* A run that went on from behind its last step has weights of that later step. */
static bool export_weights(Trainer *trainer, Arena *arena) {
  Saver saver;
  SaveRank self = {.rank = trainer->env->rank,
                   .one_host = trainer->env->local_ranks == trainer->env->ranks,
                   .control = trainer->env->control,
                   .ranges = trainer->machine.ranges,
                   .backend = trainer->machine.backend,
                   .comm = trainer->machine.comm};
  return saver_at(arena, &trainer->job->saver, trainer->standing.step, &saver, &trainer->failure) && saver_save(&saver, &self, &trainer->failure);
}

bool train_finish_saving(Trainer *trainer, Arena *arena, bool *exported) {
  *exported = trainer->checkpointer != NULL && !trainer->stopped;
  if (trainer->checkpointer != NULL && !checkpointer_wait(trainer->checkpointer, &trainer->failure)) return false;
  return !*exported || export_weights(trainer, arena);
}

void train_break_off_saving(Trainer *trainer) {
  Failure another = {0}; /* of a rank that was lost meanwhile, which ends the wait */
  if (trainer->checkpointer == NULL || trainer->failure.code != RUN_INVALID) return;
  checkpointer_wait(trainer->checkpointer, &another);
  control_name_saved(trainer->env->control, &trainer->failure);
}
