/* Owns: bound_copies.h. */
#include "planner/search/bound_copies.h"

#include <math.h>
#include <stdlib.h>

/* A result that is never run again: kept, or away. */
typedef struct Result {
  double bytes, away;
  int32_t made, last, needed; /* ops: that makes it, that reads it last in forward, first in backward */
} Result;

typedef VEC(Result) Results;

/* In the order in which they are made. */
static Results list_results(const Finder *f) {
  const Program *program = f->in->skeleton->program;
  const Flow *flow = &program->flow;
  Results out = {0};
  for (uint32_t i = 0; i < f->in->items->operators.count; i++) {
    const Item *item = &f->in->items->operators.data[i];
    const int32_t v = item->held ? flow->moved[item->op] : PLAN_NONE;
    if (v < 0 || !item->away_ns || flow->first_backward[v] < 0) continue;
    vec_push(f->scratch, &out, ((Result){(double)item->bytes, (double)item->away_ns, item->op, flow->last_forward[v], flow->first_backward[v]}));
  }
  return out;
}

/* Of results that a window is about. */
typedef struct Held {
  double away, most, least; /* least: bytes of the smallest, most: time of the longest */
  double worth;             /* time a byte, at most */
} Held;

static void hold(Held *held, const Result *r) {
  held->away += r->away;
  held->most = fmax(held->most, r->away);
  held->worth = fmax(held->worth, r->away / r->bytes);
  held->least = held->least > 0 ? fmin(held->least, r->bytes) : r->bytes;
}

/* At least what copies of those take that the room does not hold. */
static double copied_ns(const Held *held, double room) {
  if (held->least <= 0) return 0;
  const double kept = fmax(0, fmin(room * held->worth, floor(room / held->least) * held->most));
  return held->away - kept;
}

/* By the op that needs them first. */
static int by_need(const void *x, const void *y) {
  const Result *p = x, *q = y;
  return (p->needed > q->needed) - (p->needed < q->needed);
}

/* Those needed by op `to` of backward, the last of them `last`, that are not there at an op before are fetched after it. */
static void add_fetches(Finder *f, const Results *results, uint32_t last, int32_t to) {
  const int32_t turn = f->in->skeleton->program->turn, first = to - LONGEST_WINDOW > turn ? to - LONGEST_WINDOW : turn;
  uint32_t next = last + 1;
  Held held = {0};
  double most = 0;
  for (int32_t from = to - 1; from >= first; from--) {
    while (next > 0 && results->data[next - 1].needed > from) hold(&held, &results->data[--next]);
    const double ns = copied_ns(&held, room_at(f, from));
    if (ns > most) most = fmax(most, windows_add_copies(f, from, to, ns));
  }
}

/* Those made before op `to` of forward, `count`, and not read by it or later, that do not fit beside it have left. */
static void add_stores(Finder *f, const Results *results, uint32_t count, int32_t to) {
  const int32_t first = to > LONGEST_WINDOW ? to - LONGEST_WINDOW : 0;
  Held held = {0};
  double most = 0;
  for (uint32_t i = count; i-- > 0 && results->data[i].made >= first;) {
    if (results->data[i].last >= to) continue;
    hold(&held, &results->data[i]);
    const double ns = copied_ns(&held, room_at(f, to));
    if (ns > most) most = fmax(most, windows_add_copies(f, results->data[i].made, to, ns));
  }
}

void copies_wait(Finder *f) {
  Results results = list_results(f);
  const int32_t turn = f->in->skeleton->program->turn;
  uint32_t made = 0;
  for (int32_t to = 1; to < turn && results.count; to++) {
    while (made < results.count && results.data[made].made < to) made++;
    add_stores(f, &results, made, to);
  }
  if (results.count) qsort(results.data, results.count, sizeof *results.data, by_need);
  for (uint32_t i = 0; i < results.count; i++)
    if (i + 1 == results.count || results.data[i + 1].needed > results.data[i].needed) add_fetches(f, &results, i, results.data[i].needed);
}
