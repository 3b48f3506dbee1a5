/* Owns: tests of the communicators: in shared memory over forked ranks, and, started by comm_hosts.sh through mpirun, of
 * several hosts. Each rank checks its own results; a rank that finds one wrong ends with a code that names the check. */
#include "testing.h"

#include "base/checked.h"
#include "kernels/kernels.h"
#include "runtime/comm/comm_mpi.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/launcher.h"
#include "runtime/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_FLOATS = 1 << 20, REGION = MOST_FLOATS * 4, FULL = 0, SHARD = REGION, OTHER = 2 * REGION, ARENA_BYTES = 3 * REGION };

typedef struct World {
  uint32_t shard, replicas;
} World;

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "rank %u: %s:%d: %s\n", env->rank, __FILE__, __LINE__, #condition);                    \
      return 10;                                                                                             \
    }                                                                                                        \
  } while (0)

/* What rank r holds at element i in round n: values whose sums depend on their order. */
static float value(uint32_t rank, uint64_t i, uint64_t round) {
  uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15u ^ (i + 1) * 0xbf58476d1ce4e5b9u ^ (round + 1) * 0x94d049bb133111ebu;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
  return ((float)((x >> 40) & 0xffffff) / 16777216.0f - 0.5f) * (float)(1 << (x & 15));
}

/* comm.h's tree, by definition. */
static float tree(uint32_t lo, uint32_t n, uint64_t i, uint64_t round) {
  if (n == 1) return value(lo, i, round);
  uint32_t p = 1;
  while (p * 2 < n) p *= 2;
  return tree(lo, p, i, round) + tree(lo + p, n - p, i, round);
}

static CommShmConfig comm_config(const RankEnv *env, const World *world) {
  return (CommShmConfig){.rank = env->rank,
                          .ranks = env->ranks,
                          .shard = world->shard,
                          .replicas = world->replicas,
                          .arenas = env->arenas,
                          .lanes = env->lanes,
                          .stop = &env->control->stop,
                          .kernels = kernels_cpu(),
                          .spins = SPIN_SHORT};
}

static Comm *open_comm(Arena *arena, const RankEnv *env, const World *world) {
  CommShmConfig config = comm_config(env, world);
  kernels_thread_init();
  return comm_shm_open(arena, &config);
}

static float *floats(const RankEnv *env, uint64_t offset) { return (float *)(env->arenas[env->rank] + offset); }

static void fill(const RankEnv *env, uint64_t offset, uint64_t n, uint64_t round) {
  for (uint64_t i = 0; i < n; i++) floats(env, offset)[i] = value(env->rank, i, round);
}

static int gather(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  uint32_t base = comm->rank / comm->shard * comm->shard;
  uint64_t from = comm->shard == 1 && round % 2 == 0 ? FULL : SHARD; /* alone, the shard may lie in place */
  fill(env, from, count, round);
  CHECK(comm->allgather(comm, from, FULL, count, sizeof(float)) == COMM_OK);
  fill(env, SHARD, count, round + 1); /* whoever still read here would see it */
  for (uint32_t r = 0; r < comm->shard; r++)
    for (uint64_t i = 0; i < count; i++) CHECK(floats(env, FULL)[r * count + i] == value(base + r, i, round));
  return 0;
}

static int scatter(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  uint32_t base = comm->rank / comm->shard * comm->shard, self = comm->rank % comm->shard;
  bool add = round % 2 == 1;
  fill(env, FULL, count * comm->shard, round);
  for (uint64_t i = 0; i < count; i++) floats(env, SHARD)[i] = 3;
  CHECK(comm->reduce_scatter(comm, FULL, SHARD, count, DTYPE_F32, add) == COMM_OK);
  fill(env, FULL, count * comm->shard, round + 1); /* whoever still read here would see it */
  for (uint64_t i = 0; i < count; i++) {
    float sum = tree(base, comm->shard, self * count + i, round);
    CHECK(floats(env, SHARD)[i] == (add ? 3 + sum : sum));
  }
  return 0;
}

/* Sum in the shard group, then over replicas: the bits of the sum over all ranks. */
static int hybrid(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  uint64_t to = round % 2 == 0 ? SHARD : OTHER;
  uint32_t self = comm->rank % comm->shard;
  fill(env, FULL, count * comm->shard, round);
  CHECK(comm->reduce_scatter(comm, FULL, SHARD, count, DTYPE_F32, false) == COMM_OK);
  CHECK(comm->allreduce(comm, SHARD, to, count, DTYPE_F32, false) == COMM_OK);
  for (uint64_t i = 0; i < count; i++) CHECK(floats(env, to)[i] == tree(0, comm->ranks, self * count + i, round));
  if (to == SHARD) return 0;
  CHECK(comm->allreduce(comm, SHARD, to, count, DTYPE_F32, true) == COMM_OK);
  for (uint64_t i = 0; i < count; i++) {
    float sum = tree(0, comm->ranks, self * count + i, round);
    CHECK(floats(env, to)[i] == sum + sum);
  }
  return 0;
}

static Half *halves(const RankEnv *env, uint64_t offset) { return (Half *)(env->arenas[env->rank] + offset); }

/* comm.h's tree in 16 bits: rounded after every addition. */
static float half_tree(FloatType type, uint32_t lo, uint32_t n, uint64_t i, uint64_t round) {
  if (n == 1) return float_of_half(type, half_of_float(type, value(lo, i, round)));
  uint32_t p = 1;
  while (p * 2 < n) p *= 2;
  float sum = half_tree(type, lo, p, i, round) + half_tree(type, lo + p, n - p, i, round);
  return float_of_half(type, half_of_float(type, sum));
}

/* The same as hybrid, in 16 bits, then added once more. */
static int hybrid_half(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  FloatType type = round % 2 == 0 ? FLOAT_BF16 : FLOAT_F16;
  uint32_t self = comm->rank % comm->shard;
  for (uint64_t i = 0; i < count * comm->shard; i++)
    halves(env, FULL)[i] = half_of_float(type, value(env->rank, i, round));
  CHECK(comm->reduce_scatter(comm, FULL, SHARD, count, (DType)type, false) == COMM_OK);
  CHECK(comm->allreduce(comm, SHARD, OTHER, count, (DType)type, false) == COMM_OK);
  for (uint64_t i = 0; i < count; i++)
    CHECK(float_of_half(type, halves(env, OTHER)[i]) == half_tree(type, 0, comm->ranks, self * count + i, round));
  CHECK(comm->allreduce(comm, SHARD, OTHER, count, (DType)type, true) == COMM_OK);
  for (uint64_t i = 0; i < count; i++) {
    float sum = half_tree(type, 0, comm->ranks, self * count + i, round);
    CHECK(float_of_half(type, halves(env, OTHER)[i]) == sum + sum);
  }
  return 0;
}

/* A third: what rounds in every sum. */
static double third(uint32_t rank, uint64_t i, uint64_t round) { return (double)value(rank, i, round) / 3; }

static double tree_of_thirds(uint32_t lo, uint32_t n, uint64_t i, uint64_t round) {
  if (n == 1) return third(lo, i, round);
  uint32_t p = 1;
  while (p * 2 < n) p *= 2;
  return tree_of_thirds(lo, p, i, round) + tree_of_thirds(lo + p, n - p, i, round);
}

static int sums(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  double *x = (double *)(env->arenas[env->rank] + OTHER);
  for (uint64_t i = 0; i < count; i++) x[i] = third(env->rank, i, round);
  CHECK(comm->allreduce_sum(comm, OTHER, count) == COMM_OK);
  for (uint64_t i = 0; i < count; i++) CHECK(x[i] == tree_of_thirds(0, comm->ranks, i, round));
  return 0;
}

static int exact(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  int64_t *acc = (int64_t *)(env->arenas[env->rank] + OTHER), all[EXACT_WORDS] = {0};
  uint32_t base = comm->rank / comm->shard * comm->shard;
  memset(acc, 0, sizeof all);
  for (uint64_t i = 0; i < count; i++) exact_add(acc, (double)value(env->rank, i, round) * value(env->rank, i, round));
  CHECK(comm->allreduce_exact(comm, OTHER) == COMM_OK);
  for (uint32_t r = comm->shard; r-- > 0;) /* another order */
    for (uint64_t i = count; i-- > 0;) exact_add(all, (double)value(base + r, i, round) * value(base + r, i, round));
  CHECK(exact_value(acc) == exact_value(all));
  return 0;
}

/* Beyond 2^53, where doubles would no longer do. */
static int integers(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  int64_t *x = (int64_t *)(env->arenas[env->rank] + OTHER), base = (int64_t)1 << 58;
  uint32_t first = comm->rank / comm->shard * comm->shard;
  for (uint64_t i = 0; i < count; i++) x[i] = base + (int64_t)((i + 1) * (env->rank + 1 + round));
  CHECK(comm->allreduce_int(comm, OTHER, count) == COMM_OK);
  for (uint64_t i = 0; i < count; i++) {
    int64_t expected = 0;
    for (uint32_t r = first; r < first + comm->shard; r++) expected += base + (int64_t)((i + 1) * (r + 1 + round));
    CHECK(x[i] == expected);
  }
  return 0;
}

static int share(const RankEnv *env, Comm *comm, uint64_t round) {
  uint64_t words[64];
  CHECK(comm->share(comm, round * 100 + env->rank, words) == COMM_OK);
  for (uint32_t r = 0; r < comm->ranks; r++) CHECK(words[r] == round * 100 + r);
  return 0;
}

static int one_round(const RankEnv *env, Comm *comm, uint64_t count, uint64_t round) {
  if (round % 50 == env->rank) usleep(300); /* let the others overtake */
  int code = gather(env, comm, count, round);
  if (code == 0) code = scatter(env, comm, count, round);
  if (code == 0) code = hybrid(env, comm, count, round);
  if (code == 0) code = hybrid_half(env, comm, count, round);
  if (code == 0) code = sums(env, comm, count < 200 ? count : 200, round);
  if (code == 0) code = exact(env, comm, 20, round);
  if (code == 0) code = integers(env, comm, count < 10000 ? count : 10000, round);
  if (code == 0) code = share(env, comm, round);
  if (code == 0 && comm->barrier(comm) != COMM_OK) code = 11;
  return code;
}

static int rounds(const RankEnv *env, Comm *comm, uint64_t most) {
  static const uint64_t counts[] = {64, 1, 1000, 17, 128, 3};
  int code = 0;
  for (uint64_t round = 0; code == 0 && round < most; round++) code = one_round(env, comm, counts[round % 6], round);
  return code;
}

static int everything(void *user, const RankEnv *env) {
  Arena *arena = arena_new();
  int code = rounds(env, open_comm(arena, env, user), 200);
  arena_free(arena);
  return code;
}

static void run(uint32_t shard, uint32_t replicas) {
  World world = {shard, replicas};
  LaunchJob job = {.ranks = shard * replicas, .arena_bytes = ARENA_BYTES, .rank_main = everything, .user = &world};
  assert_int_equal(launch_run(&job), RUN_OK);
}

static void one_group(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 5; ranks++) run(ranks, 1);
}

static void hybrid_groups(void **state) {
  (void)state;
  run(1, 2);
  run(1, 3);
  run(2, 2);
  run(1, 4);
  run(2, 3);
  run(4, 2);
}

static int fail_one(void *user, const RankEnv *env) {
  Arena *arena = arena_new();
  Comm *comm = open_comm(arena, env, user);
  Failure failure = {0};
  fail(&failure, RUN_INVALID, "on purpose");
  CHECK(comm->barrier(comm) == COMM_OK);
  if (env->rank == 1) control_fail(env->control, 1, &failure);
  else CHECK(comm->barrier(comm) == COMM_PEER_FAILED);
  return RUN_PEER_FAILED;
}

static void a_failure_frees_the_waiting(void **state) {
  Scratch *scratch = *state;
  World world = {4, 1};
  LaunchJob job = {.ranks = 4, .arena_bytes = ARENA_BYTES, .rank_main = fail_one, .user = &world};
  double begin = clock_seconds();
  capture_stderr(scratch);
  int code = launch_run(&job);
  assert_string_equal(captured_stderr(scratch), "fsdpc: error: on purpose\n");
  assert_int_equal(code, RUN_INVALID);
  assert_soon(begin);
}

/* --- several hosts: MEMORY is a file that the ranks of this machine share; each run of PER_HOST ranks is a host -------- */

static bool join_hosts(Arena *arena, RankEnv *env, const Launcher *launcher, const char *path, uint32_t per_host) {
  uint64_t lanes = round_up(launcher->ranks * sizeof(CommLane), 4096);
  int fd = open(path, O_RDWR);
  if (fd < 0 || ftruncate(fd, (off_t)(lanes + (uint64_t)launcher->ranks * ARENA_BYTES)) != 0) return false;
  unsigned char *memory = mmap(NULL, lanes + (uint64_t)launcher->ranks * ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  unsigned char **arenas = ARENA_ARRAY(arena, unsigned char *, launcher->ranks);
  if (memory == MAP_FAILED) return false;
  for (uint32_t rank = 0; rank < launcher->ranks; rank++)
    if (rank / per_host == launcher->rank / per_host) arenas[rank] = memory + lanes + (uint64_t)rank * ARENA_BYTES;
  *env = (RankEnv){.rank = launcher->rank,
                   .ranks = launcher->ranks,
                   .arenas = arenas,
                   .lanes = (CommLane *)memory,
                   .control = ARENA_NEW(arena, Control)};
  return true;
}

static int one_of_hosts(uint32_t shard, uint32_t per_host, const char *path) {
  Arena *arena = arena_new();
  Launcher launcher;
  RankEnv env;
  Failure failure = {0};
  uint64_t word = 0;
  if (!launcher_detect(&launcher, &failure) || !join_hosts(arena, &env, &launcher, path, per_host)) return 12;
  const World world = {shard, launcher.ranks / shard};
  CommMpiConfig config = {comm_config(&env, &world), &word, sizeof word};
  if (env.rank == 0) word = 42;
  kernels_thread_init();
  Comm *comm = comm_mpi_open(arena, &config, &failure);
  if (comm == NULL || word != 42) return fprintf(stderr, "rank %u: %s\n", env.rank, failure.text), 13;
  int code = rounds(&env, comm, 24);
  if (code == 0) code = one_round(&env, comm, (MOST_FLOATS - 100) / shard, 24); /* more than one message */
  if (code == 0) comm->close(comm);
  _exit(code); /* MPI's leaks are its own */
}

int main(int count, char **arguments) {
  if (count == 4) return one_of_hosts((uint32_t)atoi(arguments[1]), (uint32_t)atoi(arguments[2]), arguments[3]);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_group),
      cmocka_unit_test(hybrid_groups),
      SCRATCH_TEST(a_failure_frees_the_waiting),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
