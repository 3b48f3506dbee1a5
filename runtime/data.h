/* Owns: token sources: files as one stream of ids. Mapped, not read, so that data larger than memory works.
 *
 * Kinds: llm.c .bin (256 x i32 header; gpt-2: magic 20240520, version 1, u16; llama-3: 20240801, 7, u32), other .bin
 * (nanoGPT: headerless u16), anything else bytes (ids 0..255). A folder stands for all its files, folders within
 * included, sorted by path, hidden ones left out, each file once however many links name it. */
#ifndef FSDPC_RUNTIME_DATA_H
#define FSDPC_RUNTIME_DATA_H

#include "base/vec.h"
#include "runtime/failure.h"

typedef struct DataPiece {
  const char *path;
  const unsigned char *tokens; /* in the mapping, after the header; unaligned */
  uint64_t first, count;       /* tokens before this piece, and in it */
  void *map;
  uint64_t map_bytes;
  uint64_t device, inode;
} DataPiece;

typedef struct TokenData {
  uint32_t width; /* bytes of a token, the same in all pieces */
  uint64_t count;
  const char *kind; /* "text", "gpt-2 tokens", ... */
  VEC(DataPiece) pieces;
  uint32_t first_of_path; /* piece, of the path that is being opened */
} TokenData;

/* Opens all paths as one stream, in their order. Checks that there are at least `needed` tokens and, in the first
 * DATA_SCAN_TOKENS of them, that ids are below vocab (data_copy checks again). */
bool data_open(Arena *arena, TokenData *data, const char *const *paths, uint32_t path_count, int64_t vocab,
               uint64_t needed, Failure *failure);
void data_close(TokenData *data);

enum { DATA_SCAN_TOKENS = 64 << 20 };

/* Tokens [first, first + count), all inside the stream; ids from vocab on become 0. Returns the stream position of the
 * first such id, or UINT64_MAX. Allocates nothing. */
uint64_t data_copy(const TokenData *data, uint64_t first, uint64_t count, int64_t vocab, int32_t *out);

/* A hash (base/hash.h) of how long the stream is and of what stands at places spread evenly over it, first and last tokens among them, so
 * that large data need not be read: other data nearly always have another. The same however the stream is cut into files. */
uint64_t data_hash(uint64_t hash, const TokenData *data);
/* A file that is read as text and does not begin like any: it holds NUL bytes, as archives, tensors and tables do. NULL: none is seen. */
const char *data_find_binary(const TokenData *data);

/* The message for an id that is too large. */
bool data_fail_id(const TokenData *data, uint64_t position, int64_t vocab, Failure *failure);

#endif
