/* Owns: decoder.h. */
#include "runtime/decoder.h"

#include "runtime/alloc_guard.h"
#include "runtime/feed.h"
#include "runtime/runtime.h"

#include <string.h>

static void fill(Feed *feed, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  const Decoder *decoder = (const Decoder *)feed;
  if (decoder->plan->inputs.data[input].feed == FEED_TOKENS)
    memcpy(out, decoder->tokens + state->position, count * sizeof *out); /* position + count <= ctx */
  else
    memset(out, 0, count * sizeof *out); /* targets: a forward plan makes no use of them */
}

static uint64_t count_valid(Feed *feed, const StepState *state, int32_t input, int64_t ignore) {
  (void)state, (void)input, (void)ignore;
  return ((const Decoder *)feed)->ctx;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static int32_t find_segment(const Plan *plan, const char *name) {
  for (uint32_t s = 0; s < plan->segments.count; s++)
    if (strcmp(plan_str(plan, plan->segments.data[s].name), name) == 0) return (int32_t)s;
  return PLAN_NONE;
}

/* Rows of a sample that a segment is fed; the verifier has seen that all its inputs agree. */
static uint64_t fed_rows(const Plan *plan, int32_t segment) {
  for (int32_t i = plan->segments.data[segment].first; i < plan->segments.data[segment].end; i++)
    if (plan->instrs.data[i].op == INSTR_INPUT) return (uint64_t)plan_int(plan, &plan->instrs.data[i], 0);
  return 0;
}

static bool check_plan(const Decoder *decoder, Failure *failure) {
  const Plan *plan = decoder->plan;
  if (plan->training || plan->world.ranks != 1 || plan->world.micro_batch != 1 || plan->output_buf == PLAN_NONE ||
      decoder->decode == PLAN_NONE || fed_rows(plan, decoder->decode) != 1 ||
      (decoder->prefill != PLAN_NONE && (decoder->rows == 0 || decoder->rows > decoder->ctx)))
    return fail(failure, RUN_INVALID, "generate: the plan is not a forward plan for one sample on one rank");
  const PlanBuf *output = &plan->bufs.data[plan->output_buf];
  bool known = output->dtype == DTYPE_F32 || output->dtype == DTYPE_BF16 || output->dtype == DTYPE_F16;
  if (known && output->numel >= (uint64_t)decoder->vocab) return true;
  return fail(failure, RUN_INVALID, "generate: the plan's output \"%s\" does not hold a row of %lld logits",
              plan_str(plan, output->name), (long long)decoder->vocab);
}

bool decoder_init(Arena *arena, Decoder *decoder, const Plan *plan, Failure *failure) {
  *decoder = (Decoder){.feed = {.fill = fill, .count = count_valid},
                       .plan = plan,
                       .prefill = find_segment(plan, "prefill"),
                       .decode = find_segment(plan, "decode")};
  if (decoder->prefill != PLAN_NONE) decoder->rows = fed_rows(plan, decoder->prefill);
  if (!feed_shape(plan, &decoder->vocab, &decoder->ctx, failure) || !check_plan(decoder, failure)) return false;
  decoder->tokens = ARENA_ARRAY(arena, int32_t, decoder->ctx);
  if (plan->bufs.data[plan->output_buf].dtype != DTYPE_F32)
    decoder->halves = ARENA_ARRAY(arena, Half, (size_t)decoder->vocab);
  return true;
}

/* --- running ------------------------------------------------------------------------------------------------------------ */

static bool run(Decoder *decoder, int32_t segment, uint64_t position, Failure *failure) {
  StepState state = {.step = 1, .position = position, .forward_only = true, .turn = INT32_MAX};
  if (decoder->guarded) guard_enter();
  bool done = decoder->backend->run_segment(decoder->backend, segment, &state, NULL);
  if (decoder->guarded) guard_leave();
  return done || fail(failure, RUN_INVALID, "generate: %s", decoder->backend->error(decoder->backend));
}

bool decoder_start(Decoder *decoder, Backend *backend, Failure *failure) {
  int32_t begin = find_segment(decoder->plan, "begin");
  decoder->backend = backend;
  return begin == PLAN_NONE || run(decoder, begin, 0, failure);
}

void decoder_append(Decoder *decoder, int32_t token) {
  if (decoder->count == decoder->ctx) {
    uint64_t keep = decoder->ctx / 2;
    memmove(decoder->tokens, decoder->tokens + decoder->ctx - keep, keep * sizeof *decoder->tokens);
    decoder->count = keep;
    decoder->cached = 0;
  }
  decoder->tokens[decoder->count++] = token;
}

/* Caches all tokens but the last. A chunk may hold rows behind the window: nobody sees their keys and values before the
 * tokens that come to stand there replace them. The last chunk of the context begins early enough to end with it. */
static bool fill_caches(Decoder *decoder, Failure *failure) {
  while (decoder->prefill != PLAN_NONE && decoder->cached + 1 < decoder->count) {
    uint64_t latest = decoder->ctx - decoder->rows;
    uint64_t position = decoder->cached < latest ? decoder->cached : latest;
    if (!run(decoder, decoder->prefill, position, failure)) return false;
    decoder->cached = position + decoder->rows;
    if (decoder->cached >= decoder->count) decoder->cached = decoder->count - 1;
  }
  return true;
}

bool decoder_logits(Decoder *decoder, float *logits, Failure *failure) {
  const Plan *plan = decoder->plan;
  if (!fill_caches(decoder, failure) || !run(decoder, decoder->decode, decoder->count - 1, failure)) return false;
  decoder->cached = decoder->count;
  DType dtype = plan->bufs.data[plan->output_buf].dtype;
  void *row = decoder->halves != NULL ? (void *)decoder->halves : logits;
  if (!decoder->backend->read(decoder->backend, plan->output_buf, 0, row, (uint64_t)decoder->vocab * dtype_bytes(dtype)))
    return fail(failure, RUN_INVALID, "generate: %s", decoder->backend->error(decoder->backend));
  for (int64_t i = 0; decoder->halves != NULL && i < decoder->vocab; i++)
    logits[i] = float_of_half((FloatType)dtype, decoder->halves[i]);
  return true;
}
