/* Owns: of the fake CUDA runtime streams, events and graphs. What CUDA forbids is an error here too: events that belong to another capture
 * or were never recorded, captures that do not join. */
#include "tests/cuda/fake/fake_work.h"

#include <set>
#include <stdio.h>
#include <stdlib.h>

namespace {

/* seen: from where it is not reached. */
bool reaches(const NodeRef &from, const NodeRef &to, std::set<Node *> *seen) {
  if (from == to) return true;
  if (!seen->insert(from.get()).second) return false;
  for (const NodeRef &before : from->after)
    if (before->capture == from->capture && reaches(before, to, seen)) return true;
  return false;
}

} // namespace

extern "C" {

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
/* Whether as many events have been found ready as the variable says; not set: never. */
static bool reached(const char *variable, int ready) {
  const char *most = getenv(variable);
  return most != NULL && ready >= atoi(most);
}
/* Not ready when first asked, which CUDA takes for an error of the thread. FAKE_STUCK: how many become ready, and no other does.
 * FAKE_FAULT: what follows so many has failed on the device. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
  static int ready = 0;
  if (event->node && event->node->capture != 0) return failed(cudaErrorCapturedEvent);
  if (reached("FAKE_FAULT", ready)) return failed(cudaErrorIllegalAddress);
  if (reached("FAKE_STUCK", ready)) return failed(cudaErrorNotReady);
  if (event->node && !event->node->done && !event->asked) return event->asked = true, failed(cudaErrorNotReady);
  if (allowed() != cudaSuccess) return fake().last;
  if (!run_most(10)) return failed(cudaErrorNotReady); /* a peer is late, or stopped */
  event->asked = false;
  ready++;
  return cudaSuccess;
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
  if (event->node != stream->last) add_work(stream, [] {}, event->node);
  return cudaSuccess;
}

/* --- graphs ---------------------------------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->capture != nullptr) return failed(cudaErrorIllegalState);
  stream->capture = new CUgraph_st{++fake().captures, {}};
  stream->before = stream->last;
  stream->last = nullptr;
  add_work(stream, [] {}); /* a root, so that an event can be recorded at once */
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
  CUgraph_st *graph = stream->capture;
  bool joined = true;
  for (CUstream_st *other : fake().streams) {
    if (other->capture != graph) continue;
    std::set<Node *> seen;
    joined = joined && reaches(stream->last, other->last, &seen);
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
