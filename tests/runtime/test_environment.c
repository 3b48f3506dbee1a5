/* Owns: tests of the environment variables that a run reads. */
#include "testing.h"

#include "kernels/kernels.h"
#include "runtime/environment.h"
#include "runtime/runtime.h"

#include <stdlib.h>
#include <string.h>

static void expect_refused(Setting setting, const char *value) {
  Failure failure = {0};
  assert_int_equal(setenv(environment_name(setting), value, 1), 0);
  assert_false(environment_check(&failure));
  assert_int_equal(failure.code, RUN_INVALID);
  assert_non_null(strstr(failure.text, environment_name(setting)));
  assert_non_null(strstr(failure.text, "but must be "));
  assert_non_null(strstr(failure.text, "unset it"));
  unsetenv(environment_name(setting));
}

static void every_setting_refuses_what_it_cannot_be(void **state) {
  static const char *const values[] = {"x", "-1", "2000000", " 1", "1 ", "99999999999999999999", "+1", "cuDNN"};
  (void)state;
  for (int s = 0; s < SETTING_COUNT; s++)
    for (size_t i = 0; i < sizeof values / sizeof *values && !environment_is_file((Setting)s); i++) expect_refused((Setting)s, values[i]);
  Failure failure = {0};
  assert_true(environment_check(&failure));
}

static void every_value_offered_is_taken(void **state) {
  Arena *arena = arena_new();
  Failure failure = {0};
  (void)state;
  for (int s = 0; s < SETTING_COUNT; s++) {
    char *values = arena_strdup(arena, environment_values(arena, (Setting)s)), *rest = values;
    uint32_t place = 0;
    if (environment_is_file((Setting)s)) continue;
    for (char *word; (word = strtok_r(rest, ", ", &rest)) != NULL;) {
      if (strcmp(word, "or") == 0 || strcmp(word, "from") == 0 || strcmp(word, "to") == 0) continue;
      setenv(environment_name((Setting)s), word, 1);
      assert_true(environment_check(&failure));
      if (s != SETTING_FSDPC_CUDA_TIMEOUT) assert_int_equal(environment_setting((Setting)s), place);
      place++;
    }
    assert_true(place >= 2);
    unsetenv(environment_name((Setting)s));
  }
  arena_free(arena);
}

static void empty_is_as_good_as_not_set(void **state) {
  Failure failure = {0};
  (void)state;
  setenv("FSDPC_CUDA_TIMEOUT", "", 1);
  setenv("FSDPC_CUDA_ATTENTION", "", 1);
  assert_true(environment_check(&failure));
  assert_int_equal(environment_setting(SETTING_FSDPC_CUDA_TIMEOUT), 600);
  assert_int_equal(environment_setting(SETTING_FSDPC_CUDA_ATTENTION), CUDA_ATTENTION_AUTO);
  unsetenv("FSDPC_CUDA_TIMEOUT");
  unsetenv("FSDPC_CUDA_ATTENTION");
}

static void a_file_may_have_any_name_but_none(void **state) {
  Failure failure = {0};
  (void)state;
  assert_true(environment_is_file(SETTING_FSDPC_CUDA_ALGORITHMS));
  assert_null(environment_file(SETTING_FSDPC_CUDA_ALGORITHMS));
  assert_null(environment_file(SETTING_FSDPC_CUDA_GRAPH));
  setenv("FSDPC_CUDA_ALGORITHMS", "", 1);
  assert_null(environment_file(SETTING_FSDPC_CUDA_ALGORITHMS));
  setenv("FSDPC_CUDA_ALGORITHMS", "some where/x.json", 1);
  assert_true(environment_check(&failure));
  assert_string_equal(environment_file(SETTING_FSDPC_CUDA_ALGORITHMS), "some where/x.json");
  unsetenv("FSDPC_CUDA_ALGORITHMS");
}

static uint32_t strays(const char *name, Stray *last) {
  uint32_t count = 0;
  assert_int_equal(setenv(name, "1", 1), 0);
  for (uint32_t at = 0; environment_stray(&at, last);) count++;
  unsetenv(name);
  return count;
}

static void a_misspelt_variable_is_named_with_the_one_that_is_meant(void **state) {
  Stray stray;
  (void)state;
  assert_int_equal(strays("FSDPC_CUDA_SYCN", &stray), 1);
  assert_string_equal(stray.name, "FSDPC_CUDA_SYCN");
  assert_string_equal(stray.meant, "FSDPC_CUDA_SYNC");
  assert_int_equal(strays("FSDPC_NCCL_WINDOW", &stray), 1);
  assert_string_equal(stray.meant, "FSDPC_NCCL_WINDOWS");
  assert_int_equal(strays("FSDPC_CUDA_SYNC", &stray), 0);
  assert_int_equal(strays("FSDPC_MODELS", &stray), 0);
  assert_int_equal(strays("CUDA_SYCN", &stray), 0);
}

static void kernels_are_called_as_the_setting_says(void **state) {
  (void)state;
  setenv("FSDPC_ISA", "auto", 1);
  const KernelTable *best = kernels_cpu();
  assert_non_null(best);
  Failure failure = {0};
  setenv("FSDPC_ISA", best->name, 1);
  assert_true(environment_check(&failure));
  assert_ptr_equal(kernels_cpu(), best);
  unsetenv("FSDPC_ISA");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_setting_refuses_what_it_cannot_be),
      cmocka_unit_test(every_value_offered_is_taken),
      cmocka_unit_test(empty_is_as_good_as_not_set),
      cmocka_unit_test(a_file_may_have_any_name_but_none),
      cmocka_unit_test(a_misspelt_variable_is_named_with_the_one_that_is_meant),
      cmocka_unit_test(kernels_are_called_as_the_setting_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
