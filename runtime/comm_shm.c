/* Owns: collectives over shared memory.
 *
 * Every collective has two phases. arrive: my operands are ready; wait until the group's are. Then peers' arenas are
 * read in place. depart: I have read; wait until the group has, after which operands may change. All ranks call the
 * same collectives in the same order, so one sequence number a rank is enough for groups of any shape. */
#include "runtime/comm_shm.h"

#include <string.h>

enum { SUM_CHUNK = 64 };

/* Ranks first, first + stride, ...: `count` of them, this rank being number `self`. */
typedef struct Group {
  uint32_t first, stride, count, self;
} Group;

typedef struct CommShm {
  Comm comm; /* first: methods are given &shm->comm */
  CommShmConfig config;
  uint32_t sequence; /* of the latest phase; arrivals and departures count separately but alike */
  const void **sources; /* one a rank */
} CommShm;

static uint32_t member(const Group *group, uint32_t i) { return group->first + i * group->stride; }

static Group shard_group(const Comm *comm) {
  uint32_t position = comm->rank % comm->shard;
  return (Group){comm->rank - position, 1, comm->shard, position};
}

static Group replica_group(const Comm *comm) {
  return (Group){comm->rank % comm->shard, comm->shard, comm->replicas, comm->rank / comm->shard};
}

static Group world_group(const Comm *comm) { return (Group){0, 1, comm->ranks, comm->rank}; }

static unsigned char *at(const CommShm *shm, const Group *group, uint32_t i, uint64_t offset) {
  return shm->config.arenas[member(group, i)] + offset;
}

static CommStatus arrive(CommShm *shm, const Group *group) {
  CommLane *lanes = shm->config.lanes;
  uint32_t target = ++shm->sequence;
  counter_set(&lanes[shm->comm.rank].arrived, target);
  for (uint32_t i = 0; i < group->count; i++)
    if (!counter_wait(&lanes[member(group, i)].arrived, target, shm->config.spins, shm->config.stop))
      return COMM_PEER_FAILED;
  return COMM_OK;
}

static CommStatus depart(CommShm *shm, const Group *group) {
  CommLane *lanes = shm->config.lanes;
  uint32_t target = shm->sequence;
  counter_set(&lanes[shm->comm.rank].departed, target);
  for (uint32_t i = 0; i < group->count; i++)
    if (!counter_wait(&lanes[member(group, i)].departed, target, shm->config.spins, shm->config.stop))
      return COMM_PEER_FAILED;
  return COMM_OK;
}

static CommStatus allgather(Comm *comm, uint64_t shard_offset, uint64_t full_offset, uint64_t count, uint32_t size) {
  CommShm *shm = (CommShm *)comm;
  Group group = shard_group(comm);
  uint64_t bytes = count * size;
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 0; step < group.count; step++) { /* each rank starts at itself, so that no one is read by all */
    uint32_t i = (group.self + step) % group.count;
    unsigned char *to = at(shm, &group, group.self, full_offset + i * bytes);
    const unsigned char *from = at(shm, &group, i, shard_offset);
    if (to != from) memcpy(to, from, bytes);
  }
  return depart(shm, &group);
}

_Static_assert((int)FLOAT_REAL == (int)DTYPE_F32 && (int)FLOAT_BF16 == (int)DTYPE_BF16 && (int)FLOAT_F16 == (int)DTYPE_F16,
               "kernels number element types as plans do");

/* y[0, count) (+)= tree sum over the group of what lies at x_offset in every arena. */
static void sum(CommShm *shm, const Group *group, uint64_t x_offset, unsigned char *y, uint64_t count, DType dtype,
                bool add) {
  for (uint32_t i = 0; i < group->count; i++) shm->sources[i] = at(shm, group, i, x_offset);
  shm->config.kernels->tree_sum((int64_t)count, (int32_t)group->count, (FloatType)dtype, shm->sources, y, add);
}

static CommStatus reduce_scatter(Comm *comm, uint64_t full_offset, uint64_t shard_offset, uint64_t count, DType dtype,
                                 bool add) {
  CommShm *shm = (CommShm *)comm;
  Group group = shard_group(comm);
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  unsigned char *own = at(shm, &group, group.self, shard_offset);
  sum(shm, &group, full_offset + group.self * count * dtype_bytes(dtype), own, count, dtype, add);
  return depart(shm, &group);
}

/* First element of the i-th of n nearly equal parts, on cache-line borders. */
static uint64_t part(uint64_t count, uint32_t i, uint32_t n) {
  return i == n ? count : count / n * i / 32 * 32;
}

/* Without add, y may be x: each rank sums one part of all x into its own y, where nobody else reads, and then copies the
 * others' parts. With add, the parts would be sums plus what one rank held before, so every rank sums everything. */
static CommStatus allreduce(Comm *comm, uint64_t x_offset, uint64_t y_offset, uint64_t count, DType dtype, bool add) {
  CommShm *shm = (CommShm *)comm;
  Group group = replica_group(comm);
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  uint64_t size = dtype_bytes(dtype);
  unsigned char *y = at(shm, &group, group.self, y_offset);
  if (add) {
    sum(shm, &group, x_offset, y, count, dtype, true);
    return depart(shm, &group);
  }
  uint64_t begin = part(count, group.self, group.count), end = part(count, group.self + 1, group.count);
  sum(shm, &group, x_offset + begin * size, y + begin * size, end - begin, dtype, false);
  if (depart(shm, &group) != COMM_OK || arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 1; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    uint64_t first = part(count, i, group.count), bytes = (part(count, i + 1, group.count) - first) * size;
    memcpy(y + first * size, at(shm, &group, i, y_offset + first * size), bytes);
  }
  return depart(shm, &group);
}

/* The fixed tree of comm.h over element k of each rank's vector. */
static double tree(const CommShm *shm, const Group *group, uint64_t offset, uint32_t lo, uint32_t n) {
  if (n == 1) return *(const double *)at(shm, group, lo, offset);
  uint32_t p = 1;
  while (p * 2 < n) p *= 2;
  return tree(shm, group, offset, lo, p) + tree(shm, group, offset, lo + p, n - p);
}

static CommStatus allreduce_sum(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommShm *shm = (CommShm *)comm;
  Group group = world_group(comm);
  double sums[SUM_CHUNK];
  for (uint64_t first = 0; first < count; first += SUM_CHUNK) {
    uint64_t n = count - first < SUM_CHUNK ? count - first : SUM_CHUNK, offset = x_offset + first * sizeof(double);
    if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
    for (uint64_t k = 0; k < n; k++) sums[k] = tree(shm, &group, offset + k * sizeof(double), 0, group.count);
    if (depart(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
    memcpy(at(shm, &group, group.self, offset), sums, n * sizeof(double));
  }
  return COMM_OK;
}

static CommStatus allreduce_exact(Comm *comm, uint64_t acc_offset) {
  CommShm *shm = (CommShm *)comm;
  Group group = shard_group(comm);
  int64_t total[EXACT_WORDS] = {0};
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t i = 0; i < group.count; i++) exact_merge(total, (const int64_t *)at(shm, &group, i, acc_offset));
  if (depart(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  memcpy(at(shm, &group, group.self, acc_offset), total, sizeof total);
  return COMM_OK;
}

/* Each rank sums one part of all x into its own, where nobody else looks, and then copies the others' parts. */
static CommStatus allreduce_int(Comm *comm, uint64_t x_offset, uint64_t count) {
  CommShm *shm = (CommShm *)comm;
  Group group = shard_group(comm);
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  int64_t *x = (int64_t *)at(shm, &group, group.self, x_offset);
  uint64_t begin = part(count, group.self, group.count), end = part(count, group.self + 1, group.count);
  for (uint32_t step = 1; step < group.count; step++) {
    const int64_t *other = (const int64_t *)at(shm, &group, (group.self + step) % group.count, x_offset);
    for (uint64_t i = begin; i < end; i++) x[i] += other[i];
  }
  if (depart(shm, &group) != COMM_OK || arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  for (uint32_t step = 1; step < group.count; step++) {
    uint32_t i = (group.self + step) % group.count;
    uint64_t first = part(count, i, group.count), bytes = (part(count, i + 1, group.count) - first) * sizeof *x;
    memcpy(x + first, at(shm, &group, i, x_offset + first * sizeof *x), bytes);
  }
  return depart(shm, &group);
}

static CommStatus barrier(Comm *comm) {
  CommShm *shm = (CommShm *)comm;
  Group group = world_group(comm);
  if (arrive(shm, &group) != COMM_OK) return COMM_PEER_FAILED;
  return depart(shm, &group);
}

Comm *comm_shm_open(Arena *arena, const CommShmConfig *config) {
  CommShm *shm = ARENA_NEW(arena, CommShm);
  shm->config = *config;
  shm->sources = ARENA_ARRAY(arena, const void *, config->ranks);
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
                     .barrier = barrier};
  return &shm->comm;
}
