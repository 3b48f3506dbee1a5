/* Owns: collecting instruction times, and the table. */
#include "runtime/profile.h"

#include "base/text.h"
#include "runtime/runtime.h"

#include <inttypes.h>

enum { WARM_UP_STEPS = 2, UNIT_ROWS = 60 };

struct Profile {
  Arena *arena;
  const Plan *plan;
  uint64_t first_measured;
  InstrTime *times; /* of the running repetition, one an instruction */
  InstrTime *kept;  /* of the latest measured step, repetition after repetition */
  int32_t *kept_instr;
  uint64_t kept_count, capacity;
  MeasuredRun *runs; /* of the latest measured step: where in `kept` each repetition lies */
  uint64_t run_count, number;
  double *total_ns; /* one an instruction, over all repetitions of all measured steps */
  uint64_t steps, steps_ns, exposed_ns;
  bool measuring;
};

static uint64_t runs_a_step(const Plan *plan) {
  uint64_t runs = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++)
    runs += plan->segments.data[s].count * (uint64_t)(plan->segments.data[s].end - plan->segments.data[s].first);
  return runs;
}

static uint64_t repetitions(const Plan *plan) {
  uint64_t count = 0;
  for (uint32_t s = 0; s < plan->segments.count; s++) count += plan->segments.data[s].count;
  return count;
}

uint64_t profile_begin(uint64_t first_step, uint64_t last_step) {
  return first_step + WARM_UP_STEPS < last_step ? first_step + WARM_UP_STEPS : last_step;
}

Profile *profile_open(Arena *arena, const Plan *plan, uint64_t begin) {
  Profile *self = ARENA_NEW(arena, Profile);
  self->arena = arena;
  self->plan = plan;
  self->first_measured = begin;
  self->capacity = runs_a_step(plan);
  self->times = ARENA_ARRAY(arena, InstrTime, plan->instrs.count);
  self->kept = ARENA_ARRAY(arena, InstrTime, self->capacity);
  self->kept_instr = ARENA_ARRAY(arena, int32_t, self->capacity);
  self->runs = ARENA_ARRAY(arena, MeasuredRun, repetitions(plan));
  self->total_ns = ARENA_ARRAY(arena, double, plan->instrs.count);
  return self;
}

InstrTime *profile_times(Profile *self, uint64_t step) {
  self->measuring = step >= self->first_measured;
  self->kept_count = self->run_count = 0;
  self->number = step;
  return self->measuring ? self->times : NULL;
}

void profile_take(Profile *self, int32_t segment) {
  const PlanSegment *range = &self->plan->segments.data[segment];
  if (!self->measuring) return;
  self->runs[self->run_count++] = (MeasuredRun){segment, &self->kept[self->kept_count]};
  for (int32_t i = range->first; i < range->end && self->kept_count < self->capacity; i++) {
    self->kept[self->kept_count] = self->times[i];
    self->kept_instr[self->kept_count++] = i;
    self->total_ns[i] += (double)(self->times[i].end_ns - self->times[i].start_ns);
  }
}

/* --- exposed communication ---------------------------------------------------------------------------------------- */

static bool communicates(StreamId stream) {
  return stream == STREAM_GATHER || stream == STREAM_REDUCE || stream == STREAM_REPLICATE;
}

/* The next kept run on or after k that is of the stream. */
static uint64_t next_of(const Profile *self, uint64_t k, StreamId stream) {
  while (k < self->kept_count && self->plan->instrs.data[self->kept_instr[k]].stream != stream) k++;
  return k;
}

/* Time of a stream's communication during which nothing computed. Runs of one stream come one after the other, in order of the list;
 * those of two do not where they have queues of their own. */
static uint64_t exposed(const Profile *self, StreamId stream) {
  uint64_t total = 0, c = next_of(self, 0, STREAM_COMPUTE);
  for (uint64_t k = next_of(self, 0, stream); k < self->kept_count; k = next_of(self, k + 1, stream)) {
    uint64_t at = self->kept[k].start_ns, end = self->kept[k].end_ns;
    while (c < self->kept_count && self->kept[c].end_ns <= at) c = next_of(self, c + 1, STREAM_COMPUTE);
    for (uint64_t i = c; at < end; i = next_of(self, i + 1, STREAM_COMPUTE)) {
      uint64_t begin = i < self->kept_count && self->kept[i].start_ns < end ? self->kept[i].start_ns : end;
      if (begin > at) total += begin - at;
      if (begin == end) break;
      if (self->kept[i].end_ns > at) at = self->kept[i].end_ns;
    }
  }
  return total;
}

void profile_end_step(Profile *self, uint64_t step_ns) {
  if (!self->measuring) return;
  self->steps++;
  self->steps_ns += step_ns;
  for (int s = 0; s < STREAM_COUNT; s++)
    if (communicates((StreamId)s)) self->exposed_ns += exposed(self, (StreamId)s);
}

/* --- for others --------------------------------------------------------------------------------------------------- */

MeasuredStep profile_measured(const Profile *self) {
  MeasuredStep step = {.number = self->number, .runs = self->runs, .run_count = self->run_count};
  return step;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

typedef struct Row {
  double predicted_ns, measured_ns; /* a step */
} Row;

static uint64_t count_of(const Plan *plan, int32_t instr) {
  for (uint32_t s = 0; s < plan->segments.count; s++)
    if (instr >= plan->segments.data[s].first && instr < plan->segments.data[s].end)
      return plan->segments.data[s].count;
  return 1;
}

static void add(const Profile *self, int32_t i, Row *row) {
  row->predicted_ns += (double)self->plan->instrs.data[i].ns * (double)count_of(self->plan, i);
  row->measured_ns += self->total_ns[i] / (double)self->steps;
}

static void print_row(FILE *out, const char *name, const Row *row) {
  char predicted[32], measured[32];
  double ratio = row->predicted_ns > 0 ? row->measured_ns / row->predicted_ns : 0;
  fprintf(out, "  %-28.28s %12s %12s", name, text_time(predicted, row->predicted_ns),
          text_time(measured, row->measured_ns));
  if (ratio > 0) fprintf(out, " %8.2f%s", ratio, ratio > 2 || ratio < 0.5 ? "  <- off by more than 2" : "");
  fputc('\n', out);
}

/* A layer without parameters counts as part of the unit whose layer computed before it. */
static int32_t unit_of(const Profile *self, int32_t i, const InstrSpec *specs, int32_t before) {
  const PlanInstr *instr = &self->plan->instrs.data[i];
  for (int k = 0; k < specs[instr->op].operand_count; k++) {
    int32_t buf = plan_operand(self->plan, instr, k)->buf;
    if (buf != PLAN_NONE && self->plan->bufs.data[buf].unit != PLAN_NONE) return self->plan->bufs.data[buf].unit;
  }
  return instr->stream == STREAM_COMPUTE ? before : PLAN_NONE;
}

static void print_units(const Profile *self, FILE *out) {
  const Plan *plan = self->plan;
  const InstrSpec *specs = instr_specs(self->arena);
  Row *rows = ARENA_ARRAY(self->arena, Row, plan->units.count);
  int32_t unit = PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    int32_t found = unit_of(self, i, specs, unit);
    if (found == PLAN_NONE) continue;
    add(self, i, &rows[found]);
    if (plan->instrs.data[i].stream == STREAM_COMPUTE) unit = found;
  }
  fprintf(out, "  %-28s %12s %12s %8s\n", "unit, all its instructions", "predicted", "measured", "ratio");
  for (uint32_t u = 0; u < plan->units.count && u < UNIT_ROWS; u++)
    print_row(out, plan_str(plan, plan->units.data[u].name), &rows[u]);
  if (plan->units.count > UNIT_ROWS) fprintf(out, "  ... and %u unit%s more\n", plan->units.count - UNIT_ROWS, text_plural(plan->units.count - UNIT_ROWS));
}

static void print_streams(const Profile *self, FILE *out) {
  Row rows[STREAM_COUNT] = {{0, 0}}, comm = {0, 0};
  for (int32_t i = 0; i < (int32_t)self->plan->instrs.count; i++) {
    StreamId stream = self->plan->instrs.data[i].stream;
    add(self, i, &rows[stream]);
    if (communicates(stream)) add(self, i, &comm);
  }
  fprintf(out, "  %-28s %12s %12s %8s\n", "stream", "predicted", "measured", "ratio");
  for (int s = 0; s < STREAM_COUNT; s++)
    if (rows[s].measured_ns > 0) print_row(out, stream_name((StreamId)s), &rows[s]);
  double hidden = comm.measured_ns > 0 ? 100 * (double)self->exposed_ns / (double)self->steps / comm.measured_ns : 0;
  if (comm.measured_ns > 0) fprintf(out, "  %.0f %% of communication is exposed: nothing computes meanwhile\n", hidden);
}

void profile_print(const Profile *self, FILE *out) {
  if (self->steps == 0) return;
  Row step = {(double)self->plan->summary.step_ns, (double)self->steps_ns / (double)self->steps};
  fprintf(out, "rank 0, mean of %" PRIu64 " step%s; collectives include waiting for other ranks\n", self->steps,
          text_plural(self->steps));
  fprintf(out, "  %-28s %12s %12s %8s\n", "", "predicted", "measured", "ratio");
  print_row(out, "step", &step);
  print_streams(self, out);
  print_units(self, out);
}
