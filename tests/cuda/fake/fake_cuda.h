/* Owns: what the fakes of libraries ask of the fake CUDA runtime. */
#ifndef FSDPC_TESTS_CUDA_FAKE_FAKE_CUDA_H
#define FSDPC_TESTS_CUDA_FAKE_FAKE_CUDA_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Queues call(copy of arg) on a stream. */
void fake_cuda_enqueue(void *stream, void (*call)(void *), const void *arg, size_t bytes);
/* The work that runs takes so long, and events tell the time by nothing else from then on. */
void fake_cuda_spend(double ms);
#ifdef __cplusplus
}

#include <functional>
/* Queues work that is tried until it returns true. */
void fake_cuda_try(void *stream, std::function<bool()> work);
/* Whether what is queued now goes into a graph. */
bool fake_cuda_captures(void *stream);
/* Graphs that could be launched. */
int fake_cuda_graphs();
#endif

#endif
