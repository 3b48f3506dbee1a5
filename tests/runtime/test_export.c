/* Owns: tests that exporting takes the memory of the largest tensor, and not of the model, and of the sizes of its files. */
#include "testing.h"

#include "runtime/runtime.h"
#include "runtime/files/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 512, COLS = 512, TENSOR_KIB = ROWS * COLS / 256, FEW = 4, MANY = 64 };

/* Freed memory that the sanitizer keeps for a while would count as memory in use. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "quarantine_size_mb=1";
}

static Plan *model_of(Arena *arena, uint32_t matrices) {
  Plan *plan = plan_new(arena);
  for (uint32_t i = 0; i < matrices; i++) {
    PlanParam *param = vec_add(arena, &plan->params);
    *param = (PlanParam){.rank = 2, .dim = {ROWS, COLS}};
    param->name = plan_intern(arena, plan, arena_printf(arena, "h.%02u.mlp.c_fc.weight", i));
  }
  return plan;
}

/* All zeros, and holes on disk. */
static const char *weights_of_zeros(Scratch *scratch, const Plan *plan) {
  uint32_t count = plan->params.count;
  SafeTensor *tensors = ARENA_ARRAY(scratch->arena, SafeTensor, count);
  uint64_t header_bytes;
  for (uint32_t i = 0; i < count; i++)
    tensors[i] = (SafeTensor){.name = plan_str(plan, plan->params.data[i].name),
                              .rank = 2,
                              .numel = ROWS * COLS,
                              .dim = {ROWS, COLS}};
  const char *header = safetensors_layout(scratch->arena, tensors, count, &header_bytes);
  const char *path = scratch_file(scratch, "zeros.safetensors", header, header_bytes);
  assert_int_equal(truncate(path, (off_t)(header_bytes + tensors[count - 1].end)), 0);
  return path;
}

static long peak_kib(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/* By how much a process grows that exports so many matrices, in KiB. */
static long growth_kib(Scratch *scratch, uint32_t matrices) {
  Plan *plan = model_of(scratch->arena, matrices);
  ExportOptions options = {
      .weights = weights_of_zeros(scratch, plan), .dir = scratch_path(scratch, "hf"), .dtype = DTYPE_BF16};
  int ends[2];
  long growth = -1;
  assert_int_equal(pipe(ends), 0);
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    long before = peak_kib();
    int code = runtime_export(plan, &options);
    growth = code == RUN_OK ? peak_kib() - before : -1;
    _exit(write(ends[1], &growth, sizeof growth) == sizeof growth ? 0 : 1);
  }
  assert_int_equal(read(ends[0], &growth, sizeof growth), sizeof growth);
  close(ends[0]);
  close(ends[1]);
  waitpid(child, NULL, 0);
  scratch_remove(scratch, "hf");
  return growth;
}

static void one_tensor_is_in_memory_at_a_time(void **state) {
  long few = growth_kib(*state, FEW), many = growth_kib(*state, MANY);
  print_message("%d matrices: %ld KiB, %d: %ld KiB\n", FEW, few, MANY, many);
  assert_true(few >= TENSOR_KIB && many >= TENSOR_KIB); /* or it is not memory that is measured */
  assert_true(many < few + 4 * TENSOR_KIB);
}

/* Four matrices in as many files as hold at most so many bytes of tensors, and the index of those. */
static void expect_files(Scratch *scratch, uint64_t max_bytes, uint32_t files) {
  Plan *plan = model_of(scratch->arena, FEW);
  ExportOptions options = {.weights = weights_of_zeros(scratch, plan), .dir = scratch_path(scratch, "hf"), .dtype = DTYPE_BF16, .max_bytes = max_bytes};
  assert_int_equal(runtime_export(plan, &options), RUN_OK);
  assert_int_equal(folder_entries(options.dir), files > 1 ? files + 1 : files);
  scratch_remove(scratch, "hf");
}

static void files_are_as_large_as_they_may_be(void **state) {
  const uint64_t tensor = ROWS * COLS * 2;
  expect_files(*state, 0, 1);
  expect_files(*state, FEW * tensor, 1);
  expect_files(*state, 2 * tensor, 2);
  expect_files(*state, 2 * tensor - 1, FEW);
  expect_files(*state, 1, FEW); /* a tensor is not cut */
}

int main(void) {
  const struct CMUnitTest tests[] = {SCRATCH_TEST(one_tensor_is_in_memory_at_a_time), SCRATCH_TEST(files_are_as_large_as_they_may_be)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
