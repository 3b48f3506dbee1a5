/* Owns: what `fsdpc profile` fits to measured steps: steps that took exactly what some rates predict give back these rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/profile.h"
#include "planner/planner.h"

#include <math.h>

static const PassRate products[PRODUCT_PASSES] = {{2e11, 3, 10, 20}, {3e11, 0, 0, 30}, {1e11, 25, 5, 0}};
static const HeadRate attention[2] = {{.rate = 1e11, .tokens = 64, .dims = 20}, {.rate = 8e10, .tokens = 96}};
static const double move_rate = 2e10;

static const char *const sizes[PROFILE_MODELS][4] = {{"d=64", "heads=4", "ctx=64", "layers=1"},
                                                     {"d=128", "heads=1", "ctx=128", "layers=2"},
                                                     {"d=256", "heads=4", "ctx=32", "layers=1"},
                                                     {"d=192", "heads=6", "ctx=256", "layers=1"},
                                                     {"d=96", "heads=3", "ctx=96", "layers=1"}};

static void state_rates(Arena *arena, Device *device) {
  for (int i = 0; i < PRODUCT_PASSES; i++) device->products[i] = products[i];
  for (int i = 0; i < 2; i++) device->attention[i] = attention[i];
  TimedSize point = {1 << 20, 1e9 * (1 << 20) / move_rate};
  for (int i = 0; i < MOVE_COUNT; i++) vec_push(arena, &device->moves[i], point);
  device->launch_ns = 0;
  device->bandwidth = 1e15; /* products are never bound by their bytes */
}

/* Batches are large, so that rounding to whole nanoseconds does not matter. */
static void make_step(Arena *arena, const char *const *sets, ProfileStep *step) {
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  FrontendOptions options = {.sets = sets, .set_count = 4};
  Graph *graph = frontend_compile(arena, &sources, &sink, "models/quickstart.fsdp", &options);
  PlannerResult result;
  assert_non_null(graph);
  state_rates(arena, &graph->cluster.device);
  graph->recipe.samples_per_step = 1024;
  PlannerOptions choices = {.ranks = 1, .settings = graph->plan};
  choices.settings.memory_bytes = 1ull << 40;
  planner_plan(arena, &sink, graph, &choices, 0, NULL, &result);
  assert_true(result.plan && result.fits);
  *step = (ProfileStep){.plan = result.plan, .ns = ARENA_ARRAY(arena, double, result.plan->instrs.count), .gap_ns = 150};
  for (uint32_t i = 0; i < result.plan->instrs.count; i++) step->ns[i] = (double)result.plan->instrs.data[i].ns;
}

static void close_to(double value, double expected, double slack) {
  if (fabs(value - expected) > slack) fail_msg("%g where %g was expected", value, expected);
}

static void test_rates_come_back(void **state) {
  (void)state;
  Arena *arena = arena_new();
  ProfileStep steps[PROFILE_MODELS];
  ProfileResult out = {.peak = 5e10}; /* slower than what steps show */
  for (int m = 0; m < PROFILE_MODELS; m++) make_step(arena, sizes[m], &steps[m]);
  profile_fit(arena, steps, &out);
  for (int i = 0; i < PRODUCT_PASSES; i++) {
    close_to(out.products[i].rate, products[i].rate, 1e-3 * products[i].rate);
    close_to(out.products[i].n, products[i].n, 0.5);
    close_to(out.products[i].k, products[i].k, 0.5);
  }
  for (int i = 0; i < 2; i++) {
    close_to(out.attention[i].rate, attention[i].rate, 1e-3 * attention[i].rate);
    close_to(out.attention[i].tokens, attention[i].tokens, 0.5);
    close_to(out.attention[i].dims, attention[i].dims, 0.1);
  }
  assert_true(out.peak > 0.8 * products[1].rate && out.peak <= 1.001 * products[1].rate);
  const TimedSizes *gelu = &out.moves[MOVE_GELU_FWD];
  assert_true(gelu->count > 1 && out.moves[MOVE_ROPE_FWD].count == 0);
  for (uint32_t i = 0; i < gelu->count; i++) close_to(1e9 * gelu->data[i].bytes / gelu->data[i].ns, move_rate, 1e-3 * move_rate);
  close_to(out.launch_ns, 150, 0);
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_rates_come_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
