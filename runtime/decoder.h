/* Owns: a forward plan at work: tokens in, the logits of what follows the last one out. Keys and values of earlier tokens
 * stay in the plan's caches, so a token costs one row of the model.
 *
 * The context is a window. A token too many drops the older half of it: positions change for all that stay, so their keys
 * and values are computed again, several rows at a time. A token thus sees from ctx / 2 to ctx tokens, itself included. */
#ifndef FSDPC_RUNTIME_DECODER_H
#define FSDPC_RUNTIME_DECODER_H

#include "kernels/half.h"
#include "runtime/backend.h"
#include "runtime/failure.h"

typedef struct Decoder {
  Feed feed; /* first: the backend is given &decoder->feed */
  const Plan *plan;
  Backend *backend;
  int32_t prefill, decode; /* segments; prefill PLAN_NONE where nothing is cached */
  uint64_t ctx, rows;      /* rows: of prefill */
  int64_t vocab;
  int32_t *tokens; /* ctx, the first `count` of them the window */
  Half *halves;    /* a row of logits of 16 bits; NULL where they have 32 */
  bool guarded;    /* the backend allocates nothing while it runs: that is checked (alloc_guard.h) */
  uint64_t count, cached; /* the first `cached` tokens' keys and values are in the caches */
} Decoder;

/* False when the plan is no forward plan of one sample on one rank that ends with a row of logits. Allocates all there is. */
bool decoder_init(Arena *arena, Decoder *decoder, const Plan *plan, Failure *failure);
/* requires: a backend opened with decoder->feed, its weights written. */
bool decoder_start(Decoder *decoder, Backend *backend, Failure *failure);
void decoder_append(Decoder *decoder, int32_t token);
/* logits[vocab] after the tokens appended so far, at least one. */
bool decoder_logits(Decoder *decoder, float *logits, Failure *failure);

#endif
