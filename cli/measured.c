/* Owns: reading a measured step back from a trace that `run --trace` wrote: the first time each instruction ran, and how long
 * segments took on average. */
#include "cli/cli.h"

#include <jansson.h>
#include <math.h>

typedef struct Segments {
  double begin_us[8], sum_us[8]; /* of the first; over all */
  uint64_t seen[8];
  double first_us[8], last_us[8]; /* of its instructions, for traces without slices of segments */
} Segments;

/* The instruction that a slice shows, or -1: `draw --trace` and `run --trace` name it differently. */
static int64_t instr_of(const json_t *event) {
  const json_t *args = json_object_get(event, "args"), *instr = json_object_get(args, "instr");
  if (!instr) instr = json_object_get(args, "instruction");
  return json_is_integer(instr) ? json_integer_value(instr) : -1;
}

static double number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}

static const char *string(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text : "";
}

/* The process that was measured, else the first: a file may hold the prediction beside it. */
static int choose_process(const json_t *events) {
  int first = -1;
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event) {
    if (strcmp(string(event, "name"), "process_name")) continue;
    int pid = (int)number(event, "pid");
    if (first < 0) first = pid;
    if (strstr(string(json_object_get(event, "args"), "name"), "measured")) return pid;
  }
  return first;
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

static void take_segment(const Plan *plan, const json_t *event, Segments *segments) {
  int s = find_segment(plan, string(event, "name"));
  if (s < 0) return;
  double begin = number(event, "ts");
  if (!segments->seen[s]++ || begin < segments->begin_us[s]) segments->begin_us[s] = begin;
  segments->sum_us[s] += number(event, "dur");
}

static void take_bounds(const Plan *plan, const json_t *event, Segments *segments) {
  int64_t i = instr_of(event);
  double begin = json_number_value(json_object_get(event, "ts")), end = begin + json_number_value(json_object_get(event, "dur"));
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    if (i < plan->segments.data[s].first || i >= plan->segments.data[s].end) continue;
    if (segments->last_us[s] <= 0 || begin < segments->first_us[s]) segments->first_us[s] = begin;
    if (end > segments->last_us[s]) segments->last_us[s] = end;
  }
}

/* Without slices of segments each instruction is there once, and its segment lasts from the first to the last of them. */
static void bound_segments(const Plan *plan, Segments *segments) {
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    if (segments->seen[s] || segments->last_us[s] <= 0) continue;
    segments->seen[s] = 1;
    segments->begin_us[s] = segments->first_us[s];
    segments->sum_us[s] = segments->last_us[s] - segments->first_us[s];
  }
}

static uint64_t to_ns(double us) {
  return us > 0 ? (uint64_t)llround(us * 1000) : 0;
}

/* Segment lengths, and where each begins on the step's clock. */
static void set_segments(const Plan *plan, const Segments *segments, SimResult *sim, uint64_t begin[8]) {
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    begin[s] = sim->step_ns;
    if (segments->seen[s]) sim->segment_ns[s] = to_ns(segments->sum_us[s] / (double)segments->seen[s]);
    sim->step_ns += sim->segment_ns[s] * plan->segments.data[s].count;
  }
}

static void take_instr(const Plan *plan, const json_t *event, const Segments *segments, const uint64_t begin[8], SimResult *sim) {
  int64_t i = instr_of(event);
  if (i < 0 || i >= (int64_t)plan->instrs.count || sim->spans[i].end) return;
  for (uint32_t s = 0; s < plan->segments.count && s < 8; s++) {
    if (i < plan->segments.data[s].first || i >= plan->segments.data[s].end) continue;
    uint64_t start = begin[s] + to_ns(number(event, "ts") - segments->begin_us[s]);
    sim->spans[i] = (SimSpan){start, start + to_ns(number(event, "dur"))};
  }
}

/* `pass` 0: segments, 1: instructions. */
static void walk(const Plan *plan, const json_t *events, int pid, int pass, Segments *segments, const uint64_t begin[8], SimResult *sim) {
  size_t i;
  const json_t *event;
  json_array_foreach(events, i, event) {
    if (strcmp(string(event, "ph"), "X") || (int)number(event, "pid") != pid) continue;
    if (!pass && !strcmp(string(event, "cat"), "segment"))
      take_segment(plan, event, segments);
    else if (!pass)
      take_bounds(plan, event, segments);
    else
      take_instr(plan, event, segments, begin, sim);
  }
}

SimResult *read_measured(const Cli *cli, const Plan *plan, const char *path) {
  json_error_t error;
  json_t *trace = json_load_file(path, 0, &error);
  const json_t *events = json_object_get(trace, "traceEvents");
  SimResult *sim = ARENA_NEW(cli->arena, SimResult);
  Segments segments = {0};
  uint64_t begin[8] = {0};
  sim->spans = ARENA_ARRAY(cli->arena, SimSpan, plan->instrs.count);
  if (!events) {
    cli_error("%s is not a trace: %s", path, trace ? "it has no traceEvents" : error.text);
    json_decref(trace);
    return NULL;
  }
  int pid = choose_process(events);
  walk(plan, events, pid, 0, &segments, begin, sim);
  bound_segments(plan, &segments);
  set_segments(plan, &segments, sim, begin);
  walk(plan, events, pid, 1, &segments, begin, sim);
  json_decref(trace);
  if (sim->step_ns) return sim;
  cli_error("%s holds no step of this plan: write it with 'fsdpc run PLAN --trace FILE'", path);
  return NULL;
}
