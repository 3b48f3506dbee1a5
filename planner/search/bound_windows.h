/* Owns: windows of operators in which compute rests, how they are listed and summed up: for bound_waits.h, which says what they are of. */
#ifndef FSDPC_PLANNER_BOUND_WINDOWS_H
#define FSDPC_PLANNER_BOUND_WINDOWS_H

#include "planner/search/bound_terms.h"

/* Operators of a window, and its gathers, at most: over links so slow that it could be longer, much else waits too, and all windows would take quadratic time. */
enum { LONGEST_WINDOW = 256, LONGEST_CHAIN = 4 };

/* Operators (from, to): compute rests before `to`. */
typedef struct Wait {
  int32_t from, to;
  double ns;
} Wait;

typedef VEC(Wait) WaitList;

/* What may fill the window (from, to). */
typedef struct Filled {
  int32_t from, to;
  double ns;
} Filled;

typedef struct Finder {
  const BoundInput *in;
  const MicroPass *pass;
  const double *live, *ops_ns; /* ops_ns: by op, of those before it */
  const double *between;   /* of terms_live_before; NULL: not asked for yet */
  double pace, copy_pace;  /* how long a communicator works at most, of its time alone, and copies, while operators of one second run */
  bool is_long;            /* as a program */
  const int32_t *whole;    /* by reduction: the op with which its gradient is */
  Arena *scratch;
  bool *seen;              /* by forward op: counted in the window that is looked at */
  int32_t *marked, *stack; /* those that are seen; those of them whose own inputs have not been looked at */
  uint32_t seen_count;
  Filled filled;           /* of the ops that are seen */
  WaitList waits;
  Question next;           /* the one that promises most */
} Finder;

/* live: of terms_live. */
Finder windows_open(Arena *scratch, const BoundInput *in, const MicroPass *pass, const double *live);
/* How long compute rests at least before op `to`, for communication of so long that begins after op `from`, nothing being run again. */
double windows_rest(const Finder *f, double ns, int32_t from, int32_t to);
/* Lists that, less what may fill it. */
void windows_add(Finder *f, int32_t from, int32_t to, double ns);
/* Likewise of copies, which compute does not slow. Returns what was listed. */
double windows_add_copies(Finder *f, int32_t from, int32_t to, double ns);
/* At most what is run again, and lost to copies, for ops (from, to]. In forward copies leave, and nothing is run again. Windows that end with the
 * same op, the next one always longer, take no longer than the longest. */
double windows_filled(Finder *f, int32_t from, int32_t to);
/* By unit: the first op of backward that needs it, or needs what is run again with it. */
const int32_t *windows_earliest(Finder *f);
/* Of a unit's gradient, until its buffer is free. */
double windows_read_ns(const Finder *f, uint32_t unit);
/* What a reduction takes of the queue that sums over shards go through. */
double windows_queued_ns(const Finder *f, uint32_t reduction);
/* By op: bytes that every plan has live before it begins. */
const double *windows_between(Finder *f);
/* How many gradients are whole before op `op`. */
uint32_t windows_whole_before(const Finder *f, int32_t op);
/* Of windows that do not overlap those whose rests are longest together. */
void windows_sum_up(const Finder *f, Waits *out);

static inline int32_t op_count(const Finder *f) { return (int32_t)f->in->skeleton->program->ops.count; }
static inline double room_at(const Finder *f, int32_t op) { return (double)f->in->room - f->live[op]; }
static inline double full_bytes(const Finder *f, uint32_t u) { return (double)f->in->skeleton->figures[u].full_bytes; }
static inline double shard_bytes(const Finder *f, uint32_t u) { return (double)f->in->skeleton->figures[u].shard_bytes; }
static inline int32_t whole_with(const Finder *f, uint32_t reduction) { return f->whole[reduction]; }

#endif
