/* Owns: bound_waits.h. */
#include "planner/search/bound_copies.h"
#include "planner/search/bound_gathers.h"
#include "planner/search/bound_waits.h"

/* Before op `to` the gradient has been read, and what is before it in the queue is done. */
static void add_read(Finder *f, uint32_t last, int32_t to) {
  double ns = windows_read_ns(f, f->in->skeleton->reduced[last]);
  windows_add(f, whole_with(f, last), to, ns);
  for (uint32_t i = last; i-- > 0 && to - whole_with(f, i) <= LONGEST_WINDOW;) {
    ns += windows_queued_ns(f, i);
    windows_add(f, whole_with(f, i), to, ns);
  }
}

/* Op `to` does not fit beside the gradient that is whole with op `from`: it waits for that one's reduction, and for those before it in the queue. */
static void add_reductions(Finder *f, uint32_t last) {
  const int32_t from = whole_with(f, last);
  const uint32_t u = f->in->skeleton->reduced[last];
  const double bytes = terms_gradient_bytes(f->in, u);
  const int32_t end = op_count(f) - from > LONGEST_WINDOW ? from + LONGEST_WINDOW : op_count(f);
  int32_t to = from + 1;
  while (to < end && bytes <= room_at(f, to) && windows_rest(f, windows_read_ns(f, u), from, to) > 0) to++;
  if (to < end && bytes > room_at(f, to)) add_read(f, last, to);
}

static void add_assumed(Finder *f) {
  for (uint32_t i = 0; i < f->in->assumed.count; i++)
    if (f->in->assumed.data[i].kind == CASE_READ) add_read(f, f->in->assumed.data[i].reduction, f->in->assumed.data[i].op);
}

static void find_waits(Finder *f, Waits *out) {
  const bool reduces = f->in->start->ranks > 1 && f->pass->reduces, behind = reduces && f->in->skeleton->shared_queue;
  const bool gathers = f->pass->gathers && decisions_gather(f->in->start) && !f->in->start->gather_once; /* gathered once they stay, outside the room */
  for (uint32_t i = 0; i < f->in->skeleton->reduced_count && reduces; i++) add_reductions(f, i);
  add_assumed(f);
  if (gathers && !f->is_long) {
    const Gathers forward = gathers_find(f, false, false);
    gathers_wait(f, &forward, false, false);
  }
  const Gathers backward = gathers_find(f, true, reduces);
  gathers_wait(f, &backward, behind, reduces);
  if (f->is_long) return;
  copies_wait(f);
  gathers_sum(f, &backward, reduces, out);
}

Waits waits_find(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live) {
  const size_t ops = in->skeleton->program->ops.count;
  Waits out = {.begun = ARENA_ARRAY(scratch, double, ops + 1), .ended = ARENA_ARRAY(scratch, double, ops + 1), .late = ARENA_ARRAY(scratch, double, ops + 1)};
  if (!in->skeleton->copies_beside || in->skeleton->program->turn >= (int32_t)ops) return out; /* copies in compute's own time fill any rest */
  Finder f = windows_open(scratch, in, pass, live);
  find_waits(&f, &out);
  out.next = f.next;
  if (f.waits.count) windows_sum_up(&f, &out);
  out.found = f.waits.count || out.apart > 0 || out.again > 0;
  return out;
}
