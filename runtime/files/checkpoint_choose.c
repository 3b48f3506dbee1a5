/* Owns: which checkpoint a run goes on from: the newest, or, where that is asked for, the newest that is
 * whole. Damage to an index or a header shows here; damage to values only when ranks read them, who then come
 * back for an older one. */
#include "runtime/files/checkpoint.h"

#include "runtime/runtime.h"

#include <stdio.h>

bool checkpoint_choose(Arena *arena, Checkpoint *checkpoint, const Plan *plan, const CheckpointChoice *choice,
                       uint64_t before, Failure *failure) {
  bool passed = before != UINT64_MAX;
  for (;;) {
    Failure reason = {0};
    const char *path;
    *checkpoint = (Checkpoint){0};
    if (!folder_latest(arena, choice->dir, before, &path, failure)) return false;
    if (path == NULL && passed)
      return fail(failure, RUN_INVALID,
                  "resume: %s: none of its checkpoints is whole and can be read; save elsewhere to start anew", choice->dir);
    if (path == NULL || checkpoint_open(arena, checkpoint, plan, path, true, &reason)) return true;
    *checkpoint = (Checkpoint){0};
    if (!reason.damaged || !choice->passes || !folder_step_of(path, &before)) {
      *failure = reason;
      return false;
    }
    if (choice->speaks) fprintf(stderr, "warning: %s\n", reason.text);
    passed = true;
  }
}
