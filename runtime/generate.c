/* Owns: sampling text from a forward plan, in this process. Every token is one full forward over the last ctx tokens,
 * padded on the right: attention is causal, so what follows the last token cannot change its logits. */
#include "runtime/backends.h"
#include "runtime/feed.h"
#include "runtime/launch.h"
#include "runtime/rank.h"
#include "runtime/runtime.h"
#include "runtime/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BYTE_VALUES = 256, SAMPLE_STREAM = 0x67656e /* of the generator, apart from dropout's and init's */ };

typedef struct Generator {
  Feed feed; /* first: the backend is given &generator->feed */
  const Plan *plan;
  const GenerateOptions *options;
  uint64_t ctx;
  int64_t vocab;
  int32_t *window; /* ctx tokens, `filled` of them real */
  uint64_t filled, drawn;
  Pretrained weights;
  SharedMemory memory;
  RankMachine machine;
} Generator;

static void fill(Feed *feed, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  const Generator *generator = (const Generator *)feed;
  (void)state;
  if (generator->plan->inputs.data[input].feed == FEED_TOKENS && count <= generator->ctx)
    memcpy(out, generator->window, count * sizeof *out);
  else
    memset(out, 0, count * sizeof *out); /* targets: a forward plan makes no use of them */
}

static uint64_t count_valid(Feed *feed, const StepState *state, int32_t input, int64_t ignore) {
  (void)state, (void)input, (void)ignore;
  return ((const Generator *)feed)->ctx;
}

/* --- tokens ------------------------------------------------------------------------------------------------------------ */

static void append(Generator *generator, int32_t token) {
  if (generator->filled == generator->ctx) {
    memmove(generator->window, generator->window + 1, (generator->ctx - 1) * sizeof *generator->window);
    generator->filled--;
  }
  generator->window[generator->filled++] = token;
}

static bool logits(Generator *generator, float out[BYTE_VALUES], Failure *failure) {
  const Plan *plan = generator->plan;
  Backend *backend = generator->machine.backend;
  StepState state = {.step = 1};
  for (uint32_t s = 0; s < plan->segments.count; s++) /* once, whatever its count: repetitions would see the same input */
    if (!backend->run_segment(backend, (int32_t)s, &state, NULL))
      return fail(failure, RUN_INVALID, "generate: %s", backend->error(backend));
  DType dtype = plan->bufs.data[plan->output_buf].dtype;
  Half halves[BYTE_VALUES];
  uint64_t bytes = (uint64_t)generator->vocab * dtype_bytes(dtype);
  if (!backend->read(backend, plan->output_buf, (generator->filled - 1) * bytes, dtype == DTYPE_F32 ? (void *)out : halves,
                     bytes))
    return fail(failure, RUN_INVALID, "generate: %s", backend->error(backend));
  for (int64_t i = 0; dtype != DTYPE_F32 && i < generator->vocab; i++) out[i] = float_of_half((FloatType)dtype, halves[i]);
  return true;
}

/* The k-th largest logit, or less than all: what top-k sampling leaves out is below it. */
static float threshold(const float *logit, int64_t vocab, uint32_t top_k) {
  if (top_k == 0 || top_k >= (uint64_t)vocab) return -INFINITY;
  for (int64_t i = 0; i < vocab; i++) {
    uint32_t larger = 0, equal = 0;
    for (int64_t j = 0; j < vocab; j++) {
      larger += logit[j] > logit[i];
      equal += logit[j] == logit[i];
    }
    if (larger < top_k && top_k <= larger + equal) return logit[i];
  }
  return -INFINITY; /* only with NaN */
}

static int32_t sample(Generator *generator, const float *logit) {
  const GenerateOptions *options = generator->options;
  int32_t best = 0, last = 0;
  for (int32_t i = 1; i < generator->vocab; i++)
    if (logit[i] > logit[best]) best = i;
  if (!(options->temperature > 0)) return best;
  float least = threshold(logit, generator->vocab, options->top_k);
  double weight[BYTE_VALUES], total = 0;
  for (int32_t i = 0; i < generator->vocab; i++) {
    weight[i] = logit[i] >= least ? exp(((double)logit[i] - (double)logit[best]) / options->temperature) : 0;
    total += weight[i];
  }
  double left = random_uniform(options->seed, SAMPLE_STREAM, generator->drawn++) * total;
  for (int32_t i = 0; i < generator->vocab; i++) {
    if (weight[i] <= 0) continue;
    last = i;
    left -= weight[i];
    if (left < 0) break;
  }
  return last;
}

static bool say(const char *bytes, size_t count, Failure *failure) {
  if (fwrite(bytes, 1, count, stdout) == count && fflush(stdout) == 0) return true;
  return fail(failure, RUN_INVALID, "generate: the output cannot be written");
}

static bool start(Generator *generator, Failure *failure) {
  const char *prompt = generator->options->prompt != NULL ? generator->options->prompt : "";
  size_t length = strlen(prompt);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)prompt[i] >= generator->vocab)
      return fail(failure, RUN_INVALID, "generate: byte %u of the prompt is beyond the model's vocabulary of %lld",
                  (unsigned char)prompt[i], (long long)generator->vocab);
    append(generator, (unsigned char)prompt[i]);
  }
  if (length == 0) append(generator, generator->vocab > '\n' ? '\n' : 0); /* something to continue from */
  return say(prompt, length, failure);
}

static bool generate(Generator *generator, Failure *failure) {
  float row[BYTE_VALUES];
  if (!start(generator, failure)) return false;
  for (uint64_t i = 0; i < generator->options->tokens; i++) {
    if (!logits(generator, row, failure)) return false;
    int32_t token = sample(generator, row);
    char byte = (char)token;
    append(generator, token);
    if (!say(&byte, 1, failure)) return false;
  }
  return true;
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static bool check_plan(Generator *generator, Failure *failure) {
  const Plan *plan = generator->plan;
  if (plan->training || plan->world.ranks != 1 || plan->output_buf == PLAN_NONE)
    return fail(failure, RUN_INVALID, "generate: the plan is not a forward plan for one rank");
  if (!feed_shape(plan, &generator->vocab, &generator->ctx, failure)) return false;
  if (generator->vocab > BYTE_VALUES)
    return fail(failure, RUN_INVALID,
                "generate: the model's vocabulary has %lld entries; only models of bytes (256) can be sampled as text",
                (long long)generator->vocab);
  const PlanBuf *output = &plan->bufs.data[plan->output_buf];
  bool known = output->dtype == DTYPE_F32 || output->dtype == DTYPE_BF16 || output->dtype == DTYPE_F16;
  if (known && output->numel >= generator->ctx * (uint64_t)generator->vocab) return true;
  return fail(failure, RUN_INVALID, "generate: the plan's output \"%s\" does not hold one row of logits a token",
              plan_str(plan, output->name));
}

static bool open_weights(Arena *arena, Generator *generator, Failure *failure) {
  const char *path = generator->options->weights;
  if (path == NULL) return fail(failure, RUN_INVALID, "generate: name the weights with --weights FILE or DIR");
  return pretrained_open(arena, &generator->weights, generator->plan, path, failure);
}

static bool run(Arena *arena, Generator *generator, Failure *failure) {
  const Plan *plan = generator->plan;
  if (!check_plan(generator, failure) || !open_weights(arena, generator, failure)) return false;
  if (!shared_open(arena, &generator->memory, 1, plan->arena_bytes, failure)) return false;
  const SharedMemory *memory = &generator->memory;
  RankEnv env = {.ranks = 1,
                 .arenas = memory->arenas,
                 .lanes = memory->lanes,
                 .status = &memory->statuses[0],
                 .control = memory->control};
  generator->window = ARENA_ARRAY(arena, int32_t, generator->ctx);
  RankSetup setup = {.plan = plan,
                     .kind = backend_find("cpu", failure),
                     .env = &env,
                     .feed = &generator->feed,
                     .gemm = generator->options->gemm,
                     .threads = generator->options->threads};
  return rank_open(arena, &generator->machine, &setup, failure) &&
         weights_load(plan, generator->machine.ranges, generator->machine.backend, &generator->weights, failure) &&
         generate(generator, failure);
}

int runtime_generate(const Plan *plan, const GenerateOptions *options) {
  Arena *arena = arena_new();
  Failure failure = {0};
  Generator generator = {.feed = {.fill = fill, .count = count_valid},
                         .plan = plan,
                         .options = options};
  if (!run(arena, &generator, &failure)) fprintf(stderr, "error: %s\n", failure.text);
  rank_close(&generator.machine);
  if (generator.memory.ranks > 0) shared_close(&generator.memory);
  pretrained_close(&generator.weights);
  arena_free(arena);
  return failure.code;
}
