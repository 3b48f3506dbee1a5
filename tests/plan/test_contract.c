/* Owns: the table of instructions as parsed, operand shapes, strings, the memory peak, interval maps and
 * coverage. */
#include "planner/plan/coverage.h"
#include "planner/plan/instr.h"
#include "tests/plan/build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static void test_rows(void **state) {
  (void)state;
  Arena *arena = arena_new();
  const InstrSpec *specs = instr_specs(arena);
  const InstrSpec *linear = &specs[INSTR_LINEAR_FWD];
  assert_int_equal(linear->operand_count, 4);
  assert_int_equal(linear->stream, STREAM_COMPUTE);
  assert_string_equal(linear->operands[2].name, "b");
  assert_true(linear->operands[2].optional && !linear->operands[1].optional);
  assert_int_equal(linear->operands[2].rows_count, 0);
  assert_int_equal(linear->operands[3].mode, MODE_WRITE);
  assert_string_equal(linear->ints[2], "in");
  assert_int_equal(specs[INSTR_EMBEDDING_FWD].operands[0].dtype, DTYPE_I32);
  assert_int_equal(specs[INSTR_ZERO].operands[0].dtype, OPERAND_ANY);
  assert_int_equal(specs[INSTR_SGD].operands[3].mode, MODE_UPDATE);
  assert_true(specs[INSTR_SGD].operands[3].optional && specs[INSTR_SGD].operands[3].dtype == DTYPE_F32);
  assert_int_equal(specs[INSTR_ALLGATHER].operands[1].cols[0].kind, FACTOR_F);
  assert_int_equal(specs[INSTR_LAYERNORM_FWD].real_count, 1);
  assert_int_equal(linear->like[2], 2);
  assert_string_equal(specs[INSTR_ROPE_FWD].ints[6], "dims");
  assert_string_equal(specs[INSTR_ROPE_FWD].ints[specs[INSTR_ROPE_FWD].like[6]], "head_dim");
  arena_free(arena);
}

static void test_malformed_rows(void **state) {
  (void)state;
  static const struct {
    const char *operands, *ints, *reals;
  } rows[] = {{"r:x", "n", ""},
              {"x[n]", "n", ""},
              {"q:x[n]", "n", ""},
              {"r:[n]", "n", ""},
              {"r:x[m]", "n", ""},
              {"r:x[n", "n", ""},
              {"r:x[n]]", "n", ""},
              {"r:x[n*]", "n", ""},
              {"r:x[n,n,n]", "n", ""},
              {"r:x[n*n*n*n]", "n", ""},
              {"r:x[n]/f31", "n", ""},
              {"r:x[n]??", "n", ""},
              {"r:x[0]", "n", ""},
              {"r:x[4k]", "n", ""},
              {"r:x[n]", "n,m", ""},
              {"r:x[n]", "n", "a b c d e"},
              {"r:x[n]", "a b c d e f g h n", ""},
              {"r:averyveryverylongname[n]", "n", ""},
              {"r:x[n]", "averyveryverylongname", ""},
              {"r:x[n]", "n m=", ""},
              {"r:x[n]", "n m=k", ""},
              {"r:x[n]", "n=n", ""},
              {"r:x[n]", "n=m m", ""},
              {"r:x[n]", "n m=n,k", ""},
              {"r:x[n]", "n", "a b=a"},
              {"r:x[n]r:y[n]", "n", ""},
              {"r:x[n]/", "n", ""},
              {"r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n] r:a[n]",
               "n", ""}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    InstrSpec spec = {0};
    if (!instr_parse_row(&spec, rows[i].operands, rows[i].ints, rows[i].reals))
      fail_msg("\"%s\" was accepted", rows[i].operands);
  }
  InstrSpec spec = {0};
  assert_null(instr_parse_row(&spec, " r:x[a*2*F,n]/bf16?  w:y[n] ", " a  n ", "eps"));
  assert_int_equal(spec.operands[0].rows_count, 3);
  assert_int_equal(spec.operands[0].rows[1].value, 2);
}

static void test_dims(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  const InstrSpec *specs = instr_specs(arena);
  uint64_t rows, cols;
  assert_true(plan_operand_dims(plan, specs, &plan->instrs.data[AT_HEAD], 1, &rows, &cols));
  assert_int_equal(rows, 32);
  assert_int_equal(cols, 64);
  assert_true(plan_operand_dims(plan, specs, &plan->instrs.data[AT_GATHER1], 1, &rows, &cols));
  assert_int_equal(rows, 1);
  assert_int_equal(cols, 4224);
  int64_t *ints = &plan->ints.data[plan->instrs.data[AT_HEAD].ints];
  ints[1] = 0;
  assert_false(plan_operand_dims(plan, specs, &plan->instrs.data[AT_HEAD], 1, &rows, &cols));
  ints[1] = -3;
  assert_false(plan_operand_dims(plan, specs, &plan->instrs.data[AT_HEAD], 1, &rows, &cols));
  ints[1] = INT64_MAX;
  assert_false(plan_operand_dims(plan, specs, &plan->instrs.data[AT_HEAD], 1, &rows, &cols));
  arena_free(arena);
}

static void test_strings(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = plan_new(arena);
  assert_int_equal(plan_intern(arena, plan, ""), 0);
  StrId first = plan_intern(arena, plan, "name 7");
  for (int i = 0; i < 5000; i++) plan_intern(arena, plan, arena_printf(arena, "name %d", i));
  assert_int_equal(plan_intern(arena, plan, "name 7"), first);
  StrId last = plan_intern(arena, plan, "name 4999");
  assert_string_equal(plan_str(plan, last), "name 4999");
  assert_string_equal(plan_str(plan, 0), "");
  arena_free(arena);
}

static void test_peak(void **state) {
  (void)state;
  Arena *arena = arena_new();
  Plan *plan = good_plan(arena);
  uint64_t by_class[BUF_CLASS_COUNT], total = 0;
  int32_t at;
  plan_peak(plan, by_class, &at);
  for (int c = 0; c < BUF_CLASS_COUNT; c++) total += by_class[c];
  assert_int_equal(total, plan->max_live_bytes);
  assert_int_equal(at, AT_LINEAR_DW); /* the largest gradient beside the largest gathered unit */
  assert_int_equal(by_class[BUF_OPTIM], 2 * 4 * (1024 + 2112 + 1024));
  assert_int_equal(by_class[BUF_GATHERED], 2 * 4224);
  arena_free(arena);
}

/* --- interval maps against an array ------------------------------------------------------------------ */

enum { LINE = 200 };

static uint32_t next_random(uint32_t *state) {
  return *state = *state * 1664525u + 1013904223u, *state >> 8;
}

static void compare(const IntervalPool *pool, IntervalMap map, const int *line) {
  for (uint64_t x = 0; x < LINE; x++) {
    const Interval *at = intervals_after(pool, map, x);
    bool inside = at && at->begin <= x;
    assert_true(inside == (line[x] >= 0));
    if (inside) assert_int_equal(at->value, line[x]);
  }
}

static void test_intervals(void **state) {
  (void)state;
  Arena *arena = arena_new();
  IntervalPool pool = {.arena = arena};
  IntervalMap map = 0;
  int line[LINE];
  uint32_t seed = 1;
  for (int step = 0; step < 3000; step++) {
    if (step % 60 == 0) { /* begun anew, so that gaps are met too */
      intervals_drop(&pool, &map);
      memset(line, 0xff, sizeof line);
    }
    uint64_t begin = next_random(&seed) % (LINE - 1),
             end = begin + 1 + next_random(&seed) % (LINE - begin - 1);
    if (end - begin > 20) end = begin + 20;
    intervals_set(&pool, &map, begin, end, step);
    for (uint64_t x = begin; x < end; x++) line[x] = step;
    compare(&pool, map, line);
  }
  intervals_drop(&pool, &map);
  assert_null(intervals_after(&pool, map, 0));
  arena_free(arena);
}

static void test_interval_sets(void **state) {
  (void)state;
  Arena *arena = arena_new();
  IntervalPool pool = {.arena = arena};
  uint32_t seed = 7;
  for (int round = 0; round < 200; round++) {
    IntervalMap map = 0;
    bool line[LINE] = {false};
    for (int step = 0; step < 15; step++) {
      uint64_t begin = next_random(&seed) % (LINE - 20), end = begin + 1 + next_random(&seed) % 19;
      intervals_add(&pool, &map, begin, end);
      memset(line + begin, true, end - begin);
      uint64_t from = next_random(&seed) % (LINE - 20), to = from + 1 + next_random(&seed) % 19, covered = 0;
      for (uint64_t x = from; x < to; x++) covered += line[x];
      assert_true(intervals_cover(&pool, map, from, to) == (covered == to - from));
      assert_true(intervals_touch(&pool, map, from, to) == (covered > 0));
    }
    intervals_drop(&pool, &map);
  }
  arena_free(arena);
}

/* q, k and v written through three views of one buffer; k read alone, then all. */
static void test_column_views(void **state) {
  (void)state;
  Arena *arena = arena_new();
  CoveragePool pool = {.intervals = {.arena = arena}};
  Coverage qkv = {0};
  Region q = region_make(0, 8, 64, 192), k = region_make(64, 8, 64, 192), v = region_make(128, 8, 64, 192);
  Region all = region_make(0, 8, 192, 0), upper = region_make(0, 4, 192, 0),
         k_rows = region_make(192 * 2 + 64, 3, 64, 192);
  assert_false(region_overlap(&q, &k));
  assert_true(region_overlap(&all, &k) && region_overlap(&k, &k_rows));
  coverage_add(&pool, &qkv, q);
  assert_false(coverage_touches(&pool, &qkv, k));
  coverage_add(&pool, &qkv, k);
  assert_true(coverage_has(&pool, &qkv, k) && coverage_has(&pool, &qkv, k_rows));
  assert_true(coverage_has(&pool, &qkv, region_make(0, 8, 128, 192)));
  assert_false(coverage_has(&pool, &qkv, all) || coverage_has(&pool, &qkv, v) ||
               coverage_has(&pool, &qkv, upper));
  assert_true(coverage_touches(&pool, &qkv, all));
  coverage_add(&pool, &qkv, v);
  assert_true(coverage_has(&pool, &qkv, all) && coverage_has(&pool, &qkv, upper) &&
              coverage_has(&pool, &qkv, v));
  assert_false(coverage_has(&pool, &qkv, region_make(0, 9, 192, 0)));
  coverage_drop(&pool, &qkv);
  assert_false(coverage_touches(&pool, &qkv, all));
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),          cmocka_unit_test(test_malformed_rows),
      cmocka_unit_test(test_dims),          cmocka_unit_test(test_strings),
      cmocka_unit_test(test_peak),          cmocka_unit_test(test_intervals),
      cmocka_unit_test(test_interval_sets), cmocka_unit_test(test_column_views)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
