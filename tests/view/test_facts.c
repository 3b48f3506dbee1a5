/* Owns: the figures of the views agree with the simulator and with the plan. */
#include "planner/view/facts.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static Facts *facts(Arena *arena, const Plan *plan) {
  SimResult *sim = ARENA_NEW(arena, SimResult);
  plan_simulate(arena, plan, sim);
  return facts_of(arena, plan, sim);
}

static void test_sums(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  for (uint32_t slow = 1; slow <= 64; slow *= 4) { /* more and more bound by communication */
    for (uint32_t i = 0; i < plan->instrs.count; i++)
      if (plan->instrs.data[i].stream == STREAM_GATHER || plan->instrs.data[i].stream == STREAM_REDUCE)
        plan->instrs.data[i].ns *= slow;
    Facts *f = facts(arena, plan);
    uint64_t exposed = 0, shares = 0, passes = 0;
    for (uint32_t i = 0; i < plan->instrs.count; i++)
      exposed += f->exposed_ns[i] * plan->segments.data[f->segment_of[i]].count;
    for (int s = 0; s < SHARE_COUNT; s++) shares += f->share_ns[s];
    for (uint32_t p = 0; p < f->passes.count; p++)
      passes += f->passes.data[p].exposed_ns * plan->segments.data[f->passes.data[p].segment].count;
    assert_int_equal(exposed, f->sim->exposed_comm_ns);
    assert_int_equal(passes, f->sim->exposed_comm_ns);
    assert_int_equal(shares, f->sim->step_ns);
  }
  arena_free(arena);
}

static void test_peak(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  Facts *f = facts(arena, plan);
  uint64_t by_class[BUF_CLASS_COUNT], groups = 0;
  int32_t at;
  plan_peak(plan, by_class, &at);
  assert_int_equal(f->live_bytes[at], plan->max_live_bytes);
  LiveGroups live = live_groups(arena, plan, at);
  for (uint32_t g = 0; g < live.count; g++) groups += live.data[g].bytes;
  assert_int_equal(groups, plan->max_live_bytes);
  uint32_t away = 0; /* what lies in host memory takes none of the device's */
  while (plan->bufs.data[away].first > at || plan->bufs.data[away].last < at) away++;
  plan->bufs.data[away].host = true;
  assert_int_equal(facts(arena, plan)->live_bytes[at], plan->max_live_bytes - plan->bufs.data[away].bytes);
  arena_free(arena);
}

static void test_owners(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  Facts *f = facts(arena, plan);
  assert_int_equal(f->unit_of[AT_GATHER1_AGAIN], 1);
  assert_int_equal(f->unit_of[AT_LINEAR], 1);
  assert_int_equal(f->unit_of[AT_LOSS], 2);
  assert_int_equal(f->unit_of[AT_COUNT_SUM], PLAN_NONE);
  assert_int_equal(f->units[1].gathers, 4);
  arena_free(arena);
}

/* Buffers of one class that are called alike are one group, which knows its smallest and its largest. */
static void a_group_knows_its_least_and_most(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  uint64_t sum = 0, least = UINT64_MAX, most = 0;
  uint32_t count = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    PlanBuf *buf = &plan->bufs.data[b];
    if (buf->class != BUF_PARAM) continue;
    buf->name = plan_intern(arena, plan, arena_printf(arena, "u%u.param", count++));
    sum += buf->bytes;
    if (buf->bytes < least) least = buf->bytes;
    if (buf->bytes > most) most = buf->bytes;
  }
  assert_true(count > 1 && least < most);
  LiveGroups groups = live_groups(arena, plan, 0);
  uint32_t found = 0;
  for (uint32_t g = 0; g < groups.count; g++) {
    const LiveGroup *group = &groups.data[g];
    assert_true(group->count > 1 || (group->least == group->bytes && group->most == group->bytes));
    if (strcmp(group->name, "u*.param")) continue;
    assert_true(group->count == count && group->bytes == sum && group->least == least && group->most == most);
    found++;
  }
  assert_int_equal(found, 1);
  arena_free(arena);
}

static void test_ceilings(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  Facts *f = facts(arena, plan);
  for (int what = WITHOUT_GATHER; what <= WITHOUT_LAUNCH; what++)
    assert_true(step_without(plan, (Without)what) <= f->sim->step_ns);
  assert_true(step_without(plan, WITHOUT_COMPUTE) < f->sim->step_ns);
  arena_free(arena);
}

static void test_ranges(void **state) {
  (void)state;
  Arena *arena = arena_new();
  assert_string_equal(range_name(arena, "h.0", "h.11"), "h.0 .. 11");
  assert_string_equal(range_name(arena, "a.b.1", "a.c.1"), "a.b.1 .. c.1");
  assert_string_equal(range_name(arena, "unit0", "unit1"), "unit0 .. unit1");
  assert_string_equal(range_name(arena, "x", "x"), "x");
  assert_string_equal(range_name(arena, "h.0 (frozen)", "h.3 (frozen)"), "h.0 .. 3 (frozen)");
  assert_string_equal(range_name(arena, "h.0 (frozen)", "h.3"), "h.0 (frozen) .. 3");
  assert_string_equal(range_name(arena, "h.0.attn+6", "h.11.attn+6"), "h.*.attn+6");
  arena_free(arena);
}

static bool letters_alike(const void *context, uint32_t a, uint32_t b) {
  const char *letters = context;
  return letters[a] == letters[b];
}

static void test_repeats(void **state) {
  (void)state;
  static const struct {
    const char *letters;
    Repeat want;
  } cases[] = {{"a", {1, 1}}, {"ab", {1, 1}}, {"aaab", {1, 3}}, {"ababababc", {2, 4}}, {"aabaabaabx", {3, 3}}, {"abccdefghijabccdefghij", {11, 2}}, {"aaaaaaaaaaaaaaaa", {1, 16}}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    Repeat found = find_repeat(0, (uint32_t)strlen(cases[c].letters), letters_alike, cases[c].letters);
    assert_int_equal(found.period, cases[c].want.period);
    assert_int_equal(found.count, cases[c].want.count);
  }
}

/* Three digits, whatever rounding does; and no thousand of a unit that has a next one. */
static void test_figures(void **state) {
  (void)state;
  char text[32];
  assert_string_equal(text_bytes(text, (10ull << 30) - 1), "10.0 GiB");
  assert_string_equal(text_bytes(text, (100ull << 20) - 1), "100 MiB");
  assert_string_equal(text_bytes(text, (1ull << 30) - 1), "1.00 GiB");
  assert_string_equal(text_bytes(text, 1023), "1023 B");
  assert_string_equal(text_time(text, 999.9e3), "1.00 ms");
  assert_string_equal(text_time(text, 9.994e6), "9.99 ms");
  assert_string_equal(text_count(text, 999), "999");
}

/* What is proposed as a budget is read back as no less, and as hardly more. */
static void a_proposed_size_suffices(void **state) {
  (void)state;
  char text[32];
  assert_string_equal(text_bytes_enough(text, 1023), "1023B");
  assert_string_equal(text_bytes_enough(text, 1025), "1.01KiB");
  assert_string_equal(text_bytes_enough(text, (257ull << 20) + 1), "258MiB");
  assert_string_equal(text_bytes_enough(text, (1ull << 30) - 1), "1.00GiB");
  for (uint64_t bytes = 1; bytes < 1ull << 50; bytes += bytes / 61 + 1) {
    Quantity read;
    const char *why;
    assert_true(quantity_parse(text_bytes_enough(text, bytes), &read, &why));
    assert_true(read.kind == QUANTITY_BYTES && (uint64_t)read.value >= bytes);
    assert_true(read.value <= (double)bytes * 1.0101);
  }
}

static void nothing_is_no_faster_than_nothing(void **state) {
  (void)state;
  Arena *arena = arena_new();
  assert_string_equal(speed_up(arena, 0, 0), "1.00");
  assert_string_equal(speed_up(arena, 12345, 12345), "1.00");
  assert_string_equal(speed_up(arena, 130, 125), "1.04");
  assert_string_equal(speed_up(arena, 5, 0), "over 100");
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_peak), cmocka_unit_test(test_owners),
                                     cmocka_unit_test(test_ceilings), cmocka_unit_test(test_ranges), cmocka_unit_test(test_repeats),
                                     cmocka_unit_test(test_figures),  cmocka_unit_test(a_proposed_size_suffices),
                                     cmocka_unit_test(nothing_is_no_faster_than_nothing),
                                     cmocka_unit_test(a_group_knows_its_least_and_most)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
