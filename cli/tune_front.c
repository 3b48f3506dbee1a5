/* Owns: what dominates what in a sweep. A point is on the front when no other is at least as good in time a token, memory and
 * ranks (and cost, where every cluster has a price) and better in one of them. */
#include "cli/tune.h"

#include <stdlib.h>

typedef struct Key {
  const TunePoint *point;
  uint32_t index;
} Key;

static int compare(double a, double b) {
  return (a > b) - (a < b);
}

static int by_ranks_and_time(const void *a, const void *b) {
  const Key *x = a, *y = b;
  if (x->point->ranks != y->point->ranks) return x->point->ranks < y->point->ranks ? -1 : 1;
  int time = compare(x->point->ns_per_token, y->point->ns_per_token);
  if (time) return time;
  if (x->point->arena_bytes != y->point->arena_bytes) return x->point->arena_bytes < y->point->arena_bytes ? -1 : 1;
  return (x->index > y->index) - (x->index < y->index);
}

/* a is nowhere worse than b. */
static bool no_worse(const Tune *t, const TunePoint *a, const TunePoint *b) {
  return a->ns_per_token <= b->ns_per_token && a->arena_bytes <= b->arena_bytes && a->ranks <= b->ranks &&
         (!t->priced || a->usd_per_million <= b->usd_per_million);
}

static bool same(const Tune *t, const TunePoint *a, const TunePoint *b) {
  return no_worse(t, a, b) && no_worse(t, b, a);
}

/* Keys are sorted so that what dominates a point, or equals it, mostly stands before it; cost may break that order, so all
 * are compared with the front so far and the front is cleaned. */
static void place(Tune *t, uint32_t p) {
  const TunePoint *point = &t->points[p];
  for (uint32_t k = 0; k < t->front.count; k++) {
    const TunePoint *other = &t->points[t->front.data[k]];
    if (!no_worse(t, other, point)) continue;
    *(same(t, other, point) ? &t->same_as[p] : &t->dominated_by[p]) = (int32_t)t->front.data[k];
    return;
  }
  uint32_t kept = 0;
  for (uint32_t k = 0; k < t->front.count; k++) {
    uint32_t other = t->front.data[k];
    if (no_worse(t, point, &t->points[other]))
      t->dominated_by[other] = (int32_t)p;
    else
      t->front.data[kept++] = other;
  }
  t->front.count = kept;
  vec_push(t->cli->arena, &t->front, p);
}

void tune_front(Tune *t) {
  Arena *arena = t->cli->arena;
  Key *keys = ARENA_ARRAY(arena, Key, t->count);
  uint32_t fitting = 0;
  t->dominated_by = ARENA_ARRAY(arena, int32_t, t->count);
  t->same_as = ARENA_ARRAY(arena, int32_t, t->count);
  t->priced = true;
  for (uint32_t c = 0; c < t->dims[0].values.count; c++) t->priced &= t->graphs[c]->cluster.price_per_hour > 0;
  for (uint32_t p = 0; p < t->count; p++) {
    t->dominated_by[p] = t->same_as[p] = PLAN_NONE;
    if (t->points[p].state == TUNE_FITS) keys[fitting++] = (Key){&t->points[p], p};
  }
  qsort(keys, fitting, sizeof *keys, by_ranks_and_time);
  for (uint32_t k = 0; k < fitting; k++) place(t, keys[k].index);
  uint32_t count = 0; /* what stayed, in the order of the keys */
  for (uint32_t k = 0; k < fitting; k++)
    for (uint32_t f = 0; f < t->front.count; f++)
      if (t->front.data[f] == keys[k].index) keys[count++] = keys[k];
  for (uint32_t k = 0; k < count; k++) t->front.data[k] = keys[k].index;
}
