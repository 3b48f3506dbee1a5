/* Owns: the treap behind intervals.h. Node 0 is "none". */
#include "planner/plan/intervals.h"

static IntervalNode *node(const IntervalPool *pool, uint32_t id) {
  return &pool->nodes.data[id];
}

static uint32_t new_node(IntervalPool *pool, Interval interval) {
  if (!pool->nodes.count) {
    vec_push(pool->arena, &pool->nodes, (IntervalNode){0});
    pool->seed = (uint32_t)((uintptr_t)pool >> 4) ^ (uint32_t)((uintptr_t)pool->arena >> 4);
  }
  uint32_t id = pool->free;
  if (id) {
    pool->free = node(pool, id)->left;
  } else {
    id = pool->nodes.count;
    vec_push(pool->arena, &pool->nodes, (IntervalNode){0});
  }
  pool->seed = pool->seed * 1664525u + 1013904223u; /* a linear congruential sequence (Numerical Recipes) */
  uint32_t mixed = (pool->seed ^ pool->seed >> 15) * 0x2c1b3c6du;
  *node(pool, id) = (IntervalNode){interval, mixed ^ mixed >> 13, 0, 0};
  return id;
}

static void free_node(IntervalPool *pool, uint32_t id) {
  node(pool, id)->left = pool->free;
  pool->free = id;
}

/* Intervals that begin before `key` go left. */
static void split(IntervalPool *pool, uint32_t root, uint64_t key, uint32_t *left, uint32_t *right) {
  if (!root) {
    *left = *right = 0;
  } else if (node(pool, root)->interval.begin < key) {
    *left = root;
    split(pool, node(pool, root)->right, key, &node(pool, root)->right, right);
  } else {
    *right = root;
    split(pool, node(pool, root)->left, key, left, &node(pool, root)->left);
  }
}

static uint32_t merge(IntervalPool *pool, uint32_t left, uint32_t right) {
  if (!left || !right) return left ? left : right;
  if (node(pool, left)->priority > node(pool, right)->priority) {
    node(pool, left)->right = merge(pool, node(pool, left)->right, right);
    return left;
  }
  node(pool, right)->left = merge(pool, left, node(pool, right)->left);
  return right;
}

void intervals_drop(IntervalPool *pool, IntervalMap *map) {
  if (!*map) return;
  intervals_drop(pool, &node(pool, *map)->left);
  intervals_drop(pool, &node(pool, *map)->right);
  free_node(pool, *map);
  *map = 0;
}

const Interval *intervals_after(const IntervalPool *pool, IntervalMap map, uint64_t from) {
  const Interval *best = NULL;
  while (map) {
    const IntervalNode *at = node(pool, map);
    if (at->interval.end > from) {
      best = &at->interval;
      map = at->left;
    } else {
      map = at->right;
    }
  }
  return best;
}

bool intervals_cover(const IntervalPool *pool, IntervalMap map, uint64_t begin, uint64_t end) {
  const Interval *at = intervals_after(pool, map, begin);
  return at && at->begin <= begin && at->end >= end;
}

bool intervals_touch(const IntervalPool *pool, IntervalMap map, uint64_t begin, uint64_t end) {
  const Interval *at = intervals_after(pool, map, begin);
  return at && at->begin < end;
}

/* Down to where the new node outranks what is there, which becomes its children. */
static void insert(IntervalPool *pool, IntervalMap *map, Interval interval) {
  uint32_t id = new_node(pool, interval), *at = map;
  while (*at && node(pool, *at)->priority > node(pool, id)->priority) {
    IntervalNode *above = node(pool, *at);
    at = above->interval.begin < interval.begin ? &above->right : &above->left;
  }
  split(pool, *at, interval.begin, &node(pool, id)->left, &node(pool, id)->right);
  *at = id;
}

/* The one that begins there. */
static void erase(IntervalPool *pool, IntervalMap *map, uint64_t begin) {
  uint32_t *at = map;
  while (node(pool, *at)->interval.begin != begin) {
    IntervalNode *above = node(pool, *at);
    at = above->interval.begin < begin ? &above->right : &above->left;
  }
  uint32_t id = *at;
  *at = merge(pool, node(pool, id)->left, node(pool, id)->right);
  free_node(pool, id);
}

/* Removes what lies in [begin, end), none of which reaches beyond both ends. What lies across one is shortened where it hangs: the order of
 * beginnings stays. */
static void clear_range(IntervalPool *pool, IntervalMap *map, uint64_t begin, uint64_t end) {
  Interval *at;
  while ((at = (Interval *)intervals_after(pool, *map, begin)) && at->begin < end) {
    if (at->begin >= begin && at->end <= end)
      erase(pool, map, at->begin);
    else if (at->begin >= begin)
      at->begin = end;
    else
      at->end = begin;
  }
}

/* The rest of the one interval that the part lies in stays as it is. */
static void set_within(IntervalPool *pool, IntervalMap *map, Interval *found, Interval part) {
  const Interval whole = *found;
  if (whole.begin < part.begin) {
    found->end = part.begin;
    insert(pool, map, part);
  } else {
    *found = part;
  }
  if (part.end < whole.end) insert(pool, map, (Interval){part.end, whole.end, whole.value});
}

void intervals_set(IntervalPool *pool, IntervalMap *map, uint64_t begin, uint64_t end, int32_t value) {
  const Interval part = {begin, end, value};
  Interval *found = (Interval *)intervals_after(pool, *map, begin);
  if (found && found->begin <= begin && end <= found->end) {
    set_within(pool, map, found, part);
    return;
  }
  if (found && found->begin < end) clear_range(pool, map, begin, end);
  insert(pool, map, part);
}

void intervals_add(IntervalPool *pool, IntervalMap *map, uint64_t begin, uint64_t end) {
  if (intervals_cover(pool, *map, begin, end)) return;
  const Interval *before = intervals_after(pool, *map, begin ? begin - 1 : 0);
  if (before && before->begin < begin) begin = before->begin;
  const Interval *after = intervals_after(pool, *map, end);
  if (after && after->begin <= end) end = after->end;
  intervals_set(pool, map, begin, end, 0);
}
