/* Owns: bound.h. */
#include "planner/search/bound_row.h"
#include "planner/search/bound_waits.h"

#include <math.h>
#include <stdlib.h>

enum { RECORDS = 8, MOST_ROWS = 2 * (RECORDS + 3) };
enum { MOST_LEAVES = 64, MOST_OPS_APART = 600 }; /* MOST_OPS_APART: of longer programs no cases are told apart */

/* --- rows ------------------------------------------------------------------------------------------------------------------------ */

/* What can be given up of units. */
static Runs slice_units(Arena *scratch, const BoundInput *in) {
  const Skeleton *skeleton = in->skeleton;
  Slices out = {ARENA_ARRAY(scratch, Slice, skeleton->units->units.count), 0};
  for (uint32_t u = 0; u < skeleton->units->units.count; u++)
    if (terms_gathers_again(in, u) && terms_may_keep(in, u))
      out.data[out.count++] = (Slice){.bytes = (double)skeleton->figures[u].full_bytes,
                                      .ns = terms_gather_ns(in, u),
                                      .link = true,
                                      .until = skeleton->ops[u].first_backward};
  return slices_group(scratch, out);
}

static void add_demand(const Slices *slices, int32_t turn, double *delta) {
  for (uint32_t i = 0; i < slices->count; i++)
    if (slices->data[i].bytes < NEVER) terms_add_range(delta, turn, slices->data[i].until - 1, slices->data[i].bytes);
}

/* The ops of the rows, each once. */
typedef struct RowOps {
  int32_t at[MOST_ROWS];
  uint32_t count;
} RowOps;

static void add_row(RowOps *rows, int32_t op) {
  for (uint32_t i = 0; i < rows->count; i++)
    if (rows->at[i] == op) return;
  rows->at[rows->count++] = op;
}

/* The first op where that is most. The value is looked for first, which needs no branches: they took a sixth of all bounds. */
static int32_t largest_from(const double *bytes, int32_t first, int32_t end) {
  double most = bytes[first];
  int32_t at = first;
  for (int32_t j = first; j < end; j++) most = most < bytes[j] ? bytes[j] : most;
  while (bytes[at] < most) at++;
  return at;
}

/* Where clearly more is taken than at any op before, where more is wanted of what may be kept: the other rows are weaker, or hardly stronger.
 * And where what is taken and wanted is most together. */
static void add_records(const double *taken, const double *together, int32_t turn, int32_t ops, RowOps *rows) {
  const int32_t most = largest_from(taken, turn, ops);
  const double step = (taken[most] - taken[turn]) / RECORDS;
  double next = taken[turn];
  for (int32_t j = turn; j <= most; j++) {
    if (taken[j] < next && j < most) continue;
    add_row(rows, j);
    next = taken[j] + step;
  }
  add_row(rows, largest_from(together, turn, ops));
}

/* From the loss on; also as if gradients that are on their way stayed. */
static RowOps choose_rows(Arena *scratch, const BoundInput *in, const Runs *items, const Runs *units, const double *live,
                          const Reducing *reducing) {
  const Program *program = in->skeleton->program;
  int32_t turn = program->turn, ops = (int32_t)program->ops.count;
  RowOps rows = {.count = 0};
  if (turn >= ops) return rows;
  double *wanted = ARENA_ARRAY(scratch, double, (size_t)ops + 1), *unreduced = ARENA_ARRAY(scratch, double, (size_t)ops + 1);
  double *together = ARENA_ARRAY(scratch, double, (size_t)ops);
  add_demand(&items->slices, turn, wanted);
  add_demand(&units->slices, turn, wanted);
  terms_add_unreduced(in, reducing, unreduced);
  for (int32_t j = turn + 1; j < ops; j++) {
    wanted[j] += wanted[j - 1];
    unreduced[j] += unreduced[j - 1];
  }
  for (int32_t j = turn; j < ops; j++) together[j] = live[j] + wanted[j];
  add_records(live, together, turn, ops, &rows);
  for (int32_t j = turn; j < ops; j++) {
    unreduced[j] += live[j];
    together[j] = unreduced[j] + wanted[j];
  }
  add_records(unreduced, together, turn, ops, &rows);
  return rows;
}

/* --- the whole ---------------------------------------------------------------------------------------------------------------------- */

static double most_ns_a_byte(const Row *row) {
  double most = 0;
  for (uint32_t i = 0; i < row->items.count; i++)
    if (!row->items.data[i].beside) most = fmax(most, row->items.data[i].away / row->items.data[i].bytes);
  return most;
}

/* One after the other gradients go: until those that are left fit, all must. */
static void give_up_unreduced(Slices *unreduced, double room) {
  double bytes = slices_bytes(unreduced);
  for (uint32_t i = 0; i < unreduced->count && bytes > room; i++) {
    bytes -= unreduced->data[i].bytes;
    unreduced->data[i].bytes = NEVER;
  }
}

static Row row_at(Arena *scratch, const BoundInput *in, const Runs *items, const Runs *units, const Reducing *reducing, int32_t at,
                  int32_t split, double room) {
  Slices unreduced = terms_unreduced(scratch, in, reducing, at);
  give_up_unreduced(&unreduced, room);
  Row row = {.items = slices_at(scratch, items, at, split, unreduced),
             .units = slices_at(scratch, units, at, INT32_MAX, (Slices){0}),
             .room = room,
             .at = at};
  row.fits = slices_bytes(&row.items) + slices_bytes(&row.units) <= room;
  double slowest = most_ns_a_byte(&row); /* starting a copy takes time too: what memory holds takes at most this */
  row.moves = slowest > 0;
  row.reorders = row.moves || split < INT32_MAX || unreduced.count;
  row.ran_ns = terms_ops_ns(in, in->skeleton->program->turn, at);
  row.reduced_ns = terms_reduced_ns(in, at);
  row.host_ns = in->host_room == UINT64_MAX ? NEVER : (double)in->host_room * slowest;
  row.offers = ARENA_ARRAY(scratch, Offer, row.items.count);
  for (uint32_t i = 0; i < row.items.count; i++) row.offers[i].slice = &row.items.data[i];
  return row;
}

static const char *binding(const Most *most) {
  const Terms *t = most->terms;
  if (most->at.link > 0.3) return "host link";
  if (most->at.price > 0 && most->again) return "host memory through recompute";
  if (most->at.share <= 0.5) return t->by;
  if (most->again) return "memory through recompute";
  if (most->rests) return "memory through reduce";
  return t->idle > t->a / 2 ? t->idle_by : "compute";
}

/* Of one micro-batch; ns below 0: nothing fits. */
typedef struct MicroBound {
  double ns;
  const char *by;
} MicroBound;

/* A micro-batch by one of the queues that gathers may be bound by. */
typedef struct Side {
  BoundInput in;
  const MicroPass *pass;
  Pairs pairs;
} Side;

static Side side_of(const BoundInput *in, const MicroPass *pass, bool fetch_bound) {
  Side side = {.in = *in, .pass = pass};
  side.in.fetch_bound = fetch_bound;
  side.pairs = terms_pairs(&side.in, pass, slices_latest(in->operators, 0), NULL);
  return side;
}

/* Schedules count whole nanoseconds, rounded down at each operator and collective. */
static double rounded_down(const BoundInput *in) {
  return in->skeleton->program->ops.count + 4.0 * in->skeleton->units->units.count;
}

/* With nothing given up for memory. */
static double side_least(const Side *side) {
  double most = 0;
  for (uint32_t p = 0; p < side->pairs.count; p++) most = fmax(most, fmax(side->pairs.data[p].a, side->pairs.data[p].b));
  return fmax(0, most - rounded_down(&side->in));
}

/* In one case. enough: it is raised no further than to that. next: what may be told apart. */
static MicroBound bound_case(Arena *scratch, const Side *side, const double *live, double enough, Question *next) {
  const BoundInput *in = &side->in;
  const MicroPass *pass = side->pass;
  const Runs *items = in->operators, units = slice_units(scratch, in);
  const Waits waits = waits_find(scratch, in, pass, live);
  *next = waits.next;
  const Pairs found = waits.found ? terms_pairs(in, pass, slices_latest(items, 0), &waits) : side->pairs, *pairs = &found;
  int32_t split = pairs->data[pairs->count - 1].until;
  const Reducing queue = terms_reducing(scratch, in, pass, slices_latest(items, NEVER));
  const RowOps rows = choose_rows(scratch, in, items, &units, live, &queue);
  Row row[MOST_ROWS];
  enough += rounded_down(in); /* time is left out later for what schedules round down */
  for (uint32_t i = 0; i < rows.count; i++) {
    row[i] = row_at(scratch, in, items, &units, &queue, rows.at[i], split, (double)in->room - live[rows.at[i]]);
    if (row[i].room < 0) return (MicroBound){-1, "memory"};
    row[i].waits = &waits;
  }
  if (row_shares_reach(pairs, row, rows.count, enough)) return (MicroBound){fmax(enough - rounded_down(in), side_least(side)), ""};
  Most most = {.ns = -1};
  for (uint32_t i = 0; i < rows.count; i++)
    for (uint32_t p = 0; p < pairs->count; p++) row_maximise(&pairs->data[p], &row[i], enough, &most);
  for (uint32_t p = 0; p < pairs->count && !rows.count; p++) row_maximise(&pairs->data[p], &(Row){.room = 0}, enough, &most);
  const char *by = binding(&most);
  double reducing = pass->reduces && in->start->ranks > 1 ? pairs->forward + terms_reducing_ns(scratch, in, live) : 0;
  if (reducing > most.ns) {
    most.ns = reducing;
    by = "memory through reduce";
  }
  double stored = pairs->forward + terms_stored_ns(in, pass); /* they leave after the loss */
  if (stored > most.ns) {
    most.ns = stored;
    by = "host link";
  }
  return (MicroBound){fmax(most.ns - rounded_down(in), side_least(side)), by};
}

/* A case, and what may be told apart in it. */
typedef struct Leaf {
  Cases assumed;
  MicroBound bound;
  Question next;
} Leaf;

/* The case of `leaf` in which this is so, too. */
static Leaf bound_answer(const Side *side, const Leaf *leaf, const Case *answer, double enough) {
  Arena *scratch = arena_new();
  Leaf out = {.assumed = leaf->assumed};
  Side one = *side;
  out.assumed.data[out.assumed.count++] = *answer;
  one.in.assumed = out.assumed;
  out.bound = bound_case(scratch, &one, terms_live(scratch, &one.in), enough, &out.next);
  if (out.bound.ns < 0) out.bound.ns = NEVER; /* no plan is one of these */
  if (out.bound.ns < leaf->bound.ns) out.bound = leaf->bound;
  arena_free(scratch);
  return out;
}

static uint32_t least_leaf(const Leaf *leaves, uint32_t count) {
  uint32_t least = 0;
  for (uint32_t i = 1; i < count; i++)
    if (leaves[i].bound.ns < leaves[least].bound.ns) least = i;
  return least;
}

/* The case with the least bound is told apart, again and again: the least that is left is a bound. */
static MicroBound bound_side(Arena *scratch, const Side *side, const double *live, double enough) {
  Leaf leaves[MOST_LEAVES];
  uint32_t count = 1, least = 0;
  leaves[0].assumed.count = 0;
  leaves[0].bound = bound_case(scratch, side, live, enough, &leaves[0].next);
  if (leaves[0].bound.ns < 0 || side->in.skeleton->program->ops.count > MOST_OPS_APART) return leaves[0].bound;
  for (;;) {
    const Leaf leaf = leaves[least];
    if (leaf.bound.ns >= enough || !leaf.next.count || leaf.assumed.count == MOST_ASSUMED || count + leaf.next.count > MOST_LEAVES) return leaf.bound;
    for (uint32_t i = 0; i < leaf.next.count; i++) leaves[i ? count++ : least] = bound_answer(side, &leaf, &leaf.next.answers[i], enough);
    least = least_leaf(leaves, count);
  }
}

/* Parameters that the host holds are fetched before they are gathered: either queue bounds. */
typedef struct Sides {
  Side data[2];
  uint32_t count;
} Sides;

static Sides sides_of(const BoundInput *in, const MicroPass *pass) {
  Sides sides = {.data = {side_of(in, pass, false)}, .count = 1};
  if (in->start->offload & OFFLOAD_PARAMETERS) sides.data[sides.count++] = side_of(in, pass, true);
  return sides;
}

static double sides_least(const Sides *sides) {
  double most = 0;
  for (uint32_t i = 0; i < sides->count; i++) most = fmax(most, side_least(&sides->data[i]));
  return most;
}

static MicroBound bound_sides(Arena *scratch, const Sides *sides, const double *live, double enough) {
  MicroBound most = bound_side(scratch, &sides->data[0], live, enough);
  for (uint32_t i = 1; i < sides->count && most.ns >= 0; i++) {
    const MicroBound next = bound_side(scratch, &sides->data[i], live, enough);
    if (next.ns > most.ns) most = next;
  }
  return most;
}

/* What of `enough` is left for one of so many micro-batches, where all else takes at least `others`. Each pass is rounded down. */
static double enough_of_micro(const BoundInput *in, double others, uint64_t count) {
  return in->enough == UINT64_MAX ? NEVER : ((double)in->enough + MICRO_PASSES - others) / (double)count + 1;
}

Bound bound_of(const BoundInput *in) {
  if (in->skeleton->update_bytes > in->room) return (Bound){UINT64_MAX, "memory"};
  MicroPass passes[MICRO_PASSES];
  Sides sides[MICRO_PASSES];
  uint32_t count = schedule_passes(in->start, passes), longest = 0;
  Bound bound = {in->skeleton->ends_ns, ""};
  double least = (double)bound.ns; /* of what has been bounded, and what the rest takes with nothing given up */
  for (uint32_t p = 0; p < count; p++) {
    sides[p] = sides_of(in, &passes[p]);
    least += sides_least(&sides[p]) * (double)passes[p].count;
  }
  if (in->enough != UINT64_MAX && least >= (double)in->enough + 1) return (Bound){(uint64_t)least, ""};
  Arena *scratch = arena_new();
  const double *live = terms_live(scratch, in);
  for (uint32_t p = 0; p < count && bound.ns != UINT64_MAX; p++) {
    const double n = (double)passes[p].count, others = least - n * sides_least(&sides[p]);
    MicroBound micro = bound_sides(scratch, &sides[p], live, enough_of_micro(in, others, passes[p].count));
    if (passes[p].count >= passes[longest].count) longest = p, bound.by = micro.by;
    bound.ns = micro.ns < 0 ? UINT64_MAX : bound.ns + (uint64_t)(micro.ns * n);
    least = others + n * micro.ns;
  }
  arena_free(scratch);
  return bound;
}
