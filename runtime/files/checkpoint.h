/* Owns: checkpoints: everything that a run needs to go on as if it had never stopped.
 *
 *   DIR/step-00000020/checkpoint.json                      the index: step, sampler position, seed, loss
 *                                                          scale, files and checksums
 *   DIR/step-00000020/rank-00001-of-00004.safetensors      one a rank of the first replica: its shard of parameters and
 *                                                          moments, tensor "m/h.0.ln_1.weight@64" being elements from
 *                                                          64 on; "crc32c" holds a checksum a tensor, in their order.
 *                                                          All are f32, whatever the run keeps parameters in.
 *                                                          Adafactor's "v", which ranks hold whole, is in the first file
 *
 * A checkpoint is made in DIR/.step-00000020.tmp and renamed when it is whole and on disk, so a folder called step-* is
 * always complete. Element ranges of parameters, not of units or ranks, so any number of ranks and any plan of the
 * model can go on from it. Nothing is gathered: each rank copies its shard into a host buffer that it allocated at
 * open, and a thread of its own writes it while training goes on. */
#ifndef FSDPC_RUNTIME_CHECKPOINT_H
#define FSDPC_RUNTIME_CHECKPOINT_H

#include "runtime/backend.h"
#include "runtime/launch/control.h"
#include "runtime/ranges.h"
#include "runtime/files/safetensors.h"
#include "runtime/scaler.h"

#include <jansson.h>

enum { CHECKPOINT_PATH_BYTES = 4096, CHECKPOINT_SCHEMA = 1 };

/* What is kept of a parameter. */
typedef enum { STATE_PARAM, STATE_M, STATE_V, STATE_KINDS } StateKind;
const char *state_name(StateKind kind);
int32_t state_buf(const PlanUnit *unit, StateKind kind); /* or PLAN_NONE */
/* Which elements of which parameters lie where in state_buf; shard: unit_ranges of this rank. */
UnitRanges state_ranges(Arena *arena, const Plan *plan, uint32_t unit, StateKind kind, const UnitRanges *shard);

/* Where a run stands between two steps. */
typedef struct Standing {
  uint64_t step;    /* steps done */
  uint64_t samples; /* consumed: global number of the next sample */
  uint64_t tokens;  /* trained on */
  Scaler scaler;
} Standing;

/* --- the folder of checkpoints (checkpoint_folder.c); no function allocates but those with an arena --------------- */

/* Locks DIR, which exists, against other runs, and removes what a killed one left half written. The lock is the
 * descriptor's, and so the process's and its children's. */
bool folder_lock(const char *dir, int *fd, Failure *failure);
/* Removes checkpoints that were never finished. */
void folder_clean(const char *dir);
/* DIR/step-N of the newest checkpoint before a step; NULL when there is none. DIR may be a checkpoint itself, which
 * counts where `before` is UINT64_MAX. */
bool folder_latest(Arena *arena, const char *dir, uint64_t before, const char **path, Failure *failure);
/* The checkpoint's folder where PATH is a file of one, which alone says nothing; else PATH. */
const char *folder_of_file(Arena *arena, const char *path);
/* Renames what is newer than `step` to superseded-step-N, or -N-2 and so on where there is one: a run that goes on from there leaves
 * that branch, and "newest" must mean its own. */
bool folder_set_aside(const char *dir, uint64_t step, Failure *failure);
/* Puts DIR/.step-N.tmp in its place, and removes all but the `keep` newest (0: none). */
bool folder_commit(const char *dir, uint64_t step, uint32_t keep, Failure *failure);
/* The N of a path that ends in step-N; false for another. */
bool folder_step_of(const char *path, uint64_t *step);
void folder_temp_path(char out[CHECKPOINT_PATH_BYTES], const char *dir, uint64_t step);
/* What was renamed or removed in it reaches the disk, where its file system does that. */
bool folder_sync(const char *path, Failure *failure);
/* Writes a file whole and to disk. */
bool folder_write(const char *path, const char *text, uint64_t bytes, Failure *failure);
/* fail() with errno, and what to do about it. */
bool folder_failed(const char *path, const char *what, Failure *failure);

/* --- writing (checkpoint.c) --------------------------------------------------------------------------------------- */

typedef struct CheckpointerConfig {
  const Plan *plan;
  const char *dir;
  uint32_t keep; /* newest checkpoints that stay, 0: all */
  uint32_t rank;
  uint64_t data_tokens, data_hash; /* of the data, to notice other data at resume */
  const UnitRanges *ranges;
  Backend *backend;
  RankStatus *statuses; /* of all ranks */
  Control *control;
} CheckpointerConfig;

typedef struct Checkpointer Checkpointer;

/* Every rank has one. NULL when the host buffer or the thread cannot be had. */
Checkpointer *checkpointer_open(Arena *arena, const CheckpointerConfig *config, Failure *failure);
/* Takes a copy and returns; waits first until the checkpoint before is finished. Every rank calls it after the same
 * steps. */
bool checkpointer_save(Checkpointer *self, const Standing *standing, Failure *failure);
/* Until the latest checkpoint of all ranks is in its place. */
bool checkpointer_wait(Checkpointer *self, Failure *failure);
void checkpointer_close(Checkpointer *self); /* NULL is allowed */

/* --- the index (checkpoint_index.c) ------------------------------------------------------------------------------- */

typedef struct CheckpointFile {
  const char *path;
  uint64_t bytes;
  uint32_t crc; /* of its header and its table of checksums */
} CheckpointFile;

/* As a safetensors file of a checkpoint is called. */
void checkpoint_file_name(char out[64], uint32_t index, uint32_t count);
/* Allocates only outside of this program's objects. */
bool index_write(const CheckpointerConfig *config, const Standing *standing, const char *path, uint32_t files,
                 Failure *failure);

/* --- reading (resume.c) ------------------------------------------------------------------------------------------- */

typedef struct Checkpoint {
  const char *path, *index; /* folder, and checkpoint.json in it */
  Standing standing;
  uint64_t seed, data_tokens;
  uint64_t data_hash; /* 0: of an older checkpoint, not known */
  const char *optimizer, *order;
  VEC(const char *) changes; /* "lr is 0.001, and was 0.003 at the checkpoint"; not to train on: of layers only */
  CheckpointFile *files;
  Safetensors *opened; /* one a file */
  uint32_t file_count;
} Checkpoint;

/* Reads and checks the index, that the model is this plan's, and, to train on, that its recipe can be. */
bool index_read(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const char *path, bool to_train,
                Failure *failure);
/* index_read, then opens and checks every file. On failure nothing stays open. */
bool checkpoint_open(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const char *path, bool to_train,
                     Failure *failure);
/* This rank's shard, from whichever files hold it, of what the plan keeps up to `last`; every tensor that is read is checked
 * against its checksum. */
bool checkpoint_load(const Checkpoint *checkpoint, const Plan *plan, const UnitRanges *ranges, Backend *backend,
                     StateKind last, Failure *failure);
/* All of one parameter. */
bool checkpoint_read(const Checkpoint *checkpoint, const Plan *plan, uint32_t param, float *out, Failure *failure);
void checkpoint_close(Checkpoint *checkpoint);
/* fail(): a checkpoint's file is not as it was written. */
bool checkpoint_damaged(const char *path, const char *what, Failure *failure);

/* --- the recipe in it (checkpoint_recipe.c) ----------------------------------------------------------------------- */

/* Owned by the caller. */
json_t *recipe_pack(const Plan *plan);
/* Fills in checkpoint->changes. stored: what recipe_pack gave; NULL in older checkpoints. */
void recipe_compare(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const json_t *stored);
/* Whether a list of names has this one. */
bool recipe_names(const json_t *names, const char *name);

/* --- choosing (checkpoint_choose.c) ------------------------------------------------------------------------------- */

typedef struct CheckpointChoice {
  const char *dir; /* a checkpoint, or a folder of them */
  bool passes;     /* over damaged ones, to the newest that is whole */
  bool speaks;     /* says which were passed over */
} CheckpointChoice;

/* Opens the newest checkpoint before a step. path NULL: there is none at all. */
bool checkpoint_choose(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const CheckpointChoice *choice,
                       uint64_t before, Failure *failure);

#endif
