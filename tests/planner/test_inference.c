/* Owns: forward plans: what they hold, that the verifier guards what works at a position, which models are refused. */
#include "base/text.h"
#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include "planner/planner.h"
#include "tests/planner/random_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { MODELS = 40 };

typedef struct Case {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
  const Graph *graph;
} Case;

static void open_case(Case *c, const char *path, const char *const *sets, uint32_t set_count) {
  *c = (Case){.arena = arena_new()};
  c->sources.arena = c->sink.arena = c->arena;
  c->sink.sources = &c->sources;
  FrontendOptions options = {.sets = sets, .set_count = set_count};
  c->graph = frontend_compile(c->arena, &c->sources, &c->sink, path, &options);
  if (!c->graph) diag_print(&c->sink, stderr, false);
  assert_non_null(c->graph);
}

/* Into a new file, whose name replaces the X's. */
static void write_file(char path[], const char *text) {
  int fd = mkstemp(path);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  assert_non_null(out);
  fputs(text, out);
  fclose(out);
}

static void open_text(Case *c, const char *text) {
  char path[] = "/tmp/fsdpc-test-XXXXXX";
  write_file(path, text);
  open_case(c, path, NULL, 0);
  unlink(path);
}

/* NULL after diagnostics. */
static Plan *inference(Case *c, uint64_t memory_bytes, PlannerResult *result) {
  PlannerOptions options = {.ranks = 1, .ranks_per_node = 1, .settings = c->graph->plan, .inference = true};
  options.settings.memory_bytes = memory_bytes;
  planner_plan(c->arena, &c->sink, c->graph, &options, 0, NULL, result);
  return result->plan;
}

static Plan *gpt_tiny(Case *c) {
  PlannerResult result;
  open_case(c, "tests/fixtures/gpt-tiny.fsdp", NULL, 0);
  Plan *plan = inference(c, 64 << 20, &result);
  assert_non_null(plan);
  return plan;
}

static PlanInstr *find_instr(const Plan *plan, InstrOp op) {
  PlanInstr *found = NULL;
  for (uint32_t i = 0; i < plan->instrs.count && !found; i++)
    if (plan->instrs.data[i].op == op) found = &plan->instrs.data[i];
  assert_non_null(found);
  return found;
}

static uint32_t count_instrs(const Plan *plan, uint32_t segment, InstrOp op) {
  uint32_t count = 0;
  for (int32_t i = plan->segments.data[segment].first; i < plan->segments.data[segment].end; i++)
    count += plan->instrs.data[i].op == op;
  return count;
}

/* --- what they hold ---------------------------------------------------------------------------------------------------------- */

static void test_segments(void **state) {
  (void)state;
  Case c;
  Plan *plan = gpt_tiny(&c);
  assert_int_equal(plan->segments.count, 3);
  assert_string_equal(plan_str(plan, plan->segments.data[0].name), "begin");
  assert_string_equal(plan_str(plan, plan->segments.data[1].name), "prefill");
  assert_string_equal(plan_str(plan, plan->segments.data[2].name), "decode");
  for (uint32_t s = 1; s < 3; s++) assert_int_equal(count_instrs(plan, s, INSTR_CACHE_APPEND), 4); /* 2 layers */
  assert_int_equal(count_instrs(plan, 1, INSTR_ATTENTION_CACHED), 1); /* prefill needs no output of the last layer */
  assert_int_equal(count_instrs(plan, 2, INSTR_ATTENTION_CACHED), 2);
  assert_int_equal(plan->bufs.data[plan->output_buf].numel, 67); /* one row of logits */
  uint64_t caches = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (plan->bufs.data[b].class == BUF_CACHE) caches += plan->bufs.data[b].bytes;
  assert_int_equal(caches, 2 * 2 * 16 * 24 * 4); /* layers, keys and values, ctx, d, f32 */
  arena_free(c.arena);
}

/* NULL after diagnostics. */
static Plan *read_plan(Case *c, const char *text) {
  char path[] = "/tmp/fsdpc-test-XXXXXX";
  write_file(path, text);
  Plan *plan = plan_read(c->arena, &c->sources, &c->sink, path);
  unlink(path);
  return plan;
}

static const char *text_of(Case *c, const Plan *plan) {
  Text text = {.arena = c->arena};
  plan_write(&text, plan);
  return text.data;
}

static void test_text_is_the_identity(void **state) {
  (void)state;
  Case c;
  const char *text = text_of(&c, gpt_tiny(&c));
  Plan *read = read_plan(&c, text);
  assert_non_null(read);
  assert_string_equal(text, text_of(&c, read));
  arena_free(c.arena);
}

/* The example of docs/plan-format.md is of this plan. */
static void test_documented(void **state) {
  (void)state;
  Case c;
  const char *why;
  Plan *plan = gpt_tiny(&c);
  Text text = {.arena = c.arena};
  plan_write(&text, plan);
  int32_t file = source_read(&c.sources, "docs/plan-format.md", &why);
  assert_true(file >= 0);
  char *section = strstr(arena_strdup(c.arena, c.sources.files.data[file].text), "## Forward plans");
  assert_non_null(section);
  char *rest = strstr(section, "```\n") + 4;
  *strstr(rest, "```") = 0;
  int lines = 0;
  for (char *line; (line = strsep(&rest, "\n")) && *line; lines++)
    if (!strstr(text.data, arena_printf(c.arena, "%s\n", line))) fail_msg("not in the plan: %s", line);
  assert_int_equal(lines, 4);
  arena_free(c.arena);
}

/* Random models are causal: every one of them can generate, and the planner verifies its own plans. */
static void test_random_models(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < MODELS; seed++) {
    Case c;
    PlannerResult result;
    Arena *arena = arena_new();
    open_text(&c, random_model(arena, seed));
    if (!inference(&c, 1 << 30, &result)) diag_print(&c.sink, stderr, false);
    assert_non_null(result.plan);
    assert_true(result.fits);
    arena_free(c.arena);
    arena_free(arena);
  }
}

/* --- what the verifier guards ---------------------------------------------------------------------------------------------- */

static void set_int(Plan *plan, InstrOp op, int k, int64_t value) {
  plan->ints.data[find_instr(plan, op)->ints + (uint32_t)k] = value;
}

/* Of prefill, which is fed the whole context: 16 rows. */
static void fewer_positions_than_rows(Plan *plan) { set_int(plan, INSTR_POSITIONS_FWD, 0, 15); }
static void fewer_appended_than_fed(Plan *plan) { set_int(plan, INSTR_CACHE_APPEND, 0, 15); }
static void fewer_queries_than_fed(Plan *plan) { set_int(plan, INSTR_ATTENTION_CACHED, 0, 15); }
static void a_shorter_cache_than_the_context(Plan *plan) { set_int(plan, INSTR_ATTENTION_CACHED, 1, 15); }
static void heads_are_no_multiple(Plan *plan) { set_int(plan, INSTR_ATTENTION_CACHED, 3, 2); }
static void more_is_fed_than_a_sample(Plan *plan) { plan->inputs.data[0].sample_numel = 8; }
static void two_samples(Plan *plan) { plan->world.micro_batch = 2; }
/* The first cache's place is taken by the second's, which is then cleared twice. */
static void a_cache_holds_anything(Plan *plan) {
  PlanInstr *zero = find_instr(plan, INSTR_ZERO);
  plan->operands.data[zero->operands].buf = plan_operand(plan, zero + 1, 0)->buf;
}

static void test_broken_plans(void **state) {
  (void)state;
  static const struct {
    void (*apply)(Plan *plan);
    VerifyRule rule;
  } broken[] = {{fewer_positions_than_rows, VERIFY_ATTRIBUTE}, {fewer_appended_than_fed, VERIFY_ATTRIBUTE},
                {fewer_queries_than_fed, VERIFY_ATTRIBUTE}, {a_shorter_cache_than_the_context, VERIFY_ATTRIBUTE},
                {heads_are_no_multiple, VERIFY_ATTRIBUTE}, {more_is_fed_than_a_sample, VERIFY_ATTRIBUTE},
                {two_samples, VERIFY_ATTRIBUTE}, {a_cache_holds_anything, VERIFY_READ_BEFORE_WRITE}};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    Case c;
    VerifyResult verdict;
    Plan *plan = gpt_tiny(&c);
    assert_true(plan_verify(c.arena, plan, &verdict));
    broken[i].apply(plan);
    assert_false(plan_verify(c.arena, plan, &verdict));
    bool named = false;
    for (uint32_t v = 0; v < verdict.violations.count; v++) named |= verdict.violations.data[v].rule == broken[i].rule;
    if (!named) fail_msg("broken plan %zu: %s", i, verdict.violations.data[0].text);
    arena_free(c.arena);
  }
}

/* --- what a plan's text leaves out ------------------------------------------------------------------------------------------- */

enum { ROPE_HEAD_DIM = 3, ROPE_DIMS = 6 }; /* places among the ints of rope_fwd */

/* Queries and keys of 8 dims a head, of which 4 turn; or all, where `dims` says nothing. */
static Plan *rotary(Case *c, const char *dims) {
  PlannerResult result;
  Arena *arena = arena_new();
  open_text(c, arena_printf(arena,
                            "model m { input tokens: int[batch, 16] input targets: int[batch, 16]\n"
                            "x = embedding(tokens, 16, 16) as wte  y = rope(x, 2%s) x = attention(y, y, x, 2)\n"
                            "loss = cross_entropy(linear(x, 16, weight = wte), targets) }\n"
                            "cluster { device cpu { memory 1GiB bandwidth 10GB/s peak f32 100GFLOPS } }",
                            dims));
  arena_free(arena);
  Plan *plan = inference(c, 64 << 20, &result);
  assert_non_null(plan);
  return plan;
}

static int64_t rope_int(const Plan *plan, int k) {
  return plan_int(plan, find_instr(plan, INSTR_ROPE_FWD), k);
}

static const char *without(Case *c, const char *text, const char *what) {
  Text rest = {.arena = c->arena};
  for (const char *at; (at = strstr(text, what)); text = at + strlen(what)) text_add(&rest, text, (size_t)(at - text));
  text_add(&rest, text, strlen(text));
  return rest.data;
}

static void test_rotary_dims_are_left_out_where_they_are_a_head(void **state) {
  (void)state;
  Case part, whole;
  const Plan *of_part = rotary(&part, ", dims = 4"), *of_whole = rotary(&whole, "");
  const char *text = text_of(&part, of_part);
  assert_int_equal(rope_int(of_part, ROPE_DIMS), 4);
  assert_int_equal(rope_int(of_whole, ROPE_DIMS), 8);
  assert_non_null(strstr(text, "head_dim=8 llama3=0 original=8192 dims=4 theta=10000"));
  assert_null(strstr(text_of(&whole, of_whole), "dims="));
  Plan *read = read_plan(&part, text);
  assert_non_null(read);
  assert_string_equal(text_of(&part, read), text);
  read = read_plan(&part, without(&part, text, " dims=4"));
  assert_non_null(read);
  assert_int_equal(rope_int(read, ROPE_DIMS), rope_int(read, ROPE_HEAD_DIM));
  assert_null(read_plan(&part, without(&part, text, " original=8192")));
  assert_string_equal(part.sink.list.data[0]->text, "expected \"original\", saw \"}\"");
  arena_free(part.arena);
  arena_free(whole.arena);
}

static void test_rotary_dims_are_pairs_of_a_head(void **state) {
  (void)state;
  static const int64_t wrong[] = {INT64_MIN, 0, 1, 3, 10, INT64_MAX};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    Case c;
    VerifyResult verdict;
    Plan *plan = rotary(&c, ", dims = 4");
    assert_true(plan_verify(c.arena, plan, &verdict));
    set_int(plan, INSTR_ROPE_FWD, ROPE_DIMS, wrong[i]);
    assert_false(plan_verify(c.arena, plan, &verdict));
    assert_int_equal(verdict.violations.data[0].rule, VERIFY_ATTRIBUTE);
    arena_free(c.arena);
  }
}

/* --- what is refused ----------------------------------------------------------------------------------------------------------- */

static void assert_refused(const char *text, const char *why) {
  Case c;
  PlannerResult result;
  open_text(&c, text);
  assert_null(inference(&c, 64 << 20, &result));
  assert_int_equal(c.sink.errors, 1);
  const char *said = c.sink.list.data[c.sink.list.count - 1]->text; /* behind the frontend's warnings */
  if (!strstr(said, why)) fail_msg("said: %s", said);
  arena_free(c.arena);
}

#define MODEL(body)                                                                                          \
  "model m { input tokens: int[batch, 8] input targets: int[batch, 8]\n"                                     \
  "x = embedding(tokens, 16, 12)\n" body "loss = cross_entropy(linear(x, 16), targets) }\n"                  \
  "train { optimizer sgd { lr 1 } batch 1 steps 1 precision f32 }\n"                                         \
  "cluster { device cpu { memory 1GiB bandwidth 10GB/s peak f32 100GFLOPS } node { devices 1 } }\n"

static void test_models_without_order_are_refused(void **state) {
  (void)state;
  assert_refused(MODEL("x = attention(x, x, x, 2, full) as look\n"), "\"look\" sees tokens that are still to come");
  assert_refused(MODEL("x = x + embedding(targets, 16, 12) as told\n"), "\"told\" reads the targets, which are tokens still to come");
}

static void test_a_budget_too_small_is_said(void **state) {
  (void)state;
  Case c;
  PlannerResult result;
  open_case(&c, "tests/fixtures/gpt-tiny.fsdp", NULL, 0);
  Plan *plan = inference(&c, 4096, &result);
  assert_non_null(plan);
  assert_false(result.fits);
  assert_int_equal(result.infeasible.smallest_peak_bytes, plan->arena_bytes);
  assert_int_equal(result.infeasible.relaxations.count, 1); /* more memory: nothing else was chosen */
  arena_free(c.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_segments),
                                     cmocka_unit_test(test_text_is_the_identity),
                                     cmocka_unit_test(test_documented),
                                     cmocka_unit_test(test_random_models),
                                     cmocka_unit_test(test_broken_plans),
                                     cmocka_unit_test(test_rotary_dims_are_left_out_where_they_are_a_head),
                                     cmocka_unit_test(test_rotary_dims_are_pairs_of_a_head),
                                     cmocka_unit_test(test_models_without_order_are_refused),
                                     cmocka_unit_test(test_a_budget_too_small_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
