/* Owns: tests of the state of loss scaling between steps, against a backend that is one array. */
#include "testing.h"

#include "runtime/runtime.h"
#include "runtime/scaler.h"

#include <string.h>

typedef struct Array {
  Backend backend; /* first */
  double word[SCALER_WORDS];
} Array;

static bool put(Backend *backend, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  Array *array = (Array *)backend;
  assert_int_equal(buf, 7);
  assert_true(first + bytes <= sizeof array->word);
  memcpy((char *)array->word + first, data, bytes);
  return true;
}

static bool get(Backend *backend, int32_t buf, uint64_t first, void *data, uint64_t bytes) {
  Array *array = (Array *)backend;
  assert_int_equal(buf, 7);
  assert_true(first + bytes <= sizeof array->word);
  memcpy(data, (char *)array->word + first, bytes);
  return true;
}

static Array array_of(void) { return (Array){.backend = {.name = "array", .read = get, .write = put}}; }

/* A plan of one instruction, clip_scaled, with its state in buffer 7 and an initial scale of 1024. */
static Plan *plan_of(Arena *arena) {
  Plan *plan = plan_new(arena);
  const double reals[] = {1, 2, 0.5, 1024};
  PlanInstr *instr = vec_add(arena, &plan->instrs);
  *instr = (PlanInstr){.op = INSTR_CLIP_SCALED};
  for (int32_t k = 0; k < 4; k++) {
    vec_push(arena, &plan->operands, ((PlanOperand){.buf = k == 1 ? 7 : 0}));
    vec_push(arena, &plan->reals, reals[k]);
  }
  return plan;
}

static void begins_with_the_plans_scale_or_goes_on(void **state) {
  Arena *arena = arena_new();
  Plan *plan = plan_of(arena);
  Array array = array_of();
  Failure failure = {0};
  Scaler fresh = {{0}}, saved = {{64, 5, 3}};
  (void)state;
  assert_true(scaler_begin(&fresh, plan, &array.backend, &failure));
  assert_true(array.word[SCALER_SCALE] == 1024 && array.word[SCALER_GOOD] == 0 && array.word[SCALER_SKIPPED] == 0);
  assert_true(scaler_begin(&saved, plan, &array.backend, &failure));
  assert_memory_equal(array.word, saved.word, sizeof saved.word);
  arena_free(arena);
}

static void tells_steps_that_were_skipped(void **state) {
  Arena *arena = arena_new();
  Plan *plan = plan_of(arena);
  Array array = array_of();
  Failure failure = {0};
  Scaler scaler = {{0}};
  bool skipped;
  double used;
  (void)state;
  assert_true(scaler_begin(&scaler, plan, &array.backend, &failure));
  array.word[SCALER_SCALE] = 512, array.word[SCALER_SKIPPED] = 1;
  assert_true(scaler_end(&scaler, plan, &array.backend, &skipped, &used, &failure));
  assert_true(skipped && used == 1024);
  array.word[SCALER_GOOD] = 1;
  assert_true(scaler_end(&scaler, plan, &array.backend, &skipped, &used, &failure));
  assert_true(!skipped && used == 512);
  arena_free(arena);
}

static void gives_up_where_any_scale_overflows(void **state) {
  Arena *arena = arena_new();
  Plan *plan = plan_of(arena);
  Array array = array_of();
  Failure failure = {0};
  Scaler scaler = {{0x1p-20, 0, 30}};
  bool skipped;
  double used;
  (void)state;
  assert_true(scaler_begin(&scaler, plan, &array.backend, &failure));
  array.word[SCALER_SCALE] = 0x1p-21, array.word[SCALER_SKIPPED] = 31;
  assert_false(scaler_end(&scaler, plan, &array.backend, &skipped, &used, &failure));
  assert_int_equal(failure.code, RUN_INVALID);
  assert_non_null(strstr(failure.text, "overflow even with a loss scale"));
  arena_free(arena);
}

static void leaves_other_plans_alone(void **state) {
  Arena *arena = arena_new();
  Plan *plan = plan_new(arena);
  Array array = array_of();
  Failure failure = {0};
  Scaler scaler = {{0}};
  bool skipped = true;
  double used = 1;
  (void)state;
  array.word[SCALER_SCALE] = 77;
  assert_true(scaler_begin(&scaler, plan, &array.backend, &failure));
  assert_true(scaler_end(&scaler, plan, &array.backend, &skipped, &used, &failure));
  assert_true(!skipped && used == 0 && scaler.word[SCALER_SCALE] == 0 && array.word[SCALER_SCALE] == 77);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(begins_with_the_plans_scale_or_goes_on),
      cmocka_unit_test(tells_steps_that_were_skipped),
      cmocka_unit_test(gives_up_where_any_scale_overflows),
      cmocka_unit_test(leaves_other_plans_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
