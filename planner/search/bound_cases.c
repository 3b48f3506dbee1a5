/* Owns: the questions of bound_cases.h. */
#include "planner/search/bound_gathers.h"

#include <math.h>

static void ask(Finder *f, Question question) {
  if (question.ns > f->next.ns) f->next = question;
}

static Case of_gather(const Gather *gather, CaseKind kind, int32_t op) {
  return (Case){.kind = kind, .unit = gather->unit, .backward = gather->again, .op = op, .use = gather->to};
}

static void ask_beside(Finder *f, const Gather *gather) {
  const int32_t op = gather->passes;
  if (op <= gather->blocked) return;
  ask(f, (Question){.answers = {of_gather(gather, CASE_AFTER, op), of_gather(gather, CASE_BEFORE, op)},
                    .count = 2,
                    .ns = windows_rest(f, terms_allgather_ns(f->in, gather->unit), op, gather->by)});
}

static bool is_read(const Finder *f, uint32_t reduction, int32_t op) {
  for (uint32_t i = 0; i < f->in->assumed.count; i++) {
    const Case *one = &f->in->assumed.data[i];
    if (one->kind == CASE_READ && one->reduction >= reduction && one->op <= op) return true;
  }
  return false;
}

/* Of the last gradient that is whole before op `op`. bytes: of the unit, and of those before it in the queue. */
static void ask_gradient(Finder *f, const Gather *gather, int32_t op, double bytes) {
  const uint32_t whole = windows_whole_before(f, op), reduction = whole - 1;
  if (!whole || is_read(f, reduction, op)) return;
  const uint32_t u = f->in->skeleton->reduced[reduction];
  const double gradient = terms_gradient_bytes(f->in, u), room = room_at(f, op) - gradient;
  if (gradient <= 0 || room >= bytes + shard_bytes(f, gather->unit)) return;
  Case read = {.kind = CASE_READ, .reduction = reduction, .op = op}, behind = of_gather(gather, CASE_BEHIND, op);
  behind.reduction = reduction;
  ask(f, (Question){.answers = {of_gather(gather, CASE_AFTER, op), read, behind, of_gather(gather, CASE_BEFORE, op)},
                    .count = room >= bytes ? 4 : 3,
                    .ns = fmin(windows_rest(f, terms_allgather_ns(f->in, gather->unit), op, gather->by),
                               windows_rest(f, windows_read_ns(f, u), whole_with(f, reduction), op))});
}

static void ask_gradients(Finder *f, const Gathers *gathers, uint32_t i) {
  const Gather *gather = &gathers->data[i];
  const double ns = terms_allgather_ns(f->in, gather->unit);
  double bytes = full_bytes(f, gather->unit);
  uint32_t before = i;
  for (int32_t op = gather->by - 1; op > gather->blocked && op >= f->in->skeleton->program->turn && windows_rest(f, ns, op, gather->by) > 0; op--) {
    for (; before > 0 && gathers->data[before - 1].by > op; before--) bytes += gather_ahead(f, &gathers->data[before - 1], gather);
    ask_gradient(f, gather, op, bytes);
  }
}

/* Asked last: it says nothing of when. */
static void ask_kept(Finder *f, const Gather *gather) {
  ask(f, (Question){.answers = {of_gather(gather, CASE_AGAIN, gather->to), of_gather(gather, CASE_KEPT, gather->to)},
                    .count = 2,
                    .ns = terms_allgather_ns(f->in, gather->unit) / 1000});
}

void gathers_ask(Finder *f, const Gathers *gathers, uint32_t i, bool reduces) {
  const Gather *gather = &gathers->data[i];
  if (!gather->certain) {
    ask_kept(f, gather);
    return;
  }
  ask_beside(f, gather);
  if (reduces) ask_gradients(f, gathers, i);
}
