/* Owns: collectives over several hosts.
 *
 * A group of ranks is cut into blocks: aligned, of one power of two, each on one host, and so subtrees of comm.h's tree.
 * Inside a block, peers' arenas are read in place as in comm_shm.c; between blocks, ranks with the same place in their
 * block (a column) exchange messages directly. So what a block sums is sent once, what comes for a block is received
 * once, and sums have the bits of one host. Where ranks do not lie in such blocks, a block is one rank and everything is
 * messages. Blocks are as large as all groups allow, since every rank must go through the same phases.
 *
 * Messages are matched by order alone: all ranks exchange in the same order. Waiting polls, because Open MPI only moves
 * bytes while it is called, and because `stop` must be seen. */
#include "runtime/comm/comm_mpi.h"

#include "base/checked.h"
#include "runtime/comm/mpi_lib.h"
#include "runtime/runtime.h"

#include <string.h>
#include <time.h>

#if FSDPC_HAVE_MPI
enum {
  CHUNK_FLOATS = 1 << 16,       /* of one message of a sum */
  LEAST_CHUNK_FLOATS = 1 << 10,
  SCRATCH_FLOATS = 1 << 21,     /* of all messages in one direction, where there are many blocks */
  MOST_MESSAGE_BYTES = 1 << 30, /* MPI counts in int */
  SUM_CHUNK = 64,
  INT_CHUNK = 4096, /* of a rank's integers in one exchange */
  POLL_NS = 20000,
  CAUSE_MS = 2000 /* for the news of who failed to come, after MPI has noticed */
};

/* The groups of one kind, of shards or of replicas. */
typedef struct Groups {
  CommGroup own;
  bool local;     /* every group is on one host */
  uint32_t block; /* ranks in a block */
} Groups;

typedef struct CommMpi {
  Comm comm; /* first: methods are given &mpi->comm */
  CommShmConfig config;
  Comm *shm; /* of this host's ranks */
  MpiLib lib;
  MPI_Request *requests;
  int pending;
  Groups shards, replicas;
  uint64_t chunk;      /* floats a block */
  float *sent, *taken; /* chunk floats a block */
  float *result;       /* chunk floats a replica */
  const void **sources;
  double *vectors; /* SUM_CHUNK a rank */
  const double **vector_of;
  int64_t *accs; /* INT_CHUNK, more than EXACT_WORDS, a rank of the shard group */
} CommMpi;

static unsigned char *at(const CommMpi *mpi, uint32_t rank, uint64_t offset) {
  return mpi->config.arenas[rank] + offset;
}

/* --- messages ------------------------------------------------------------------------------------------------------- */

static bool stopped(const CommMpi *mpi) {
  return mpi->config.stop != NULL && atomic_load_explicit(mpi->config.stop, memory_order_acquire) != 0;
}

static void doze(long ns) {
  const struct timespec time = {.tv_nsec = ns};
  nanosleep(&time, NULL);
}

/* A broken connection is a consequence: whoever knows the cause stops the job. */
static CommStatus await_cause(const CommMpi *mpi) {
  for (int ms = 0; ms < CAUSE_MS && !stopped(mpi); ms++) doze(1000000);
  return COMM_PEER_FAILED;
}

static CommStatus finish(CommMpi *mpi) {
  int done = 0;
  for (uint32_t polls = 0; done == 0; polls++) {
    if (mpi->lib.Testall(mpi->pending, mpi->requests, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return await_cause(mpi);
    if (done == 0 && stopped(mpi)) return COMM_PEER_FAILED;
    if (done == 0) atomic_fetch_add_explicit(&mpi->config.lanes[mpi->comm.rank].polls, 1, memory_order_relaxed);
    if (done == 0 && polls >= mpi->config.spins) doze(POLL_NS);
  }
  mpi->pending = 0;
  return COMM_OK;
}

static void give(CommMpi *mpi, uint32_t rank, const void *data, uint64_t bytes) {
  mpi->lib.Isend(data, (int)bytes, mpi->lib.byte, (int)rank, 0, mpi->lib.world, &mpi->requests[mpi->pending++]);
}

static void take(CommMpi *mpi, uint32_t rank, void *data, uint64_t bytes) {
  mpi->lib.Irecv(data, (int)bytes, mpi->lib.byte, (int)rank, 0, mpi->lib.world, &mpi->requests[mpi->pending++]);
}

/* --- blocks and columns --------------------------------------------------------------------------------------------- */

typedef CommGroup (*GroupOf)(const Comm *, uint32_t rank);

/* Whether blocks of `size` ranks lie on one host each. */
static bool blocks_hold(const CommMpi *mpi, const uint32_t *hosts, GroupOf group_of, uint32_t size) {
  for (uint32_t rank = 0; rank < mpi->comm.ranks; rank++) {
    CommGroup group = group_of(&mpi->comm, rank);
    if (hosts[comm_member(&group, group.self - group.self % size)] != hosts[rank]) return false;
  }
  return true;
}

static Groups groups_of(const CommMpi *mpi, const uint32_t *hosts, GroupOf group_of) {
  Groups groups = {.own = group_of(&mpi->comm, mpi->comm.rank), .block = 1};
  groups.local = blocks_hold(mpi, hosts, group_of, groups.own.count);
  while (groups.own.count % (2 * groups.block) == 0 && blocks_hold(mpi, hosts, group_of, 2 * groups.block))
    groups.block *= 2;
  return groups;
}

static uint32_t block_count(const Groups *groups) { return groups->own.count / groups->block; }

static CommGroup own_block(const Groups *groups) {
  uint32_t place = groups->own.self % groups->block;
  return (CommGroup){comm_member(&groups->own, groups->own.self - place), groups->own.stride, groups->block, place};
}

/* Position in the group of our column's rank in block b. */
static uint32_t column(const Groups *groups, uint32_t b) {
  return b * groups->block + groups->own.self % groups->block;
}

/* Counts this rank as arrived where only messages wait for it, so that a stall can be blamed on who has not. */
static void set_out(CommMpi *mpi) {
  const CommGroup alone = {mpi->comm.rank, 1, 1, 0};
  comm_shm_arrive(mpi->shm, &alone);
}

/* --- sums ----------------------------------------------------------------------------------------------------------- */

/* What the i-th rank of a group sums: elements [base + i * stride, ... + length), none from `end` on. */
typedef struct Cut {
  uint64_t base, stride, length, end;
  DType dtype;
} Cut;

static uint64_t cut_begin(const Cut *cut, uint32_t i) {
  uint64_t begin = cut->base + i * cut->stride;
  return begin < cut->end ? begin : cut->end;
}

static uint64_t cut_length(const Cut *cut, uint32_t i) {
  uint64_t left = cut->end - cut_begin(cut, i);
  return left < cut->length ? left : cut->length;
}

/* Our block's sum of the i-th rank's cut; where it lies. A block of one sums nothing. */
static const void *sum_block(CommMpi *mpi, const Groups *groups, uint64_t x_offset, const Cut *cut, uint32_t i, void *to) {
  CommGroup block = own_block(groups);
  uint64_t offset = x_offset + cut_begin(cut, i) * dtype_bytes(cut->dtype);
  if (groups->block == 1) return at(mpi, mpi->comm.rank, offset);
  comm_shm_sum(mpi->shm, &block, offset, to, cut_length(cut, i), cut->dtype, false);
  return to;
}

/* y (+)= tree sum over the group of our cut of x. The block has arrived. */
static CommStatus sum_cut(CommMpi *mpi, const Groups *groups, uint64_t x_offset, const Cut *cut, void *y, bool add) {
  uint32_t blocks = block_count(groups), own = groups->own.self / groups->block;
  uint64_t length = cut_length(cut, groups->own.self);
  for (uint32_t b = 0; b < blocks; b++) {
    mpi->sources[b] = mpi->taken + b * mpi->chunk;
    if (b != own)
      take(mpi, comm_member(&groups->own, column(groups, b)), mpi->taken + b * mpi->chunk, length * dtype_bytes(cut->dtype));
  }
  for (uint32_t step = 1; step < blocks; step++) { /* each begins with the next, so that no one is sent to by all */
    uint32_t b = (own + step) % blocks, i = column(groups, b);
    const void *sum = sum_block(mpi, groups, x_offset, cut, i, mpi->sent + b * mpi->chunk);
    give(mpi, comm_member(&groups->own, i), sum, cut_length(cut, i) * dtype_bytes(cut->dtype));
  }
  mpi->sources[own] = sum_block(mpi, groups, x_offset, cut, groups->own.self, mpi->sent + own * mpi->chunk);
  if (finish(mpi) != COMM_OK) return COMM_PEER_FAILED;
  mpi->config.kernels->tree_sum((int64_t)length, (int32_t)blocks, (FloatType)cut->dtype, mpi->sources, y, add);
  return COMM_OK;
}

static CommStatus reduce_scatter(Comm *comm, uint64_t full_offset, uint64_t shard_offset, uint64_t count, DType dtype, bool add) {
  CommMpi *mpi = (CommMpi *)comm;
  const Groups *groups = &mpi->shards;
  CommGroup block = own_block(groups);
  unsigned char *shard = at(mpi, comm->rank, shard_offset);
  if (groups->local) return mpi->shm->reduce_scatter(mpi->shm, full_offset, shard_offset, count, dtype, add);
  if (comm_shm_arrive(mpi->shm, &block) != COMM_OK) return COMM_PEER_FAILED;
  for (uint64_t base = 0; base < count; base += mpi->chunk) {
    uint64_t length = count - base < mpi->chunk ? count - base : mpi->chunk;
    Cut cut = {base, count, length, count * groups->own.count, dtype};
    if (sum_cut(mpi, groups, full_offset, &cut, shard + base * dtype_bytes(dtype), add) != COMM_OK) return COMM_PEER_FAILED;
  }
  return comm_shm_depart(mpi->shm, &block);
}

static unsigned char *result_at(const CommMpi *mpi, const Cut *cut, uint32_t i) {
  return (unsigned char *)mpi->result + (cut_begin(cut, i) - cut->base) * dtype_bytes(cut->dtype);
}

/* result = the sums of all ranks' cuts, ours being there already. Without blocks: scratch is nobody else's to read. */
static CommStatus gather_cuts(CommMpi *mpi, const CommGroup *group, const Cut *cut) {
  for (uint32_t step = 1; step < group->count; step++) {
    uint32_t i = (group->self + step) % group->count;
    take(mpi, comm_member(group, i), result_at(mpi, cut, i), cut_length(cut, i) * dtype_bytes(cut->dtype));
  }
  for (uint32_t step = 1; step < group->count; step++)
    give(mpi, comm_member(group, (group->self + step) % group->count), result_at(mpi, cut, group->self),
         cut_length(cut, group->self) * dtype_bytes(cut->dtype));
  return finish(mpi);
}

/* y may be x: when all cuts have come, everybody has read what is overwritten. */
static CommStatus allreduce(Comm *comm, uint64_t x_offset, uint64_t y_offset, uint64_t count, DType dtype, bool add) {
  CommMpi *mpi = (CommMpi *)comm;
  const Groups *groups = &mpi->replicas;
  const CommGroup *group = &groups->own;
  CommGroup block = own_block(groups);
  unsigned char *y = at(mpi, comm->rank, y_offset);
  if (groups->local) return mpi->shm->allreduce(mpi->shm, x_offset, y_offset, count, dtype, add);
  if (comm_shm_arrive(mpi->shm, &block) != COMM_OK) return COMM_PEER_FAILED;
  for (uint64_t base = 0; base < count; base += mpi->chunk * group->count) {
    uint64_t left = count - base, each = round_up((left + group->count - 1) / group->count, 16);
    if (each > mpi->chunk) each = mpi->chunk;
    uint64_t all = left < each * group->count ? left : each * group->count;
    Cut cut = {base, each, each, base + all, dtype};
    if (sum_cut(mpi, groups, x_offset, &cut, result_at(mpi, &cut, group->self), false) != COMM_OK || gather_cuts(mpi, group, &cut) != COMM_OK)
      return COMM_PEER_FAILED;
    mpi->config.kernels->tree_sum((int64_t)all, 1, (FloatType)dtype, (const void *[]){mpi->result}, y + base * dtype_bytes(dtype), add);
  }
  return comm_shm_depart(mpi->shm, &block);
}

/* --- gathering ------------------------------------------------------------------------------------------------------ */

/* Column by column between blocks, then the other columns from the block's peers. */
static CommStatus allgather(Comm *comm, uint64_t shard_offset, uint64_t full_offset, uint64_t count, uint32_t size) {
  CommMpi *mpi = (CommMpi *)comm;
  const Groups *groups = &mpi->shards;
  const CommGroup *group = &groups->own;
  CommGroup block = own_block(groups);
  uint64_t bytes = count * size;
  unsigned char *full = at(mpi, comm->rank, full_offset), *shard = at(mpi, comm->rank, shard_offset);
  if (groups->local) return mpi->shm->allgather(mpi->shm, shard_offset, full_offset, count, size);
  set_out(mpi);
  for (uint64_t from = 0; from < bytes; from += MOST_MESSAGE_BYTES) {
    uint64_t n = bytes - from < MOST_MESSAGE_BYTES ? bytes - from : MOST_MESSAGE_BYTES;
    for (uint32_t b = 0; b < block_count(groups); b++) {
      uint32_t i = column(groups, b);
      if (i == group->self) continue;
      take(mpi, comm_member(group, i), full + i * bytes + from, n);
      give(mpi, comm_member(group, i), shard + from, n);
    }
    if (finish(mpi) != COMM_OK) return COMM_PEER_FAILED;
  }
  if (full + group->self * bytes != shard) memcpy(full + group->self * bytes, shard, bytes);
  if (comm_shm_arrive(mpi->shm, &block) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t i = 0; i < group->count; i++) {
    uint32_t place = i % groups->block;
    if (place == block.self) continue;
    memcpy(full + i * bytes, at(mpi, comm_member(&block, place), full_offset + i * bytes), bytes);
  }
  return comm_shm_depart(mpi->shm, &block);
}

static CommStatus gather_all(CommMpi *mpi, const void *own, void *all, uint64_t bytes) {
  set_out(mpi);
  mpi->lib.Iallgather(own, (int)bytes, mpi->lib.byte, all, (int)bytes, mpi->lib.byte, mpi->lib.world, mpi->requests);
  mpi->pending = 1;
  return finish(mpi);
}

static CommStatus allreduce_sum(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommMpi *mpi = (CommMpi *)comm;
  double *x = (double *)at(mpi, comm->rank, x_offset);
  for (uint64_t first = 0; first < count; first += SUM_CHUNK) {
    uint64_t n = count - first < SUM_CHUNK ? count - first : SUM_CHUNK;
    if (gather_all(mpi, x + first, mpi->vectors, n * sizeof(double)) != COMM_OK) return COMM_PEER_FAILED;
    for (uint32_t rank = 0; rank < comm->ranks; rank++) mpi->vector_of[rank] = mpi->vectors + rank * n;
    for (uint64_t k = 0; k < n; k++) x[first + k] = comm_tree_sum(mpi->vector_of, k, 0, comm->ranks);
  }
  return COMM_OK;
}

static CommStatus allreduce_exact(Comm *comm, uint64_t acc_offset) {
  CommMpi *mpi = (CommMpi *)comm;
  const CommGroup *group = &mpi->shards.own;
  int64_t *own = (int64_t *)at(mpi, comm->rank, acc_offset);
  uint64_t bytes = EXACT_WORDS * sizeof *own;
  if (mpi->shards.local) return mpi->shm->allreduce_exact(mpi->shm, acc_offset);
  set_out(mpi);
  for (uint32_t step = 1; step < group->count; step++) {
    uint32_t i = (group->self + step) % group->count;
    take(mpi, comm_member(group, i), mpi->accs + i * EXACT_WORDS, bytes);
    give(mpi, comm_member(group, i), own, bytes);
  }
  if (finish(mpi) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t i = 0; i < group->count; i++)
    if (i != group->self) exact_merge(own, mpi->accs + i * EXACT_WORDS);
  return COMM_OK;
}

static CommStatus allreduce_int(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommMpi *mpi = (CommMpi *)comm;
  const CommGroup *group = &mpi->shards.own;
  int64_t *x = (int64_t *)at(mpi, comm->rank, x_offset);
  if (mpi->shards.local) return mpi->shm->allreduce_int(mpi->shm, x_offset, count);
  set_out(mpi);
  for (uint64_t first = 0; first < count; first += INT_CHUNK) {
    uint64_t n = count - first < INT_CHUNK ? count - first : INT_CHUNK;
    for (uint32_t step = 1; step < group->count; step++) {
      uint32_t i = (group->self + step) % group->count;
      take(mpi, comm_member(group, i), mpi->accs + (uint64_t)i * INT_CHUNK, n * sizeof *x);
      give(mpi, comm_member(group, i), x + first, n * sizeof *x);
    }
    if (finish(mpi) != COMM_OK) return COMM_PEER_FAILED;
    for (uint32_t i = 0; i < group->count; i++)
      for (uint64_t k = 0; k < n && i != group->self; k++) x[first + k] += mpi->accs[(uint64_t)i * INT_CHUNK + k];
  }
  return COMM_OK;
}

static CommStatus share(Comm *comm, uint64_t word, uint64_t *words) {
  return gather_all((CommMpi *)comm, &word, words, sizeof word);
}

static CommStatus barrier(Comm *comm) {
  CommMpi *mpi = (CommMpi *)comm;
  set_out(mpi);
  mpi->lib.Ibarrier(mpi->lib.world, mpi->requests);
  mpi->pending = 1;
  return finish(mpi);
}

static void close_comm(Comm *comm) {
  ((CommMpi *)comm)->lib.Finalize();
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

static bool start_mpi(CommMpi *mpi, Failure *failure) {
  int level = 0, ranks = 0, rank = 0;
  if (mpi->lib.Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
    return fail(failure, RUN_PEER_FAILED, "mpi: rank %u: Open MPI does not start", mpi->comm.rank);
  mpi->lib.Comm_set_errhandler(mpi->lib.world, mpi->lib.errors_return);
  mpi->lib.Comm_size(mpi->lib.world, &ranks);
  mpi->lib.Comm_rank(mpi->lib.world, &rank);
  if ((uint32_t)ranks != mpi->comm.ranks || (uint32_t)rank != mpi->comm.rank)
    return fail(failure, RUN_INVALID,
                "mpi: the launcher says that this is rank %u of %u, Open MPI rank %d of %d; start with mpirun, or with "
                "srun --mpi=pmix, of the Open MPI that is installed here",
                mpi->comm.rank, mpi->comm.ranks, rank, ranks);
  return level >= MPI_THREAD_SERIALIZED ||
         fail(failure, RUN_INVALID, "mpi: this Open MPI was built without threads (MPI_THREAD_SERIALIZED)");
}

/* hosts[rank] = the lowest rank on its host. */
static bool find_hosts(CommMpi *mpi, uint64_t *words, uint32_t *hosts, Failure *failure) {
  uint32_t lowest = 0;
  while (mpi->config.arenas[lowest] == NULL) lowest++;
  if (share(&mpi->comm, lowest, words) != COMM_OK)
    return fail(failure, RUN_PEER_FAILED, "rank %u: another rank failed before the first step", mpi->comm.rank);
  for (uint32_t rank = 0; rank < mpi->comm.ranks; rank++) hosts[rank] = (uint32_t)words[rank];
  return true;
}

static void make_scratch(CommMpi *mpi, Arena *arena) {
  uint32_t shards = block_count(&mpi->shards), replicas = mpi->comm.replicas;
  uint32_t blocks = shards > replicas ? shards : replicas;
  mpi->chunk = SCRATCH_FLOATS / blocks / 16 * 16;
  if (mpi->chunk > CHUNK_FLOATS) mpi->chunk = CHUNK_FLOATS;
  if (mpi->chunk < LEAST_CHUNK_FLOATS) mpi->chunk = LEAST_CHUNK_FLOATS;
  mpi->sent = ARENA_ARRAY(arena, float, blocks * mpi->chunk);
  mpi->taken = ARENA_ARRAY(arena, float, blocks * mpi->chunk);
  mpi->result = ARENA_ARRAY(arena, float, mpi->comm.replicas * mpi->chunk);
  mpi->accs = ARENA_ARRAY(arena, int64_t, (uint64_t)mpi->comm.shard * INT_CHUNK);
  mpi->vectors = ARENA_ARRAY(arena, double, (uint64_t)mpi->comm.ranks * SUM_CHUNK);
  mpi->vector_of = ARENA_ARRAY(arena, const double *, mpi->comm.ranks);
  mpi->sources = ARENA_ARRAY(arena, const void *, blocks);
}

Comm *comm_mpi_open(Arena *arena, const CommMpiConfig *config, Failure *failure) {
  CommMpi *mpi = ARENA_NEW(arena, CommMpi);
  const CommShmConfig *local = &config->local;
  uint32_t *hosts = ARENA_ARRAY(arena, uint32_t, local->ranks);
  mpi->config = *local;
  mpi->shm = comm_shm_open(arena, local);
  mpi->requests = ARENA_ARRAY(arena, MPI_Request, 2 * (uint64_t)local->ranks);
  mpi->comm = (Comm){.rank = local->rank,
                     .ranks = local->ranks,
                     .shard = local->shard,
                     .replicas = local->replicas,
                     .allgather = allgather,
                     .reduce_scatter = reduce_scatter,
                     .allreduce = allreduce,
                     .allreduce_sum = allreduce_sum,
                     .allreduce_exact = allreduce_exact,
                     .allreduce_int = allreduce_int,
                     .share = share,
                     .barrier = barrier,
                     .close = close_comm};
  if (!mpi_lib_open(&mpi->lib, failure) || !start_mpi(mpi, failure)) return NULL;
  if (!find_hosts(mpi, ARENA_ARRAY(arena, uint64_t, local->ranks), hosts, failure)) return NULL;
  mpi->lib.Ibcast(config->notice, (int)config->notice_bytes, mpi->lib.byte, 0, mpi->lib.world, mpi->requests);
  mpi->pending = 1;
  if (finish(mpi) != COMM_OK) {
    fail(failure, RUN_PEER_FAILED, "rank %u: another rank failed before the first step", local->rank);
    return NULL;
  }
  mpi->shards = groups_of(mpi, hosts, comm_shard_group);
  mpi->replicas = groups_of(mpi, hosts, comm_replica_group);
  make_scratch(mpi, arena);
  return &mpi->comm;
}
#else
Comm *comm_mpi_open(Arena *arena, const CommMpiConfig *config, Failure *failure) {
  char version[MPI_VERSION_BYTES];
  (void)arena, (void)config;
  mpi_lib_version(version, failure); /* says what is missing */
  return NULL;
}
#endif
