/* Owns: see run_trace.h: one file with the predicted step and the measured one, as two processes in one layout. */
#include "cli/run_trace.h"

#include "planner/view/trace.h"
#include "runtime/backend.h"

/* One repetition's spans, on a clock that begins with the step. What a backend gave no time for takes none. */
static uint64_t copy_spans(const Plan *plan, const MeasuredRun *run, uint64_t origin, uint64_t begin, SimSpan *spans) {
  const PlanSegment *segment = &plan->segments.data[run->segment];
  uint64_t last = begin;
  for (int32_t i = segment->first; i < segment->end; i++) {
    const InstrTime *time = &run->times[i - segment->first];
    bool timed = time->start_ns >= origin && time->end_ns >= time->start_ns;
    spans[i] = timed ? (SimSpan){time->start_ns - origin, time->end_ns - origin} : (SimSpan){begin, begin};
    if (spans[i].end > last) last = spans[i].end;
  }
  return last;
}

/* When the step's first instruction started. */
static uint64_t origin_of(const Plan *plan, const MeasuredStep *step) {
  const PlanSegment *segment = &plan->segments.data[step->runs[0].segment];
  uint64_t origin = UINT64_MAX;
  for (int32_t i = 0; i < segment->end - segment->first; i++)
    if (step->runs[0].times[i].start_ns && step->runs[0].times[i].start_ns < origin) origin = step->runs[0].times[i].start_ns;
  return origin;
}

static void add_measured(Trace *trace, Arena *arena, const Plan *plan, const MeasuredStep *step) {
  SimSpan *spans = ARENA_ARRAY(arena, SimSpan, plan->instrs.count);
  uint64_t origin = origin_of(plan, step), begin = 0;
  trace_process(trace, 1, 0, arena_printf(arena, "rank 0 (measured, step %llu)", (unsigned long long)step->number));
  for (uint64_t r = 0; r < step->run_count; r++) {
    uint64_t end = copy_spans(plan, &step->runs[r], origin, begin, spans);
    trace_segment(trace, (uint32_t)step->runs[r].segment, 1, spans, begin, end, 0);
    begin = end;
  }
}

static const char *write_trace(StepObserver *observer, const Plan *plan, const MeasuredStep *step) {
  TraceWriter *self = (TraceWriter *)observer;
  Text text = {.arena = self->arena};
  SimResult predicted;
  plan_simulate(self->arena, plan, &predicted);
  Trace *trace = trace_begin(self->arena, &text, plan, 0);
  trace_predicted(trace, 0, &predicted);
  add_measured(trace, self->arena, plan, step);
  trace_end(trace);
  return write_file(self->arena, self->path, text.data, text.length);
}

TraceWriter trace_writer(Cli *cli, const char *path) {
  return (TraceWriter){{write_trace}, cli->arena, path};
}
