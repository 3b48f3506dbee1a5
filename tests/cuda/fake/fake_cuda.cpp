/* Owns: a CUDA runtime on the CPU, for running the CUDA backend in tests: the functions that runtime/ calls, with streams,
 * events and graphs that behave as CUDA's may behave at worst. Work is only recorded; when something is waited for, all
 * that was recorded runs, in a random order that streams and events allow. So a missing event shows as a wrong result, and
 * a value that a graph should read anew and does not shows as a stale one. Device memory starts as NaN, and is shared
 * between processes by file descriptor, as CUDA's is by interprocess handle. What CUDA forbids is an error here too: calls that
 * wait or allocate while a graph is captured, events that belong to another capture or were never recorded. What it would do silently
 * wrong ends the program: a device taken before a fork, or used by a thread that has chosen none. */
#include <cuda_runtime_api.h>

#include "tests/cuda/fake/fake_cuda.h"

#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

struct Node {
  std::function<bool()> work; /* false: not yet, try again (what waits for another process) */
  std::vector<std::shared_ptr<Node>> after;
  unsigned capture = 0; /* the number of the capture that it was recorded in; 0: to be run */
  bool done = false;
  double at = 0; /* when, in milliseconds */
};
typedef std::shared_ptr<Node> NodeRef;

struct CUgraph_st {
  unsigned number; /* of its capture */
  std::vector<NodeRef> nodes;
  bool high = false; /* some of them from streams of high priority */
};
struct CUgraphExec_st {
  std::vector<NodeRef> nodes;
};
struct CUstream_st {
  NodeRef last;
  NodeRef before; /* what was last when the stream began to be captured */
  CUgraph_st *capture = nullptr;
  bool high = false; /* its priority */
};
struct CUevent_st {
  NodeRef node;
  bool timed = true, recorded = false, asked = false;
};

namespace {

struct Block {
  size_t bytes;
  int fd;
};

struct Fake {
  std::vector<NodeRef> pending;
  std::vector<CUstream_st *> streams;
  std::map<void *, Block> blocks;
  std::map<void *, size_t> pinned; /* host memory, in bytes */
  uint64_t random = 1;
  cudaError_t last = cudaSuccess;
  int graphs = 0; /* that exist */
  unsigned captures = 0;
  pid_t process = getpid();
};
[[noreturn]] void die(const char *what) {
  fprintf(stderr, "fake cuda: %s\n", what);
  abort();
}
Fake &fake() {
  static Fake state;
  if (state.process != getpid()) die("a process uses CUDA whose parent had used it before the fork");
  return state;
}

cudaError_t failed(cudaError_t error) { return fake().last = error; }

thread_local bool device_chosen = false;
/* Before work or memory is given to a device: a thread that has chosen none would get the first. */
void need_device() {
  if (!device_chosen) die("a thread uses a device that has chosen none");
}

bool capturing() {
  for (const CUstream_st *stream : fake().streams)
    if (stream->capture != nullptr) return true;
  return false;
}
/* What waits or allocates may not be called by a thread that captures. */
cudaError_t allowed() {
  need_device();
  return capturing() ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

void add_trying(CUstream_st *stream, std::function<bool()> work, NodeRef also = nullptr) {
  need_device();
  NodeRef node = std::make_shared<Node>();
  node->work = std::move(work);
  if (stream->last) node->after.push_back(stream->last);
  if (also) node->after.push_back(also);
  node->capture = stream->capture != nullptr ? stream->capture->number : 0;
  stream->last = node;
  if (stream->capture) stream->capture->nodes.push_back(node), stream->capture->high |= stream->high;
  else fake().pending.push_back(node);
}

void add(CUstream_st *stream, std::function<void()> work, NodeRef also = nullptr) {
  add_trying(stream, [=] { return work(), true; }, also);
}

bool ready(const Node &node) {
  for (const NodeRef &before : node.after)
    if (!before->done) return false;
  return true;
}

double now_ms() {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

/* Runs everything that was recorded. */
void run_all() {
  std::vector<NodeRef> &pending = fake().pending;
  for (int idle = 0; !pending.empty();) {
    size_t start = (fake().random = fake().random * 6364136223846793005u + 1442695040888963407u) >> 33, n = pending.size();
    size_t i = 0;
    while (i < n && !(ready(*pending[(start + i) % n]) && pending[(start + i) % n]->work())) i++;
    if (i == n) {
      usleep(100); /* another process may be behind */
      if (++idle < 300000) continue;
      die("work waits for itself");
    }
    idle = 0;
    NodeRef node = pending[(start + i) % n];
    pending.erase(pending.begin() + (ptrdiff_t)((start + i) % n));
    node->done = true;
    node->at = now_ms();
    node->after.clear();
    node->work = nullptr;
  }
}

bool reaches(const NodeRef &from, const NodeRef &to) {
  if (from == to) return true;
  for (const NodeRef &before : from->after)
    if (before->capture == from->capture && reaches(before, to)) return true;
  return false;
}

cudaError_t settle() {
  cudaError_t error = allowed();
  if (error == cudaSuccess) run_all();
  return error;
}

/* Host memory that is not pinned: a copy waits for it, or would. */
bool pageable(const void *p) {
  const char *at = (const char *)p;
  for (const auto &block : fake().blocks)
    if (at >= (const char *)block.first && at < (const char *)block.first + block.second.bytes) return false;
  for (const auto &block : fake().pinned)
    if (at >= (const char *)block.first && at < (const char *)block.first + block.second) return false;
  return true;
}

void *map_fd(int fd, size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return p == MAP_FAILED ? NULL : p;
}

struct Handle {
  int pid, fd;
  size_t bytes;
};

} // namespace

void shim_submit(void *stream, std::function<void()> work); /* of shim.h, whose names clash with CUDA's headers */
void shim_submit(void *stream, std::function<void()> work) { add((CUstream_st *)stream, std::move(work)); }

int shim_last_error(); /* instead of the shim's own */
int shim_last_error() { return (int)cudaGetLastError(); }
int fake_cuda_graphs() { return fake().graphs; }
bool fake_cuda_captures(void *stream) { return ((CUstream_st *)stream)->capture != nullptr; }

void fake_cuda_try(void *stream, std::function<bool()> work) { add_trying((CUstream_st *)stream, std::move(work)); }

extern "C" void fake_cuda_enqueue(void *stream, void (*call)(void *), const void *arg, size_t bytes) {
  std::vector<unsigned char> copy((const unsigned char *)arg, (const unsigned char *)arg + bytes);
  add((CUstream_st *)stream, [=]() mutable { call(copy.data()); });
}

extern "C" {

/* --- device and memory ---------------------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
/* FAKE_GPUS: so many; one when it is not set. */
cudaError_t cudaGetDeviceCount(int *count) {
  const char *wanted = getenv("FAKE_GPUS");
  fake();
  return *count = wanted ? atoi(wanted) : 1, cudaSuccess;
}
/* FAKE_EXCLUSIVE: other processes have them, and no other may. */
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) return failed(cudaErrorInvalidDevice);
  if (getenv("FAKE_EXCLUSIVE") != NULL) return failed(cudaErrorDevicesUnavailable);
  return device_chosen = true, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  memset(prop, 0, sizeof *prop);
  snprintf(prop->name, sizeof prop->name, "fake GPU");
  prop->major = 9;
  gethostname(prop->uuid.bytes, sizeof prop->uuid.bytes - 1);
  prop->uuid.bytes[sizeof prop->uuid.bytes - 1] = (char)device;
  prop->totalGlobalMem = (size_t)1 << 30;
  return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error) {
  static char text[64];
  snprintf(text, sizeof text, "CUDA error %d", (int)error);
  return text;
}
cudaError_t cudaDeviceSynchronize(void) { return settle(); }

/* FAKE_FREE: bytes of free memory. */
cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  const char *left = getenv("FAKE_FREE");
  *total = (size_t)1 << 30;
  return *free = left ? strtoull(left, NULL, 10) : *total, cudaSuccess;
}
/* FAKE_TAKEN: a file for the bytes that this process has allocated on the device. */
static void note_taken() {
  const char *path = getenv("FAKE_TAKEN");
  size_t taken = 0;
  for (const auto &block : fake().blocks) taken += block.second.bytes;
  FILE *file = path != NULL ? fopen(path, "w") : NULL;
  if (file == NULL) return;
  fprintf(file, "%zu\n", taken);
  fclose(file);
}

cudaError_t cudaMalloc(void **to, size_t bytes) {
  if (allowed() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  int fd = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return cudaErrorMemoryAllocation;
  *to = map_fd(fd, bytes);
  if (*to == NULL) return cudaErrorMemoryAllocation;
  memset(*to, 0xff, bytes);
  fake().blocks[*to] = Block{bytes, fd};
  note_taken();
  return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
  auto block = fake().blocks.find(p);
  if (block == fake().blocks.end()) return p == NULL ? cudaSuccess : failed(cudaErrorInvalidValue);
  if (settle() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  munmap(p, block->second.bytes);
  close(block->second.fd);
  fake().blocks.erase(block);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned) {
  if (allowed() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  *to = malloc(bytes);
  if (*to == NULL) return failed(cudaErrorMemoryAllocation);
  return fake().pinned[*to] = bytes, cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
  if (p != NULL && fake().pinned.erase(p) == 0) return failed(cudaErrorInvalidValue);
  return free(p), cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (stream->capture != nullptr && (pageable(to) || pageable(from))) return failed(cudaErrorStreamCaptureUnsupported);
  return add(stream, [=] { memcpy(to, from, bytes); }), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  return add(stream, [=] { memset(to, value, bytes); }), cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind) {
  if (settle() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return memcpy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  if (settle() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  return memset(to, value, bytes), cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p) {
  auto block = fake().blocks.find(p);
  if (block == fake().blocks.end()) return failed(cudaErrorInvalidValue);
  Handle handle = {getpid(), block->second.fd, block->second.bytes};
  static_assert(sizeof handle <= sizeof *out, "a handle must fit");
  return memcpy(out, &handle, sizeof handle), cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **to, cudaIpcMemHandle_t in, unsigned) {
  Handle handle;
  char path[64];
  memcpy(&handle, &in, sizeof handle);
  if (handle.pid == getpid()) return failed(cudaErrorDeviceUninitialized); /* nobody opens what is its own */
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return cudaErrorMapBufferObjectFailed;
  *to = map_fd(fd, handle.bytes);
  fake().blocks[*to] = Block{handle.bytes, fd};
  return *to != NULL ? cudaSuccess : cudaErrorMapBufferObjectFailed;
}
cudaError_t cudaIpcCloseMemHandle(void *p) { return cudaFree(p); }

/* --- streams and events ---------------------------------------------------------------------------------------------- */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  return *least = 0, *greatest = -1, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority) {
  need_device();
  *stream = new CUstream_st;
  (*stream)->high = priority < 0;
  fake().streams.push_back(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  run_all();
  std::vector<CUstream_st *> &all = fake().streams;
  for (size_t i = 0; i < all.size(); i++)
    if (all[i] == stream) all.erase(all.begin() + (ptrdiff_t)i--);
  return delete stream, cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return settle(); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  need_device();
  *event = new CUevent_st;
  return (*event)->timed = (flags & cudaEventDisableTiming) == 0, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->recorded = true;
  return event->node = stream->last, cudaSuccess;
}
/* Not ready when first asked, which CUDA takes for an error of the thread. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->node && event->node->capture != 0) return failed(cudaErrorCapturedEvent);
  if (event->node && !event->node->done && !event->asked) return event->asked = true, failed(cudaErrorNotReady);
  event->asked = false;
  return settle();
}
cudaError_t cudaGetLastError(void) {
  cudaError_t error = fake().last;
  return fake().last = cudaSuccess, error;
}
/* An event behind nothing is as old as the first. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  for (cudaEvent_t event : {from, to}) {
    if (!event->timed || !event->recorded) return failed(cudaErrorInvalidResourceHandle);
    if (event->node && event->node->capture != 0) return failed(cudaErrorCapturedEvent);
    if (event->node && !event->node->done) return failed(cudaErrorNotReady);
  }
  double end = to->node ? to->node->at : 0, begin = from->node ? from->node->at : end;
  return *ms = (float)(to->node ? end - begin : 0), cudaSuccess;
}

/* A stream that waits for a captured event joins the capture, as long as that has not ended. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event->node) return cudaSuccess;
  unsigned capture = event->node->capture;
  if (capture != 0 && stream->capture == nullptr) {
    for (CUstream_st *other : fake().streams)
      if (other->capture != nullptr && other->capture->number == capture) stream->capture = other->capture;
    if (stream->capture == nullptr) return failed(cudaErrorCapturedEvent);
    stream->before = stream->last;
    stream->last = event->node;
    return cudaSuccess;
  }
  if (capture != (stream->capture != nullptr ? stream->capture->number : 0)) return failed(cudaErrorStreamCaptureIsolation);
  if (event->node != stream->last) add(stream, [] {}, event->node);
  return cudaSuccess;
}

/* --- graphs ---------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return failed(cudaErrorIllegalState);
  stream->capture = new CUgraph_st{++fake().captures, {}};
  stream->before = stream->last;
  stream->last = nullptr;
  add(stream, [] {}); /* a root, so that an event can be recorded at once */
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
  CUgraph_st *graph = stream->capture;
  bool joined = true;
  for (CUstream_st *other : fake().streams) {
    if (other->capture != graph) continue;
    joined = joined && reaches(stream->last, other->last);
    other->capture = nullptr;
    if (other != stream) other->last = other->before;
  }
  stream->last = stream->before;
  *out = graph;
  return joined ? cudaSuccess : failed(cudaErrorStreamCaptureUnjoined);
}
/* A graph that would run all its nodes at the priority of the stream it is launched on is refused; CUDA makes it so silently. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
  if (graph->high && (flags & cudaGraphInstantiateFlagUseNodePriority) == 0) return failed(cudaErrorInvalidValue);
  *out = new CUgraphExec_st;
  fake().graphs++;
  (*out)->nodes = graph->nodes;
  return cudaSuccess;
}
/* FAKE_LAUNCHES: a file for the number of graphs launched. */
static void note_launch() {
  static int launches = 0;
  const char *path = getenv("FAKE_LAUNCHES");
  FILE *file = path != NULL ? fopen(path, "w") : NULL;
  launches++;
  if (file == NULL) return;
  fprintf(file, "%d\n", launches);
  fclose(file);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  note_launch();
  std::map<Node *, NodeRef> copies;
  NodeRef end = std::make_shared<Node>();
  end->work = [] { return true; };
  for (const NodeRef &node : exec->nodes) { /* in an order of dependence */
    NodeRef copy = std::make_shared<Node>();
    copy->work = node->work;
    for (const NodeRef &before : node->after) copy->after.push_back(copies.at(before.get()));
    if (node->after.empty() && stream->last) copy->after.push_back(stream->last);
    copies[node.get()] = copy;
    end->after.push_back(copy);
    fake().pending.push_back(copy);
  }
  fake().pending.push_back(end);
  stream->last = end;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return delete exec, fake().graphs--, cudaSuccess; }

} /* extern "C" */
