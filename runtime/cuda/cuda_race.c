/* Owns: the race: numbers in the operands, launches between events, and who wins. First all candidates run in turn, round after round, so
 * that what slows the GPU for a while slows all; those that were not far behind in their fastest round then run by themselves for as long
 * as it takes the GPU to find what power they draw, for a step keeps it at its limit, and what is fastest in a burst may be slower there. */
#include "runtime/cuda/cuda_race.h"

#include "runtime/cuda/cuda_traits.h"
#include "runtime/runtime.h"

#include <math.h>

enum {
  ROUNDS_LEAST = 3,
  ROUNDS_MOST = 25, /* where they are short, and so the clock of events is coarse */
  ENDURE_MOST = 1000,
  NUMBERS = 524287  /* a prime: rows of matrices, which the numbers fill over and over, begin at different ones */
};
static const float ENOUGH_MS = 100; /* of rounds */
static const float ENDURE_MS = 100; /* of one candidate: half of it until its clock has settled, half of it timed */
static const float FAR = 1.10f;     /* of the fastest's time */
static const float LEAST_MS = 1e-4f; /* so that times can be divided by */
static const float MARGIN = 0.99f;  /* of the first's time, that another must stay below: what is less may be chance */

typedef struct Racer {
  cublasLtMatmulAlgo_t algorithm;
  float ms; /* of the fastest round; then of the long run */
} Racer;

typedef struct Operand {
  unsigned char *x;
  uint64_t bytes;
  int type;
} Operand;
enum { OPERANDS = 4 };

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static uint32_t next_random(uint64_t *state) {
  *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(*state >> 33);
}

/* From 2^-7 to 2^-3, of either sign, with all bits of their mantissas at random. */
static uint16_t number(uint32_t random, uint32_t mantissa_bits, uint32_t exponent_of_one) {
  uint32_t mantissa = random & ((1u << mantissa_bits) - 1), exponent = exponent_of_one - 4 - (random >> 16 & 3);
  return (uint16_t)((random >> 18 & 1) << 15 | exponent << mantissa_bits | mantissa);
}

static const uint16_t *numbers(Arena *arena, uint64_t seed, uint32_t mantissa_bits, uint32_t exponent_of_one) {
  uint16_t *out = ARENA_ARRAY(arena, uint16_t, NUMBERS);
  uint64_t state = seed;
  for (int i = 0; i < NUMBERS; i++) out[i] = number(next_random(&state), mantissa_bits, exponent_of_one);
  return out;
}

static Operand operand(const CudaTensor *t, int64_t rows, int64_t cols) {
  uint64_t size = t->type == CUDA_F32 ? 4 : 2;
  if (t->x == NULL) return (Operand){NULL, 0, t->type};
  return (Operand){t->x, (uint64_t)((rows - 1) * t->ld + cols) * size, t->type};
}

static void operands(const CudaProduct *p, Operand out[OPERANDS]) {
  out[0] = p->ta ? operand(&p->a, p->k, p->m) : operand(&p->a, p->m, p->k);
  out[1] = p->tb ? operand(&p->b, p->n, p->k) : operand(&p->b, p->k, p->n);
  out[2] = operand(&p->c, p->m, p->n);
  out[3] = operand(&p->bias, 1, p->n);
}

/* The numbers once from the host, then what is there behind itself. Factors have different ones, or some of their sums would be of squares. */
static cudaError_t fill(const CudaRace *race, const Operand *o, int which) {
  uint64_t have = sizeof(uint16_t) * NUMBERS < o->bytes ? sizeof(uint16_t) * NUMBERS : o->bytes;
  cudaError_t error = cudaSuccess;
  if (have > 0) error = cudaMemcpyAsync(o->x, race->numbers[which % 2][o->type != CUDA_F16], have, cudaMemcpyDefault, race->stream);
  for (uint64_t more; have < o->bytes && error == cudaSuccess; have += more) {
    more = o->bytes - have < have ? o->bytes - have : have;
    error = cudaMemcpyAsync(o->x + have, o->x, more, cudaMemcpyDefault, race->stream);
  }
  return error;
}

static cudaError_t fill_all(const CudaRace *race, const Operand *o) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < OPERANDS && error == cudaSuccess; i++) error = fill(race, &o[i], i);
  return error;
}

static cudaError_t clear_all(const CudaRace *race, const Operand *o) {
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < OPERANDS && error == cudaSuccess; i++)
    if (o[i].bytes > 0) error = cudaMemsetAsync(o[i].x, 0, o[i].bytes, race->stream);
  return error != cudaSuccess ? error : cudaStreamSynchronize(race->stream);
}

/* --- racing ------------------------------------------------------------------------------------------------------- */

/* Runs it once, which also loads its kernel. */
static cublasStatus_t warm_up(const CudaRace *race, CudaProducts *products, const CudaEntry *entry,
                              const cublasLtMatmulHeuristicResult_t *offer, Racer *racer) {
  CudaTraits traits = cuda_traits_of(products->libs, &offer->algo);
  cublasStatus_t status = offer->state;
  if (status == CUBLAS_STATUS_SUCCESS) status = cuda_traits_make(products, entry, &traits, &racer->algorithm);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  return cuda_products_launch(products, race->stream, entry, &entry->product, &racer->algorithm);
}

/* Those that run, in the heuristic's order; 0: failed. */
static int gather(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, Racer racers[CUDA_RACERS], Failure *failure) {
  cublasLtMatmulHeuristicResult_t offers[CUDA_RACERS];
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS, last = status;
  char text[CUDA_SHAPE_TEXT_BYTES];
  int found = cuda_products_candidates(products, entry, CUDA_RACERS, offers, failure), running = 0;
  for (int i = 0; i < found; i++) {
    racers[running] = (Racer){.ms = INFINITY};
    status = warm_up(race, products, entry, &offers[i], &racers[running]);
    if (status == CUBLAS_STATUS_SUCCESS) running++;
    else last = status;
  }
  if (found > 0 && running == 0)
    fail(failure, RUN_INVALID, "cuBLASLt: of the %d algorithms that it offers for the product %s none runs; the last failed with status %d; unset "
         "FSDPC_CUDA_ALGORITHMS to take the first unseen", found, cuda_shape_text(&entry->shape, text), (int)last);
  return running;
}

/* All of them one after another, without the host between them. They have run before: that one does not now is an error. */
static cudaError_t run_round(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, Racer *racers, int count, float *total) {
  cudaError_t error = cudaEventRecord(race->events[0], race->stream);
  for (int i = 0; i < count && error == cudaSuccess; i++) {
    if (cuda_products_launch(products, race->stream, entry, &entry->product, &racers[i].algorithm) != CUBLAS_STATUS_SUCCESS)
      return cudaErrorLaunchFailure;
    error = cudaEventRecord(race->events[i + 1], race->stream);
  }
  if (error == cudaSuccess) error = cudaStreamSynchronize(race->stream);
  for (int i = 0; i < count && error == cudaSuccess; i++) {
    float ms = 0;
    error = cudaEventElapsedTime(&ms, race->events[i], race->events[i + 1]);
    if (ms < racers[i].ms) racers[i].ms = ms > LEAST_MS ? ms : LEAST_MS;
    *total += ms;
  }
  return error;
}

static cudaError_t run_rounds(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, Racer *racers, int count) {
  cudaError_t error = cudaStreamSynchronize(race->stream);
  float total = 0;
  for (int i = 0; i < ROUNDS_MOST && count > 1 && error == cudaSuccess && (i < ROUNDS_LEAST || total < ENOUGH_MS); i++)
    error = run_round(race, products, entry, racers, count, &total);
  return error;
}

static cublasStatus_t launch_often(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, const Racer *racer, int times) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (int i = 0; i < times && status == CUBLAS_STATUS_SUCCESS; i++)
    status = cuda_products_launch(products, race->stream, entry, &entry->product, &racer->algorithm);
  return status;
}

static cudaError_t endure(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, Racer *racer) {
  float total = ENDURE_MS / 2 / racer->ms;
  int times = total < 1 ? 1 : total > ENDURE_MOST ? ENDURE_MOST : (int)total;
  if (launch_often(race, products, entry, racer, times) != CUBLAS_STATUS_SUCCESS) return cudaErrorLaunchFailure;
  cudaError_t error = cudaEventRecord(race->events[0], race->stream);
  if (error == cudaSuccess && launch_often(race, products, entry, racer, times) != CUBLAS_STATUS_SUCCESS) error = cudaErrorLaunchFailure;
  if (error == cudaSuccess) error = cudaEventRecord(race->events[1], race->stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(race->stream);
  if (error == cudaSuccess) error = cudaEventElapsedTime(&total, race->events[0], race->events[1]);
  if (error == cudaSuccess) racer->ms = total > LEAST_MS ? total / (float)times : LEAST_MS;
  return error;
}

/* The first always, since the others are compared with it. */
static cudaError_t endure_all(const CudaRace *race, CudaProducts *products, const CudaEntry *entry, Racer *racers, int count) {
  float fastest = INFINITY;
  cudaError_t error = cudaSuccess;
  for (int i = 0; i < count; i++) fastest = racers[i].ms < fastest ? racers[i].ms : fastest;
  for (int i = 0; i < count && count > 1 && error == cudaSuccess; i++) {
    if (i == 0 || racers[i].ms <= FAR * fastest) error = endure(race, products, entry, &racers[i]);
    else racers[i].ms = INFINITY;
  }
  return error;
}

static void decide(CudaEntry *entry, const Racer *racers, int count) {
  const Racer *best = &racers[0];
  for (int i = 1; i < count; i++)
    if (racers[i].ms < best->ms) best = &racers[i];
  if (best->ms > MARGIN * racers[0].ms) best = &racers[0];
  entry->algorithm = best->algorithm;
  entry->origin = CUDA_BY_RACE;
  entry->candidates = count;
  entry->faster = best == &racers[0] ? 0 : 100 * ((double)racers[0].ms / (double)best->ms - 1);
}

static bool ok(cudaError_t error, const CudaEntry *entry, Failure *failure) {
  char text[CUDA_SHAPE_TEXT_BYTES];
  if (error == cudaSuccess) return true;
  return fail(failure, RUN_INVALID, "cuda: racing algorithms of the product %s: %s; unset FSDPC_CUDA_ALGORITHMS to take cuBLASLt's first choices",
              cuda_shape_text(&entry->shape, text), cudaGetErrorString(error));
}

bool cuda_race_run(const CudaRace *race, CudaProducts *products, CudaEntry *entry, Failure *failure) {
  Racer racers[CUDA_RACERS];
  Operand o[OPERANDS];
  operands(&entry->product, o);
  if (!ok(fill_all(race, o), entry, failure)) return false;
  int count = gather(race, products, entry, racers, failure);
  if (count == 0 || !ok(run_rounds(race, products, entry, racers, count), entry, failure) ||
      !ok(endure_all(race, products, entry, racers, count), entry, failure))
    return false;
  decide(entry, racers, count);
  return ok(clear_all(race, o), entry, failure);
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

bool cuda_race_open(CudaRace *race, Arena *arena, cudaStream_t stream, Failure *failure) {
  cudaError_t error = cudaSuccess;
  *race = (CudaRace){.stream = stream};
  for (uint64_t i = 0; i < 2; i++) race->numbers[i][0] = numbers(arena, i + 1, 10, 15), race->numbers[i][1] = numbers(arena, i + 3, 7, 127);
  for (int i = 0; i <= CUDA_RACERS && error == cudaSuccess; i++) error = cudaEventCreate(&race->events[i]);
  if (error == cudaSuccess) return true;
  return fail(failure, RUN_INVALID, "cuda: events for racing products: %s", cudaGetErrorString(error));
}

void cuda_race_close(CudaRace *race) {
  if (race->stream != NULL) cudaStreamSynchronize(race->stream); /* a race that failed may still be reading the numbers */
  for (int i = 0; i <= CUDA_RACERS; i++)
    if (race->events[i] != NULL) cudaEventDestroy(race->events[i]);
}
