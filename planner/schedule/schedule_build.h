/* Owns: nothing; what the files of the schedule share. schedule.c lists steps, gathers and reductions and holds buffers,
 * schedule_trips.c what goes to the host and back, schedule_brings.c what gradients there are added to, schedule_time.c has the clocks of a
 * micro-batch, schedule_ends.c those of what comes before and after all of them. */
#ifndef FSDPC_PLANNER_SCHEDULE_BUILD_H
#define FSDPC_PLANNER_SCHEDULE_BUILD_H

#include "base/sort.h"
#include "planner/schedule/schedule.h"

#include <math.h>

/* A value that is computed again: by step `first`, 0: it is not; read by what is run again last by step `last`. */
typedef struct Copy {
  int32_t first, last;
} Copy;

/* Steps in which a unit's parameters are read: in forward, in the rest; PLAN_NONE: not there. */
typedef struct Pass {
  int32_t first[2], last[2];
} Pass;

/* Of all units; and what there is of them in the order of the first steps, so that listing uses again needs no sort. */
typedef struct Passes {
  Pass *data;
  Keyed *order; /* id: 2 unit + pass */
  uint32_t count;
} Passes;

/* When what is under way ends, in one simulation. */
typedef struct EndTimes {
  uint64_t *gathered;           /* by use: when it has been */
  uint64_t *taken, *reduced;    /* by reduction: when the gradient has been read; when its sum is where it stays */
  uint64_t *stored, *fetched;   /* by trip: when it has been */
  uint64_t *brought;            /* by reduction: when what it adds to has been fetched */
} EndTimes;

struct Builder {
  Schedule *schedule;
  const Skeleton *skeleton;
  const Program *program;
  const Flow *flow;
  const Decisions *decisions; /* but for their issue rule */
  IssueRule issue;
  uint64_t room; /* bytes that all of it may take */
  Passes passes;
  EndTimes ends;
  int64_t *steady; /* by step: what it has more than the one before of values that stay on the device, under any rule */
  bool *available;   /* by value: kept from forward, or already computed again */
  Copy *copies;      /* by value */
  int32_t *step_of;  /* by op: its forward or backward step */
  int32_t *again;    /* recompute steps, in order */
  int32_t again_count;
  int32_t *last;     /* scratch by unit */
  int32_t *arrived;  /* by use: the step before which it has been gathered; 0: not known yet */
  int32_t *taken, *done; /* by reduction: the step before which that has ended although nothing waited for it */
  bool lands;        /* gradients are reduced to something that is not where it stays */
  int32_t *trip_of;  /* by value: trip + 1; NULL: no trips */
  int32_t *gone;     /* by trip: the step before which it has been stored */
  int32_t *wanted;   /* by trip: the last issue that lets everything start on time */
  int32_t *due;      /* likewise by reduction, of what it adds to; NULL: that is fetched at the last moment, if at all */
  bool timed;        /* how long buffers of copies and gathers are held is of a simulation: compute waits for what takes longer */
  uint64_t *start;   /* by step: when it starts to compute */
};

#define EACH_REF(flow, op, ref)                                                                               \
  (const FlowRef *ref = (flow)->refs + (flow)->first[op], *ref##_end = (flow)->refs + (flow)->first[(op) + 1]; \
   ref < ref##_end; ref++)

#define EACH_UNIT(skeleton, op, at) (uint32_t at = (skeleton)->first[op]; at < (skeleton)->first[(op) + 1]; at++)

static inline uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t sooner(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline int32_t later_step(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t sooner_step(int32_t a, int32_t b) { return a < b ? a : b; }
static inline uint64_t before(uint64_t ns, uint64_t lasting) { return ns > lasting ? ns - lasting : 0; }

/* How long before its use a copy or collective that is issued late is issued, by its own time: predicted durations are off, compute's perhaps
 * by being shorter. */
static inline double safe_share(const PlanOverlap *overlap) { return (1 + overlap->comm_spread) / (1 - fmin(overlap->compute_spread, 0.5)); }

/* --- schedule_time.c ---------------------------------------------------------------------------------------------- */

/* The time of one micro-batch; sets arrived, done, gone and start. */
uint64_t schedule_time(Builder *b, bool gathers, bool reduces);

/* --- schedule_ends.c ---------------------------------------------------------------------------------------------- */

/* Skeleton.ends_ns, of a skeleton that is complete but for it. */
uint64_t schedule_ends(Arena *arena, const Skeleton *skeleton);

/* --- schedule_trips.c --------------------------------------------------------------------------------------------- */

typedef struct Travel {
  uint32_t next_store, gone, next_fetch, next_return, next_release;
} Travel;

/* Each is held for no longer than it must be. */
void trips_list(Builder *b);
/* Before times are known: a device buffer lasts until the next store, and fetches begin as early as they may. What compute then waits for
 * cannot be helped: a wait that an earlier fetch would spare must not make it seem early enough to fetch late. */
void trips_hold_first(Builder *b);
/* By the times of the last simulation: when device buffers are wanted; until trips_hold each is held for no longer than it must be. */
void trips_time(Builder *b);
/* Holds them longer where there is room: elsewhere compute waits for copies. */
void trips_hold(Builder *b);
/* The next step before or after which any of the two below has something to do. */
int32_t trips_due(const Builder *b, const Travel *travel);
/* Fetches that are issued before step s, and when it may start for those that it reads, and stores whose buffers it may reuse. */
uint64_t trips_meet(const Builder *b, Travel *travel, int32_t s, uint64_t compute, uint64_t *in);
/* Stores after step s, which ends at `compute`; returns when compute goes on. */
uint64_t trips_leave(const Builder *b, Travel *travel, int32_t s, uint64_t compute, uint64_t *out);

/* --- schedule_brings.c -------------------------------------------------------------------------------------------- */

/* The step that cannot start, or whose gradient cannot be reduced, without what is added to; and what that takes until then. */
int32_t brings_needed_by(const Builder *b, const Reduction *reduction);
int64_t brings_bytes(const Builder *b, const Reduction *reduction);
/* Before times are known: as early as may be, as with trips_hold_first. */
void brings_first(Builder *b);
/* By the times of the last simulation: when each is due; until brings_early it is fetched at the last moment. */
void brings_late(Builder *b);
/* As soon as it is due where there is room: elsewhere it is waited for. */
void brings_early(Builder *b);

#endif
