/* Owns: placing a plan's buffers in nearly linear time. Whatever is live across the loss is live there all at once, so it
 * stacks from the bottom without a gap in forward; in backward it is freed from the top, nearly in reverse. Everything
 * else lives briefly and hangs from the top of the arena, above the stack's height at its time.
 *
 * Briefly living buffers are found through buckets of list positions. O(n log n) but for the handful of buffers that are live
 * together. */
#include "planner/place/memory_stack.h"

#include "base/checked.h"
#include "planner/place/memory_keys.h"

#include <stdlib.h>

enum { BUCKET = 16 };

typedef struct Interval {
  uint64_t begin, end;
} Interval;

/* A buffer that has been placed, as a query of one bucket needs it. */
typedef struct Hung {
  Interval at;
  int32_t first, last; /* positions */
} Hung;

/* Buffers that meet some positions: side by side, since every query reads nearly all of them. */
typedef struct Bucket {
  Hung *hung;
  uint32_t count;
} Bucket;

typedef struct Stack {
  Arena *arena;
  Plan *plan;
  const StackInput *in;
  int32_t length, turn;     /* of the segment; positions below count from its start */
  uint64_t *height;         /* by position: where the stack ends */
  Bucket *buckets;          /* by position / BUCKET */
  VEC(Interval) near;       /* of one query */
} Stack;

static int32_t first_of(const Stack *s, const PlanBuf *buf) { return buf->first - s->in->first; }
static int32_t last_of(const Stack *s, const PlanBuf *buf) { return buf->last - s->in->first; }
static bool crosses(const Stack *s, const PlanBuf *buf) { return first_of(s, buf) < s->turn && last_of(s, buf) > s->turn; }

/* --- orders --------------------------------------------------------------------------------------------------------- */

enum { MOST_KEYS = 3 };
static const BufKey of_stacked[MOST_KEYS] = {last_to_die, first_born};
static const BufKey of_brief[STACK_ORDERS][MOST_KEYS] = {[STACK_BY_SIZE] = {first_born, largest},
                                                         [STACK_BY_AREA] = {first_born, largest, largest_area}};

static void sort_bufs(const Plan *plan, Keyed *bufs, Keyed *spare, uint32_t count, const BufKey keys[MOST_KEYS]) {
  for (int k = 0; k < MOST_KEYS && keys[k]; k++) {
    for (uint32_t i = 0; i < count; i++) bufs[i].key = keys[k](&plan->bufs.data[bufs[i].id]);
    sort_by_key(bufs, spare, count);
  }
}

/* --- the stack ------------------------------------------------------------------------------------------------------ */

/* Offsets of the stack and its height at every position. Returns its top. */
static uint64_t push_all(Stack *s, const Keyed *stacked, uint32_t count) {
  uint32_t length = (uint32_t)s->length;
  uint64_t at = s->in->base, *height = s->height = ARENA_ARRAY(s->arena, uint64_t, length);
  for (uint32_t i = 0; i < length; i++) height[i] = s->in->base;
  for (uint32_t i = 0; i < count; i++) {
    PlanBuf *buf = &s->plan->bufs.data[stacked[i].id];
    buf->offset = at;
    at += round_up(buf->bytes, PLAN_ALIGN_BYTES);
    int32_t first = first_of(s, buf), last = last_of(s, buf);
    if (height[first] < at) height[first] = at;
    if (height[last] < at) height[last] = at;
  }
  for (int32_t i = 1; i <= s->turn; i++)
    if (height[i] < height[i - 1]) height[i] = height[i - 1];
  for (int32_t i = (int32_t)length - 2; i > s->turn; i--)
    if (height[i] < height[i + 1]) height[i] = height[i + 1];
  return at;
}

/* Over [first, last]: it never falls up to the turn, and never rises after it. */
static uint64_t height_over(const Stack *s, int32_t first, int32_t last) {
  uint64_t before = first <= s->turn ? s->height[last < s->turn ? last : s->turn] : 0;
  uint64_t after = last > s->turn ? s->height[first > s->turn ? first : s->turn + 1] : 0;
  return before > after ? before : after;
}

/* --- what lives briefly --------------------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b) {
  const Interval *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Nearly always a handful, for which calling qsort takes longer than sorting. */
static void sort_near(Interval *near, uint32_t count) {
  enum { HANDFUL = 32 };
  if (count > HANDFUL) {
    qsort(near, count, sizeof *near, by_begin);
    return;
  }
  for (uint32_t i = 1; i < count; i++) {
    Interval interval = near[i];
    uint32_t at = i;
    for (; at && near[at - 1].begin > interval.begin; at--) near[at] = near[at - 1];
    near[at] = interval;
  }
}

/* Intervals of briefly living buffers that are live within [first, last], by address. */
static void find_near(Stack *s, int32_t first, int32_t last) {
  s->near.count = 0;
  for (int32_t b = first / BUCKET; b <= last / BUCKET; b++)
    for (uint32_t i = 0; i < s->buckets[b].count; i++) {
      const Hung *other = &s->buckets[b].hung[i];
      int32_t meets = other->first > first ? other->first : first; /* in that bucket of both, and perhaps in others: counted once */
      if (other->first > last || other->last < first || b != meets / BUCKET) continue;
      vec_push(s->arena, &s->near, other->at);
    }
  sort_near(s->near.data, s->near.count);
}

static uint64_t hang(Stack *s, PlanBuf *buf) {
  int32_t first = first_of(s, buf), last = last_of(s, buf);
  uint64_t size = round_up(buf->bytes, PLAN_ALIGN_BYTES), cursor = height_over(s, first, last), best = UINT64_MAX;
  find_near(s, first, last);
  for (uint32_t i = 0; i < s->near.count; i++) {
    if (s->near.data[i].begin >= cursor + size) best = s->near.data[i].begin - size;
    if (s->near.data[i].end > cursor) cursor = s->near.data[i].end;
  }
  buf->offset = cursor + size <= s->in->top ? s->in->top - size : best != UINT64_MAX ? best : cursor;
  for (int32_t b = first / BUCKET; b <= last / BUCKET; b++)
    s->buckets[b].hung[s->buckets[b].count++] = (Hung){{buf->offset, buf->offset + size}, first, last};
  return buf->offset + size;
}

/* Empty, with room for all that is going to be hung. */
static void open_buckets(Stack *s, const Keyed *brief, uint32_t count) {
  size_t buckets = (size_t)s->length / BUCKET + 1, total = 0;
  uint32_t *room = ARENA_ARRAY(s->arena, uint32_t, buckets);
  for (uint32_t i = 0; i < count; i++) {
    const PlanBuf *buf = &s->plan->bufs.data[brief[i].id];
    for (int32_t b = first_of(s, buf) / BUCKET; b <= last_of(s, buf) / BUCKET; b++) room[b]++, total++;
  }
  Hung *all = ARENA_ARRAY(s->arena, Hung, total);
  s->buckets = ARENA_ARRAY(s->arena, Bucket, buckets);
  for (size_t b = 0; b < buckets; all += room[b], b++) s->buckets[b].hung = all;
}

/* By area they come from all over the plan, so that most of the time goes by waiting for memory: it is asked for ahead, first for the buffer,
 * then for what its positions lead to. Returns where the highest ends. */
static uint64_t hang_all(Stack *s, const Keyed *brief, uint32_t count) {
  enum { AHEAD = 6 };
  PlanBuf *bufs = s->plan->bufs.data;
  uint64_t most = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (i + 2 * AHEAD < count) __builtin_prefetch(&bufs[brief[i + 2 * AHEAD].id].bytes);
    if (i + AHEAD < count) {
      int32_t first = first_of(s, &bufs[brief[i + AHEAD].id]);
      __builtin_prefetch(&s->height[first]);
      __builtin_prefetch(s->buckets[first / BUCKET].hung);
    }
    uint64_t end = hang(s, &bufs[brief[i].id]);
    if (end > most) most = end;
  }
  return most;
}

uint64_t memory_stack(Plan *plan, const StackInput *in) {
  if (in->turn >= in->end) return UINT64_MAX;
  Stack s = {.arena = arena_new(), .plan = plan, .in = in, .length = in->end - in->first, .turn = in->turn - in->first};
  Keyed *stacked = ARENA_ARRAY(s.arena, Keyed, plan->bufs.count), *brief = ARENA_ARRAY(s.arena, Keyed, plan->bufs.count);
  Keyed *spare = ARENA_ARRAY(s.arena, Keyed, plan->bufs.count);
  uint32_t stacked_count = 0, brief_count = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    if (plan->bufs.data[b].persistent || plan->bufs.data[b].host || plan->bufs.data[b].first < in->first || plan->bufs.data[b].first >= in->end) continue;
    if (crosses(&s, &plan->bufs.data[b]))
      stacked[stacked_count++].id = (int32_t)b;
    else
      brief[brief_count++].id = (int32_t)b;
  }
  sort_bufs(plan, stacked, spare, stacked_count, of_stacked);
  sort_bufs(plan, brief, spare, brief_count, of_brief[in->order]);
  uint64_t most = push_all(&s, stacked, stacked_count);
  open_buckets(&s, brief, brief_count);
  uint64_t end = hang_all(&s, brief, brief_count);
  if (end > most) most = end;
  arena_free(s.arena);
  return most;
}
