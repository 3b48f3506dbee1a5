/* Owns: TensorBoard's event files: one a run, in a folder that several runs may share. */
#ifndef FSDPC_RUNTIME_TENSORBOARD_H
#define FSDPC_RUNTIME_TENSORBOARD_H

#include "base/arena.h"
#include "runtime/failure.h"
#include <stdint.h>

typedef struct Tensorboard Tensorboard;

typedef struct Scalar {
  const char *tag; /* "train/loss" */
  double value;
} Scalar;

/* Makes DIR and a file in it. NULL on failure. */
Tensorboard *tensorboard_open(Arena *arena, const char *dir, Failure *failure);
bool tensorboard_add(Tensorboard *board, uint64_t step, const Scalar *scalars, uint32_t count, Failure *failure);
void tensorboard_close(Tensorboard *board); /* NULL is allowed */

#endif
