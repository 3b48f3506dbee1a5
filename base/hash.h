/* Owns: FNV-1a, 64 bits. Plans, checkpoints and initial values are known by it: it must stay as it is. */
#ifndef FSDPC_BASE_HASH_H
#define FSDPC_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325) /* of nothing yet */

static inline uint64_t hash_word(uint64_t hash, uint64_t word) { return (hash ^ word) * UINT64_C(0x100000001b3); }

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) hash = hash_word(hash, ((const unsigned char *)data)[i]);
  return hash;
}

#endif
