/* Owns: cuDNN's attention in the backend: one plan a shape, one variant pack (addresses) a launch, made when the backend
 * opens, so that a step only launches. */
#include "runtime/cuda/cuda_flash.h"

#include "runtime/cuda/cuda_flash_plan.h"
#include "runtime/cuda/cuda_libs.h"
#include "runtime/runtime.h"

#include <math.h>

enum { MOST_PLANS = 64, MOST_TENSORS = 14 };

typedef struct Entry {
  CudaFlashCall call; /* addresses play no part */
  FlashPlan plan;
  bool usable;
  float scale;
} Entry;

typedef struct Launches {
  CudaFlashCall call;
  Entry *entry;                    /* NULL: an own kernel */
  cudnnBackendDescriptor_t *packs; /* of all parts */
  int64_t count;                   /* of packs made */
} Launches;

struct CudaFlash {
  Arena *arena;
  Dnn dnn;
  cudnnHandle_t handle;
  FlashTarget target;
  Entry entries[MOST_PLANS];
  uint32_t entry_count;
  Launches *launches; /* by number */
  uint32_t launch_count;
  float hidden, one;
};

int cuda_flash_version(const char **why) {
  Dnn dnn;
  void *library = cuda_libs_cudnn();
  *why = "missing";
  if (library == NULL) return 0;
  *why = "older than 9.10.2";
  return dnn_load(&dnn, library) ? (int)dnn.cudnnGetVersion() : 0;
}

CudaFlash *cuda_flash_open(Arena *arena, const Plan *plan, int device, int compute, bool fast, const char **why) {
  CudaFlash *flash = ARENA_NEW(arena, CudaFlash);
  if (cuda_flash_version(why) == 0 || !dnn_load(&flash->dnn, cuda_libs_cudnn())) return NULL;
  *why = "it does not take this GPU";
  if (flash->dnn.cudnnCreate(&flash->handle) != CUDNN_STATUS_SUCCESS) return NULL;
  flash->arena = arena;
  flash->launches = ARENA_ARRAY(arena, Launches, plan->instrs.count);
  flash->launch_count = plan->instrs.count;
  flash->hidden = -INFINITY;
  flash->one = 1;
  flash->target = (FlashTarget){dnn_device(&flash->dnn, device), compute, plan->summary.device_bytes, fast};
  if (flash->target.device != NULL) return flash;
  flash->dnn.cudnnDestroy(flash->handle);
  return NULL;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

static bool same_tensor(CudaTensor a, CudaTensor b) { return a.ld == b.ld && a.type == b.type; }

static bool same_shape(const CudaFlashCall *a, const CudaFlashCall *b) {
  const AttentionShape *s = &a->shape, *t = &b->shape;
  return a->backward == b->backward && s->batch == t->batch && s->tq == t->tq && s->tk == t->tk && s->heads == t->heads &&
         s->kv_heads == t->kv_heads && s->head_dim == t->head_dim && s->causal == t->causal && s->scale == t->scale &&
         same_tensor(a->q, b->q) && same_tensor(a->k, b->k) && same_tensor(a->v, b->v) && same_tensor(a->o, b->o) &&
         (!a->backward || (same_tensor(a->d_o, b->d_o) && same_tensor(a->dq, b->dq) && same_tensor(a->dk, b->dk) &&
                           same_tensor(a->dv, b->dv)));
}

static Entry *entry_of(CudaFlash *flash, const CudaFlashCall *call) {
  for (uint32_t i = 0; i < flash->entry_count; i++)
    if (same_shape(&flash->entries[i].call, call)) return &flash->entries[i];
  if (flash->entry_count == MOST_PLANS) return NULL;
  Entry *entry = &flash->entries[flash->entry_count++];
  *entry = (Entry){.call = *call, .scale = (float)call->shape.scale};
  entry->usable = flash_plan(&entry->plan, &flash->dnn, &flash->target, call);
  return entry;
}

bool cuda_flash_prepare(CudaFlash *flash, int32_t number, const CudaFlashCall *call, const char **why) {
  Launches *l = &flash->launches[number];
  *why = "it takes bf16 and f16, heads of 64, 96 or 128, rows on 16 bytes, more than one, and adds to no gradient";
  if (!flash_fits(call)) return false;
  if (!flash_sound(call, &flash->target, flash->dnn.cudnnGetVersion(), why)) return false;
  Entry *entry = entry_of(flash, call);
  *why = entry != NULL ? entry->plan.graph.error : "too many shapes";
  if (entry == NULL || !entry->usable) return false;
  const AttentionShape *part = &entry->plan.part;
  int64_t count = call->shape.batch / part->batch * (call->shape.heads / part->heads);
  *l = (Launches){.call = *call, .entry = entry, .packs = ARENA_ARRAY(flash->arena, cudnnBackendDescriptor_t, count)};
  return true;
}

bool cuda_flash_takes_any(const CudaFlash *flash) {
  for (uint32_t i = 0; i < flash->entry_count; i++)
    if (flash->entries[i].usable) return true;
  return false;
}

uint64_t cuda_flash_workspace_bytes(const CudaFlash *flash) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < flash->entry_count; i++) {
    const Entry *entry = &flash->entries[i];
    if (entry->usable && entry->plan.workspace_bytes > most) most = entry->plan.workspace_bytes;
  }
  return most;
}

static void list_entry(const Entry *entry, FILE *out) {
  const AttentionShape *s = &entry->call.shape, *part = &entry->plan.part;
  const DnnEngine *e = &entry->plan.graph.engine;
  fprintf(out, "attention %s %lld x %lld/%lld x %lld x %lld x %lld %s%s:", entry->call.backward ? "backward" : "forward", (long long)s->batch,
          (long long)s->heads, (long long)s->kv_heads, (long long)s->tq, (long long)s->tk, (long long)s->head_dim,
          entry->call.q.type == CUDA_BF16 ? "bf16" : "f16", s->causal ? ", causal" : "");
  if (!entry->usable) {
    fprintf(out, " own kernels, for cuDNN: %s\n", entry->plan.graph.error);
    return;
  }
  fprintf(out, " %lld x %lld at a time, cuDNN's engine %lld", (long long)part->batch, (long long)part->heads, (long long)e->number);
  for (int i = 0; i < e->knob_count; i++) fprintf(out, "%s %d=%lld", i == 0 ? ", knobs" : "", (int)e->knobs[i].knob, (long long)e->knobs[i].value);
  fputc('\n', out);
}

void cuda_flash_list(const CudaFlash *flash, FILE *out) {
  for (uint32_t i = 0; i < flash->entry_count; i++) list_entry(&flash->entries[i], out);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Ids and addresses of a graph's tensors. */
typedef struct Binding {
  int64_t ids[MOST_TENSORS];
  void *addresses[MOST_TENSORS];
  int64_t count;
} Binding;

static void bind(Binding *b, FlashId id, void *address) {
  b->ids[b->count] = id;
  b->addresses[b->count++] = address;
}

/* From row `row` and column `col` on; 16-bit elements. */
static void bind_rows(Binding *b, FlashId id, CudaTensor t, int64_t row, int64_t col) {
  bind(b, id, (unsigned char *)t.x + (row * t.ld + col) * 2);
}

/* Of the part that begins with this sample and this group of heads. */
static Binding binding_of(CudaFlash *flash, const Launches *l, int64_t sample, int64_t group, unsigned char *workspace) {
  const CudaFlashCall *c = &l->call;
  const AttentionShape *s = &c->shape, *part = &l->entry->plan.part;
  int64_t row = sample * s->tq, key = sample * s->tk, head = group * part->heads, col = head * s->head_dim;
  int64_t key_col = group * part->kv_heads * s->head_dim;
  Binding b = {.count = 0};
  bind_rows(&b, FLASH_Q, c->q, row, col);
  bind_rows(&b, FLASH_K, c->k, key, key_col);
  bind_rows(&b, FLASH_V, c->v, key, key_col);
  bind_rows(&b, FLASH_O, c->o, row, col);
  bind(&b, FLASH_LSE, c->lse + (sample * s->heads + head) * s->tq);
  bind(&b, FLASH_SCALE, &l->entry->scale);
  if (s->causal) bind(&b, FLASH_HIDDEN, &flash->hidden);
  if (!c->backward) return b;
  bind(&b, FLASH_ONE, &flash->one);
  bind(&b, FLASH_DELTA, workspace + l->entry->plan.delta_at);
  if (flash->target.fast) bind(&b, FLASH_DQ_SUMS, workspace + l->entry->plan.sums_at); /* cuDNN clears them, from 9.6 on */
  bind_rows(&b, FLASH_D_O, c->d_o, row, col);
  bind_rows(&b, FLASH_DQ, c->dq, row, col);
  bind_rows(&b, FLASH_DK, c->dk, key, key_col);
  bind_rows(&b, FLASH_DV, c->dv, key, key_col);
  return b;
}

static bool bind_launches(CudaFlash *flash, Launches *l, unsigned char *workspace) {
  const AttentionShape *part = &l->entry->plan.part;
  for (int64_t sample = 0; sample < l->call.shape.batch; sample += part->batch)
    for (int64_t group = 0; group < l->call.shape.heads / part->heads; group++) {
      Binding b = binding_of(flash, l, sample, group, workspace);
      l->packs[l->count] = dnn_bind(&flash->dnn, b.ids, b.addresses, b.count, workspace);
      if (l->packs[l->count] == NULL) return false;
      l->count++;
    }
  return true;
}

bool cuda_flash_bind(CudaFlash *flash, void *workspace, const char **why) {
  *why = "it does not take the addresses of an attention";
  for (uint32_t i = 0; i < flash->launch_count; i++)
    if (flash->launches[i].entry != NULL && !bind_launches(flash, &flash->launches[i], workspace)) return false;
  return true;
}

bool cuda_flash_takes(const CudaFlash *flash, int32_t number) {
  return flash->launches[number].entry != NULL;
}

bool cuda_flash_run(CudaFlash *flash, CudaStream stream, int32_t number, Failure *failure) {
  const Launches *l = &flash->launches[number];
  cudnnStatus_t status = flash->dnn.cudnnSetStream(flash->handle, (cudaStream_t)stream);
  for (int64_t i = 0; i < l->count && status == CUDNN_STATUS_SUCCESS; i++)
    status = flash->dnn.cudnnBackendExecute(flash->handle, l->entry->plan.graph.plan, l->packs[i]);
  if (status == CUDNN_STATUS_SUCCESS) return true;
  char reason[160] = "";
  flash->dnn.cudnnGetLastErrorString(reason, sizeof reason);
  return fail(failure, RUN_INVALID, "cuDNN: the launch failed: %s %s; FSDPC_CUDA_ATTENTION=own uses own kernels",
              flash->dnn.cudnnGetErrorString(status), reason);
}

void cuda_flash_close(CudaFlash *flash) {
  for (uint32_t i = 0; i < flash->launch_count; i++)
    while (flash->launches[i].count > 0)
      flash->dnn.cudnnBackendDestroyDescriptor(flash->launches[i].packs[--flash->launches[i].count]);
  for (uint32_t i = 0; i < flash->entry_count; i++) dnn_destroy(&flash->entries[i].plan.graph);
  flash->dnn.cudnnBackendDestroyDescriptor(flash->target.device);
  flash->dnn.cudnnDestroy(flash->handle);
}
