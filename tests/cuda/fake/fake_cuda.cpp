/* Owns: a CUDA runtime on the CPU, for running the CUDA backend in tests: the functions that runtime/ calls, with streams,
 * events and graphs that behave as CUDA's may behave at worst. Work is only recorded; when something is waited for, all
 * that was recorded runs, in a random order that streams and events allow. So a missing event shows as a wrong result, and
 * a value that a graph should read anew and does not shows as a stale one. What CUDA forbids is an error here too: calls that
 * wait or allocate while a graph is captured. What it would do silently wrong ends the program: a device taken before a fork, or used
 * by a thread that has chosen none. This file has the work; fake_memory.cpp and fake_streams.cpp what CUDA calls its functions. */
#include "tests/cuda/fake/fake_work.h"

#include "tests/cuda/fake/fake_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

namespace {

thread_local bool device_chosen = false;

bool capturing() {
  for (const CUstream_st *stream : fake().streams)
    if (stream->capture != nullptr) return true;
  return false;
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

bool ready(const Node &node) {
  for (const NodeRef &before : node.after)
    if (!before->done) return false;
  return true;
}

double now_ms() {
  if (fake().spent_ms >= 0) return fake().spent_ms;
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

} // namespace

void fake_die(const char *what) {
  fprintf(stderr, "fake cuda: %s\n", what);
  abort();
}

Fake &fake() {
  static Fake state;
  if (state.process != getpid()) fake_die("a process uses CUDA whose parent had used it before the fork");
  return state;
}

cudaError_t failed(cudaError_t error) { return fake().last = error; }

void choose_device() { device_chosen = true; }

void need_device() {
  if (!device_chosen) fake_die("a thread uses a device that has chosen none");
}

cudaError_t allowed() {
  need_device();
  return capturing() ? failed(cudaErrorStreamCaptureUnsupported) : cudaSuccess;
}

void add_work(CUstream_st *stream, std::function<void()> work, NodeRef also) {
  add_trying(stream, [=] { return work(), true; }, also);
}

bool run_most(int patience) {
  std::vector<NodeRef> &pending = fake().pending;
  for (int idle = 0; !pending.empty();) {
    size_t start = (fake().random = fake().random * 6364136223846793005u + 1442695040888963407u) >> 33, n = pending.size();
    size_t i = 0;
    while (i < n && !(ready(*pending[(start + i) % n]) && pending[(start + i) % n]->work())) i++;
    if (i == n) {
      usleep(100); /* another process may be behind */
      if (++idle < patience) continue;
      return false;
    }
    idle = 0;
    NodeRef node = pending[(start + i) % n];
    pending.erase(pending.begin() + (ptrdiff_t)((start + i) % n));
    node->done = true;
    node->at = now_ms();
    node->after.clear();
    node->work = nullptr;
  }
  return true;
}

void run_all() {
  if (!run_most(300000)) fake_die("work waits for itself");
}

cudaError_t settle() {
  cudaError_t error = allowed();
  if (error == cudaSuccess) run_all();
  return error;
}

/* --- what the shim and the fakes of libraries ask ------------------------------------------------------------------- */

void shim_submit(void *stream, std::function<void()> work); /* of shim.h, whose names clash with CUDA's headers */
void shim_submit(void *stream, std::function<void()> work) { add_work((CUstream_st *)stream, std::move(work)); }

int shim_last_error(); /* instead of the shim's own */
/* FAKE_LAUNCH: the error that launching a kernel ends with. */
int shim_last_error() {
  const char *error = getenv("FAKE_LAUNCH");
  return error != nullptr ? atoi(error) : (int)cudaGetLastError();
}
int fake_cuda_graphs() { return fake().graphs; }
bool fake_cuda_captures(void *stream) { return ((CUstream_st *)stream)->capture != nullptr; }

void fake_cuda_try(void *stream, std::function<bool()> work) { add_trying((CUstream_st *)stream, std::move(work)); }

extern "C" void fake_cuda_spend(double ms) {
  if (fake().spent_ms < 0) fake().spent_ms = 0;
  fake().spent_ms += ms;
}

extern "C" void fake_cuda_enqueue(void *stream, void (*call)(void *), const void *arg, size_t bytes) {
  std::vector<unsigned char> copy((const unsigned char *)arg, (const unsigned char *)arg + bytes);
  add_work((CUstream_st *)stream, [=]() mutable { call(copy.data()); });
}
