/* Owns: collectives over NCCL, one GPU a rank, on one host or several.
 *
 * Gather, reduce and replicate have communicators of their own, so that they overlap; within each, calls come in the
 * plan's order, which is the same on every rank. Gathers need no copy before or after: a unit's shards lie so that one call
 * serves it. Sums: every rank receives the pieces it owns the sum of (send and receive in one group), and a kernel adds
 * them along the tree. Pieces go through scratch memory of bounded size, chunk by chunk. With FSDPC_NCCL_SUM=nccl NCCL
 * adds (ncclSum; averages and scaling would keep it from its best algorithms, so scales are folded in elsewhere).
 *
 * On one host the arena is registered as a symmetric window (equal offsets on all ranks, as one plan gives them) of the gathers'
 * communicator, which is asked to gather by copy engines, without multiprocessors. All ranks do so or none; where GPUs do not
 * reach each other directly NCCL takes the window and gathers by kernels (`NCCL_DEBUG=INFO` says).
 *
 * On GPUs it has run where ranks share one (an H200, 2 and 4 ranks), not yet on several. */
#include "runtime/cuda/cuda_comm.h"

#include "runtime/beside.h"
#include "runtime/environment.h"
#include "runtime/runtime.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#ifndef FSDPC_NCCL_FOLD /* tests have few ranks */
#define FSDPC_NCCL_FOLD CUDA_MAX_PEERS
#endif
_Static_assert(FSDPC_NCCL_FOLD >= 2 && (FSDPC_NCCL_FOLD & (FSDPC_NCCL_FOLD - 1)) == 0, "neighbours that are folded are a whole tree");

enum {
  CHUNK_BYTES = BESIDE_COLLECTIVE_BYTES, /* scratch of each of reduce and replicate */
  CHUNK_ALIGN = 64,                      /* elements */
  /* That pieces are exchanged over, a multiprocessor each. Between each two ranks NCCL takes 12 MiB for every one of them, when they first
   * exchange anything; left to itself it has 32 over NVLink, and so takes 2.6 GiB on each of 8 GPUs (NVIDIA/nccl, issue 1685). */
  EXCHANGE_CHANNELS = 16
};

/* One NCCL communicator and the memory in which its operands meet. */
typedef struct Channel {
  ncclComm_t comm;
  uint32_t count, self;
  void *scratch;
} Channel;

typedef struct NcclComm {
  CudaComm base; /* first */
  const CudaLibs *libs;
  Comm *host;
  bool tree; /* sum along the tree of comm.h */
  ncclComm_t world;
  Channel gather, reduce, replicate; /* the first two over the shard group */
  ncclWindow_t window;               /* of the arena, for gather; NULL: none */
} NcclComm;

/* Its buffers are allocated as communicators are opened and first used; only the text tells want of memory from other errors of CUDA, but for
 * those after which nothing works any more. */
static bool lacks_memory(ncclResult_t result, const char *text) {
  size_t free, total;
  if (result != ncclUnhandledCudaError || cudaMemGetInfo(&free, &total) != cudaSuccess) return false;
  return strstr(text, "alloc") != NULL || strstr(text, "out of memory") != NULL;
}

static bool check(NcclComm *n, ncclResult_t result, const char *what) {
  if (result == ncclSuccess || result == ncclInProgress) return true;
  const char *text = n->libs->ncclGetLastError(NULL);
  bool peer = result == ncclRemoteError || result == ncclSystemError, no_fit = lacks_memory(result, text);
  return fail(&n->base.failure, peer ? RUN_PEER_FAILED : no_fit ? RUN_NO_FIT : RUN_INVALID, "%s: NCCL: %s (%s)%s", what,
              n->libs->ncclGetErrorString(result), text,
              no_fit ? "; its buffers lie beside what is planned: plan with a smaller --memory, or use an emptier GPU" : "");
}

static bool launched(NcclComm *n, int error, const char *what) {
  if (error == 0) return true;
  return fail(&n->base.failure, RUN_INVALID, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
}

static ncclDataType_t data_type(DType dtype) {
  return dtype == DTYPE_F32 ? ncclFloat32 : dtype == DTYPE_BF16 ? ncclBfloat16 : ncclFloat16;
}

static bool allgather(CudaComm *base, CudaStream stream, const void *shard, void *full, uint64_t count, DType dtype) {
  NcclComm *n = (NcclComm *)base;
  return check(n, n->libs->ncclAllGather(shard, full, count, data_type(dtype), n->gather.comm, (cudaStream_t)stream),
               "allgather");
}

/* --- sums along the tree ------------------------------------------------------------------------------------------ */

/* Elements of a chunk of which every member has one piece in the scratch memory. */
static uint64_t chunk_of(const Channel *c, DType dtype) {
  return CHUNK_BYTES / c->count / dtype_bytes(dtype) / CHUNK_ALIGN * CHUNK_ALIGN;
}

/* to (+)= sum of pieces that lie `stride` bytes apart. */
static bool sum_some(NcclComm *n, CudaStream stream, unsigned char *first, uint32_t pieces, uint64_t stride, uint64_t count, DType dtype,
                     void *to, bool add) {
  const void *sources[FSDPC_NCCL_FOLD];
  CudaTensor y = {to, (int64_t)count, (int)dtype, add};
  for (uint32_t i = 0; i < pieces; i++) sources[i] = first + i * stride;
  return launched(n, dtype == DTYPE_F64 ? cuda_tree_sum_f64(stream, (int64_t)count, (int32_t)pieces, sources, to)
                                        : cuda_tree_sum(stream, (int64_t)count, (int32_t)pieces, sources, y),
                  "sum of pieces");
}

/* to (+)= sum of the pieces of `count` elements side by side in x. A kernel adds FSDPC_NCCL_FOLD of them; so many neighbours are
 * subtrees of the tree, and are first added in the place of their first. */
static bool sum_pieces(NcclComm *n, CudaStream stream, void *x, uint32_t pieces, uint64_t count, DType dtype, void *to, bool add) {
  uint64_t stride = count * dtype_bytes(dtype);
  for (; pieces > FSDPC_NCCL_FOLD; pieces = (pieces + FSDPC_NCCL_FOLD - 1) / FSDPC_NCCL_FOLD, stride *= FSDPC_NCCL_FOLD)
    for (uint32_t i = 0; i < pieces; i += FSDPC_NCCL_FOLD) {
      uint32_t some = pieces - i < FSDPC_NCCL_FOLD ? pieces - i : FSDPC_NCCL_FOLD;
      unsigned char *first = (unsigned char *)x + i * stride;
      if (!sum_some(n, stream, first, some, stride, count, dtype, first, false)) return false;
    }
  return sum_some(n, stream, x, pieces, stride, count, dtype, to, add);
}

/* Every member sends member i its elements [i stride + first, ... + count) of x; what arrives lies side by side. */
static bool exchange(NcclComm *n, Channel *c, CudaStream stream, const void *x, uint64_t stride, uint64_t first,
                     uint64_t count, DType dtype) {
  const CudaLibs *l = n->libs;
  uint64_t size = dtype_bytes(dtype);
  ncclResult_t result = l->ncclGroupStart();
  for (uint32_t step = 0; step < c->count && result == ncclSuccess; step++) {
    uint32_t i = (c->self + step) % c->count;
    const unsigned char *from = (const unsigned char *)x + (i * stride + first) * size;
    unsigned char *to = (unsigned char *)c->scratch + i * count * size;
    result = l->ncclSend(from, count, data_type(dtype), (int)i, c->comm, (cudaStream_t)stream);
    if (result == ncclSuccess) result = l->ncclRecv(to, count, data_type(dtype), (int)i, c->comm, (cudaStream_t)stream);
  }
  ncclResult_t end = l->ncclGroupEnd();
  return check(n, result != ncclSuccess ? result : end, "exchange");
}

static bool tree_reduce_scatter(NcclComm *n, CudaStream stream, const void *full, void *shard, uint64_t count,
                                DType dtype, bool add) {
  Channel *c = &n->reduce;
  uint64_t chunk = chunk_of(c, dtype);
  for (uint64_t first = 0; first < count; first += chunk) {
    uint64_t part = count - first < chunk ? count - first : chunk;
    unsigned char *to = (unsigned char *)shard + first * dtype_bytes(dtype);
    if (!exchange(n, c, stream, full, count, first, part, dtype) || !sum_pieces(n, stream, c->scratch, c->count, part, dtype, to, add))
      return false;
  }
  return true;
}

static bool tree_allreduce(NcclComm *n, CudaStream stream, const void *x, void *y, uint64_t count, DType dtype, bool add) {
  Channel *c = &n->replicate;
  uint64_t chunk = chunk_of(c, dtype), size = dtype_bytes(dtype);
  for (uint64_t first = 0; first < count; first += chunk) {
    uint64_t part = count - first < chunk ? count - first : chunk;
    const unsigned char *from = (const unsigned char *)x + first * size;
    if (!check(n, n->libs->ncclAllGather(from, c->scratch, part, data_type(dtype), c->comm, (cudaStream_t)stream),
               "allreduce") ||
        !sum_pieces(n, stream, c->scratch, c->count, part, dtype, (unsigned char *)y + first * size, add))
      return false;
  }
  return true;
}

/* --- sums by NCCL ------------------------------------------------------------------------------------------------- */

/* y += what lies in scratch. */
static bool add_scratch(NcclComm *n, const Channel *c, CudaStream stream, void *y, uint64_t count, DType dtype) {
  CudaTensor x = {c->scratch, (int64_t)count, (int)dtype, 0}, to = {y, (int64_t)count, (int)dtype, 1};
  return launched(n, cuda_copy(stream, 1, (int64_t)count, x, to), "addition");
}

/* A gradient that is added to needs the sum elsewhere first; chunks of a shard do not lie side by side in `full`, so it
 * must fit whole. */
static bool nccl_reduce_scatter(NcclComm *n, CudaStream stream, const void *full, void *shard, uint64_t count,
                                DType dtype, bool add) {
  Channel *c = &n->reduce;
  if (add && count * dtype_bytes(dtype) > CHUNK_BYTES)
    return tree_reduce_scatter(n, stream, full, shard, count, dtype, add);
  void *to = add ? c->scratch : shard;
  return check(n, n->libs->ncclReduceScatter(full, to, count, data_type(dtype), ncclSum, c->comm, (cudaStream_t)stream),
               "reduce_scatter") &&
         (!add || add_scratch(n, c, stream, shard, count, dtype));
}

static bool nccl_allreduce(NcclComm *n, CudaStream stream, const void *x, void *y, uint64_t count, DType dtype, bool add) {
  Channel *c = &n->replicate;
  uint64_t size = dtype_bytes(dtype), chunk = add ? CHUNK_BYTES / size : count;
  for (uint64_t first = 0; first < count; first += chunk) {
    uint64_t part = count - first < chunk ? count - first : chunk;
    unsigned char *own = (unsigned char *)y + first * size;
    void *to = add ? c->scratch : own;
    if (!check(n, n->libs->ncclAllReduce((const unsigned char *)x + first * size, to, part, data_type(dtype), ncclSum,
                                         c->comm, (cudaStream_t)stream),
               "allreduce") ||
        (add && !add_scratch(n, c, stream, own, part, dtype)))
      return false;
  }
  return true;
}

/* --- methods ------------------------------------------------------------------------------------------------------ */

static bool reduce_scatter(CudaComm *base, CudaStream stream, const void *full, void *shard, uint64_t count, DType dtype,
                           bool add) {
  NcclComm *n = (NcclComm *)base;
  return (n->tree ? tree_reduce_scatter : nccl_reduce_scatter)(n, stream, full, shard, count, dtype, add);
}

static bool allreduce(CudaComm *base, CudaStream stream, const void *x, void *y, uint64_t count, DType dtype, bool add) {
  NcclComm *n = (NcclComm *)base;
  return (n->tree ? tree_allreduce : nccl_allreduce)(n, stream, x, y, count, dtype, add);
}

/* Scalars: always along the tree. Runs on the reduce stream, whose scratch memory it uses. */
static bool allreduce_sum(CudaComm *base, CudaStream stream, double *x, uint64_t count) {
  NcclComm *n = (NcclComm *)base;
  uint32_t ranks = n->host->ranks;
  if (count * sizeof *x * ranks > CHUNK_BYTES)
    return fail(&n->base.failure, RUN_INVALID, "allreduce_sum: more than %d MiB of scalars", CHUNK_BYTES >> 20);
  return check(n, n->libs->ncclAllGather(x, n->reduce.scratch, count, ncclFloat64, n->world, (cudaStream_t)stream),
               "allreduce_sum") &&
         sum_pieces(n, stream, n->reduce.scratch, ranks, count, DTYPE_F64, x, false);
}

/* Integer sums: any order gives the same bits. */
static bool allreduce_int(CudaComm *base, CudaStream stream, int64_t *x, uint64_t count) {
  NcclComm *n = (NcclComm *)base;
  return check(n, n->libs->ncclAllReduce(x, x, count, ncclInt64, ncclSum, n->reduce.comm, (cudaStream_t)stream),
               "allreduce_int");
}

static bool poll_errors(CudaComm *base) {
  NcclComm *n = (NcclComm *)base;
  ncclComm_t comms[] = {n->world, n->gather.comm, n->reduce.comm, n->replicate.comm};
  for (int i = 0; i < 4; i++) {
    ncclResult_t state = ncclSuccess;
    if (comms[i] == NULL) continue;
    if (!check(n, n->libs->ncclCommGetAsyncError(comms[i], &state), "watching NCCL") ||
        !check(n, state, "a collective failed"))
      return false;
  }
  return true;
}

/* One that aborts frees memory, which waits for the device, and so for the collectives of those that have not been told yet: a group tells
 * all before it waits for any (NVIDIA/nccl, issue 1013). */
static void close_comm(CudaComm *base, bool broken) {
  NcclComm *n = (NcclComm *)base;
  ncclComm_t comms[] = {n->gather.comm, n->reduce.comm, n->replicate.comm, n->world};
  if (n->window != NULL && !broken) n->libs->ncclCommWindowDeregister(n->gather.comm, n->window);
  if (broken) n->libs->ncclGroupStart();
  for (int i = 0; i < 4; i++)
    if (comms[i] != NULL) (broken ? n->libs->ncclCommAbort : n->libs->ncclCommDestroy)(comms[i]);
  if (broken) n->libs->ncclGroupEnd();
  cudaFree(n->reduce.scratch);
  cudaFree(n->replicate.scratch);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool open_scratch(NcclComm *n, Channel *channel) {
  n->base.device_bytes += CHUNK_BYTES;
  cudaError_t error = cudaMalloc(&channel->scratch, CHUNK_BYTES);
  if (error == cudaSuccess) return true;
  return fail(&n->base.failure, RUN_NO_FIT, "cuda: scratch memory of collectives: %s; plan with a smaller --memory, or use an emptier GPU",
              cudaGetErrorString(error));
}

/* The ranks of one colour get a communicator; they are numbered in order of their rank. */
static bool open_channel(NcclComm *n, Channel *channel, uint32_t color, uint32_t self, uint32_t count, bool sums,
                         ncclConfig_t *config) {
  *channel = (Channel){.count = count, .self = self};
  return check(n, n->libs->ncclCommSplit(n->world, (int)color, (int)n->host->rank, &channel->comm, config), "ncclCommSplit") &&
         (!sums || open_scratch(n, channel));
}

/* words[0 .. ranks): the word of every rank. */
static bool share(NcclComm *n, uint64_t word, uint64_t *words) {
  return n->host->share(n->host, word, words) == COMM_OK || fail(&n->base.failure, RUN_PEER_FAILED, "another rank failed");
}

/* Between hosts NCCL up to 2.32 may hang for ever, without an error, in a graph in which a large message that is registered with the network
 * follows small ones of the same connection, as a large unit's gather follows a norm's (NVIDIA/nccl, issue 2389). Only graphs have it register
 * anything by itself; who has set the variable knows better. */
static void keep_unregistered(const NcclComm *n, const CudaCommConfig *config) {
  int version = 0;
  bool fixed = n->libs->ncclGetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 33, 0);
  if (config->spans_hosts && !fixed) setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

/* Rank 0's id reaches the others word by word, whatever joins the hosts. */
static bool open_world(NcclComm *n, uint64_t *words) {
  union {
    ncclUniqueId id;
    uint64_t word[sizeof(ncclUniqueId) / sizeof(uint64_t)];
  } mine = {0};
  Comm *host = n->host;
  if (host->rank == 0 && !check(n, n->libs->ncclGetUniqueId(&mine.id), "ncclGetUniqueId")) return false;
  for (size_t i = 0; i < sizeof mine.word / sizeof *mine.word; i++) {
    if (!share(n, mine.word[i], words)) return false;
    mine.word[i] = words[0];
  }
  return check(n, n->libs->ncclCommInitRank(&n->world, (int)host->ranks, mine.id, (int)host->rank), "ncclCommInitRank");
}

/* Do all ranks say yes? False: a rank is gone. */
static bool all_agree(NcclComm *n, uint64_t *words, bool own, bool *all) {
  *all = true;
  if (!share(n, own, words)) return false;
  for (uint32_t r = 0; r < n->host->ranks; r++) *all = *all && words[r] != 0;
  return true;
}

/* Needs memory of ncclMemAlloc on all ranks. NCCL may decline; a window that not all ranks have must not be used. */
static bool open_window(NcclComm *n, const CudaCommConfig *config, uint64_t *words) {
  bool all;
  ncclResult_t result = n->libs->ncclCommWindowRegister(n->gather.comm, config->arena, config->arena_bytes, &n->window,
                                                        NCCL_WIN_COLL_SYMMETRIC);
  if (result != ncclSuccess) n->window = NULL;
  if (!all_agree(n, words, n->window != NULL, &all)) return false;
  if (!all && n->window != NULL) n->libs->ncclCommWindowDeregister(n->gather.comm, n->window);
  if (!all) n->window = NULL;
  if (all) n->base.name = n->tree ? "nccl, window registered, sums along the tree" : "nccl, window registered";
  return true;
}

/* An NCCL that is older than the header would not understand the whole of a configuration. */
static bool takes_configs(const NcclComm *n, int *version) {
  return n->libs->ncclGetVersion(version) == ncclSuccess && *version >= NCCL_VERSION_CODE;
}

/* From 2.29 to 2.31.1 a pair of ranks hangs in its first gather by copy engines (NVIDIA/nccl, issue 2241). */
static bool takes_windows(const NcclComm *n, int version) {
  return n->host->shard != 2 || version < NCCL_VERSION(2, 29, 0) || version >= NCCL_VERSION(2, 31, 2);
}

static bool open_channels(NcclComm *n, const CudaCommConfig *config, uint64_t *words) {
  Comm *host = n->host;
  uint32_t position = host->rank % host->shard, replica = host->rank / host->shard;
  ncclConfig_t gather = NCCL_CONFIG_INITIALIZER, reduce = NCCL_CONFIG_INITIALIZER;
  int version = 0;
  bool configs = takes_configs(n, &version), windows;
  gather.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  reduce.maxCTAs = EXCHANGE_CHANNELS;
  if (!all_agree(n, words, config->nccl_memory && host->shard > 1 && configs && takes_windows(n, version), &windows)) return false;
  return open_channel(n, &n->gather, replica, position, host->shard, false, windows ? &gather : NULL) &&
         open_channel(n, &n->reduce, replica, position, host->shard, true, configs ? &reduce : NULL) &&
         open_channel(n, &n->replicate, position, replica, host->replicas, host->replicas > 1, NULL) &&
         (!windows || open_window(n, config, words));
}

CudaComm *cuda_comm_nccl_open(Arena *arena, const CudaCommConfig *config, Failure *failure) {
  NcclComm *n = ARENA_NEW(arena, NcclComm);
  n->libs = config->libs;
  n->host = config->host;
  n->tree = environment_setting(SETTING_FSDPC_NCCL_SUM) == NCCL_SUM_TREE;
  n->base = (CudaComm){.name = n->tree ? "nccl, sums along the tree" : "nccl",
                       .capturable = true,
                       .allgather = allgather,
                       .reduce_scatter = reduce_scatter,
                       .allreduce = allreduce,
                       .allreduce_sum = allreduce_sum,
                       .allreduce_int = allreduce_int,
                       .poll = poll_errors,
                       .close = close_comm};
  uint64_t *words = ARENA_ARRAY(arena, uint64_t, n->host->ranks);
  keep_unregistered(n, config); /* before NCCL looks */
  if (open_world(n, words) && open_channels(n, config, words)) return &n->base;
  *failure = n->base.failure; /* nothing is closed, for that waits for ranks that do not know of the failure: the process ends */
  return NULL;
}
