/* Owns: the table of element types. */
#include "base/dtype.h"

#include <string.h>

static const struct {
  const char *name;
  uint32_t bytes;
} table[DTYPE_COUNT] = {
#define X(id, name, bytes) {name, bytes},
    DTYPES(X)
#undef X
};

const char *dtype_name(DType dtype) { return table[dtype].name; }

uint32_t dtype_bytes(DType dtype) { return table[dtype].bytes; }

int dtype_find(const char *name) {
  for (int i = 0; i < DTYPE_COUNT; i++)
    if (!strcmp(table[i].name, name)) return i;
  return -1;
}
