/* Owns: what the files of the fake CUDA runtime share: work that is recorded, streams, events and graphs of it, and all that exists. */
#ifndef FSDPC_TESTS_CUDA_FAKE_FAKE_WORK_H
#define FSDPC_TESTS_CUDA_FAKE_FAKE_WORK_H

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
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
  double spent_ms = -1; /* by work that says how long it takes; negative: none does, and time is the clock's */
  cudaError_t last = cudaSuccess;
  int graphs = 0; /* that exist */
  int device = 0; /* that was chosen */
  unsigned captures = 0;
  bool late = false; /* opens what others share later than they do */
  pid_t process = getpid();
};

[[noreturn]] void fake_die(const char *what);
Fake &fake();
/* The error, which cudaGetLastError then gives. */
cudaError_t failed(cudaError_t error);

/* The calling thread has chosen a device; it must have, before work or memory is given to one: it would get the first. */
void choose_device();
void need_device();
/* Success, or an error for what waits or allocates, which a thread that captures may not call. */
cudaError_t allowed();

/* Records work behind what the stream holds, and behind `also`. */
void add_work(CUstream_st *stream, std::function<void()> work, NodeRef also = nullptr);
/* Runs everything that was recorded. */
void run_all();
/* False where all that is left has waited for `patience` times 100 us for another process. */
bool run_most(int patience);
/* The same where it is allowed. */
cudaError_t settle();

#endif
