/* Owns: bound_copies.h. */
#include "planner/search/bound_copies.h"

#include <math.h>
#include <stdlib.h>

/* A result that is never run again: kept, or away. */
typedef struct Result {
  double bytes, away;
  int32_t made, last, needed; /* ops: that makes it, that reads it last in forward, first in backward */
} Result;

typedef struct Results {
  VEC(Result) list;
  double away; /* copies of all of them, one way */
} Results;

/* In the order in which they are made. */
static Results list_results(const Finder *f) {
  const Program *program = f->in->skeleton->program;
  const Flow *flow = &program->flow;
  Results out = {0};
  for (uint32_t i = 0; i < f->in->items->operators.count; i++) {
    const Item *item = &f->in->items->operators.data[i];
    const int32_t v = item->held ? flow->moved[item->op] : PLAN_NONE;
    if (v < 0 || !item->away_ns || flow->first_backward[v] < 0) continue;
    vec_push(f->scratch, &out.list, ((Result){(double)item->bytes, (double)item->away_ns, item->op, flow->last_forward[v], flow->first_backward[v]}));
    out.away += (double)item->away_ns;
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

/* What copies must take for longer than, for compute to rest in the window. */
static double hidden_ns(const Finder *f, int32_t from, int32_t to) { return f->copy_pace * (f->ops_ns[to] - f->ops_ns[from + 1]); }

/* Those needed by op `to` of backward, the last of them `last`, that are not there at an op before are fetched after it. */
static void add_fetches(Finder *f, const Results *results, uint32_t last, int32_t to) {
  const int32_t turn = f->in->skeleton->program->turn;
  const Result *list = results->list.data;
  uint32_t next = last + 1;
  Held held = {0};
  double most = 0;
  for (int32_t from = to - 1; from >= turn && to - from <= LONGEST_WINDOW && hidden_ns(f, from, to) < results->away; from--) {
    while (next > 0 && list[next - 1].needed > from) hold(&held, &list[--next]);
    if (held.away > most + hidden_ns(f, from, to)) most = fmax(most, windows_add_copies(f, from, to, copied_ns(&held, room_at(f, from))));
  }
}

/* Those made before op `to` of forward, `count`, and not read by it or later, that do not fit beside it have left. */
static void add_stores(Finder *f, const Results *results, uint32_t count, int32_t to) {
  const Result *list = results->list.data;
  Held held = {0};
  double most = 0;
  for (uint32_t i = count; i-- > 0 && to - list[i].made <= LONGEST_WINDOW && hidden_ns(f, list[i].made, to) < results->away;) {
    if (list[i].last >= to) continue;
    hold(&held, &list[i]);
    if (held.away > most + hidden_ns(f, list[i].made, to))
      most = fmax(most, windows_add_copies(f, list[i].made, to, copied_ns(&held, room_at(f, to))));
  }
}

void copies_wait(Finder *f) {
  Results results = list_results(f);
  Result *list = results.list.data;
  const uint32_t count = results.list.count;
  uint32_t made = 0;
  for (int32_t to = 1; to < f->in->skeleton->program->turn && count; to++) {
    while (made < count && list[made].made < to) made++;
    add_stores(f, &results, made, to);
  }
  if (count) qsort(list, count, sizeof *list, by_need);
  for (uint32_t i = 0; i < count; i++)
    if (i + 1 == count || list[i + 1].needed > list[i].needed) add_fetches(f, &results, i, list[i].needed);
}
