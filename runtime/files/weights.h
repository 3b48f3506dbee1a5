/* Owns: where parameters come from and go to: initial values, loading, saving. Each rank touches only its own shard, so
 * no rank ever holds the whole model. */
#ifndef FSDPC_RUNTIME_WEIGHTS_H
#define FSDPC_RUNTIME_WEIGHTS_H

#include "kernels/kernels.h"
#include "runtime/backend.h"
#include "runtime/launch/control.h"
#include "runtime/files/pretrained.h"
#include "runtime/ranges.h"
#include "runtime/files/safetensors.h"

/* From the recipe's seed and each parameter's name. */
bool weights_init(const Plan *plan, const UnitRanges *ranges, Backend *backend, const KernelTable *kernels,
                  const KernelContext *context, Failure *failure);

bool weights_load(const Plan *plan, const UnitRanges *ranges, Backend *backend, const Pretrained *weights,
                  Failure *failure);

/* Saves to DIR/model.safetensors, which changes in one instant: until then the data lie in a file without a name
 * (O_TMPFILE), or under a temporary one where the file system has no such files. */
typedef struct Saver {
  const Plan *plan;
  const char *dir, *path, *temp;
  uint64_t step;       /* after which it will be written: stands in the file */
  SafeTensor *tensors; /* by name */
  uint32_t *of_param;  /* param -> index in tensors */
  const char *header;
  uint64_t header_bytes, file_bytes;
} Saver;

/* Lays the file out, creates DIR, checks that it can be written to. Before the fork. */
bool saver_open(Arena *arena, Saver *saver, const Plan *plan, const char *dir, uint64_t step, Failure *failure);

/* The same after another step. */
bool saver_at(Arena *arena, const Saver *opened, uint64_t step, Saver *saver, Failure *failure);

typedef struct SaveRank {
  uint32_t rank;
  bool one_host; /* all ranks are on it */
  Control *control;
  const UnitRanges *ranges;
  Backend *backend;
  Comm *comm;
} SaveRank;

/* Called by every rank; replica 0 writes. */
bool saver_save(const Saver *saver, const SaveRank *self, Failure *failure);

#endif
