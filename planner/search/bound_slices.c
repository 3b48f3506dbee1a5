/* Owns: bound_slices.h. */
#include "planner/search/bound_slices.h"

#include "base/sort.h"

#include <math.h>
#include <string.h>

static const double ALIKE = 1e-9; /* relative: by rounding */

static uint64_t first_needed(const void *slice) { return (uint64_t)((const Slice *)slice)->until; }
static uint64_t longest_away(const void *slice) { return sort_largest_first(((const Slice *)slice)->away / ((const Slice *)slice)->bytes); }
static uint64_t worth_most(const void *slice) { return sort_largest_first(((const Slice *)slice)->ns / ((const Slice *)slice)->bytes); }

static void sort_slices(Slices slices) {
  static const SortKey keys[] = {first_needed, longest_away, worth_most};
  sort_elements(slices.data, sizeof *slices.data, slices.count, keys, sizeof keys / sizeof *keys);
}

static bool as_much(double x, double y) { return fabs(x - y) <= ALIKE * x; }

/* They are worth as much a byte, whatever the weights and pair of terms. */
static bool alike(const Slice *x, const Slice *y) {
  return as_much(x->ns * y->bytes, y->ns * x->bytes) && as_much(x->away * y->bytes, y->away * x->bytes) && x->beside == y->beside &&
         x->rests == y->rests;
}

static Slice together(Slice x, const Slice *y) {
  x.bytes += y->bytes;
  x.ns += y->ns;
  x.away += y->away;
  return x;
}

static uint32_t end_of_run(const Slices *slices, uint32_t first) {
  const Slice *data = slices->data;
  uint32_t end = first + 1;
  while (end < slices->count && alike(&data[first], &data[end]) && data[end].until >= data[end - 1].until) end++;
  return end;
}

Runs slices_group(Arena *arena, Slices slices) {
  Runs out = {slices, ARENA_ARRAY(arena, Slice, slices.count), ARENA_ARRAY(arena, uint32_t, slices.count), 0};
  sort_slices(slices);
  for (uint32_t first = 0, end; first < slices.count; first = end) {
    end = out.end[out.count++] = end_of_run(&slices, first);
    for (uint32_t i = end; i-- > first;) out.rest[i] = i + 1 < end ? together(slices.data[i], &out.rest[i + 1]) : slices.data[i];
  }
  return out;
}

/* The first backward use of any value that keeping the op's results keeps. */
static int32_t needed_until(const Flow *flow, const Item *item) {
  int32_t until = item->last;
  for (uint32_t k = flow->first[item->op]; k < flow->first[item->op + 1]; k++) {
    int32_t use = flow->first_backward[flow->refs[k].value];
    if (flow->refs[k].writes && use >= 0 && use < until) until = use;
  }
  return until;
}

/* One of an item, as another that differs in what it holds. What is away beside results that stay is told apart from these: of an item that is
 * kept, away or run again neither costs more than the item does. */
static void add_item(const Program *program, const Item *item, Slice slice, Slices *out) {
  const double bytes = slice.bytes, moved_bytes = slice.away > 0 ? (double)item_moved_bytes(&program->flow, item) : bytes;
  slice.bytes = fmin(bytes, moved_bytes);
  out->data[out->count++] = slice;
  if (bytes <= moved_bytes) return;
  slice.bytes = bytes - moved_bytes;
  slice.beside = true;
  out->data[out->count++] = slice;
}

Runs slices_of_operators(Arena *arena, const Program *program, const Items *items, const Items *again, bool copies_beside) {
  Slices out = {ARENA_ARRAY(arena, Slice, 2 * (size_t)items->count + again->count), 0};
  for (uint32_t i = 0; i < items->count; i++) {
    const Item *item = &items->data[i];
    const Slice slice = {.bytes = (double)item->bytes,
                         .ns = item->held ? NEVER : (double)item->least_ns,
                         .away = (double)item->away_ns,
                         .link = copies_beside,
                         .until = needed_until(&program->flow, item)};
    add_item(program, item, slice, &out);
  }
  for (uint32_t i = 0; i < again->count; i++)
    out.data[out.count++] =
        (Slice){.bytes = NEVER, .ns = (double)again->data[i].least_ns, .link = copies_beside, .until = needed_until(&program->flow, &again->data[i])};
  return slices_group(arena, out);
}

int32_t slices_latest(const Runs *runs, double bytes) {
  int32_t latest = 0;
  for (uint32_t r = 0; r < runs->count; r++) {
    const Slice *last = &runs->slices.data[runs->end[r] - 1];
    if (last->bytes >= bytes && last->until > latest) latest = last->until;
  }
  return latest;
}

/* Of slices [first, end) of one run the first that is needed by ops after `op`. */
static uint32_t first_after(const Runs *runs, uint32_t first, uint32_t end, int32_t op) {
  while (first < end) {
    uint32_t middle = first + (end - first) / 2;
    if (runs->slices.data[middle].until > op)
      end = middle;
    else
      first = middle + 1;
  }
  return first;
}

/* Of slices [first, end) of a run that lasts until `last`. */
static void add_part(const Runs *runs, uint32_t first, uint32_t end, uint32_t last, Slices *out) {
  if (first >= end) return;
  Slice part = runs->rest[first];
  if (end < last) {
    part.bytes -= runs->rest[end].bytes;
    part.ns -= runs->rest[end].ns;
    part.away -= runs->rest[end].away;
  }
  if (part.bytes > 0) out->data[out->count++] = part;
}

Slices slices_at(Arena *scratch, const Runs *runs, int32_t at, int32_t split, Slices more) {
  Slices out = {ARENA_ARRAY(scratch, Slice, 2 * (size_t)runs->count + more.count), 0};
  uint32_t first = 0;
  for (uint32_t r = 0; r < runs->count; r++) {
    const uint32_t end = runs->end[r];
    if (runs->slices.data[first].bytes < NEVER) first = first_after(runs, first, end, at);
    const uint32_t middle = first_after(runs, first, end, split);
    add_part(runs, first, middle, end, &out);
    add_part(runs, middle, end, end, &out);
    first = end;
  }
  sort_slices(more);
  for (uint32_t i = 0; i < more.count; i++) out.data[out.count++] = more.data[i];
  return out;
}

double slices_bytes(const Slices *slices) {
  double bytes = 0;
  for (uint32_t i = 0; i < slices->count; i++) bytes += slices->data[i].bytes;
  return bytes;
}
