/* Owns: what buffers are sorted by, as numbers of which the smallest comes first. What orders a list finally is sorted by last. */
#ifndef FSDPC_PLANNER_MEMORY_KEYS_H
#define FSDPC_PLANNER_MEMORY_KEYS_H

#include "base/sort.h"
#include "planner/plan/plan.h"

typedef uint64_t (*BufKey)(const PlanBuf *buf);

static inline uint64_t first_born(const PlanBuf *buf) { return (uint64_t)buf->first; }
static inline uint64_t last_to_die(const PlanBuf *buf) { return UINT64_MAX - (uint64_t)buf->last; }
static inline uint64_t largest(const PlanBuf *buf) { return UINT64_MAX - buf->bytes; }
static inline uint64_t longest(const PlanBuf *buf) { return UINT64_MAX - (uint64_t)(buf->last - buf->first); }
static inline uint64_t largest_area(const PlanBuf *buf) { return sort_largest_first((double)buf->bytes * (buf->last - buf->first + 1)); }

#endif
