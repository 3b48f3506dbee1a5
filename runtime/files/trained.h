/* Owns: weights as commands name them: .safetensors, ours or Hugging Face's, a checkpoint, or the folder of a run, of which
 * the latest weights count: those of its newest checkpoint, unless model.safetensors is of as late a step. */
#ifndef FSDPC_RUNTIME_TRAINED_H
#define FSDPC_RUNTIME_TRAINED_H

#include "runtime/files/checkpoint.h"
#include "runtime/files/pretrained.h"

typedef struct Trained {
  Checkpoint checkpoint; /* path NULL: files */
  Pretrained files;
} Trained;

/* Everything but a checkpoint's values is checked. speaks: of a run's folder that has both kinds, and of layers
 * that are not those that the weights were trained in.
 * On failure nothing stays open. */
bool trained_open(Arena *arena, Trained *trained, const Plan *plan, const char *path, bool speaks, Failure *failure);
/* This rank's shard of the parameters. */
bool trained_load(const Trained *trained, const Plan *plan, const UnitRanges *ranges, Backend *backend, Failure *failure);
/* All of one parameter. */
bool trained_read(const Trained *trained, const Plan *plan, uint32_t param, float *out, Failure *failure);
void trained_close(Trained *trained);

#endif
