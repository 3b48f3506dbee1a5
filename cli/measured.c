/* Owns: reading a measured step back from a trace that `run --trace` wrote: each instruction's and each segment's mean over the
 * repetitions. */
#include "cli/cli.h"

#include "planner/plan/plan_text.h"

#include <jansson.h>
#include <math.h>

#define MOST_US 1e12 /* of a step: eleven days */

/* Sums over the repetitions, in us: of segments, and of each instruction from the start of its repetition. */
typedef struct Sums {
  double begin[8], length[8]; /* begin: of the present repetition */
  uint64_t seen[8];
  double *start, *end; /* by instruction */
  uint64_t *ran;
  bool wild; /* a time is none that a step can have */
} Sums;

/* A time of an event. */
static double time_of(Sums *sums, const json_t *event, const char *key) {
  const json_t *time = json_object_get(event, key);
  double us = json_number_value(time);
  if (json_is_number(time) && us >= 0 && us <= MOST_US) return us;
  sums->wild = true;
  return 0;
}

/* -1: none. */
static json_int_t process_of(const json_t *event) {
  const json_t *pid = json_object_get(event, "pid");
  return json_is_integer(pid) ? json_integer_value(pid) : -1;
}

static const char *string(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* A file holds the prediction beside it. -1: nothing in it was measured. */
static json_int_t measured_process(const json_t *events) {
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event)
    if (!strcmp(string(event, "name"), "process_name") && strstr(string(json_object_get(event, "args"), "name"), "measured"))
      return process_of(event);
  return -1;
}

/* "micro x8" -> segment micro. */
static int find_segment(const Plan *plan, const char *name) {
  size_t length = strcspn(name, " ");
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    const char *known = plan_str(plan, plan->segments.data[s].name);
    if (strlen(known) == length && !strncmp(known, name, length)) return (int)s;
  }
  return -1;
}

static int segment_of(const Plan *plan, int32_t i) {
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++)
    if (i >= plan->segments.data[s].first && i < plan->segments.data[s].end) return (int)s;
  return -1;
}

static void take_segment(const Plan *plan, const json_t *event, Sums *sums) {
  int s = find_segment(plan, string(event, "name"));
  if (s < 0) return;
  sums->begin[s] = time_of(sums, event, "ts");
  sums->length[s] += time_of(sums, event, "dur");
  sums->seen[s]++;
}

/* A repetition's slice stands before those of its instructions (trace.h). */
static void take_instr(const Plan *plan, const json_t *event, Sums *sums) {
  const json_t *instr = json_object_get(json_object_get(event, "args"), "instr");
  json_int_t i = json_is_integer(instr) ? json_integer_value(instr) : -1;
  if (i < 0 || i >= (json_int_t)plan->instrs.count) return;
  int s = segment_of(plan, (int32_t)i);
  double start = time_of(sums, event, "ts") - (s < 0 ? 0 : sums->begin[s]);
  sums->start[i] += start;
  sums->end[i] += start + time_of(sums, event, "dur");
  sums->ran[i]++;
}

static void walk(const Plan *plan, const json_t *events, json_int_t pid, Sums *sums) {
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event) {
    if (strcmp(string(event, "ph"), "X") || process_of(event) != pid) continue;
    if (!strcmp(string(event, "cat"), "segment"))
      take_segment(plan, event, sums);
    else
      take_instr(plan, event, sums);
  }
}

static uint64_t mean_ns(double sum_us, uint64_t count) {
  return count && sum_us > 0 ? (uint64_t)llround(sum_us * 1000 / (double)count) : 0;
}

/* Means keep the order within each stream, so that slices of a lane still do not overlap. */
static void set_result(const Plan *plan, const Sums *sums, SimResult *sim) {
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    sim->segment_ns[s] = mean_ns(sums->length[s], sums->seen[s]);
    for (int32_t i = segment->first; i < segment->end; i++)
      sim->spans[i] = (SimSpan){sim->step_ns + mean_ns(sums->start[i], sums->ran[i]), sim->step_ns + mean_ns(sums->end[i], sums->ran[i])};
    sim->step_ns += sim->segment_ns[s] * segment->count;
  }
}

/* The name of the plan that a trace is of stands at its head. */
static bool is_of_plan(Arena *arena, const json_t *trace, const Plan *plan) {
  return !strcmp(string(trace, "plan"), arena_printf(arena, "%016llx", (unsigned long long)plan_hash(plan)));
}

SimResult *read_measured(const Cli *cli, const Plan *plan, const char *path) {
  json_t *trace = cli_read_json(path, 0);
  if (!trace) return NULL;
  const json_t *events = json_object_get(trace, "traceEvents");
  SimResult *sim = ARENA_NEW(cli->arena, SimResult);
  Sums sums = {.start = ARENA_ARRAY(cli->arena, double, plan->instrs.count),
               .end = ARENA_ARRAY(cli->arena, double, plan->instrs.count),
               .ran = ARENA_ARRAY(cli->arena, uint64_t, plan->instrs.count)};
  sim->spans = ARENA_ARRAY(cli->arena, SimSpan, plan->instrs.count);
  json_int_t pid = measured_process(events);
  bool same = events && is_of_plan(cli->arena, trace, plan);
  if (same && pid >= 0) walk(plan, events, pid, &sums);
  if (same && !sums.wild) set_result(plan, &sums, sim);
  if (!events)
    cli_error("%s is not a trace: it has no traceEvents", path);
  else if (!same)
    cli_error("%s is the trace of another plan: write it with 'fsdpc run PLAN --trace FILE', PLAN being this one", path);
  else if (sums.wild)
    cli_error("%s holds times that no step has: write it again with 'fsdpc run PLAN --trace FILE'", path);
  else if (!sim->step_ns)
    cli_error("%s holds no measured step: write it with 'fsdpc run PLAN --trace FILE'", path);
  json_decref(trace);
  return sim->step_ns ? sim : NULL;
}
