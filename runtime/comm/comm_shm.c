/* Owns: collectives over shared memory.
 *
 * Every collective has two phases. arrive: my operands are ready; wait until the group's are. Then peers' arenas are
 * read in place. depart: I have read; wait until the group has, after which operands may change. All ranks call the
 * same collectives in the same order, so one sequence number a rank is enough for groups of any shape. */
#include "runtime/comm/comm_shm.h"

#include <string.h>

enum { SUM_CHUNK = 64 };

typedef struct CommShm {
  Comm comm; /* first: methods are given &shm->comm */
  CommShmConfig config;
  uint32_t sequence; /* of the latest phase; arrivals and departures count separately but alike */
  const void **sources; /* one a rank */
  const double **vectors; /* one a rank */
} CommShm;

CommGroup comm_shard_group(const Comm *comm, uint32_t rank) {
  uint32_t position = rank % comm->shard;
  return (CommGroup){rank - position, 1, comm->shard, position};
}

CommGroup comm_replica_group(const Comm *comm, uint32_t rank) {
  return (CommGroup){rank % comm->shard, comm->shard, comm->replicas, rank / comm->shard};
}

static CommGroup world_group(const Comm *comm) { return (CommGroup){0, 1, comm->ranks, comm->rank}; }

static unsigned char *at(const CommShm *shm, const CommGroup *group, uint32_t i, uint64_t offset) {
  return shm->config.arenas[comm_member(group, i)] + offset;
}

CommStatus comm_shm_arrive(Comm *comm, const CommGroup *group) {
  CommShm *shm = (CommShm *)comm;
  CommLane *lanes = shm->config.lanes;
  uint32_t target = ++shm->sequence;
  counter_set(&lanes[shm->comm.rank].arrived, target);
  for (uint32_t i = 0; i < group->count; i++)
    if (!counter_wait(&lanes[comm_member(group, i)].arrived, target, shm->config.spins, shm->config.stop))
      return COMM_PEER_FAILED;
  return COMM_OK;
}

CommStatus comm_shm_depart(Comm *comm, const CommGroup *group) {
  CommShm *shm = (CommShm *)comm;
  CommLane *lanes = shm->config.lanes;
  uint32_t target = shm->sequence;
  counter_set(&lanes[shm->comm.rank].departed, target);
  for (uint32_t i = 0; i < group->count; i++)
    if (!counter_wait(&lanes[comm_member(group, i)].departed, target, shm->config.spins, shm->config.stop))
      return COMM_PEER_FAILED;
  return COMM_OK;
}

static CommStatus allgather(Comm *comm, uint64_t shard_offset, uint64_t full_offset, uint64_t count, uint32_t size) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = comm_shard_group(comm, comm->rank);
  uint64_t bytes = count * size;
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 0; step < group.count; step++) { /* each rank starts at itself, so that no one is read by all */
    uint32_t i = (group.self + step) % group.count;
    unsigned char *to = at(shm, &group, group.self, full_offset + i * bytes);
    const unsigned char *from = at(shm, &group, i, shard_offset);
    if (to != from) memcpy(to, from, bytes);
  }
  return comm_shm_depart(comm, &group);
}

_Static_assert((int)FLOAT_REAL == (int)DTYPE_F32 && (int)FLOAT_BF16 == (int)DTYPE_BF16 && (int)FLOAT_F16 == (int)DTYPE_F16,
               "kernels number element types as plans do");

void comm_shm_sum(Comm *comm, const CommGroup *group, uint64_t x_offset, void *y, uint64_t count, DType dtype, bool add) {
  CommShm *shm = (CommShm *)comm;
  for (uint32_t i = 0; i < group->count; i++) shm->sources[i] = at(shm, group, i, x_offset);
  shm->config.kernels->tree_sum((int64_t)count, (int32_t)group->count, (FloatType)dtype, shm->sources, y, add);
}

static CommStatus reduce_scatter(Comm *comm, uint64_t full_offset, uint64_t shard_offset, uint64_t count, DType dtype,
                                 bool add) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = comm_shard_group(comm, comm->rank);
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  unsigned char *own = at(shm, &group, group.self, shard_offset);
  comm_shm_sum(comm, &group, full_offset + group.self * count * dtype_bytes(dtype), own, count, dtype, add);
  return comm_shm_depart(comm, &group);
}

/* First element of the i-th of n nearly equal parts, on cache-line borders. */
static uint64_t part(uint64_t count, uint32_t i, uint32_t n) {
  return i == n ? count : count / n * i / 32 * 32;
}

/* Without add, y may be x: each rank sums one part of all x into its own y, where nobody else reads, and then copies the
 * others' parts. With add, the parts would be sums plus what one rank held before, so every rank sums everything. */
static CommStatus allreduce(Comm *comm, uint64_t x_offset, uint64_t y_offset, uint64_t count, DType dtype, bool add) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = comm_replica_group(comm, comm->rank);
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  uint64_t size = dtype_bytes(dtype);
  unsigned char *y = at(shm, &group, group.self, y_offset);
  if (add) {
    comm_shm_sum(comm, &group, x_offset, y, count, dtype, true);
    return comm_shm_depart(comm, &group);
  }
  uint64_t begin = part(count, group.self, group.count), end = part(count, group.self + 1, group.count);
  comm_shm_sum(comm, &group, x_offset + begin * size, y + begin * size, end - begin, dtype, false);
  if (comm_shm_depart(comm, &group) != COMM_OK || comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 1; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    uint64_t first = part(count, i, group.count), bytes = (part(count, i + 1, group.count) - first) * size;
    memcpy(y + first * size, at(shm, &group, i, y_offset + first * size), bytes);
  }
  return comm_shm_depart(comm, &group);
}

double comm_tree_sum(const double *const *vectors, uint64_t k, uint32_t lo, uint32_t n) {
  if (n == 1) return vectors[lo][k];
  uint32_t p = 1;
  while (p * 2 < n) p *= 2;
  return comm_tree_sum(vectors, k, lo, p) + comm_tree_sum(vectors, k, lo + p, n - p);
}

static CommStatus allreduce_sum(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = world_group(comm);
  double sums[SUM_CHUNK];
  for (uint32_t i = 0; i < group.count; i++) shm->vectors[i] = (const double *)at(shm, &group, i, x_offset);
  for (uint64_t first = 0; first < count; first += SUM_CHUNK) {
    uint64_t n = count - first < SUM_CHUNK ? count - first : SUM_CHUNK;
    if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
    for (uint64_t k = 0; k < n; k++) sums[k] = comm_tree_sum(shm->vectors, first + k, 0, group.count);
    if (comm_shm_depart(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
    memcpy(at(shm, &group, group.self, x_offset + first * sizeof(double)), sums, n * sizeof(double));
  }
  return COMM_OK;
}

static CommStatus allreduce_exact(Comm *comm, uint64_t acc_offset) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = comm_shard_group(comm, comm->rank);
  int64_t total[EXACT_WORDS] = {0};
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t i = 0; i < group.count; i++) exact_merge(total, (const int64_t *)at(shm, &group, i, acc_offset));
  if (comm_shm_depart(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  memcpy(at(shm, &group, group.self, acc_offset), total, sizeof total);
  return COMM_OK;
}

/* Each rank sums one part of all x into its own, where nobody else looks, and then copies the others' parts. */
static CommStatus allreduce_int(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = comm_shard_group(comm, comm->rank);
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  int64_t *x = (int64_t *)at(shm, &group, group.self, x_offset);
  uint64_t begin = part(count, group.self, group.count), end = part(count, group.self + 1, group.count);
  for (uint32_t step = 1; step < group.count; step++) {
    const int64_t *other = (const int64_t *)at(shm, &group, (group.self + step) % group.count, x_offset);
    for (uint64_t i = begin; i < end; i++) x[i] += other[i];
  }
  if (comm_shm_depart(comm, &group) != COMM_OK || comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 1; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    uint64_t first = part(count, i, group.count), bytes = (part(count, i + 1, group.count) - first) * sizeof *x;
    memcpy(x + first, at(shm, &group, i, x_offset + first * sizeof *x), bytes);
  }
  return comm_shm_depart(comm, &group);
}

static CommStatus share(Comm *comm, uint64_t word, uint64_t *words) {
  CommShm *shm = (CommShm *)comm;
  CommGroup group = world_group(comm);
  shm->config.lanes[comm->rank].word = word;
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t rank = 0; rank < comm->ranks; rank++) words[rank] = shm->config.lanes[rank].word;
  return comm_shm_depart(comm, &group);
}

static CommStatus barrier(Comm *comm) {
  CommGroup group = world_group(comm);
  if (comm_shm_arrive(comm, &group) != COMM_OK) return COMM_PEER_FAILED;
  return comm_shm_depart(comm, &group);
}

Comm *comm_shm_open(Arena *arena, const CommShmConfig *config) {
  CommShm *shm = ARENA_NEW(arena, CommShm);
  shm->config = *config;
  shm->sources = ARENA_ARRAY(arena, const void *, config->ranks);
  shm->vectors = ARENA_ARRAY(arena, const double *, config->ranks);
  shm->comm = (Comm){.rank = config->rank,
                     .ranks = config->ranks,
                     .shard = config->shard,
                     .replicas = config->replicas,
                     .allgather = allgather,
                     .reduce_scatter = reduce_scatter,
                     .allreduce = allreduce,
                     .allreduce_sum = allreduce_sum,
                     .allreduce_exact = allreduce_exact,
                     .allreduce_int = allreduce_int,
                     .share = share,
                     .barrier = barrier};
  return &shm->comm;
}
