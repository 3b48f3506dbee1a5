/* Owns: when what gradients are added to, left in host memory by earlier micro-batches, is fetched. */
#include "planner/schedule/schedule_build.h"

bool schedule_adds_from_host(const Decisions *d) { return (d->offload & OFFLOAD_GRADIENTS) && decisions_adds_up(d); }

/* What is fetched ahead of more than two others would only fill memory. */
enum { BRINGS_AHEAD = 2 };

static Reduction *brought(const Builder *b, uint32_t k) { return &b->schedule->reductions[b->schedule->brought[k]]; }

int32_t brings_needed_by(const Builder *b, const Reduction *reduction) { return b->decisions->ranks == 1 ? reduction->first : reduction->after; }

static uint64_t needed_at(const Builder *b, const Reduction *reduction) {
  if (b->decisions->ranks == 1) return b->start[reduction->first];
  return b->start[sooner_step(reduction->after + 1, b->schedule->step_count - 1)];
}

int64_t brings_bytes(const Builder *b, const Reduction *reduction) {
  const UnitFigures *of = &b->skeleton->figures[reduction->unit];
  return (int64_t)(b->decisions->ranks == 1 ? of->gradient_bytes : of->image_bytes);
}

static int32_t bring_floor(const Builder *b, uint32_t k) { return k >= BRINGS_AHEAD ? brings_needed_by(b, brought(b, k - BRINGS_AHEAD)) : 0; }

void brings_first(Builder *b) {
  for (uint32_t k = 0; b->due && k < b->schedule->reduction_count; k++) brought(b, k)->issue = bring_floor(b, k);
}

void brings_late(Builder *b) {
  const double safe = safe_share(&b->decisions->overlap);
  uint64_t latest = UINT64_MAX;
  for (uint32_t k = b->due ? b->schedule->reduction_count : 0; k-- > 0;) {
    Reduction *reduction = brought(b, k);
    const int32_t floor = bring_floor(b, k);
    int32_t at = reduction->issue = brings_needed_by(b, reduction);
    latest = before(sooner(needed_at(b, reduction), latest), (uint64_t)(safe * (double)b->skeleton->figures[reduction->unit].image_ns));
    while (at > floor && b->start[at] > latest) at--;
    b->due[b->schedule->brought[k]] = at;
  }
}

void brings_early(Builder *b) {
  int32_t floor = 0;
  for (uint32_t k = 0; b->due && k < b->schedule->reduction_count; k++) {
    Reduction *reduction = brought(b, k);
    const int64_t bytes = brings_bytes(b, reduction);
    const int32_t least = later_step(b->due[b->schedule->brought[k]], floor);
    while (reduction->issue > least && b->schedule->live[reduction->issue - 1] + bytes <= (int64_t)b->decisions->room) b->schedule->live[--reduction->issue] += bytes;
    floor = reduction->issue;
  }
}
