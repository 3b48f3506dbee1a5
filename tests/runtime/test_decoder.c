/* Owns: a decoder's logits against the training plan's forward over the whole context, which knows no cache: the same
 * to 1e-5 and the same greedy tokens, through prefill, within the context and beyond it. In bf16 and f16 to their precision. */
#include "machine.h"

#include "planner/planner.h"
#include "runtime/decoder.h"
#include "runtime/floats.h"

#include <string.h>

enum { MOST_VOCABULARY = 256 };
/* Of the largest logit, by dtype. Values of 16 bits are rounded at every layer, and sums over the context in another order. */
static const double TOLERANCE[] = {[DTYPE_F32] = 1e-5, [DTYPE_BF16] = 4e-2, [DTYPE_F16] = 5e-3};

/* --- the model's two plans ------------------------------------------------------------------------------------------------ */

static const Plan *plan_of(Arena *arena, Model *model, bool inference) {
  PlannerOptions options = {.ranks = 1, .ranks_per_node = 1, .settings = model->graph->plan, .inference = inference};
  PlannerResult result;
  options.settings.micro_batch = 1;
  planner_plan(arena, &model->sink, model->graph, &options, 0, NULL, &result);
  assert_non_null(result.plan);
  assert_true(result.fits);
  return result.plan;
}

static void shake(Machine *machine) { machine_shake(machine, 0.5, 0.15); }

/* --- the reference: all rows of the context at once ------------------------------------------------------------------------ */

typedef struct Reference {
  Feed feed;
  const Plan *plan;
  Machine machine;
  int32_t *tokens;
  uint64_t ctx, count;
  int64_t vocab;
  int32_t loss, micro; /* the loss's list position and segment */
} Reference;

static void fill(Feed *feed, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  const Reference *reference = (const Reference *)feed;
  (void)state;
  memset(out, 0, count * sizeof *out);
  if (reference->plan->inputs.data[input].feed == FEED_TOKENS)
    memcpy(out, reference->tokens, reference->count * sizeof *out);
}

static uint64_t count_valid(Feed *feed, const StepState *state, int32_t input, int64_t ignore) {
  (void)state, (void)input, (void)ignore;
  return ((const Reference *)feed)->ctx;
}

static void open_reference(Arena *arena, Reference *reference, const Plan *plan) {
  *reference = (Reference){.feed = {.fill = fill, .count = count_valid}, .plan = plan};
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].op == INSTR_CROSS_ENTROPY) reference->loss = (int32_t)i;
  assert_int_not_equal(reference->loss, 0);
  while (plan->segments.data[reference->micro].end <= reference->loss) reference->micro++;
  reference->ctx = (uint64_t)plan->inputs.data[0].sample_numel;
  reference->vocab = plan_int(plan, &plan->instrs.data[reference->loss], 1);
  reference->tokens = ARENA_ARRAY(arena, int32_t, reference->ctx);
  machine_open(arena, &reference->machine, plan, &reference->feed);
  shake(&reference->machine);
}

static void reference_append(Reference *reference, int32_t token) {
  if (reference->count == reference->ctx) { /* what decoder.h promises */
    reference->count = reference->ctx / 2;
    memmove(reference->tokens, reference->tokens + (reference->ctx - reference->count),
            reference->count * sizeof *reference->tokens);
  }
  reference->tokens[reference->count++] = token;
}

static void reference_logits(Reference *reference, float *out) {
  StepState state = {.step = 1, .forward_only = true, .turn = reference->loss - 1};
  Backend *backend = reference->machine.rank.backend;
  const PlanOperand *logits = plan_operand(reference->plan, &reference->plan->instrs.data[reference->loss], 0);
  uint64_t stride = logits->ld ? logits->ld : (uint64_t)reference->vocab;
  DType dtype = reference->plan->recipe.compute;
  Half halves[MOST_VOCABULARY];
  void *row = dtype == DTYPE_F32 ? (void *)out : halves;
  uint64_t bytes = (uint64_t)reference->vocab * dtype_bytes(dtype);
  assert_true(backend->run_segment(backend, reference->micro, &state, NULL));
  assert_true(backend->read(backend, logits->buf, (reference->count - 1) * stride * dtype_bytes(dtype), row, bytes));
  for (int64_t i = 0; dtype != DTYPE_F32 && i < reference->vocab; i++) out[i] = float_of_half((FloatType)dtype, halves[i]);
}

/* --- both, token by token ----------------------------------------------------------------------------------------------------- */

static int32_t greedy(const float *logits, int64_t vocab) {
  int32_t best = 0;
  for (int32_t i = 1; i < vocab; i++)
    if (logits[i] > logits[best]) best = i;
  return best;
}

static void compare(const float *expected, const float *found, int64_t vocab, double tolerance) {
  double largest = 0;
  for (int64_t i = 0; i < vocab; i++) largest = fmax(largest, fabs((double)expected[i]));
  assert_true(largest > 0.1);
  for (int64_t i = 0; i < vocab; i++) assert_near((double)expected[i], (double)found[i], tolerance * largest);
}

/* After a prompt, `tokens` greedy ones. Some are appended without asking for logits in between: two are then new. */
static void decode(Arena *arena, Model *model, uint64_t prompt, uint64_t tokens) {
  Reference reference;
  Decoder decoder;
  Machine machine;
  Failure failure = {0};
  float expected[MOST_VOCABULARY], found[MOST_VOCABULARY];
  DType compute = model->graph->recipe.compute;
  open_reference(arena, &reference, plan_of(arena, model, false));
  if (!decoder_init(arena, &decoder, plan_of(arena, model, true), &failure)) fail_msg("%s", failure.text);
  machine_open(arena, &machine, decoder.plan, &decoder.feed);
  shake(&machine);
  assert_int_equal(decoder.vocab, reference.vocab);
  decoder.guarded = true;
  assert_true(decoder_start(&decoder, machine.rank.backend, &failure));
  uint64_t distinct = 0;
  for (uint64_t n = 0; n < prompt + tokens; n++) {
    bool given = n < prompt;
    int32_t token = given ? (int32_t)(n * n * 7 % (uint64_t)decoder.vocab) : greedy(found, decoder.vocab);
    if (!given && compute == DTYPE_F32) distinct += token != greedy(expected, reference.vocab);
    decoder_append(&decoder, token);
    reference_append(&reference, token);
    if (n + 1 < prompt || n % 5 == 3) continue;
    reference_logits(&reference, expected);
    assert_true(decoder_logits(&decoder, found, &failure));
    compare(expected, found, decoder.vocab, TOLERANCE[compute]);
  }
  assert_int_equal(distinct, 0);
  machine_close(&machine);
  machine_close(&reference.machine);
}

static void cached_logits_are_the_forward_ones_of_gpt(void **state) {
  Scratch *scratch = *state;
  Model *model = compile_model(scratch->arena, "tests/fixtures/gpt-tiny.fsdp", NULL, 0);
  decode(scratch->arena, model, 1, 50); /* three windows of 16 */
  decode(scratch->arena, model, 16, 3); /* a full window at once */
}

/* The fixture computes its loss in pieces, without logits to compare with. */
static void cached_logits_are_the_forward_ones_of_llama(void **state) {
  Scratch *scratch = *state;
  size_t bytes;
  char *text = read_text(scratch->arena, "tests/fixtures/llama-tiny.fsdp", &bytes), *chunk = strstr(text, ", chunk = 24");
  assert_non_null(chunk);
  memset(chunk, ' ', strlen(", chunk = 24"));
  Model *model = compile_model(scratch->arena, scratch_file(scratch, "llama.fsdp", text, bytes), NULL, 0);
  decode(scratch->arena, model, 5, 40);
}

/* Caches and logits are of 16 bits then. */
static void cached_logits_are_the_forward_ones_in_16_bits(void **state) {
  Scratch *scratch = *state;
  static const char was[] = "precision f32 reduce f32";
  static const char *const words[] = {"precision bf16", "precision f16"};
  for (int i = 0; i < 2; i++) {
    size_t bytes;
    char *text = read_text(scratch->arena, "tests/fixtures/gpt-tiny.fsdp", &bytes), *precision = strstr(text, was);
    assert_non_null(precision);
    memset(precision, ' ', strlen(was));
    memcpy(precision, words[i], strlen(words[i]));
    Model *model = compile_model(scratch->arena, scratch_file(scratch, "half.fsdp", text, bytes), NULL, 0);
    assert_int_equal(dtype_bytes(plan_of(scratch->arena, model, true)->recipe.compute), 2);
    decode(scratch->arena, model, 1, 40);
    decode(scratch->arena, model, 16, 3);
  }
}

/* 200 is no multiple of a prefill's 128 rows: the second chunk begins inside the first. */
static void a_context_of_several_chunks_is_filled(void **state) {
  Scratch *scratch = *state;
  static const char *const sets[] = {"ctx=200", "d=32", "layers=2"};
  Model *model = compile_model(scratch->arena, "models/quickstart.fsdp", sets, 3);
  decode(scratch->arena, model, 190, 15);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(cached_logits_are_the_forward_ones_of_gpt),
      SCRATCH_TEST(cached_logits_are_the_forward_ones_of_llama),
      SCRATCH_TEST(cached_logits_are_the_forward_ones_in_16_bits),
      SCRATCH_TEST(a_context_of_several_chunks_is_filled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
