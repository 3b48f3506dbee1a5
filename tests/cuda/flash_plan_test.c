/* Owns: what cuDNN says of attention's graphs without a GPU: they get plans with the workspaces that
 * docs/gpu-results.md states. Nothing is executed. Exit code 77 where cuDNN is missing. */
#include "runtime/beside.h"
#include "runtime/cuda/cuda_flash_plan.h"
#include "runtime/cuda/cuda_libs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* after those */
#include <cmocka.h>

enum { SKIPPED = 77, SLACK = 1024 /* bytes of a workspace that follow no formula */ };

static Dnn dnn;

/* NVIDIA's data sheets and the CUDA programming guide's tables of compute capabilities; names, clocks and memory play no part
 * here. */
typedef struct Device {
  int compute, processors, shared_bytes, threads, l2_bytes;
} Device;
static const Device h200 = {90, 132, 232448, 2048, 62914560}, b200 = {100, 148, 232448, 2048, 132644864},
                    a100 = {80, 108, 166912, 2048, 41943040}, rtx4090 = {89, 128, 101376, 1536, 75497472},
                    rtx5090 = {120, 170, 101376, 1536, 100663296};

static cudnnBackendDescriptor_t described(const Device *d) {
  char text[1024];
  snprintf(text, sizeof text,
           "{\"deviceName\":\"described\",\"deviceVer\":%d,\"driverVer\":13000,\"cudaDeviceId\":0,\"pciDeviceId\":0,"
           "\"multiProcessorCount\":%d,\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
           "\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
           "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,"
           "\"maxThreadsPerSM\":%d,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150754820096,"
           "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":%d}",
           10 * d->compute, d->processors, d->shared_bytes, d->threads, d->l2_bytes);
  return dnn_device_described(&dnn, text);
}

/* q, k and v side by side in one buffer, as our models have them. */
static CudaFlashCall call_of(int64_t batch, int64_t heads, int64_t kv_heads, int64_t t, int64_t head_dim, bool causal, int type,
                             bool backward) {
  static _Alignas(16) unsigned char somewhere[16];
  CudaTensor packed = {somewhere, (heads + 2 * kv_heads) * head_dim, type, 0}, own = {somewhere, heads * head_dim, type, 0};
  return (CudaFlashCall){.shape = {.batch = batch, .tq = t, .tk = t, .heads = heads, .kv_heads = kv_heads,
                                   .head_dim = head_dim, .causal = causal, .scale = 0.125},
                         .backward = backward,
                         .q = packed, .k = packed, .v = packed, .o = own, .d_o = own, .dq = packed, .dk = packed, .dv = packed};
}

static FlashPlan planned_for(const Device *device, uint64_t bytes, bool fast, const CudaFlashCall *call, bool *ok) {
  FlashPlan plan = {.workspace_bytes = 0};
  FlashTarget target = {described(device), device->compute, bytes, fast};
  assert_non_null(target.device);
  *ok = flash_fits(call) && flash_plan(&plan, &dnn, &target, call);
  if (*ok) assert_in_range(plan.graph.engine.number, 0, 99); /* it can be told which one */
  if (*ok) dnn_destroy(&plan.graph); /* what is checked are numbers */
  dnn.cudnnBackendDestroyDescriptor(target.device);
  return plan;
}

static FlashPlan planned(const CudaFlashCall *call, bool *ok) { return planned_for(&h200, 0, false, call, ok); }

static void check(CudaFlashCall forward, CudaFlashCall backward, int64_t samples, int64_t heads) {
  bool ok;
  FlashPlan plan = planned(&forward, &ok);
  if (!ok) fail_msg("forward: %s", plan.graph.error);
  assert_int_equal(plan.part.batch, forward.shape.batch);
  assert_int_equal(plan.part.heads, forward.shape.heads);
  assert_in_range(plan.workspace_bytes, 0, SLACK);
  plan = planned(&backward, &ok);
  if (!ok) fail_msg("backward: %s", plan.graph.error);
  assert_int_equal(plan.part.batch, samples);
  assert_int_equal(plan.part.heads, heads);
  assert_int_equal(plan.part.kv_heads * backward.shape.heads, backward.shape.kv_heads * heads);
  uint64_t expected = flash_workspace_bytes(&plan.part, FLASH_SCORES);
  assert_in_range(plan.workspace_bytes, expected - SLACK, expected);
}
#define CHECK(batch, heads, kv, t, dim, causal, type, samples, part_heads)                                   \
  check(call_of(batch, heads, kv, t, dim, causal, type, false), call_of(batch, heads, kv, t, dim, causal, type, true), samples, part_heads)

static void gpt_has_plans(void **state) {
  (void)state;
  CHECK(4, 12, 12, 1024, 64, true, CUDA_BF16, 4, 12);
}

static void grouped_queries_have_plans_and_are_cut_along_the_batch(void **state) {
  (void)state;
  CHECK(8, 32, 8, 2048, 128, true, CUDA_BF16, 1, 32);
}

static void heads_of_96_without_a_mask_in_f16_have_plans(void **state) {
  (void)state;
  CHECK(2, 8, 8, 512, 96, false, CUDA_F16, 2, 8);
}

static void lengths_that_are_no_round_number_are_rounded_up(void **state) {
  (void)state;
  CHECK(2, 8, 8, 1000, 96, true, CUDA_BF16, 2, 8);
}

static void long_samples_are_cut_along_the_heads(void **state) {
  (void)state;
  CHECK(1, 32, 8, 8192, 128, true, CUDA_BF16, 1, 4);
}

/* As llama3.2-1b has them on an H200. */
static void roomy_devices_compute_more_heads_at_a_time(void **state) {
  (void)state;
  bool ok;
  CudaFlashCall call = call_of(8, 32, 8, 8192, 64, true, CUDA_BF16, true);
  FlashPlan plan = planned_for(&h200, UINT64_C(139) << 30, false, &call, &ok);
  assert_true(ok);
  assert_int_equal(plan.part.batch, 1);
  assert_int_equal(plan.part.heads, 8);
  uint64_t stated = flash_most_bytes(&call.shape, UINT64_C(139) << 30);
  assert_in_range(plan.workspace_bytes, stated - SLACK, stated);
  assert_in_range(stated, BESIDE_ATTENTION_MOST, 2 * BESIDE_ATTENTION_MOST);
  assert_in_range(flash_most_bytes(&call.shape, UINT64_C(79) << 30), 0, BESIDE_ATTENTION_MOST);
}

/* As llama3-70b has them: eight heads share one of keys, and cannot be cut. */
static void groups_that_are_too_large_to_cut_have_plans(void **state) {
  (void)state;
  CHECK(1, 64, 8, 8192, 128, true, CUDA_BF16, 1, 8);
}

/* samples, heads: at a time */
static void expect_plan(const Device *device, const CudaFlashCall *call, int64_t samples, int64_t heads) {
  bool ok;
  FlashPlan plan = planned_for(device, 0, false, call, &ok);
  if (!ok) fail_msg("compute %d, %s: %s", device->compute, call->backward ? "backward" : "forward", plan.graph.error);
  assert_int_equal(plan.part.batch, samples);
  assert_int_equal(plan.part.heads, heads);
  uint64_t expected = call->backward ? flash_workspace_bytes(&plan.part, flash_way(device->compute, false)) : SLACK;
  assert_in_range(plan.workspace_bytes, call->backward ? expected - expected / 64 : 0, expected);
  if (call->backward) assert_in_range(plan.workspace_bytes, 0, flash_most_bytes(&call->shape, 0));
}

static void other_devices_have_plans_in_the_memory_that_is_stated(void **state) {
  const Device *const devices[] = {&a100, &rtx4090, &rtx5090};
  (void)state;
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
    for (int backward = 0; backward < 2; backward++) {
      CudaFlashCall gpt = call_of(4, 12, 12, 1024, 64, true, CUDA_BF16, backward);
      CudaFlashCall llama = call_of(2, 32, 8, 2048, 128, true, CUDA_BF16, backward);
      expect_plan(devices[i], &gpt, 4, 12);
      expect_plan(devices[i], &llama, backward ? 1 : 2, 32);
    }
}

/* By the engine that NVIDIA's front end names, which keeps no scores. */
static void compute_10_cuts_less_in_the_same_memory(void **state) {
  (void)state;
  CudaFlashCall gpt = call_of(4, 12, 12, 1024, 64, true, CUDA_BF16, true);
  CudaFlashCall llama = call_of(8, 32, 8, 2048, 128, true, CUDA_BF16, true);
  CudaFlashCall longer = call_of(1, 32, 8, 16384, 128, true, CUDA_BF16, true); /* too long for the others */
  expect_plan(&b200, &gpt, 4, 12);
  expect_plan(&b200, &llama, 4, 32);
  expect_plan(&b200, &longer, 1, 32);
}

/* No scores anywhere, so that longer samples are computed too. */
static void fast_backward_passes_take_the_memory_that_is_stated(void **state) {
  const CudaFlashCall gpt = call_of(4, 12, 12, 1024, 64, true, CUDA_BF16, true), long_llama = call_of(1, 32, 8, 16384, 128, true, CUDA_BF16, true),
                      odd = call_of(2, 16, 4, 1000, 96, false, CUDA_F16, true);
  const struct {
    const Device *device;
    const CudaFlashCall *call;
  } rows[] = {{&h200, &gpt}, {&h200, &long_llama}, {&h200, &odd}, {&b200, &long_llama}, {&a100, &odd}};
  (void)state;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool ok;
    int compute = rows[i].device->compute;
    FlashPlan plan = planned_for(rows[i].device, 0, true, rows[i].call, &ok);
    if (!ok) fail_msg("row %zu, compute %d: %s", i, compute, plan.graph.error);
    uint64_t expected = flash_workspace_bytes(&plan.part, flash_way(compute, true));
    assert_in_range(plan.workspace_bytes, expected - SLACK, expected);
    assert_in_range(plan.workspace_bytes, 0, flash_most_bytes(&rows[i].call->shape, 0));
  }
}

static void versions_that_are_known_to_be_wrong_are_left_alone(void **state) {
  (void)state;
  static const struct {
    size_t version;
    int compute;
    int64_t t;
    bool causal, sound;
  } rows[] = {{91900, 90, 1000, true, true},   {91002, 90, 1024, true, true},   {91500, 90, 1000, true, false}, {91501, 90, 1000, true, true},
              {91800, 100, 1024, true, false}, {91801, 100, 1024, true, true},  {91900, 103, 1024, true, true}, {92300, 100, 1024, true, true},
              {91900, 107, 1024, true, false}, {91900, 120, 1024, true, true},  {91900, 90, 192, false, false}, {91900, 90, 192, true, true},
              {91900, 90, 256, false, true},   {91900, 80, 192, false, true},   {92501, 90, 64, false, false},  {92600, 90, 64, false, true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int backward = 0; backward < 2; backward++) {
      const char *why;
      CudaFlashCall call = call_of(1, 2, 2, rows[i].t, 64, rows[i].causal, CUDA_BF16, backward);
      FlashTarget target = {.compute = rows[i].compute};
      if (flash_sound(&call, &target, rows[i].version, &why) != (!backward || rows[i].sound))
        fail_msg("row %zu, version %zu, compute %d, %s: not as expected", i, rows[i].version, rows[i].compute, backward ? "backward" : "forward");
    }
}

static void heads_that_need_too_much_are_refused(void **state) {
  (void)state;
  bool ok;
  CudaFlashCall call = call_of(1, 32, 8, 16384, 128, true, CUDA_BF16, true);
  FlashPlan plan = planned(&call, &ok);
  assert_false(ok);
  assert_string_equal(plan.graph.error, "it needs a workspace of more than 1152 MiB for one head of keys");
}

static void what_cudnn_would_compute_otherwise_is_left_to_own_kernels(void **state) {
  (void)state;
  CudaFlashCall good = call_of(1, 2, 2, 64, 64, true, CUDA_BF16, true), call = good;
  assert_true(flash_fits(&call));
  call.dk.add = 1;
  assert_false(flash_fits(&call));
  call = good, call.shape.tk = 128;
  assert_false(flash_fits(&call));
  call = good, call.shape.tq = call.shape.tk = 1;
  assert_false(flash_fits(&call));
  call = good, call.q.ld = 100;
  assert_false(flash_fits(&call));
  call = good, call.v.x = (unsigned char *)call.v.x + 2;
  assert_false(flash_fits(&call));
  call = call_of(1, 2, 2, 64, 80, true, CUDA_BF16, true);
  assert_false(flash_fits(&call));
  call = call_of(1, 2, 2, 64, 64, true, CUDA_F32, true);
  assert_false(flash_fits(&call));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt_has_plans),
      cmocka_unit_test(grouped_queries_have_plans_and_are_cut_along_the_batch),
      cmocka_unit_test(heads_of_96_without_a_mask_in_f16_have_plans),
      cmocka_unit_test(lengths_that_are_no_round_number_are_rounded_up),
      cmocka_unit_test(long_samples_are_cut_along_the_heads),
      cmocka_unit_test(roomy_devices_compute_more_heads_at_a_time),
      cmocka_unit_test(groups_that_are_too_large_to_cut_have_plans),
      cmocka_unit_test(other_devices_have_plans_in_the_memory_that_is_stated),
      cmocka_unit_test(compute_10_cuts_less_in_the_same_memory),
      cmocka_unit_test(fast_backward_passes_take_the_memory_that_is_stated),
      cmocka_unit_test(versions_that_are_known_to_be_wrong_are_left_alone),
      cmocka_unit_test(heads_that_need_too_much_are_refused),
      cmocka_unit_test(what_cudnn_would_compute_otherwise_is_left_to_own_kernels),
  };
  void *library = cuda_libs_cudnn();
  if (library == NULL || !dnn_load(&dnn, library)) {
    puts("cuDNN 9.10.2 or later does not load here: skipped");
    return SKIPPED;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
