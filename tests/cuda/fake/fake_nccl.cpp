/* Owns: NCCL between processes on the CPU: what runtime/cuda/cuda_comm_nccl.c calls. Messages go through mailboxes in memory
 * that the ranks share; like NCCL's kernels, an operation runs when its stream reaches it and waits for its peers without
 * keeping other streams from running. All ranks must launch a call from a graph, or none. Sums other than of integers are refused: the
 * runtime adds by itself. Nor may pieces be exchanged over as many channels as NCCL takes by itself, which it would do silently. */
#include "tests/cuda/fake/fake_cuda.h"

#include <nccl.h>

#include <atomic>
#include <fcntl.h>
#include <memory>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int RANKS = 8, PLANES = 6; /* plane 0: the world; one more a split */
constexpr int CHANNELS = 32, MOST_CHANNELS = 16; /* between each two ranks that send, 12 MiB each: NCCL's own choice, and what there is room for */
constexpr size_t SLOT_BYTES = 256 * 1024;

struct Slot {
  std::atomic<uint32_t> full;
  uint32_t bytes;
  bool window, graph; /* sent from a window; from a graph */
  unsigned char data[SLOT_BYTES];
};
struct Region {
  std::atomic<int> arrived[PLANES], asked[PLANES], left[PLANES], process[RANKS];
  std::atomic<bool> aborted[PLANES][RANKS];
  int color[PLANES][RANKS];
  Slot slot[PLANES][RANKS][RANKS]; /* from, to */
};
struct Id {
  int pid, fd;
};

struct Message {
  bool send, done;
  int peer;
  unsigned char *data;
  size_t bytes;
  bool window = false, graph = false;
};

struct Group {
  bool open = false;
  std::vector<Message> messages;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<ncclComm_t> aborted;
};
Group &group() {
  static Group only;
  return only;
}
int &live() { /* communicators of this process that are neither destroyed nor told to abort */
  static int count = 0;
  return count;
}

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclBfloat16:
    case ncclFloat16: return 2;
    case ncclFloat32: return 4;
    default: return 8;
  }
}

} // namespace

struct ncclComm {
  Region *region;
  int plane, rank, splits; /* rank: of the world */
  std::vector<int> members;
  unsigned char *window = nullptr; /* its start, and bytes */
  size_t window_bytes = 0;
  bool aborted = false;
  int channels = CHANNELS;
  bool inside(const void *x, size_t bytes) const {
    return (const unsigned char *)x >= window && (const unsigned char *)x + bytes <= window + window_bytes;
  }
  int self() const {
    for (size_t i = 0; i < members.size(); i++)
      if (members[i] == rank) return (int)i;
    return -1;
  }
};

namespace {

void meet(Region *region, int plane, int count) {
  region->arrived[plane]++;
  while (region->arrived[plane] < count) usleep(100);
}

bool move(ncclComm_t comm, Message *m) {
  int other = comm->members[(size_t)m->peer];
  Slot *slot = m->send ? &comm->region->slot[comm->plane][comm->rank][other]
                       : &comm->region->slot[comm->plane][other][comm->rank];
  if (slot->full.load(std::memory_order_acquire) != (m->send ? 0u : 1u)) return false;
  if (m->send) {
    memcpy(slot->data, m->data, m->bytes);
    slot->bytes = (uint32_t)m->bytes;
    slot->window = m->window, slot->graph = m->graph;
  } else {
    if (slot->window != m->window) fprintf(stderr, "fake nccl: one rank uses a window and another does not\n"), abort();
    if (slot->graph != m->graph) fprintf(stderr, "fake nccl: one rank launches a graph and another does not\n"), abort();
    if (slot->bytes != m->bytes) fprintf(stderr, "fake nccl: %zu bytes expected, %u sent\n", m->bytes, slot->bytes);
    memcpy(m->data, slot->data, m->bytes);
  }
  slot->full.store(m->send ? 1 : 0, std::memory_order_release);
  return true;
}

/* The messages of one launch; captured work may run again, so it starts from a copy. */
void launch(ncclComm_t comm, cudaStream_t stream, const std::vector<Message> &messages, std::function<void()> then) {
  std::shared_ptr<std::vector<Message>> live = std::make_shared<std::vector<Message>>(messages);
  for (Message &m : *live) m.graph = fake_cuda_captures(stream);
  const std::vector<Message> fresh = *live;
  fake_cuda_try(stream, [=] {
    bool all = true;
    if (comm->aborted) return true;
    for (Message &m : *live) {
      if (!m.done) m.done = move(comm, &m);
      all = all && m.done;
    }
    if (!all) return false;
    *live = fresh;
    then();
    return true;
  });
}

void add_gather(std::vector<Message> *list, ncclComm_t comm, const void *x, void *out, size_t bytes) {
  for (int i = 0; i < (int)comm->members.size(); i++) {
    list->push_back(Message{true, false, i, (unsigned char *)const_cast<void *>(x), bytes});
    list->push_back(Message{false, false, i, (unsigned char *)out + (size_t)i * bytes, bytes});
  }
}

} // namespace

extern "C" {

const char *ncclGetErrorString(ncclResult_t) { return "refused by the fake"; }
/* FAKE_NCCL_SHORT: it finds no memory for buffers, as it says then. */
const char *ncclGetLastError(ncclComm_t) { return getenv("FAKE_NCCL_SHORT") != nullptr ? "Failed to CUDA calloc 10485760 bytes" : ""; }
ncclResult_t ncclGetVersion(int *version) {
  const char *other = getenv("FAKE_NCCL_VERSION");
  return *version = other != nullptr ? atoi(other) : NCCL_VERSION_CODE, ncclSuccess;
}
/* FAKE_NCCL_LOST: the rank that finds its peers gone. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
  const char *rank = getenv("FAKE_NCCL_LOST");
  return *state = rank != nullptr && atoi(rank) == comm->rank ? ncclRemoteError : ncclSuccess, ncclSuccess;
}
/* NCCL waits for graphs that hold its collectives, for ever when they are destroyed later. */
static void need_no_graphs() {
  if (fake_cuda_graphs() > 0) fprintf(stderr, "fake nccl: a graph outlives its communicator\n"), abort();
}
/* NCCL's threads serve the other ranks of a host until those abort, too, or are gone. Then it frees memory, which waits for the device, and
 * so for the process's other communicators, for ever where these have not been told. */
static void finish_abort(ncclComm_t comm) {
  for (int other : comm->members)
    while (!comm->region->aborted[comm->plane][other] && kill(comm->region->process[other], 0) == 0) usleep(100);
  if (live() > 0) fprintf(stderr, "fake nccl: a communicator aborts alone, and waits for others\n"), abort();
}
/* What is on its way ends, and still refers to the communicator. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  need_no_graphs();
  comm->aborted = comm->region->aborted[comm->plane][comm->rank] = true;
  live()--;
  if (group().open) group().aborted.push_back(comm);
  else finish_abort(comm);
  return ncclSuccess;
}
/* Meets the other ranks, and would wait for ever for those that do not come. FAKE_NCCL_MET: a file that is there once one waits. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const char *path = getenv("FAKE_NCCL_MET");
  FILE *file = path != nullptr ? fopen(path, "w") : nullptr;
  if (file != nullptr) fclose(file);
  comm->region->left[comm->plane]++;
  need_no_graphs();
  while (comm->region->left[comm->plane] < comm->region->arrived[comm->plane]) usleep(100);
  live()--;
  return delete comm, ncclSuccess;
}

/* FAKE_NCCL_REGISTERS: a file that is there once a rank has opened that lets NCCL register what graphs hold with the network, as it does unless told otherwise. */
static void note_registering() {
  const char *path = getenv("FAKE_NCCL_REGISTERS"), *set = getenv("NCCL_GRAPH_REGISTER");
  FILE *file = path != nullptr && (set == nullptr || strcmp(set, "0") != 0) ? fopen(path, "w") : nullptr;
  if (file != nullptr) fclose(file);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  Id id = {getpid(), memfd_create("fake-nccl", MFD_CLOEXEC)};
  if (id.fd < 0 || ftruncate(id.fd, sizeof(Region)) != 0) return ncclSystemError;
  return memcpy(out, &id, sizeof id), ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId in, int rank) {
  Id id;
  char path[64];
  note_registering();
  memcpy(&id, &in, sizeof id);
  snprintf(path, sizeof path, "/proc/%d/fd/%d", id.pid, id.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  void *region = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(Region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (region == MAP_FAILED || ranks > RANKS) return ncclSystemError;
  *out = new ncclComm{(Region *)region, 0, rank, 0, {}, nullptr, 0};
  live()++;
  for (int i = 0; i < ranks; i++) (*out)->members.push_back(i);
  (*out)->region->process[rank] = getpid();
  meet((*out)->region, 0, ranks);
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t world, int color, int, ncclComm_t *out, ncclConfig_t *config) {
  int plane = ++world->splits;
  if (plane >= PLANES) return ncclInvalidUsage;
  world->region->color[plane][world->rank] = color;
  meet(world->region, plane, (int)world->members.size());
  *out = new ncclComm{world->region, plane, world->rank, 0, {}, nullptr, 0};
  live()++;
  for (int member : world->members)
    if (world->region->color[plane][member] == color) (*out)->members.push_back(member);
  if (config != nullptr && config->maxCTAs != NCCL_CONFIG_UNDEF_INT) (*out)->channels = config->maxCTAs;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) { return group().open = true, ncclSuccess; }
ncclResult_t ncclGroupEnd(void) {
  ncclComm_t comm = group().comm;
  if (comm != nullptr && comm->members.size() > 1 && comm->channels > MOST_CHANNELS)
    fprintf(stderr, "fake nccl: ranks send each other pieces over %d channels\n", comm->channels), abort();
  if (comm != nullptr) launch(comm, group().stream, group().messages, [] {});
  for (ncclComm_t lost : group().aborted) finish_abort(lost);
  group() = Group();
  return ncclSuccess;
}
ncclResult_t ncclSend(const void *x, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  if (!group().open || count * bytes_of(type) > SLOT_BYTES) return ncclInvalidUsage;
  group().comm = comm, group().stream = stream;
  group().messages.push_back(Message{true, false, peer, (unsigned char *)const_cast<void *>(x), count * bytes_of(type)});
  return ncclSuccess;
}
ncclResult_t ncclRecv(void *x, size_t count, ncclDataType_t type, int peer, ncclComm_t, cudaStream_t) {
  if (!group().open) return ncclInvalidUsage;
  group().messages.push_back(Message{false, false, peer, (unsigned char *)x, count * bytes_of(type)});
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *x, void *out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  std::vector<Message> messages;
  if (getenv("FAKE_NCCL_SHORT") != nullptr) return ncclUnhandledCudaError;
  if (count * bytes_of(type) > SLOT_BYTES) return ncclInvalidUsage;
  if (comm->window != nullptr && !(comm->inside(x, count * bytes_of(type)) &&
                                   comm->inside(out, count * bytes_of(type) * comm->members.size())))
    return ncclInvalidUsage;
  add_gather(&messages, comm, x, out, count * bytes_of(type));
  for (Message &message : messages) message.window = comm->window != nullptr;
  return launch(comm, stream, messages, [] {}), ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *x, void *y, size_t count, ncclDataType_t type, ncclRedOp_t, ncclComm_t comm,
                           cudaStream_t stream) {
  if (type != ncclInt64) return ncclInvalidUsage;
  size_t ranks = comm->members.size();
  std::shared_ptr<std::vector<int64_t>> all = std::make_shared<std::vector<int64_t>>(count * ranks);
  std::vector<Message> messages;
  add_gather(&messages, comm, x, all->data(), count * sizeof(int64_t));
  launch(comm, stream, messages, [=] {
    for (size_t i = 0; i < count; i++) {
      int64_t sum = 0;
      for (size_t r = 0; r < ranks; r++) sum += (*all)[r * count + i];
      ((int64_t *)y)[i] = sum;
    }
  });
  return ncclSuccess;
}

/* FAKE_NCCL_MEMORY=none: no memory of its own. FAKE_NCCL_WINDOW=decline: rank 1 gets no window. */
ncclResult_t ncclMemAlloc(void **out, size_t bytes) {
  const char *memory = getenv("FAKE_NCCL_MEMORY");
  if (memory != nullptr && strcmp(memory, "none") == 0) return ncclSystemError;
  return cudaMalloc(out, bytes) == cudaSuccess ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclMemFree(void *memory) { return cudaFree(memory), ncclSuccess; }

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes, ncclWindow_t *out, int flags) {
  const char *answer = getenv("FAKE_NCCL_WINDOW");
  std::atomic<int> &asked = comm->region->asked[comm->plane];
  if (flags != NCCL_WIN_COLL_SYMMETRIC || (uintptr_t)memory % NCCL_WIN_REQUIRED_ALIGNMENT != 0) return ncclInvalidArgument;
  asked++; /* all ranks are split over communicators of one plane, and all must ask */
  while (asked < comm->region->arrived[comm->plane]) usleep(100);
  *out = nullptr;
  if (answer != nullptr && strcmp(answer, "decline") == 0 && comm->rank == 1) return ncclSuccess;
  comm->window = (unsigned char *)memory, comm->window_bytes = bytes;
  *out = (ncclWindow_t)memory;
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if ((void *)window != comm->window) return ncclInvalidArgument;
  comm->window = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  return ncclInvalidUsage;
}

} /* extern "C" */
