/* Owns: how far the search is from the best of its space. On small random models everything that may be recomputed, kept
 * gathered or moved to the host is enumerated, on every grouping of units, under the same judge; the bound must not exceed the best found. */
#include "planner/search/inner.h"

#include "tests/planner/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { MODELS = 40 };
/* Of explicit issue slots, for one model: schedules built, also where many models are compared; plans placed. */
enum { FEW_JUDGED = 20000, MOST_JUDGED = 200000, MOST_PLACED = 2000 };

typedef struct Fixture {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  Graph *graph;
  Search search;
  uint32_t may_judge; /* schedules with explicit issue slots */
} Fixture;

/* Some of a model, or all of it, is run again because the file says so. Drawn apart, so that what else a seed gives does not depend on it. */
static void pin_reruns(Fixture *f, uint64_t seed) {
  static const char *const patterns[] = {"h", "h.0", "h.1", "h.*.mlp", "h.0.attn"};
  Random r = {seed + 555};
  PlanSettings *settings = &f->graph->plan;
  const uint64_t which = random_below(&r, 8);
  if (which > 4) {
    settings->checkpoint = CHECKPOINT_FULL;
    return;
  }
  CheckpointRule rule = {.pattern = patterns[which], .recompute = true, .span = SPAN_NONE};
  vec_push(f->arena, &settings->checkpoints, rule);
}

/* Parameters after forward, because the file says so. Where gathers and reductions share a queue, what is gathered again may be so before all of these. */
static void release(Fixture *f, uint64_t seed) {
  f->graph->plan.reshard = 1;
  f->graph->cluster.device.shared_queue = seed % 2;
}

static void open_fixture(Fixture *f, uint64_t seed, const char *layers) {
  char path[] = "/tmp/fsdpc-test-XXXXXX";
  FrontendOptions options = {.sets = &layers, .set_count = 1};
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
  search_renew(&f->search);
  f->search.cluster = &f->graph->cluster;
  f->search.settings = &f->graph->plan;
  f->search.specs = instr_specs(f->arena);
  f->search.samples = f->graph->recipe.samples_per_step;
}

static void close_fixture(Fixture *f) {
  arena_free(f->search.scratch);
  arena_free(f->arena);
}

typedef struct Candidate {
  uint64_t ns; /* estimated */
  uint32_t group, setting, rule;
  const int32_t *slots; /* instead of the rule */
} Candidate;

typedef VEC(Candidate) Candidates;

static Trial trial_of(const Inner *in, const Candidate *c) {
  Trial trial = inner_new_trial(in);
  inner_set(in, c->setting, &trial);
  uint32_t count;
  trial.issue = inner_rules(&count)[c->rule];
  trial.slots = c->slots;
  return trial;
}

/* All states of the items of one grouping under all issue rules. */
static void enumerate(Arena *arena, Inner *in, uint32_t group, Candidates *out) {
  Arena *scratch = arena_new(), *own = in->arena;
  uint32_t rules;
  (void)inner_rules(&rules);
  for (Candidate c = {.group = group}; c.setting < inner_settings(in); c.setting++) {
    for (c.rule = 0; c.rule < rules; c.rule++) {
      in->arena = scratch;
      Trial trial = trial_of(in, &c);
      in->arena = own;
      if (inner_judge(in, &trial)) {
        c.ns = trial.ns;
        vec_push(arena, out, c);
      }
      arena_reset(scratch);
    }
  }
  arena_free(scratch);
}

static int compare_candidates(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  return (x->ns > y->ns) - (x->ns < y->ns);
}

/* The candidate as a placed plan: its simulated time, UINT64_MAX when it does not fit. */
static uint64_t placed_ns(Fixture *f, Arena *scratch, const Inner *in, const Candidate *c) {
  Arena *own = f->search.arena;
  Found found;
  Trial trial = trial_of(in, c);
  f->search.arena = scratch;
  Decisions decisions = inner_decisions(in, &trial);
  uint64_t effort = PLACING_EFFORT;
  search_emit(&f->search, scratch, in, &decisions, &effort, &found);
  uint64_t ns = found.fits ? found.sim.step_ns : UINT64_MAX;
  f->search.arena = own;
  arena_reset(scratch);
  return ns;
}

/* The fastest placed plan of the `most` best candidates, as simulated. Estimates come close to the simulator: none that is 3 %
 * slower by estimate is looked at. UINT64_MAX when none fits. */
static uint64_t best_placed(Fixture *f, const Inner *in, Candidates *candidates, uint32_t most) {
  uint64_t best = UINT64_MAX;
  Arena *scratch = arena_new();
  if (candidates->count) qsort(candidates->data, candidates->count, sizeof(Candidate), compare_candidates);
  for (uint32_t i = 0; i < candidates->count && i < most; i++) {
    const Candidate *c = &candidates->data[i];
    if (best != UINT64_MAX && (double)c->ns > 1.03 * (double)best) break;
    uint64_t ns = placed_ns(f, scratch, &in[c->group], c);
    if (ns < best) best = ns;
  }
  arena_free(scratch);
  return best;
}

/* All groupings of a model with all sets of items under all issue rules. */
typedef struct Space {
  Inner in[MAX_GROUPINGS];
  uint32_t groups;
  Candidates candidates;
  uint64_t bound; /* the least of the groupings' */
} Space;

static void check_bound(const Inner *in, const Candidate *c) {
  if (c->ns < in->bound.ns)
    fail_msg("grouping %u: the bound %llu is above %llu", c->group, (unsigned long long)in->bound.ns, (unsigned long long)c->ns);
}

/* False when the model has too many items to enumerate. Units of one operator each may be too many where all others are not: the search
 * has these beside what is enumerated. */
static bool open_space(Fixture *f, Arena *arena, const Outer *outer, Space *space) {
  Groupings groupings;
  assert_true(search_groupings(&f->search, outer, &groupings));
  *space = (Space){.bound = UINT64_MAX};
  for (uint32_t i = 0; i < groupings.count; i++) {
    uint32_t g = space->groups;
    Inner *in = &space->in[g];
    assert_true(inner_open(&f->search, arena, outer, groupings.data[i], in));
    if (!inner_settings(in) && groupings.data[i].numel == 1) continue;
    if (!inner_settings(in)) return false;
    space->groups++;
    uint32_t first = space->candidates.count;
    enumerate(arena, in, g, &space->candidates);
    for (uint32_t i = first; i < space->candidates.count; i++) check_bound(in, &space->candidates.data[i]);
    if (in->bound.ns < space->bound) space->bound = in->bound.ns;
  }
  return true;
}

/* --- explicit issue slots --------------------------------------------------------------------------------------------------- */

/* Slots of the gathers of one set of items, FIFO: each between the one before it, or its unit's last release, and its use. */
typedef struct Slots {
  Arena *arena, *scratch; /* of the model; of this set of items */
  Inner *in;
  Candidate base;
  Trial trial; /* its slots are `slot` */
  Schedule schedule;
  int32_t *floor, *slot; /* by use */
  uint64_t target; /* only what is faster is of interest */
  uint32_t judged, left; /* schedules built; that may still be */
  Candidates *out;
} Slots;

static void open_slots(Slots *s) {
  s->trial = trial_of(s->in, &s->base);
  Decisions d = inner_decisions(s->in, &s->trial);
  d.prefetch = 0; /* each gather at its use */
  schedule_build(&s->schedule, s->scratch, s->in->skeleton, &d);
  s->floor = ARENA_ARRAY(s->scratch, int32_t, s->schedule.use_count);
  s->trial.slots = s->slot = ARENA_ARRAY(s->scratch, int32_t, s->schedule.use_count);
  for (uint32_t i = 0; i < s->schedule.use_count; i++)
    for (uint32_t j = 0; j < i; j++)
      if (s->schedule.uses[j].unit == s->schedule.uses[i].unit) s->floor[i] = s->schedule.uses[j].last + 1;
}

static int32_t earliest(const Slots *s, uint32_t use) {
  return use && s->slot[use - 1] > s->floor[use] ? s->slot[use - 1] : s->floor[use];
}

/* Whether compute alone takes as long as the target, whatever the slots. */
static bool is_hopeless(const Slots *s) {
  uint64_t ns = 0;
  for (int32_t i = 0; i < s->schedule.step_count; i++) ns += s->in->skeleton->op_ns[s->schedule.steps[i].op];
  return ns * s->in->base.accumulation + s->in->skeleton->ends_ns >= s->target;
}

/* Whether the slots before `use` leave hope: with the others as early as can be, where communication slows nothing down and gathers
 * wait for no reductions, they are fast enough. */
static bool may_be_fast(Slots *s, uint32_t use) {
  Inner relaxed = *s->in;
  Skeleton skeleton = *relaxed.skeleton;
  skeleton.shared_queue = false;
  relaxed.skeleton = &skeleton;
  relaxed.base.overlap.contention = 0;
  relaxed.room = INT64_MAX;
  for (uint32_t i = use; i < s->schedule.use_count; i++) s->slot[i] = earliest(s, i);
  s->judged++;
  return inner_judge(&relaxed, &s->trial) && s->trial.ns < s->target;
}

/* Likewise: with the others at their uses, where they take the least memory, they fit. */
static bool may_fit(Slots *s, uint32_t use) {
  for (uint32_t i = use; i < s->schedule.use_count; i++) s->slot[i] = s->schedule.uses[i].first;
  s->judged++;
  return inner_judge(s->in, &s->trial);
}

static void judge_slots(Slots *s) {
  Candidate c = s->base;
  uint32_t bytes = s->schedule.use_count * (uint32_t)sizeof(int32_t);
  s->judged++;
  if (!inner_judge(s->in, &s->trial)) return;
  c.ns = s->trial.ns;
  check_bound(s->in, &c);
  if (c.ns >= s->target) return;
  c.slots = memcpy(ARENA_ARRAY(s->arena, int32_t, s->schedule.use_count), s->slot, bytes);
  vec_push(s->arena, s->out, c);
}

static void assign_slots(Slots *s, uint32_t use) {
  if (s->judged >= s->left) return;
  if (use == s->schedule.use_count) {
    judge_slots(s);
    return;
  }
  if (!may_fit(s, use) || !may_be_fast(s, use)) return;
  for (int32_t slot = earliest(s, use); slot <= s->schedule.uses[use].first; slot++) {
    s->slot[use] = slot;
    assign_slots(s, use + 1);
  }
}

typedef struct SlotResult {
  uint64_t best;       /* placed; UINT64_MAX: nothing faster */
  uint32_t judged;
  bool complete; /* nothing was left out */
} SlotResult;

/* False when there were too many. */
static bool enumerate_slots(Fixture *f, Slots *s) {
  Arena *own = f->search.arena, *inner = s->in->arena;
  f->search.arena = s->in->arena = s->scratch;
  open_slots(s);
  if (!is_hopeless(s)) assign_slots(s, 0);
  f->search.arena = own;
  s->in->arena = inner;
  return s->judged < s->left;
}

/* The last assignment looked at may have taken a schedule more than there were. */
static uint32_t left_of(const Fixture *f, uint32_t judged) {
  return judged < f->may_judge ? f->may_judge - judged : 0;
}

/* Sets of items that fit under some rule, those that a rule makes fastest first, under all assignments of slots, as far as the
 * schedules that may be built for a model reach. */
static SlotResult best_with_slots(Fixture *f, Arena *arena, Space *space, uint64_t target) {
  SlotResult result = {.best = UINT64_MAX, .complete = true};
  Arena *scratch = arena_new();
  Candidates faster = {0}, *all = &space->candidates;
  bool *seen = ARENA_ARRAY(arena, bool, (size_t)space->groups * MOST_SETTINGS);
  if (all->count) qsort(all->data, all->count, sizeof(Candidate), compare_candidates);
  for (uint32_t i = 0; i < all->count; i++) {
    const Candidate *c = &all->data[i];
    if (seen[c->group * MOST_SETTINGS + c->setting]) continue;
    seen[c->group * MOST_SETTINGS + c->setting] = true;
    Slots slots = {.arena = arena, .scratch = scratch, .in = &space->in[c->group], .base = *c, .target = target, .left = left_of(f, result.judged), .out = &faster};
    if (!enumerate_slots(f, &slots)) result.complete = false;
    result.judged += slots.judged;
    arena_reset(scratch);
  }
  arena_free(scratch);
  if (faster.count > MOST_PLACED) result.complete = false;
  if (faster.count) result.best = best_placed(f, space->in, &faster, MOST_PLACED);
  return result;
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

/* How far something was from the best of a space, over models. */
typedef struct Tally {
  const char *what;
  uint32_t compared, apart; /* apart: by more than half a percent */
  double worst;
} Tally;

static void count_gap(Tally *tally, uint64_t seed, uint64_t ns, uint64_t best) {
  double gap = (double)ns / (double)best - 1;
  tally->compared++;
  if (gap > tally->worst) tally->worst = gap;
  if (gap <= 0.005) return;
  tally->apart++;
  print_message("seed %llu: %s: %.2f %%: %llu placed against %llu\n", (unsigned long long)seed, tally->what, 100 * gap, (unsigned long long)ns, (unsigned long long)best);
}

static void print_tally(const Tally *tally) {
  print_message("%s: %u models compared, %u more than 0.5 %% from the best, worst %.2f %%\n", tally->what, tally->compared, tally->apart, 100 * tally->worst);
}

/* Drawn apart, so that what else a seed gives does not depend on it. */
static uint32_t random_offload(const Fixture *f, uint64_t seed) {
  Random r = {seed + 999};
  uint32_t states = OFFLOAD_PARAMETERS | OFFLOAD_GRADIENTS | OFFLOAD_OPTIMIZER;
  if (f->graph->recipe.optimizer == OPTIMIZER_ADAFACTOR || random_below(&r, 3)) return 0;
  return (uint32_t)random_below(&r, states + 1);
}

/* Drawn apart too: half of the ranks, so that gradients are summed over both groups. */
static bool is_hybrid(const Fixture *f, uint64_t seed) {
  Random r = {seed + 333};
  return f->search.ranks == 4 && !random_below(&r, 3);
}

static Outer random_outer(Fixture *f, Random *r, uint64_t seed) {
  f->search.ranks = f->search.ranks_per_node = (uint32_t)(1u << random_below(r, 3));
  Outer outer = {.micro_batch = 1, .shard = random_below(r, 4) ? f->search.ranks : 1};
  if (is_hybrid(f, seed)) outer.shard = f->search.ranks / 2;
  outer.offload = random_offload(f, seed);
  outer.gather_once = outer.shard > 1 && !random_below(r, 4);
  outer.reduce_once = f->search.ranks > 1 && !random_below(r, 4);
  f->search.budget = random_budget(f, r, &outer);
  return outer;
}

typedef struct Comparison {
  Tally search, rules; /* the search beside the best of everything enumerated; the best by rules beside the best by slots too */
  uint32_t missed, complete, judged;
} Comparison;

/* best: placed, by rules. Returns the best by slots as well. */
static uint64_t compare_slots(Fixture *f, Arena *arena, Space *space, uint64_t seed, uint64_t found, uint64_t best, Comparison *out) {
  SlotResult slots = best_with_slots(f, arena, space, found < best ? found : best);
  uint64_t all = slots.best < best ? slots.best : best;
  count_gap(&out->rules, seed, best, all);
  out->complete += slots.complete;
  out->judged += slots.judged;
  return all;
}

/* Bounds charge the items with no operator twice. */
static void check_charges(const Inner *in) {
  uint64_t charged = 0, all = 0;
  for (uint32_t i = 0; i < in->items.count; i++)
    if (item_at(&in->items, i)->unit < 0) charged += item_at(&in->items, i)->least_ns;
  for (int32_t op = 0; op < in->skeleton->program->turn; op++)
    if (in->base.recompute[op]) all += in->skeleton->op_ns[op];
  assert_true(charged <= all);
}

static void compare_model(Fixture *f, Arena *arena, const Outer *outer, uint64_t seed, Comparison *out) {
  Space space;
  Found found = {0};
  Tried tried;
  uint64_t best = open_space(f, arena, outer, &space) ? best_placed(f, space.in, &space.candidates, UINT32_MAX) : UINT64_MAX;
  if (best == UINT64_MAX) return;
  check_charges(&space.in[0]);
  assert_true(search_seed(&f->search, outer, &found, &tried));
  search_improve(&tried, &found);
  search_settle(&f->search, &tried, &found);
  uint64_t ns = found.plan ? found.sim.step_ns : best;
  if (!found.plan) out->missed++;
  if (outer->shard > 1 && !outer->gather_once) best = compare_slots(f, arena, &space, seed, ns, best, out);
  if (space.bound > best) fail_msg("seed %llu: the bound %llu is above %llu", (unsigned long long)seed, (unsigned long long)space.bound, (unsigned long long)best);
  count_gap(&out->search, seed, ns, best);
}

/* Seeds from first on. least: so many of them can be enumerated, or more. */
typedef struct Models {
  uint64_t first, end, least;
  const char *layers;
  bool pinned, released, many;
  uint32_t most_apart; /* models of which something better is known than the search finds */
} Models;

static void compare_models(const Models *models) {
  Comparison all = {.search = {.what = "the search"}, .rules = {.what = "issue rules beside issue slots"}};
  for (uint64_t seed = models->first; seed < models->end; seed++) {
    Fixture f;
    Random r = {seed + 5};
    open_fixture(&f, seed, models->layers);
    f.may_judge = models->many ? MOST_JUDGED : FEW_JUDGED;
    if (models->pinned) pin_reruns(&f, seed);
    if (models->released) release(&f, seed);
    Outer outer = random_outer(&f, &r, seed);
    Arena *arena = arena_new();
    compare_model(&f, arena, &outer, seed, &all);
    arena_free(arena);
    close_fixture(&f);
  }
  print_tally(&all.search);
  print_tally(&all.rules);
  print_message("%u schedules with explicit slots, all that could be 0.5 %% faster of %u models; %u models missed\n", all.judged, all.complete, all.missed);
  assert_true(all.search.compared >= models->least);
  assert_true(all.search.apart <= models->most_apart);
}

static void search_is_close_to_the_best_also_by_explicit_issue_slots_and_the_bound_below_it(void **state) {
  const uint64_t models = *(const uint64_t *)*state;
  const bool many = models > MODELS; /* else without the first, of which one takes as long as all others */
  const uint64_t first = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : many ? 0 : 28;
  compare_models(&(Models){first, first + models, .least = models / 2, .layers = "layers=1", .many = many});
}

static void so_it_is_with_norms_of_each_head(void **state) {
  const uint64_t models = *(const uint64_t *)*state; /* more choices: fewer can be enumerated */
  compare_models(&(Models){RANDOM_HEAD_NORMS, RANDOM_HEAD_NORMS + models / 4, .least = models / 10, .layers = "layers=1", .many = models > MODELS});
}

static void so_it_is_where_layers_are_run_again_as_asked(void **state) {
  const uint64_t models = *(const uint64_t *)*state;
  const uint64_t first = 44; /* the fourth of these needs slots of its own for each gather */
  compare_models(&(Models){first, first + models / 6, .least = models / 20, .layers = "layers=2", .pinned = true, .many = models > MODELS});
}

static void so_it_is_where_parameters_are_released_as_asked(void **state) {
  const uint64_t models = *(const uint64_t *)*state;
  const uint64_t first = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 10) : 28;
  const bool many = models > MODELS; /* 113 and 148 are best with slots of their own: 1.6 and 0.95 % */
  compare_models(&(Models){first, first + models / 4, .least = models / 10, .layers = "layers=1", .released = true, .many = many, .most_apart = many ? 2 : 0});
}

int main(int argc, char **argv) {
  uint64_t models = argc > 1 ? strtoull(argv[1], NULL, 10) : MODELS;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(search_is_close_to_the_best_also_by_explicit_issue_slots_and_the_bound_below_it, &models),
      cmocka_unit_test_prestate(so_it_is_with_norms_of_each_head, &models),
      cmocka_unit_test_prestate(so_it_is_where_layers_are_run_again_as_asked, &models),
      cmocka_unit_test_prestate(so_it_is_where_parameters_are_released_as_asked, &models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
