/* Owns: device memory beside the arena: what a training plan's run on a GPU takes besides what the plan places, by part, for
 * one rank. The CUDA backend allocates by it, `fsdpc plan` says it. Exact where the plan decides; attention at most,
 * since cuDNN may be missing; what CUDA, cuBLASLt, cuDNN and NCCL take for themselves is a stated constant. */
#ifndef FSDPC_RUNTIME_BESIDE_H
#define FSDPC_RUNTIME_BESIDE_H

#include "runtime/shapes.h"

#include <stdbool.h>

#ifndef FSDPC_ATTENTION_MOST /* tests cut tiny attentions */
#define FSDPC_ATTENTION_MOST (576 << 20)
#endif

enum {
  BESIDE_PRODUCTS_BYTES = 32 << 20,     /* cuBLASLt's workspace */
  BESIDE_COLLECTIVE_BYTES = 64 << 20,   /* pieces of sums, of each communicator that adds */
  BESIDE_ATTENTION_MOST = FSDPC_ATTENTION_MOST, /* of a backward pass; one that needs more is cut */
  BESIDE_ATTENTION_GROUP = 2 * FSDPC_ATTENTION_MOST, /* where nothing can be cut: of the heads that share one of keys; on roomy GPUs always */
  BESIDE_ROOMY_GIB = 128, /* GPUs whose cluster files leave that much more */
  BESIDE_LIBRARIES_BYTES = 1 << 30      /* contexts, loaded kernels, NCCL's buffers: assumed. An H200 took 547 to 632 MiB for one rank, without NCCL */
};

typedef struct BesideArena {
  uint64_t products, scratch, attention, collectives, inputs;
} BesideArena;

BesideArena beside_arena(const Plan *plan);
uint64_t beside_total(const BesideArena *beside); /* without the libraries' own */
/* Of the kernel for Hopper: heads of keys in a launch, 0: the shape is not for it. Heads of 64 are its before cuDNN's, which takes twice as long in
 * results that repeat; heads of 128, with which it has not run on a GPU yet, only where own kernels are asked for. */
int64_t hopper_groups(const AttentionShape *shape);
uint64_t hopper_bytes(const AttentionShape *shape); /* its scratch */
bool hopper_leads(const AttentionShape *shape);
/* "products 32.0 MiB, attention 96.2 MiB at most, ..." Into out. */
char *beside_text(const BesideArena *beside, char *out, size_t bytes);

/* What cuDNN's backward pass keeps in its workspace, besides sums of rows and, of heads that share their keys, dk and dv. */
typedef enum {
  FLASH_SCORES,    /* all gradients of scores, in 16 bits */
  FLASH_LEAN,      /* nothing: the engine of compute 10 */
  FLASH_FAST,      /* dq in f32, to which blocks add in any order */
  FLASH_FAST_TWICE /* and, on computes 8 and 12, another one */
} FlashWay;
FlashWay flash_way(int compute /* as 90 */, bool fast);
uint64_t flash_workspace_bytes(const AttentionShape *shape, FlashWay way);
/* The largest part of an attention whose workspace is at most so many bytes: some samples of the batch; or, of one sample, some
 * heads and the heads of keys and values that they share. batch 0: there is none. */
AttentionShape flash_part(const AttentionShape *shape, FlashWay way, uint64_t most);
/* What a backward pass may take, whichever GPU the plan meets, fast or not: the workspace of its largest part that fits where most
 * is needed, or of the smallest, if it may. 0: no part fits anywhere. device_bytes: of the GPU that was planned for, or 0. */
uint64_t flash_most_bytes(const AttentionShape *shape, uint64_t device_bytes);

#endif
