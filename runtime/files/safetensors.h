/* Owns: reading and laying out .safetensors files. A file is untrusted input: everything that the format promises is
 * checked before a tensor is believed. */
#ifndef FSDPC_RUNTIME_SAFETENSORS_H
#define FSDPC_RUNTIME_SAFETENSORS_H

#include "base/vec.h"
#include "runtime/failure.h"

#define SAFETENSORS_NO_STEP UINT64_MAX

enum { SAFETENSORS_MAX_HEADER = 100000000, SAFETENSORS_MAX_RANK = 8 };

typedef struct SafeTensor {
  const char *name;
  const char *dtype; /* as in the file: "F32", "BF16", ... */
  uint32_t bits;     /* of an element */
  uint32_t rank;
  int64_t dim[SAFETENSORS_MAX_RANK];
  uint64_t numel;
  uint64_t begin, end; /* bytes in the buffer */
} SafeTensor;

/* What files of ours state about the weights in them. */
typedef struct SafeOrigin {
  uint64_t step;      /* of the run, after which they were written; SAFETENSORS_NO_STEP: not stated */
  const char *layers; /* of the model, as layers_text gives them; NULL: not stated */
} SafeOrigin;

typedef struct Safetensors {
  const char *path;
  int fd;
  uint64_t buffer; /* file offset of the buffer */
  SafeOrigin origin;
  VEC(SafeTensor) tensors; /* by name */
} Safetensors;

/* Opens and validates. On failure nothing stays open. */
bool safetensors_open(Arena *arena, Safetensors *file, const char *path, Failure *failure);
void safetensors_close(Safetensors *file);
/* NULL when there is none of this name. */
const SafeTensor *safetensors_find(const Safetensors *file, const char *name);
/* Bytes of a tensor as they lie in the file. */
bool safetensors_read_bytes(const Safetensors *file, const SafeTensor *tensor, uint64_t first, uint64_t bytes, void *out,
                            Failure *failure);
/* Elements [first, first + n) of an F32, BF16 or F16 tensor as f32. */
bool safetensors_read_f32(const Safetensors *file, const SafeTensor *tensor, uint64_t first, uint64_t n, float *out,
                          Failure *failure);

/* What a file will look like: entries sorted by name get begin and end, and are F32 where dtype is NULL; the header text
 * (length prefix included) is returned and its length set. NULL when names are not distinct UTF-8 texts. */
const char *safetensors_layout(Arena *arena, SafeTensor *tensors, uint32_t count, uint64_t *header_bytes);
/* The same with the origin in its metadata. */
const char *safetensors_layout_of(Arena *arena, SafeTensor *tensors, uint32_t count, SafeOrigin origin, uint64_t *header_bytes);

#endif
