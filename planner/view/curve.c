/* Owns: see curve.h. */
#include "planner/view/curve.h"

#include <stdlib.h>

typedef struct Life {
  uint64_t begin, end;
  bool used;
} Life;

typedef struct Change {
  uint64_t ns;
  BufClass class;
  int64_t bytes;
} Change;

static void touch(Life *life, SimSpan span) {
  if (!life->used || span.start < life->begin) life->begin = span.start;
  if (!life->used || span.end > life->end) life->end = span.end;
  life->used = true;
}

static Life *find_lives(Arena *arena, const Plan *plan, const InstrSpec *specs, const PlanSegment *segment, const SimSpan *spans) {
  Life *lives = ARENA_ARRAY(arena, Life, plan->bufs.count);
  for (int32_t i = segment->first; i < segment->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    for (int k = 0; k < specs[instr->op].operand_count; k++) {
      int32_t buf = plan_operand(plan, instr, k)->buf;
      if (buf != PLAN_NONE && !plan->bufs.data[buf].persistent) touch(&lives[buf], spans[i]);
    }
  }
  return lives;
}

/* Deaths before births at the same moment: one buffer may take over the memory of another. */
static int by_time(const void *a, const void *b) {
  const Change *x = a, *y = b;
  if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
  return (x->bytes > 0) - (y->bytes > 0);
}

static void add_point(Arena *arena, Curve *curve, const CurvePoint *now) {
  CurvePoint *last = curve->count ? &curve->data[curve->count - 1] : NULL;
  if (last && last->ns == now->ns)
    *last = *now;
  else
    vec_push(arena, curve, *now);
}

Curve memory_curve(Arena *arena, const Plan *plan, const InstrSpec *specs, const PlanSegment *segment, const SimSpan *spans,
                   uint64_t begin_ns) {
  Curve curve = {0};
  Arena *scratch = arena_new();
  Life *lives = find_lives(scratch, plan, specs, segment, spans);
  VEC(Change) changes = {0};
  CurvePoint now = {.ns = begin_ns};
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (buf->host) continue;
    if (buf->persistent) {
      now.by_class[buf->class] += buf->bytes;
      now.total += buf->bytes;
    }
    if (!lives[b].used || lives[b].begin == lives[b].end) continue;
    Change birth = {lives[b].begin, buf->class, (int64_t)buf->bytes}, death = {lives[b].end, buf->class, -(int64_t)buf->bytes};
    vec_push(scratch, &changes, birth);
    vec_push(scratch, &changes, death);
  }
  if (changes.count) qsort(changes.data, changes.count, sizeof *changes.data, by_time);
  add_point(arena, &curve, &now);
  for (uint32_t c = 0; c < changes.count; c++) {
    now.ns = changes.data[c].ns;
    now.by_class[changes.data[c].class] += (uint64_t)changes.data[c].bytes;
    now.total += (uint64_t)changes.data[c].bytes;
    add_point(arena, &curve, &now);
  }
  arena_free(scratch);
  return curve;
}
