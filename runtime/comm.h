/* Owns: the communicator interface: what collectives a plan needs, between the ranks of one job.
 *
 * Sums follow one fixed binary tree over global ranks: sum(lo, n) = sum(lo, p) + sum(lo + p, n - p), p the largest
 * power of two below n. Aligned power-of-two groups are subtrees, so a sum in a group followed by one across groups has
 * the bits of the sum over all. Numbers of 16 bits are added in f32 and rounded after every addition, so that this holds
 * for them too: the dtype on the wire is that of every partial sum.
 *
 * Every rank calls the same collectives in the same order, from one thread at a time: the communication thread while a
 * segment runs, the rank's own between segments. Buffers are
 * arena offsets: equal on every rank by the plan's contract, so that peers on the same host can be read in place. */
#ifndef FSDPC_RUNTIME_COMM_H
#define FSDPC_RUNTIME_COMM_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { COMM_OK = 0, COMM_PEER_FAILED } CommStatus;

typedef struct Comm Comm;
struct Comm {
  uint32_t rank, ranks;         /* global */
  uint32_t shard, replicas;     /* rank = replica * shard + position in the shard group */
  /* full[0 .. shard*count) of this rank = the group's shards in order; elements of `size` bytes. */
  CommStatus (*allgather)(Comm *, uint64_t shard_offset, uint64_t full_offset, uint64_t count, uint32_t size);
  /* shard (+)= own part of the group's tree sum of full; f32, bf16 or f16. */
  CommStatus (*reduce_scatter)(Comm *, uint64_t full_offset, uint64_t shard_offset, uint64_t count, DType dtype, bool add);
  /* y (+)= tree sum of x over replicas; f32, bf16 or f16. */
  CommStatus (*allreduce)(Comm *, uint64_t x_offset, uint64_t y_offset, uint64_t count, DType dtype, bool add);
  /* x = tree sum over all ranks. f64, few elements. */
  CommStatus (*allreduce_sum)(Comm *, uint64_t x_offset, uint64_t count);
  /* acc = exact sum over the shard group, EXACT_WORDS words. */
  CommStatus (*allreduce_exact)(Comm *, uint64_t acc_offset);
  /* x = sum over the shard group, i64. */
  CommStatus (*allreduce_int)(Comm *, uint64_t x_offset, uint64_t count);
  /* words[0 .. ranks) = the `word` of every rank, in their order. Not of the arena. */
  CommStatus (*share)(Comm *, uint64_t word, uint64_t *words);
  CommStatus (*barrier)(Comm *); /* all ranks */
  /* After the last collective of a job that went well; all ranks call it. NULL: there is nothing to close. */
  void (*close)(Comm *);
};

#endif
