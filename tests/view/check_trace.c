/* Owns: the checker of traces: slices of a lane nest or follow each other, flows lead from a slice to a later one, counters
 * stay within the plan's memory, and the slices of each stream add up to what the simulator says. A measured process has its
 * own times, but the lanes, collectives and flows of process 0, which is predicted.
 *
 * usage: check_trace PLAN TRACE [PID [measured]]     PID: check this process only (default 0) */
#include "planner/plan/plan_text.h"
#include "planner/plan/sim.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LANES = 16, DEPTH = 8, LIST = 1 << 20 };

typedef struct Slice {
  int tid;
  double begin, end;
  const char *category;
} Slice;

typedef struct Check {
  const Plan *plan;
  SimResult sim;
  Slice *slices;
  size_t count, flows, counters, collectives;
  double sum_us[STREAM_COUNT], flow_start[1 << 16];
  int failures;
} Check;

static void fail(Check *check, const char *what, double at) {
  if (check->failures++ < 10) fprintf(stderr, "FAILED: %s at %.3f us\n", what, at);
}

static double number(const json_t *event, const char *key) {
  return json_number_value(json_object_get(event, key));
}

static const char *text(const json_t *event, const char *key) {
  const char *value = json_string_value(json_object_get(event, key));
  return value ? value : "";
}

static int stream_of(const char *category) {
  for (int s = 0; s < STREAM_COUNT; s++)
    if (!strcmp(category, stream_name((StreamId)s))) return s;
  return -1;
}

static void take_slice(Check *check, const json_t *event) {
  static const char *const keys[] = {"Collective name", "dtype", "Process Group Name", "Process Group Ranks"};
  const json_t *args = json_object_get(event, "args");
  Slice slice = {(int)number(event, "tid"), number(event, "ts"), number(event, "ts") + number(event, "dur"), text(event, "cat")};
  if (check->count == LIST) exit(2);
  check->slices[check->count++] = slice;
  int stream = stream_of(slice.category);
  if (stream < 0) return;
  check->sum_us[stream] += number(event, "dur") * number(args, "repetitions");
  if (stream != STREAM_GATHER && stream != STREAM_REDUCE && stream != STREAM_REPLICATE) return;
  check->collectives++;
  for (int k = 0; k < 4; k++)
    if (!*text(args, keys[k])) fail(check, "a collective lacks one of kineto's texts", slice.begin);
  if (number(args, "In msg nelems") < 1 || number(args, "Out msg nelems") < 1 || number(args, "Group size") < 1 ||
      !json_is_integer(json_object_get(args, "Seq")))
    fail(check, "a collective lacks one of kineto's numbers", slice.begin);
}

static void take_counter(Check *check, const json_t *event) {
  const char *name = text(event, "name");
  double bytes = number(json_object_get(event, "args"), "bytes");
  check->counters++;
  bool known = false;
  for (int c = 0; c < BUF_CLASS_COUNT; c++)
    known |= !strncmp(name, "memory ", 7) && !strcmp(name + 7, buf_class_name((BufClass)c));
  if (!known) fail(check, "a counter of no class", number(event, "ts"));
  if (bytes < 0) fail(check, "memory below zero", number(event, "ts"));
}

/* Some slice of that lane is open at that time. */
static bool inside(const Check *check, int tid, double at) {
  for (size_t i = 0; i < check->count; i++)
    if (check->slices[i].tid == tid && check->slices[i].begin <= at && at <= check->slices[i].end) return true;
  return false;
}

static void take_flow(Check *check, const json_t *event, bool end) {
  int id = (int)number(event, "id");
  double at = number(event, "ts");
  if (id < 1 || id >= 1 << 16) {
    fail(check, "a flow without a usable id", at);
    return;
  }
  if (!inside(check, (int)number(event, "tid"), at)) fail(check, "a flow that begins or ends outside of slices", at);
  if (!end) {
    check->flow_start[id] = at + 1; /* 0: not begun */
    return;
  }
  check->flows++;
  if (!check->flow_start[id]) fail(check, "a flow that ends but never began", at);
  else if (check->flow_start[id] - 1 > at) fail(check, "a flow back in time", at);
  if (strcmp(text(event, "bp"), "e")) fail(check, "a flow's end without bp", at);
}

static int by_begin(const void *a, const void *b) {
  const Slice *x = a, *y = b;
  if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return x->end > y->end ? -1 : x->end < y->end;
}

static void check_nesting(Check *check) {
  double open[DEPTH];
  int depth = 0, tid = -1;
  qsort(check->slices, check->count, sizeof *check->slices, by_begin);
  for (size_t i = 0; i < check->count; i++) {
    const Slice *slice = &check->slices[i];
    if (slice->tid != tid) depth = 0, tid = slice->tid;
    while (depth && open[depth - 1] <= slice->begin + 1e-6) depth--;
    if (depth && slice->end > open[depth - 1] + 1e-6) fail(check, "slices of one lane overlap", slice->begin);
    if (depth == DEPTH) {
      fail(check, "slices nest too deep", slice->begin);
      return;
    }
    open[depth++] = slice->end;
  }
}

/* What the simulator says: spans, which are longer than ns where streams slow each other. */
static double simulated_us(const Check *check, int stream) {
  double us = 0;
  for (uint32_t s = 0; s < check->plan->segments.count; s++) {
    const PlanSegment *segment = &check->plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end; i++)
      if ((int)check->plan->instrs.data[i].stream == stream)
        us += (double)(check->sim.spans[i].end - check->sim.spans[i].start) * (double)segment->count / 1000;
  }
  return us;
}

static void check_sums(Check *check) {
  for (int s = 0; s < STREAM_COUNT; s++) {
    double want = simulated_us(check, s);
    if (fabs(check->sum_us[s] - want) > 1e-6 * (want + 1))
      fprintf(stderr, "%s: %.3f us in the trace, %.3f us in the plan\n", stream_name((StreamId)s), check->sum_us[s], want),
          check->failures++;
  }
}

/* Counters of one time belong together: the total is looked at when the time moves on. */
static void check_memory(Check *check, const json_t *events, int pid) {
  double now[BUF_CLASS_COUNT] = {0}, at = -1, most = 0;
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event) {
    if (strcmp(text(event, "ph"), "C") || (int)number(event, "pid") != pid) continue;
    double total = 0;
    if (number(event, "ts") != at) {
      for (int c = 0; c < BUF_CLASS_COUNT; c++) total += now[c];
      if (total > most) most = total;
      at = number(event, "ts");
    }
    for (int c = 0; c < BUF_CLASS_COUNT; c++)
      if (!strcmp(text(event, "name") + 7, buf_class_name((BufClass)c)))
        now[c] = number(json_object_get(event, "args"), "bytes");
  }
  if (most > (double)check->plan->arena_bytes) fail(check, "more memory than the arena", at);
  if (most < (double)check->plan->persistent_bytes) fail(check, "less memory than what persists", at);
}

static size_t count_events(const json_t *events, int pid, char phase, const char *name) {
  size_t count = 0, i;
  const json_t *event;
  json_array_foreach(events, i, event)
    count += *text(event, "ph") == phase && (int)number(event, "pid") == pid && (!name || !strcmp(text(event, "name"), name));
  return count;
}

/* The same lanes by name, and as many flows. Slices may be fewer: what took no time has none. */
static void check_layout(Check *check, const json_t *events, int pid) {
  size_t i, k;
  const json_t *a, *b;
  json_array_foreach(events, i, a) {
    if (strcmp(text(a, "name"), "thread_name") || (int)number(a, "pid") != pid) continue;
    bool known = false;
    json_array_foreach(events, k, b)
      known |= !strcmp(text(b, "name"), "thread_name") && !(int)number(b, "pid") && number(a, "tid") == number(b, "tid") &&
               json_equal(json_object_get(a, "args"), json_object_get(b, "args"));
    if (!known) fail(check, "a lane that the prediction lacks", number(a, "tid"));
  }
  if (count_events(events, pid, 'M', "thread_name") != count_events(events, 0, 'M', "thread_name")) fail(check, "lanes are missing", 0);
  if (count_events(events, pid, 's', NULL) != count_events(events, 0, 's', NULL)) fail(check, "other flows than predicted", 0);
  if (!check->sum_us[STREAM_COMPUTE]) fail(check, "nothing computes", 0);
}

static void take(Check *check, const json_t *events, const char *phases, int pid) {
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event) {
    char phase = *text(event, "ph");
    if ((int)number(event, "pid") != pid || !strchr(phases, phase)) continue;
    if (phase == 'X') take_slice(check, event);
    if (phase == 'C') take_counter(check, event);
    if (phase == 's' || phase == 'f') take_flow(check, event, phase == 'f');
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: check_trace PLAN TRACE [PID]\n"), 64;
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  json_error_t error;
  Check *check = ARENA_NEW(arena, Check);
  json_t *trace = json_load_file(argv[2], 0, &error);
  check->plan = plan_read(arena, &sources, &sink, argv[1]);
  check->slices = ARENA_ARRAY(arena, Slice, LIST);
  if (!check->plan || !trace) return fprintf(stderr, "cannot read: %s\n", trace ? argv[1] : error.text), 1;
  plan_simulate(arena, check->plan, &check->sim);
  int pid = argc > 3 ? atoi(argv[3]) : 0;
  const json_t *events = json_object_get(trace, "traceEvents");
  take(check, events, "X", pid);
  check_nesting(check);
  take(check, events, "Csf", pid);
  check_memory(check, events, pid);
  if (argc > 4)
    check_layout(check, events, pid);
  else
    check_sums(check);
  if (!check->count || !check->counters) fail(check, "an empty trace", 0);
  if (check->plan->world.shard > 1 && (!check->flows || !check->collectives)) fail(check, "no flows or no collectives", 0);
  printf("%zu slices, %zu collectives, %zu flows, %zu counters\n", check->count, check->collectives, check->flows, check->counters);
  json_decref(trace);
  int failures = check->failures;
  arena_free(arena);
  return failures != 0;
}
