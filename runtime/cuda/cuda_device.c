/* Owns: which GPU a rank takes, whether other ranks have it too, and whether the run fits it. */
#include "runtime/cuda/cuda_state.h"

#include "base/hash.h"
#include "base/text.h"
#include "runtime/beside.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>

/* Ranks of lower number on this host. */
static uint32_t place_on_host(const CudaBackendConfig *config) {
  uint32_t place = 0;
  for (uint32_t r = 0; r < config->host->rank; r++) place += config->exchange[r] != NULL;
  return place;
}

/* One GPU a rank where there are enough; else ranks share them. Kernels are loaded as they are first used, in the first step, before
 * any graph. Loading may wait for all that runs on the device, collectives included: these wait only for what comes before them in
 * the plan's list, which every rank issues in the same order, so some rank can always go on. */
static bool choose_device(CudaBackend *cuda, struct cudaDeviceProp *device, Failure *failure) {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0)
    return fail(failure, RUN_INVALID, "backend \"cuda\": no usable GPU: %s; `fsdpc doctor` says what this machine has",
                error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
  cuda->device = (int)(place_on_host(&cuda->config) % (uint32_t)devices);
  error = cudaSetDevice(cuda->device);
  if (error == cudaErrorDevicesUnavailable)
    return fail(failure, RUN_INVALID, "cuda: GPU %d is busy or unavailable; where its compute mode lets one process have it, or none, `nvidia-smi -c DEFAULT` lets several",
                cuda->device);
  if (!cuda_ok((int)error, "choosing a GPU", failure) ||
      !cuda_ok((int)cudaGetDeviceProperties(device, cuda->device), "asking a GPU what it is", failure))
    return false;
  snprintf(cuda->gpu, sizeof cuda->gpu, "%s", device->name);
  cuda->multiprocessors = device->multiProcessorCount;
  snprintf(cuda->device_name, sizeof cuda->device_name, "%s, compute %d.%d", device->name, device->major, device->minor);
  cuda->compute = 10 * device->major + device->minor;
  if (device->major >= 8) return true;
  return fail(failure, RUN_INVALID, "backend \"cuda\": GPU %d (%s) is too old: compute 8.0 is needed", cuda->device,
              cuda->device_name);
}

/* The same for one device wherever it is seen from, whatever CUDA_VISIBLE_DEVICES calls it; another for each device. */
static uint64_t identity(const struct cudaDeviceProp *device) {
  return hash_bytes(HASH_START, device->uuid.bytes, sizeof device->uuid.bytes);
}

static int by_value(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* Tells every rank which GPU this one has. */
static bool count_sharers(CudaBackend *cuda, Arena *arena, uint64_t own, Failure *failure) {
  Comm *host = cuda->config.host;
  uint64_t *all = ARENA_ARRAY(arena, uint64_t, host->ranks);
  cuda->sharers = 1, cuda->own_gpus = true;
  if (host->ranks == 1) return true;
  if (host->share(host, own, all) != COMM_OK) return fail(failure, RUN_PEER_FAILED, "another rank failed");
  cuda->sharers = 0;
  for (uint32_t r = 0; r < host->ranks; r++) cuda->sharers += all[r] == own;
  qsort(all, host->ranks, sizeof *all, by_value);
  for (uint32_t r = 1; r < host->ranks; r++) cuda->own_gpus = cuda->own_gpus && all[r] != all[r - 1];
  return true;
}

/* free: before any rank took memory for its arena. */
static bool check_room(const CudaBackend *cuda, uint64_t free, Failure *failure) {
  BesideArena beside = beside_arena(cuda->config.plan);
  uint64_t arena = cuda->config.plan->arena_bytes, more = beside_total(&beside), ranks = cuda->sharers;
  char sizes[4][32], each[64] = "";
  if ((arena + more) <= free / ranks) return true;
  if (ranks > 1) snprintf(each, sizeof each, " for each of the %u ranks that share it", cuda->sharers);
  return fail(failure, RUN_NO_FIT,
              "cuda: GPU %d (%s) has %s free, and this run takes %s%s: the arena's %s and %s beside it; plan with a smaller "
              "--memory, or use an emptier GPU",
              cuda->device, cuda->device_name, text_bytes(sizes[0], free), text_bytes(sizes[1], arena + more), each,
              text_bytes(sizes[2], arena), text_bytes(sizes[3], more));
}

bool cuda_device_open(CudaBackend *cuda, Arena *arena, Failure *failure) {
  struct cudaDeviceProp device;
  size_t free = 0, total = 0;
  if (!choose_device(cuda, &device, failure) ||
      !cuda_ok((int)cudaMemGetInfo(&free, &total), "asking a GPU for its free memory", failure))
    return false;
  return count_sharers(cuda, arena, identity(&device), failure) && check_room(cuda, free, failure);
}
