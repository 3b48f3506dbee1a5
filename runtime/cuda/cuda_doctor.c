/* Owns: looking at the CUDA side of a machine: driver, GPUs, libraries. */
#include "runtime/cuda/cuda_doctor.h"

#include "runtime/cuda/cuda_flash.h"
#include "runtime/cuda/cuda_libs.h"
#include "runtime/environment.h"

#include <cuda_runtime_api.h>
#include <string.h>

typedef struct Findings {
  Arena *arena;
  CudaFinding *out;
  int count;
} Findings;

static void add(Findings *f, const char *name, const char *value, const char *help) {
  if (f->count < CUDA_FINDINGS) f->out[f->count++] = (CudaFinding){name, value, help};
}

static const char *version(Findings *f, int number, int major, int minor) {
  return arena_printf(f->arena, "%d.%d", number / major, number % major / minor);
}

/* False: there is no GPU to list. */
static bool find_driver(Findings *f) {
  int driver = 0, devices = 0;
  cudaDriverGetVersion(&driver);
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (driver == 0) {
    add(f, "CUDA driver", "missing", "install the NVIDIA driver (it brings libcuda.so.1); runs on CPUs need none");
    return false;
  }
  add(f, "CUDA driver", arena_printf(f->arena, "for CUDA %s", version(f, driver, 1000, 10)), NULL);
  if (error == cudaSuccess && devices > 0) return true;
  add(f, "GPU", arena_printf(f->arena, "none usable: %s", cudaGetErrorString(error)),
      error == cudaErrorInsufficientDriver ? "this build needs a newer driver"
                                           : "see nvidia-smi; CUDA_VISIBLE_DEVICES may hide GPUs");
  return false;
}

static void find_devices(Findings *f) {
  int devices = 0;
  if (!find_driver(f) || cudaGetDeviceCount(&devices) != cudaSuccess) return;
  for (int i = 0; i < devices; i++) {
    struct cudaDeviceProp device;
    if (cudaGetDeviceProperties(&device, i) != cudaSuccess) continue;
    add(f, arena_printf(f->arena, "GPU %d", i),
        arena_printf(f->arena, "%s, compute %d.%d, %.1f GiB", device.name, device.major, device.minor,
                     (double)device.totalGlobalMem / (1u << 30)),
        device.major < 8 ? "kernels are compiled for compute 8.0 and later" : NULL);
  }
}

static void find_cudnn(Findings *f) {
  const char *why;
  bool own = environment_setting(SETTING_FSDPC_CUDA_ATTENTION) == CUDA_ATTENTION_OWN;
  int number = cuda_flash_version(&why);
  if (number == 0) add(f, "cuDNN", arena_printf(f->arena, "%s; attention uses own kernels", why), NULL);
  else
    add(f, "cuDNN",
        arena_printf(f->arena, "%s loads; attention %s", version(f, number, 10000, 100),
                     own ? "uses own kernels, as FSDPC_CUDA_ATTENTION says" : "of bf16 and f16 uses it where it has a kernel"),
        NULL);
}

int cuda_findings(Arena *arena, CudaFinding out[CUDA_FINDINGS]) {
  Findings f = {arena, out, 0};
  CudaLibs libs = {0};
  Failure failure = {0};
  int number = 0;
  find_devices(&f);
  add(&f, "CUDA runtime", arena_printf(arena, "%s, linked in", version(&f, CUDART_VERSION, 1000, 10)), NULL);
  if (cuda_libs_cublaslt(&libs, &failure))
    add(&f, "cuBLASLt", arena_printf(arena, "%s loads", version(&f, (int)libs.cublasLtGetVersion(), 10000, 100)), NULL);
  else add(&f, "cuBLASLt", "missing", failure.text);
  failure = (Failure){0};
  if (cuda_libs_nccl(&libs, &failure) && libs.ncclGetVersion(&number) == ncclSuccess)
    add(&f, "NCCL", arena_printf(arena, "%d.%d.%d loads", number / 10000, number % 10000 / 100, number % 100), NULL);
  else add(&f, "NCCL", "missing", failure.text);
  find_cudnn(&f);
  return f.count;
}
