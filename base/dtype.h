/* Owns: element types of buffers, their names and sizes. */
#ifndef FSDPC_BASE_DTYPE_H
#define FSDPC_BASE_DTYPE_H

#include <stdint.h>

/*        enum         name    bytes */
#define DTYPES(X)                                                                                            \
  X(DTYPE_F32, "f32", 4)                                                                                     \
  X(DTYPE_BF16, "bf16", 2)                                                                                   \
  X(DTYPE_F16, "f16", 2)                                                                                     \
  X(DTYPE_F64, "f64", 8)                                                                                     \
  X(DTYPE_I32, "i32", 4)                                                                                     \
  X(DTYPE_I64, "i64", 8)                                                                                     \
  X(DTYPE_U8, "u8", 1)

typedef enum {
#define X(id, name, bytes) id,
  DTYPES(X)
#undef X
      DTYPE_COUNT
} DType;

const char *dtype_name(DType dtype);
uint32_t dtype_bytes(DType dtype);
/* -1 when no dtype has this name. */
int dtype_find(const char *name);

#endif
