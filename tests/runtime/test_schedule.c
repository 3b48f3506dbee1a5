/* Owns: tests of learning-rate schedules. */
#include "testing.h"

#include "runtime/schedule.h"

static const Recipe recipe = {.lr = 1e-3, .min_lr = 1e-4, .warmup_steps = 10};

static void warmup_is_linear(void **state) {
  (void)state;
  for (int kind = SCHEDULE_CONSTANT; kind <= SCHEDULE_COSINE; kind++) {
    Recipe r = recipe;
    r.schedule = (ScheduleKind)kind;
    assert_near(schedule_lr(&r, 110, 1), 1e-4, 1e-15);
    assert_near(schedule_lr(&r, 110, 5), 5e-4, 1e-15);
    assert_near(schedule_lr(&r, 110, 10), 1e-3, 1e-15);
  }
}

static void decays_reach_the_smallest_rate(void **state) {
  (void)state;
  Recipe r = recipe;
  r.schedule = SCHEDULE_LINEAR;
  assert_near(schedule_lr(&r, 110, 60), 5.5e-4, 1e-15);
  assert_near(schedule_lr(&r, 110, 110), 1e-4, 1e-15);
  assert_near(schedule_lr(&r, 110, 1000), 1e-4, 1e-15);
  r.schedule = SCHEDULE_COSINE;
  assert_near(schedule_lr(&r, 110, 35), 1e-4 + 9e-4 * 0.5 * (1 + 0.70710678118654752), 1e-15);
  assert_near(schedule_lr(&r, 110, 60), 5.5e-4, 1e-15);
  assert_near(schedule_lr(&r, 110, 110), 1e-4, 1e-15);
}

static void wsd_is_stable_then_cools(void **state) {
  (void)state;
  Recipe r = recipe;
  r.schedule = SCHEDULE_WSD;
  r.cooldown_steps = 50;
  assert_near(schedule_lr(&r, 110, 5), 5e-4, 1e-15);
  assert_near(schedule_lr(&r, 110, 60), 1e-3, 0);
  assert_near(schedule_lr(&r, 110, 85), 5.5e-4, 1e-15);
  assert_near(schedule_lr(&r, 110, 110), 1e-4, 1e-15);
  r.cooldown_steps = 0; /* a fifth: 22 */
  assert_near(schedule_lr(&r, 110, 88), 1e-3, 0);
  assert_near(schedule_lr(&r, 110, 99), 5.5e-4, 1e-15);
}

static void constant_stays(void **state) {
  (void)state;
  Recipe r = recipe;
  r.schedule = SCHEDULE_CONSTANT;
  assert_near(schedule_lr(&r, 110, 11), 1e-3, 0);
  assert_near(schedule_lr(&r, 110, 1 << 20), 1e-3, 0);
}

static void odd_lengths_are_harmless(void **state) {
  (void)state;
  Recipe r = recipe;
  r.schedule = SCHEDULE_COSINE;
  assert_near(schedule_lr(&r, 5, 7), 7e-4, 1e-15); /* the warmup is longer than the run */
  assert_near(schedule_lr(&r, 10, 11), 1e-4, 1e-15);
  r.warmup_steps = 0;
  assert_near(schedule_lr(&r, 1, 1), 1e-4, 1e-15);
  assert_true(schedule_lr(&r, 100, 1) < 1e-3 && schedule_lr(&r, 100, 1) > 9.9e-4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(warmup_is_linear),
      cmocka_unit_test(decays_reach_the_smallest_rate),
      cmocka_unit_test(constant_stays),
      cmocka_unit_test(wsd_is_stable_then_cools),
      cmocka_unit_test(odd_lengths_are_harmless),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
