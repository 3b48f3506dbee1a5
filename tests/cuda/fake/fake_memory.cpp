/* Owns: of the fake CUDA runtime devices and memory. Device memory starts as NaN, and is shared between processes by file descriptor,
 * as CUDA's is by interprocess handle. */
#include "tests/cuda/fake/fake_work.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace {

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

/* FAKE_LATE: those that were started earlier than a memory's owner open it half a second later, or as soon as it was freed; the others
 * take long to free. */
void be_late(const Handle &handle, const char *path) {
  fake().late = fake().late || (getenv("FAKE_LATE") != NULL && getpid() < handle.pid);
  for (int i = 0; fake().late && access(path, F_OK) == 0 && i < 50000; i++) usleep(10);
}

} // namespace

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
  fake().device = device;
  return choose_device(), cudaSuccess;
}
/* FAKE_GPU_NAME: what it is called. FAKE_COMPUTE: its capability, as 90, which it is otherwise. */
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  memset(prop, 0, sizeof *prop);
  const char *name = getenv("FAKE_GPU_NAME"), *compute = getenv("FAKE_COMPUTE");
  snprintf(prop->name, sizeof prop->name, "%s", name ? name : "fake GPU");
  prop->multiProcessorCount = 4;
  prop->major = compute ? atoi(compute) / 10 : 9;
  prop->minor = compute ? atoi(compute) % 10 : 0;
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

/* FAKE_CROWDED: the bytes that the second GPU has left once somebody else has taken of it. */
static bool crowded(size_t bytes) {
  const char *left = getenv("FAKE_CROWDED");
  for (const auto &block : fake().blocks) bytes += block.second.bytes;
  return left != NULL && fake().device == 1 && bytes > strtoull(left, NULL, 10);
}

cudaError_t cudaMalloc(void **to, size_t bytes) {
  if (allowed() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  if (crowded(bytes)) return failed(cudaErrorMemoryAllocation);
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
  if (getenv("FAKE_LATE") != NULL && !fake().late) usleep(100000);
  return cudaSuccess;
}
/* FAKE_PINNED: the most bytes that one call can pin. */
cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned) {
  const char *most = getenv("FAKE_PINNED");
  if (allowed() != cudaSuccess) return cudaErrorStreamCaptureUnsupported;
  *to = most == NULL || bytes <= strtoull(most, NULL, 10) ? malloc(bytes) : NULL;
  if (*to == NULL) return failed(cudaErrorMemoryAllocation);
  return fake().pinned[*to] = bytes, cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
  if (p != NULL && fake().pinned.erase(p) == 0) return failed(cudaErrorInvalidValue);
  return free(p), cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (stream->capture != nullptr && (pageable(to) || pageable(from))) return failed(cudaErrorStreamCaptureUnsupported);
  return add_work(stream, [=] { memcpy(to, from, bytes); }), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  return add_work(stream, [=] { memset(to, value, bytes); }), cudaSuccess;
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
  be_late(handle, path);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return cudaErrorMapBufferObjectFailed;
  *to = map_fd(fd, handle.bytes);
  fake().blocks[*to] = Block{handle.bytes, fd};
  return *to != NULL ? cudaSuccess : cudaErrorMapBufferObjectFailed;
}
cudaError_t cudaIpcCloseMemHandle(void *p) { return cudaFree(p); }

} /* extern "C" */
