/* Owns: how far the search is from the best of its space. On small random models everything that may be recomputed or kept
 * gathered is enumerated, on every grouping of units, under the same judge; the bound must not exceed the best found. */
#include "planner/search.c" /* to drive the search's own parts */

#include "planner/plan/plan_text.h"
#include "tests/planner/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

enum { MODELS = 150, MAX_ITEMS = 13 };

typedef struct Fixture {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
  Search search;
} Fixture;

static void open_fixture(Fixture *f, uint64_t seed) {
  char path[] = "/tmp/fsdpc-test-XXXXXX";
  const char *one_layer[] = {"layers=1"};
  FrontendOptions options = {.sets = one_layer, .set_count = 1};
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  *f = (Fixture){.arena = arena_new()};
  f->sources.arena = f->sink.arena = f->arena;
  f->sink.sources = &f->sources;
  const char *text = random_model(f->arena, seed);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
  f->graph = frontend_compile(f->arena, &f->sources, &f->sink, path, &options);
  unlink(path);
  assert_non_null(f->graph);
  f->search = (Search){.arena = f->arena, .scratch = arena_new(), .sink = &f->sink, .graph = f->graph};
  f->search.cluster = &f->graph->cluster;
  f->search.settings = &f->graph->plan;
  f->search.specs = instr_specs(f->arena);
  f->search.samples = f->graph->recipe.samples_per_step;
}

static void close_fixture(Fixture *f) {
  arena_free(f->search.scratch);
  arena_free(f->arena);
}

/* The best of all subsets of the items of one grouping; UINT64_MAX when none fits. */
static uint64_t enumerate(const Inner *in) {
  uint64_t best = UINT64_MAX;
  Trial trial = new_trial(in);
  for (uint32_t subset = 0; subset < 1u << in->items.count; subset++) {
    start_trial(in, &trial);
    for (uint32_t i = 0; i < in->items.count; i++)
      if (subset >> i & 1) flip(&trial, &in->items.data[i]);
    if (judge(in, &trial) && trial.ns < best) best = trial.ns;
  }
  return best;
}

/* False when the model has too many items to enumerate. */
static bool best_of_all(Fixture *f, const Outer *outer, uint64_t budget, uint64_t *best) {
  Grouping groupings[MAX_GROUPINGS];
  uint32_t count = list_groupings(&f->search, outer, groupings);
  *best = UINT64_MAX;
  for (uint32_t g = 0; g < count; g++) {
    Inner in;
    assert_true(open_inner(&f->search, f->arena, outer, groupings[g].wrap, groupings[g].numel, &in));
    if (in.items.count > MAX_ITEMS) return false;
    set_room(&in, budget);
    uint64_t ns = enumerate(&in);
    if (ns < *best) *best = ns;
  }
  return true;
}

/* Somewhere between the smallest plan and one that keeps everything. */
static uint64_t random_budget(Fixture *f, Random *r, const Outer *outer) {
  Found smallest;
  f->search.budget = 1ull << 40;
  PlanSpan *spans = ARENA_ARRAY(f->arena, PlanSpan, f->graph->ops.count);
  const char **paths = ARENA_ARRAY(f->arena, const char *, f->graph->ops.count);
  for (uint32_t i = 0; i < f->graph->ops.count; i++) paths[i] = "";
  f->search.spans = spans;
  f->search.span_paths = paths;
  Plan *plan = search_smallest(&f->search, f->arena, outer, &smallest);
  assert_non_null(plan);
  return plan->arena_bytes + plan->arena_bytes * random_below(r, 60) / 100;
}

static void search_is_close_to_the_best_and_the_bound_below_it(void **state) {
  const uint64_t *models = *state;
  uint32_t compared = 0, apart = 0, missed = 0;
  double worst = 0;
  for (uint64_t seed = 0; seed < *models; seed++) {
    Fixture f;
    Random r = {seed + 5};
    open_fixture(&f, seed);
    f.search.ranks = f.search.ranks_per_node = (uint32_t)(1u << random_below(&r, 3));
    Outer outer = {1, random_below(&r, 4) ? f.search.ranks : 1};
    uint64_t budget = random_budget(&f, &r, &outer), best;
    f.search.budget = budget;
    if (best_of_all(&f, &outer, budget, &best) && best != UINT64_MAX) {
      Found found = {0};
      Bound bound = outer_bound(&f.search, &outer);
      if (!search_outer(&f.search, &outer, budget, &bound, &found)) missed++;
      if (bound.ns > best) fail_msg("seed %llu: the bound %llu is above %llu", (unsigned long long)seed, (unsigned long long)bound.ns, (unsigned long long)best);
      double gap = !found.estimate_ns ? 0 : (double)found.estimate_ns / (double)best - 1;
      if (gap > 0.005) apart++;
      if (gap > worst) worst = gap;
      compared++;
    }
    close_fixture(&f);
  }
  print_message("%u models compared, %u more than 0.5 %% from the best, worst %.2f %%, %u missed\n", compared, apart, 100 * worst, missed);
  assert_true(2 * compared >= *models);
  assert_true(apart * 25 <= compared);
}

int main(int argc, char **argv) {
  uint64_t models = argc > 1 ? strtoull(argv[1], NULL, 10) : MODELS;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(search_is_close_to_the_best_and_the_bound_below_it, &models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
