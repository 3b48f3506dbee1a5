/* Owns: attention by cuDNN in a build without cuDNN's header: there is none. Takes the place of cuda_flash.c. */
#include "runtime/cuda/cuda_flash.h"

int cuda_flash_version(const char **why) {
  *why = "this build has none (cudnn.h was missing)";
  return 0;
}

CudaFlash *cuda_flash_open(Arena *arena, const Plan *plan, int device, int compute, bool fast, const char **why) {
  (void)arena, (void)plan, (void)device, (void)compute, (void)fast;
  cuda_flash_version(why);
  return NULL;
}

/* Never called: nothing opens. */
bool cuda_flash_prepare(CudaFlash *flash, int32_t number, const CudaFlashCall *call, const char **why) {
  (void)flash, (void)number, (void)call, (void)why;
  return false;
}
bool cuda_flash_takes_any(const CudaFlash *flash) { return (void)flash, false; }
uint64_t cuda_flash_workspace_bytes(const CudaFlash *flash) { return (void)flash, 0; }
bool cuda_flash_bind(CudaFlash *flash, void *workspace, const char **why) { return (void)flash, (void)workspace, (void)why, false; }
void cuda_flash_list(const CudaFlash *flash, FILE *out) { (void)flash, (void)out; }
bool cuda_flash_takes(const CudaFlash *flash, int32_t number) { return (void)flash, (void)number, false; }
bool cuda_flash_run(CudaFlash *flash, CudaStream stream, int32_t number, Failure *failure) {
  return (void)flash, (void)stream, (void)number, (void)failure, false;
}
void cuda_flash_close(CudaFlash *flash) { (void)flash; }
