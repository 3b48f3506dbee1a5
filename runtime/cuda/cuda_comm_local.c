/* Owns: collectives between ranks that share a GPU, or GPUs that can read each other: peers' arenas are opened through
 * CUDA's interprocess handles and read in place, by copies (gather) or by kernels that sum in tree order.
 *
 * Ranks are processes; they meet on the host, since events of other processes cannot be captured: a collective waits for
 * its stream, for all ranks, runs, and waits again. Correct and simple, not fast: it is there to test sharding on one GPU.
 * All ranks run the same collectives in the same order, so one barrier over all of them serves groups of any shape. */
#include "runtime/cuda/cuda_comm.h"

#include "runtime/runtime.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum { RESULT_BYTES = 1 << 20 };

typedef struct LocalComm {
  CudaComm base; /* first */
  Comm *host;
  unsigned char **arenas; /* of every rank, as this process sees them */
  const void **sources;
  void *result; /* RESULT_BYTES on the device, for sums of scalars */
} LocalComm;

/* Ranks first, first + stride, ... */
typedef struct Group {
  uint32_t first, stride, count, self;
} Group;

static Group shard_group(const Comm *c) { return (Group){c->rank / c->shard * c->shard, 1, c->shard, c->rank % c->shard}; }
static Group replica_group(const Comm *c) { return (Group){c->rank % c->shard, c->shard, c->replicas, c->rank / c->shard}; }
static Group world_group(const Comm *c) { return (Group){0, 1, c->ranks, c->rank}; }

static bool check(LocalComm *local, int error, const char *what) {
  if (error == 0) return true;
  return fail(&local->base.failure, RUN_INVALID, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
}

static bool meet(LocalComm *local, CudaStream stream) {
  if (!check(local, (int)cudaStreamSynchronize((cudaStream_t)stream), "local collective")) return false;
  if (local->host->barrier(local->host) == COMM_OK) return true;
  return fail(&local->base.failure, RUN_PEER_FAILED, "another rank failed");
}

/* What lies at `own` in this rank's arena, in that of member i. */
static unsigned char *at(const LocalComm *local, const Group *group, uint32_t i, const void *own) {
  ptrdiff_t offset = (const unsigned char *)own - local->arenas[local->host->rank];
  return local->arenas[group->first + i * group->stride] + offset;
}

static const void *const *sources(LocalComm *local, const Group *group, const void *own) {
  for (uint32_t i = 0; i < group->count; i++) local->sources[i] = at(local, group, i, own);
  return local->sources;
}

static bool allgather(CudaComm *base, CudaStream stream, const void *shard, void *full, uint64_t count, DType dtype) {
  LocalComm *local = (LocalComm *)base;
  Group group = shard_group(local->host);
  uint64_t bytes = count * dtype_bytes(dtype);
  if (!meet(local, stream)) return false;
  for (uint32_t step = 0; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    unsigned char *to = (unsigned char *)full + i * bytes, *from = at(local, &group, i, shard);
    if (to == from) continue;
    if (!check(local, (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "gather")) return false;
  }
  return meet(local, stream);
}

static bool reduce_scatter(CudaComm *base, CudaStream stream, const void *full, void *shard, uint64_t count, DType dtype,
                           bool add) {
  LocalComm *local = (LocalComm *)base;
  Group group = shard_group(local->host);
  const unsigned char *own = (const unsigned char *)full + group.self * count * dtype_bytes(dtype);
  CudaTensor to = {shard, (int64_t)count, (int)dtype, add};
  return meet(local, stream) &&
         check(local, cuda_tree_sum(stream, (int64_t)count, (int32_t)group.count, sources(local, &group, own), to),
               "reduce") &&
         meet(local, stream);
}

/* First element of the i-th of n nearly equal parts, each starting on 256 bytes. */
static uint64_t part(uint64_t count, uint32_t i, uint32_t n) { return i == n ? count : count / n * i / 128 * 128; }

/* Without add y may be x, which peers read: each rank sums one part in place, and then copies the others' parts. */
static bool allreduce(CudaComm *base, CudaStream stream, const void *x, void *y, uint64_t count, DType dtype, bool add) {
  LocalComm *local = (LocalComm *)base;
  Group group = replica_group(local->host);
  uint64_t size = dtype_bytes(dtype), begin = 0, end = count;
  if (!add) begin = part(count, group.self, group.count), end = part(count, group.self + 1, group.count);
  const unsigned char *from = (const unsigned char *)x + begin * size;
  CudaTensor to = {(unsigned char *)y + begin * size, (int64_t)(end - begin), (int)dtype, add};
  if (!meet(local, stream) ||
      !check(local, cuda_tree_sum(stream, to.ld, (int32_t)group.count, sources(local, &group, from), to), "allreduce") ||
      !meet(local, stream))
    return false;
  if (add) return true;
  for (uint32_t step = 1; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    uint64_t first = part(count, i, group.count), last = part(count, i + 1, group.count);
    unsigned char *own = (unsigned char *)y + first * size;
    if (!check(local, (int)cudaMemcpyAsync(own, at(local, &group, i, own), (last - first) * size, cudaMemcpyDefault,
                                           (cudaStream_t)stream),
               "allreduce"))
      return false;
  }
  return meet(local, stream);
}

/* The result goes to a place of its own first: peers read x until all have met. */
static bool in_place(LocalComm *local, CudaStream stream, void *x, size_t bytes, int launched) {
  return check(local, launched, "allreduce") && meet(local, stream) &&
         check(local, (int)cudaMemcpyAsync(x, local->result, bytes, cudaMemcpyDefault, (cudaStream_t)stream), "allreduce");
}

static bool allreduce_sum(CudaComm *base, CudaStream stream, double *x, uint64_t count) {
  LocalComm *local = (LocalComm *)base;
  Group group = world_group(local->host);
  for (uint64_t first = 0; first < count; first += RESULT_BYTES / sizeof *x) {
    uint64_t n = count - first < RESULT_BYTES / sizeof *x ? count - first : RESULT_BYTES / sizeof *x;
    if (!meet(local, stream)) return false;
    int launched = cuda_tree_sum_f64(stream, (int64_t)n, (int32_t)group.count, sources(local, &group, x + first),
                                     local->result);
    if (!in_place(local, stream, x + first, n * sizeof *x, launched)) return false;
  }
  return true;
}

static bool allreduce_int(CudaComm *base, CudaStream stream, int64_t *x, uint64_t count) {
  LocalComm *local = (LocalComm *)base;
  Group group = shard_group(local->host);
  for (uint64_t first = 0; first < count; first += RESULT_BYTES / sizeof *x) {
    uint64_t n = count - first < RESULT_BYTES / sizeof *x ? count - first : RESULT_BYTES / sizeof *x;
    if (!meet(local, stream)) return false;
    int launched = cuda_integer_sum(stream, (int64_t)n, (int32_t)group.count, sources(local, &group, x + first),
                                    local->result);
    if (!in_place(local, stream, x + first, n * sizeof *x, launched)) return false;
  }
  return true;
}

static bool poll_peers(CudaComm *base) {
  (void)base;
  return true; /* the barrier notices */
}

static void close_comm(CudaComm *base, bool broken) {
  LocalComm *local = (LocalComm *)base;
  if (!broken) local->host->barrier(local->host); /* nobody reads an arena that is about to be freed */
  for (uint32_t r = 0; r < local->host->ranks; r++)
    if (r != local->host->rank && local->arenas[r] != NULL) cudaIpcCloseMemHandle(local->arenas[r]);
  if (!broken) local->host->barrier(local->host); /* nor frees one that a peer has open */
  cudaFree(local->result);
}

static bool open_peers(LocalComm *local, const CudaCommConfig *config, Failure *failure) {
  Comm *host = config->host;
  cudaIpcMemHandle_t handle;
  cudaError_t error = cudaMalloc(&local->result, RESULT_BYTES);
  if (error == cudaSuccess) error = cudaIpcGetMemHandle(&handle, config->arena);
  memcpy(config->exchange[host->rank], &handle, sizeof handle);
  if (error != cudaSuccess)
    return fail(failure, RUN_INVALID, "cuda: this GPU's memory cannot be shared between ranks: %s", cudaGetErrorString(error));
  if (host->barrier(host) != COMM_OK) return fail(failure, RUN_PEER_FAILED, "cuda: another rank failed");
  for (uint32_t r = 0; r < host->ranks; r++) {
    void *peer = config->arena;
    memcpy(&handle, config->exchange[r], sizeof handle);
    if (r != host->rank) error = cudaIpcOpenMemHandle(&peer, handle, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess)
      return fail(failure, RUN_INVALID, "cuda: rank %u cannot read the memory of rank %u: %s", host->rank, r,
                  cudaGetErrorString(error));
    local->arenas[r] = peer;
  }
  /* A rank that goes on may fail and free its arena: not before all have it open. */
  if (host->barrier(host) != COMM_OK) return fail(failure, RUN_PEER_FAILED, "cuda: another rank failed");
  return true;
}

CudaComm *cuda_comm_local_open(Arena *arena, const CudaCommConfig *config, Failure *failure) {
  LocalComm *local = ARENA_NEW(arena, LocalComm);
  uint32_t ranks = config->host->ranks;
  if (ranks > CUDA_MAX_PEERS) {
    fail(failure, RUN_INVALID, "cuda: %u ranks share GPUs; at most %d can", ranks, (int)CUDA_MAX_PEERS);
    return NULL;
  }
  local->host = config->host;
  local->arenas = ARENA_ARRAY(arena, unsigned char *, ranks);
  local->sources = ARENA_ARRAY(arena, const void *, ranks);
  local->base = (CudaComm){.name = "peers read in place",
                           .device_bytes = RESULT_BYTES,
                           .allgather = allgather,
                           .reduce_scatter = reduce_scatter,
                           .allreduce = allreduce,
                           .allreduce_sum = allreduce_sum,
                           .allreduce_int = allreduce_int,
                           .poll = poll_peers,
                           .close = close_comm};
  return open_peers(local, config, failure) ? &local->base : NULL;
}
