/* Owns: sampling text from a forward plan, in this process. */
#include "runtime/backends.h"
#include "runtime/decoder.h"
#include "runtime/environment.h"
#include "runtime/rank.h"
#include "runtime/runtime.h"
#include "runtime/launch/shared.h"
#include "runtime/files/trained.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BYTE_VALUES = 256, SAMPLE_STREAM = 0x67656e /* of the generator, apart from dropout's and init's */ };

typedef struct Generator {
  const Plan *plan;
  const GenerateOptions *options;
  Decoder decoder;
  uint64_t drawn;
  Trained weights;
  SharedMemory memory;
  RankMachine machine;
} Generator;

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
  for (int32_t i = 1; i < generator->decoder.vocab; i++)
    if (logit[i] > logit[best]) best = i;
  if (!(options->temperature > 0)) return best;
  float least = threshold(logit, generator->decoder.vocab, options->top_k);
  double weight[BYTE_VALUES], total = 0;
  for (int32_t i = 0; i < generator->decoder.vocab; i++) {
    weight[i] = logit[i] >= least ? exp(((double)logit[i] - (double)logit[best]) / options->temperature) : 0;
    total += weight[i];
  }
  double left = random_uniform(options->seed, SAMPLE_STREAM, generator->drawn++) * total;
  for (int32_t i = 0; i < generator->decoder.vocab; i++) {
    if (weight[i] <= 0) continue;
    last = i;
    left -= weight[i];
    if (left < 0) break;
  }
  return last;
}

/* That standard output cannot be written to, whoever ends the process says, as of all commands. */
static bool say(const char *bytes, size_t count, Failure *failure) {
  if (fwrite(bytes, 1, count, stdout) == count && fflush(stdout) == 0) return true;
  return fail(failure, RUN_INVALID, "%s", "");
}

/* What is drawn from others would only look like text. */
static bool check_logits(const Generator *generator, const float *logit, Failure *failure) {
  for (int32_t i = 0; i < generator->decoder.vocab; i++)
    if (!(logit[i] < INFINITY))
      return fail(failure, RUN_INVALID,
                  "generate: %s: the model gives %g for byte %d: its weights are of a run that diverged, or too large for the precision "
                  "of its train block",
                  generator->options->weights, (double)logit[i], (int)i);
  return true;
}

/* Of a longer prompt the model sees the end. */
static bool start(Generator *generator, Failure *failure) {
  Decoder *decoder = &generator->decoder;
  const char *prompt = generator->options->prompt != NULL ? generator->options->prompt : "";
  size_t length = strlen(prompt);
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)prompt[i] >= decoder->vocab)
      return fail(failure, RUN_INVALID, "generate: byte %u of the prompt is beyond the model's vocabulary of %lld",
                  (unsigned char)prompt[i], (long long)decoder->vocab);
    if (length - i <= decoder->ctx) decoder_append(decoder, (unsigned char)prompt[i]);
  }
  if (length == 0) decoder_append(decoder, decoder->vocab > '\n' ? '\n' : 0); /* something to continue from */
  return say(prompt, length, failure);
}

static bool generate(Generator *generator, Failure *failure) {
  float row[BYTE_VALUES];
  if (!start(generator, failure)) return false;
  for (uint64_t i = 0; i < generator->options->tokens; i++) {
    if (!decoder_logits(&generator->decoder, row, failure) || !check_logits(generator, row, failure)) return false;
    int32_t token = sample(generator, row);
    char byte = (char)token;
    decoder_append(&generator->decoder, token);
    if (!say(&byte, 1, failure)) return false;
  }
  return !isatty(STDOUT_FILENO) || say("\n", 1, failure); /* a prompt begins its own line; files hold what was drawn */
}

/* --- opening ------------------------------------------------------------------------------------------------------------ */

static bool open_decoder(Arena *arena, Generator *generator, Failure *failure) {
  if (!decoder_init(arena, &generator->decoder, generator->plan, failure)) return false;
  if (generator->decoder.vocab <= BYTE_VALUES) return true;
  return fail(failure, RUN_INVALID,
              "generate: the model's vocabulary has %lld entries; only models of bytes (256) can be sampled as text",
              (long long)generator->decoder.vocab);
}

static bool open_weights(Arena *arena, Generator *generator, Failure *failure) {
  const char *path = generator->options->weights;
  if (path == NULL) return fail(failure, RUN_INVALID, "generate: name the weights with --weights FILE or DIR");
  return trained_open(arena, &generator->weights, generator->plan, path, true, failure);
}

static bool run(Arena *arena, Generator *generator, Failure *failure) {
  const Plan *plan = generator->plan;
  if (!open_decoder(arena, generator, failure) || !open_weights(arena, generator, failure)) return false;
  environment_note_strays();
  const BackendKind *kind = environment_check(failure) ? backend_find(generator->options->backend, failure) : NULL;
  if (kind == NULL || (kind->check != NULL && !kind->check(plan, failure))) return false;
  if (!shared_open(arena, &generator->memory, 1, kind->shared_bytes(plan), failure)) return false;
  const SharedMemory *memory = &generator->memory;
  RankEnv env = {.ranks = 1,
                 .local_ranks = 1,
                 .arenas = memory->arenas,
                 .lanes = memory->lanes,
                 .status = &memory->statuses[0],
                 .control = memory->control};
  RankSetup setup = {.plan = plan,
                     .kind = kind,
                     .env = &env,
                     .feed = &generator->decoder.feed,
                     .gemm = generator->options->gemm,
                     .threads = generator->options->threads};
  generator->decoder.guarded = kind->guarded;
  return rank_open(arena, &generator->machine, &setup, failure) &&
         trained_load(&generator->weights, plan, generator->machine.ranges, generator->machine.backend, failure) &&
         decoder_start(&generator->decoder, generator->machine.backend, failure) && generate(generator, failure);
}

int runtime_generate(const Plan *plan, const GenerateOptions *options) {
  Arena *arena = arena_new();
  Failure failure = {0};
  Generator generator = {.plan = plan, .options = options};
  if (!run(arena, &generator, &failure)) failure_say(failure.text);
  rank_close(&generator.machine);
  if (generator.memory.ranks > 0) shared_close(&generator.memory);
  trained_close(&generator.weights);
  arena_free(arena);
  return failure.code;
}
