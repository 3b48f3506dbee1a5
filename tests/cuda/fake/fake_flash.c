/* Owns: a stand-in for attention by cuDNN, there when FAKE_CUDNN is set: takes 16-bit attentions that add to no gradient,
 * as cuDNN does, and has the own kernels compute them, with memory that only the workspace can have given. */
#include "runtime/cuda_flash.h"

#include <stdlib.h>

struct CudaFlash {
  CudaFlashCall *calls; /* by number; batch 0: not taken */
  uint32_t count;
  void *workspace;
};

int cuda_flash_version(const char **why) {
  *why = "missing";
  return getenv("FAKE_CUDNN") != NULL ? 91900 : 0;
}

CudaFlash *cuda_flash_open(Arena *arena, uint32_t calls, int device, const char **why) {
  (void)device;
  if (cuda_flash_version(why) == 0) return NULL;
  CudaFlash *flash = ARENA_NEW(arena, CudaFlash);
  *flash = (CudaFlash){ARENA_ARRAY(arena, CudaFlashCall, calls), calls, NULL};
  return flash;
}

bool cuda_flash_prepare(CudaFlash *flash, int32_t number, const CudaFlashCall *call, const char **why) {
  *why = "it takes bf16 and f16";
  if (call->q.type == CUDA_F32 || (call->backward && (call->dq.add || call->dk.add || call->dv.add))) return false;
  flash->calls[number] = *call;
  return true;
}

uint64_t cuda_flash_workspace_bytes(const CudaFlash *flash) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < flash->count; i++) {
    uint64_t bytes = flash->calls[i].shape.batch == 0 ? 0 : 256 + cuda_attention_scratch(&flash->calls[i].shape);
    if (bytes > most) most = bytes;
  }
  return most;
}

bool cuda_flash_bind(CudaFlash *flash, void *workspace, const char **why) {
  (void)why;
  flash->workspace = workspace;
  return true;
}

bool cuda_flash_takes(const CudaFlash *flash, int32_t number) { return flash->calls[number].shape.batch != 0; }

bool cuda_flash_run(CudaFlash *flash, CudaStream stream, int32_t number) {
  const CudaFlashCall *c = &flash->calls[number];
  if (flash->workspace == NULL) return false;
  if (!c->backward) return cuda_attention_fwd(stream, &c->shape, c->q, c->k, c->v, c->o, c->lse) == 0;
  return cuda_attention_bwd(stream, &c->shape, c->q, c->k, c->v, c->o, c->lse, c->d_o, c->dq, c->dk, c->dv,
                            flash->workspace) == 0;
}

void cuda_flash_close(CudaFlash *flash) { flash->workspace = NULL; }
