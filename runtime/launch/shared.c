/* Owns: mapping the arenas and the control block of a job: anonymous for ranks that will be forked, or in a file without a
 * name that processes were handed.
 *
 * Each arena starts on a 2 MiB border and is followed by at least one page that may not be touched, so that a kernel
 * that runs over the end is caught. One rank alone needs no sharing: its arena is private, which huge pages serve. */
#include "runtime/launch/shared.h"

#include "base/checked.h"
#include "base/remedy.h"
#include "base/text.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static const uint64_t huge_page = 2u << 20;

static bool enough_memory(uint32_t ranks, uint64_t arena_bytes, Failure *failure) {
  struct sysinfo info;
  uint64_t wanted, have;
  char a[32], b[32], c[32];
  if (sysinfo(&info) != 0) return true;
  have = ((uint64_t)info.totalram + info.totalswap) * info.mem_unit;
  if (checked_mul(ranks, arena_bytes, &wanted) && wanted <= have) return true;
  return fail(failure, RUN_INVALID,
              "memory: %u rank%s of %s each do not fit into this machine's %s (%s free); plan with a smaller --memory "
              "or fewer ranks",
              ranks, text_plural(ranks), text_bytes(a, arena_bytes), text_bytes(b, have),
              text_bytes(c, (uint64_t)info.freeram * info.mem_unit));
}

/* Where things lie in a file: the block, then one arena a rank, each on a 2 MiB border. */
static uint64_t block_bytes(uint32_t ranks) {
  return round_up(sizeof(Control), 64) + ranks * (sizeof(RankStatus) + sizeof(CommLane));
}

static uint64_t arena_offset(uint32_t ranks, uint64_t bytes, uint32_t rank) {
  return round_up(block_bytes(ranks), huge_page) + rank * round_up(bytes, huge_page);
}

static uint64_t page_bytes(uint64_t arena_bytes) {
  return round_up(arena_bytes == 0 ? 1 : arena_bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

uint64_t shared_file_bytes(uint32_t ranks, uint64_t arena_bytes) {
  return arena_offset(ranks, page_bytes(arena_bytes), ranks);
}

/* The i-th rank on this host. */
static uint32_t local(const Join *join, uint32_t i) { return join != NULL ? join->locals[i] : i; }

static bool map_arena(SharedMemory *memory, uint32_t rank, uint64_t bytes, int file, Failure *failure) {
  char size[32];
  unsigned char *reserved =
      mmap(NULL, memory->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved != MAP_FAILED) {
    memory->reserved[rank] = reserved;
    unsigned char *start = (unsigned char *)round_up((uintptr_t)reserved, huge_page);
    int sharing = file >= 0 ? MAP_SHARED : MAP_ANONYMOUS | (memory->ranks == 1 ? MAP_PRIVATE : MAP_SHARED);
    off_t offset = file >= 0 ? (off_t)arena_offset(memory->ranks, bytes, rank) : 0;
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, sharing | MAP_FIXED | MAP_NORESERVE, file, offset) != MAP_FAILED) {
      madvise(start, bytes, MADV_HUGEPAGE); /* best effort */
      memory->arenas[rank] = start;
      return true;
    }
  }
  return fail(failure, RUN_INVALID, "memory: the arena of rank %u (%s) cannot be mapped: %s%s", rank, text_bytes(size, bytes), strerror(errno),
              remedy_of(errno));
}

bool shared_open(Arena *arena, SharedMemory *memory, uint32_t ranks, uint64_t arena_bytes, Failure *failure) {
  return shared_open_joined(arena, memory, ranks, arena_bytes, NULL, failure);
}

bool shared_open_joined(Arena *arena, SharedMemory *memory, uint32_t ranks, uint64_t arena_bytes, const Join *join,
                        Failure *failure) {
  uint64_t bytes = page_bytes(arena_bytes);
  uint32_t locals = join != NULL ? join->local_ranks : ranks;
  int file = join != NULL ? join->memory : -1;
  *memory = (SharedMemory){.ranks = ranks, .reserved_bytes = round_up(bytes, huge_page) + 2 * huge_page};
  memory->arenas = ARENA_ARRAY(arena, unsigned char *, ranks);
  memory->reserved = ARENA_ARRAY(arena, unsigned char *, ranks);
  if (!enough_memory(locals, bytes, failure)) return false;

  uint64_t control_bytes = round_up(sizeof(Control), 64), status_bytes = ranks * sizeof(RankStatus);
  memory->block_bytes = block_bytes(ranks);
  memory->block = mmap(NULL, memory->block_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
  if (memory->block == MAP_FAILED) {
    memory->block = NULL;
    return fail(failure, RUN_INVALID, "memory: the control block cannot be mapped: %s%s", strerror(errno), remedy_of(errno));
  }
  memory->control = memory->block;
  memory->statuses = (RankStatus *)((unsigned char *)memory->block + control_bytes);
  memory->lanes = (CommLane *)((unsigned char *)memory->statuses + status_bytes);
  for (uint32_t i = 0; i < locals; i++)
    if (!map_arena(memory, local(join, i), bytes, file, failure)) {
      shared_close(memory);
      return false;
    }
  return true;
}

void shared_close(SharedMemory *memory) {
  for (uint32_t rank = 0; rank < memory->ranks; rank++)
    if (memory->reserved[rank] != NULL) munmap(memory->reserved[rank], memory->reserved_bytes);
  if (memory->block != NULL) munmap(memory->block, memory->block_bytes);
  *memory = (SharedMemory){0};
}
