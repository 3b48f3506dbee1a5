/* Owns: what the files of the training loop share: the job that the parent prepares, and a rank's state while it runs. */
#ifndef FSDPC_RUNTIME_TRAIN_JOB_H
#define FSDPC_RUNTIME_TRAIN_JOB_H

#include "runtime/backends.h"
#include "runtime/files/checkpoint.h"
#include "runtime/feed.h"
#include "runtime/launch/launch.h"
#include "runtime/profile.h"
#include "runtime/rank.h"
#include "runtime/report.h"
#include "runtime/runtime.h"
#include "runtime/files/trained.h"
#include "runtime/files/weights.h"

#include <stdio.h>

/* Made by the parent, inherited by every rank. */
typedef struct TrainJob {
  const Plan *plan;
  const TrainOptions *options;
  const BackendKind *kind;
  uint64_t steps, ctx;
  int64_t vocab;
  TokenData data, eval_data; /* eval_data.count 0: none */
  uint64_t data_hash;        /* of data */
  uint64_t eval_batches;
  Trained init;
  Saver saver;
  int save_lock;         /* on the folder of checkpoints, or -1 */
  CheckpointChoice resume;
  Checkpoint checkpoint; /* to go on from; path NULL: none */
  FILE *metrics;
  JoinTerms terms; /* under a launcher: what all ranks must have in common */
} TrainJob;

/* One rank's. */
typedef struct Trainer {
  const TrainJob *job;
  const RankEnv *env;
  TokenFeed feed;
  RankMachine machine;
  Checkpoint checkpoint;      /* the job's, or an older one when that turns out damaged */
  uint64_t *words;            /* one a rank, to share */
  Checkpointer *checkpointer; /* NULL: nothing is saved */
  Standing standing;          /* after the latest step */
  uint64_t saved_step;        /* of the latest checkpoint in this run's folder; 0: there is none */
  uint64_t timed_from;        /* step from which rank 0's instructions are timed; UINT64_MAX: none are */
  Profile *profile;           /* rank 0, when asked for */
  bool stopped;               /* by request, before the last step */
  bool unreported;            /* rank 0: metrics can no longer be written, so it has requested that */
  Report *report;             /* rank 0 */
  Failure failure;
} Trainer;

/* --- train.c --------------------------------------------------------------------------------------------------------- */

/* Whether this process is that of rank 0: it speaks, and it alone touches what is not a rank's own. */
bool train_leads(const TrainOptions *options);
/* Whether instructions are timed. */
bool train_wants_times(const TrainOptions *options);

/* --- train_loop.c ---------------------------------------------------------------------------------------------------- */

/* A rank's process, from opening to its exit code; user: the TrainJob. */
int train_rank(void *user, const RankEnv *env);
/* One word of every rank, in trainer->words. */
bool train_share(Trainer *trainer, uint64_t word);
/* In the order of ranks, so that every rank gets the same bits. */
bool train_sum(Trainer *trainer, double *value);

/* --- train_checkpoint.c: the parent, before the fork ------------------------------------------------------------------ */

/* Finds what the options say to go on from, if anything: job->checkpoint. */
bool train_open_resume(Arena *arena, TrainJob *job, Failure *failure);
/* "Newest" must mean this run's: other runs' checkpoints are not to be mixed with its own. */
bool train_check_save_folder(Arena *arena, const TrainJob *job, Failure *failure);

/* --- train_checkpoint.c: a rank --------------------------------------------------------------------------------------- */

/* All ranks go on from one checkpoint: back to the one before where any finds damage. */
bool train_load_checkpoint(Trainer *trainer, Arena *arena);
/* Sets aside the checkpoints that are newer than where this run goes on. */
bool train_leave_others(Trainer *trainer);
bool train_open_checkpointer(Trainer *trainer, Arena *arena);
/* Between two steps, as often as one likes. Also where the run stops by request. */
bool train_checkpoint_if_due(Trainer *trainer);
/* After the last step: the latest checkpoint is in its place, and, unless stopped, model.safetensors is. */
bool train_finish_saving(Trainer *trainer, Arena *arena, bool *exported);
/* After a failure: where no rank is lost, the checkpoint that is being written is finished, and the failure names the latest one. */
void train_break_off_saving(Trainer *trainer);

#endif
