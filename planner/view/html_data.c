/* Owns: what report.js draws, as one JSON object. Repeated segments are there once; times are ns, drawn time. */
#include "planner/view/curve.h"
#include "planner/view/html.h"
#include "planner/view/json.h"

typedef struct Clock {
  uint64_t begin[8], total; /* drawn */
} Clock;

static Clock clock_of(const Facts *f) {
  Clock clock = {.total = 0};
  for (uint32_t s = 0; s < f->plan->segments.count && s < 8; s++) {
    clock.begin[s] = clock.total;
    clock.total += f->sim->segment_ns[s];
  }
  return clock;
}

static void words(Text *out, const char *key, const char *(*name)(int), int count) {
  text_printf(out, "\"%s\":[", key);
  for (int i = 0; i < count; i++) {
    if (i) text_printf(out, ",");
    json_text(out, name(i));
  }
  text_printf(out, "],\n");
}

static const char *stream_word(int s) {
  static const char *const names[STREAM_COUNT] = {"compute", "gather", "reduce", "replicate", "copy in", "copy out"};
  return names[s];
}
static const char *phase_word(int p) {
  return phase_name((Phase)p);
}
static const char *class_word(int c) {
  return buf_class_name((BufClass)c);
}

static void ops(const Report *r) {
  text_printf(r->out, "\"ops\":[");
  for (int op = 0; op < INSTR_COUNT; op++) text_printf(r->out, "%s\"%s\"", op ? "," : "", r->f->specs[op].name);
  text_printf(r->out, "],\n");
}

static void units(const Report *r) {
  text_printf(r->out, "\"units\":[");
  for (uint32_t u = 0; u < r->f->plan->units.count; u++) {
    text_printf(r->out, "%s[", u ? "," : "");
    json_text(r->out, plan_str(r->f->plan, r->f->plan->units.data[u].name));
    text_printf(r->out, ",%d]", unit_hue(r->f->plan, (int32_t)u));
  }
  text_printf(r->out, "],\n");
}

static void segments(Text *out, const Facts *f, const Clock *clock) {
  text_printf(out, "\"segments\":[");
  for (uint32_t s = 0; s < f->plan->segments.count && s < 8; s++) {
    const PlanSegment *segment = &f->plan->segments.data[s];
    text_printf(out, "%s[", s ? "," : "");
    json_text(out, plan_str(f->plan, segment->name));
    text_printf(out, ",%llu,%llu,%llu]", (unsigned long long)segment->count, (unsigned long long)clock->begin[s],
                (unsigned long long)(clock->begin[s] + f->sim->segment_ns[s]));
  }
  text_printf(out, "],\n");
}

/* [begin, duration] of instructions in drawn time; [stream, begin, duration, op, phase, unit, exposed, instr, name, bytes] */
static void slices(const Report *r, const Clock *clock) {
  const Facts *f = r->f;
  bool any = false;
  text_printf(r->out, "\"slices\":[");
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    const PlanInstr *instr = &f->plan->instrs.data[i];
    SimSpan span = f->sim->spans[i];
    int32_t s = f->segment_of[i];
    if (span.end == span.start) continue;
    text_printf(r->out, "%s[%d,%llu,%llu,%d,%d,%d,%llu,%u,", any ? ",\n" : "\n", instr->stream,
                (unsigned long long)(span.start - f->segment_begin[s] + clock->begin[s]), (unsigned long long)(span.end - span.start),
                instr->op, instr->phase, f->unit_of[i], (unsigned long long)f->exposed_ns[i], i);
    json_text(r->out, plan_str(f->plan, instr->name));
    text_printf(r->out, ",%llu]", (unsigned long long)instr->bytes);
    any = true;
  }
  text_printf(r->out, "],\n");
}

/* [stream, begin, duration, instr] as measured, on the measured segments' clock. */
static void measured(const Report *r) {
  const Facts *f = r->measured;
  bool any = false;
  if (!f) return;
  Clock clock = clock_of(f);
  text_printf(r->out, "\"measured\":{\"total\":%llu,", (unsigned long long)clock.total);
  segments(r->out, f, &clock);
  text_printf(r->out, "\"slices\":[");
  for (uint32_t i = 0; i < f->plan->instrs.count; i++) {
    SimSpan span = f->sim->spans[i];
    int32_t s = f->segment_of[i];
    if (span.end == span.start) continue;
    text_printf(r->out, "%s[%d,%llu,%llu,%u]", any ? "," : "", f->plan->instrs.data[i].stream,
                (unsigned long long)(span.start - f->segment_begin[s] + clock.begin[s]), (unsigned long long)(span.end - span.start), i);
    any = true;
  }
  text_printf(r->out, "]},\n");
}

/* [ns, class, bytes] where a class changes. */
static void memory(const Report *r, const Clock *clock) {
  const Facts *f = r->f;
  Arena *scratch = arena_new();
  bool any = false;
  text_printf(r->out, "\"memory\":[");
  for (uint32_t s = 0; s < f->plan->segments.count && s < 8; s++) {
    Curve curve = memory_curve(scratch, f->plan, f->specs, &f->plan->segments.data[s], f->sim->spans, f->segment_begin[s]);
    for (uint32_t k = 0; k < curve.count; k++)
      for (int c = 0; c < BUF_CLASS_COUNT; c++) {
        if (k && curve.data[k].by_class[c] == curve.data[k - 1].by_class[c]) continue;
        text_printf(r->out, "%s[%llu,%d,%llu]", any ? "," : "", (unsigned long long)(curve.data[k].ns - f->segment_begin[s] + clock->begin[s]),
                    c, (unsigned long long)curve.data[k].by_class[c]);
        any = true;
      }
  }
  text_printf(r->out, "],\n");
  arena_free(scratch);
}

void html_data(const Report *r) {
  Clock clock = clock_of(r->f);
  const Plan *plan = r->f->plan;
  text_printf(r->out, "{\"total\":%llu,\"budget\":%llu,\"arena\":%llu,\n", (unsigned long long)clock.total,
              (unsigned long long)plan->summary.budget_bytes, (unsigned long long)plan->arena_bytes);
  words(r->out, "streams", stream_word, STREAM_COUNT);
  words(r->out, "phases", phase_word, PHASE_COUNT);
  words(r->out, "classes", class_word, BUF_CLASS_COUNT);
  ops(r);
  units(r);
  segments(r->out, r->f, &clock);
  slices(r, &clock);
  measured(r);
  memory(r, &clock);
  text_printf(r->out, "\"version\":1}");
}
