/* Owns: a predicted step beside a measured one, by share, stream and unit. Units that are alike are one row, of means. */
#include "planner/view/explain.h"

typedef struct Pair {
  double predicted, measured; /* ns */
} Pair;

static void print_pair(Text *out, int indent, const char *name, Pair pair) {
  char predicted[32], measured[32];
  text_printf(out, "%*s%-*s %10s %10s", indent, "", 36 - indent, name, text_time(predicted, pair.predicted), text_time(measured, pair.measured));
  if (pair.predicted > 0) text_printf(out, " %8.2f", pair.measured / pair.predicted);
  text_printf(out, "\n");
}

static double stream_ns(const Facts *f, StreamId stream) {
  double ns = 0;
  for (uint32_t i = 0; i < f->plan->instrs.count; i++)
    if (f->plan->instrs.data[i].stream == stream)
      ns += (double)(f->sim->spans[i].end - f->sim->spans[i].start) * (double)f->plan->segments.data[f->segment_of[i]].count;
  return ns;
}

static void print_streams(Text *out, const Facts *predicted, const Facts *measured) {
  text_printf(out, "  streams\n");
  for (int s = 0; s < STREAM_COUNT; s++) {
    Pair pair = {stream_ns(predicted, (StreamId)s), stream_ns(measured, (StreamId)s)};
    if (pair.predicted > 0 || pair.measured > 0) print_pair(out, 4, stream_name((StreamId)s), pair);
  }
}

static void print_shares(Text *out, const Facts *predicted, const Facts *measured) {
  text_printf(out, "  where the time goes\n");
  for (int s = 0; s < SHARE_COUNT; s++)
    if (predicted->share_ns[s] || measured->share_ns[s])
      print_pair(out, 4, share_name((Share)s), (Pair){(double)predicted->share_ns[s], (double)measured->share_ns[s]});
}

static double compute_ns(const UnitFact *unit) {
  return (double)(unit->compute_ns + unit->recompute_ns + unit->update_ns);
}

static double comm_ns(const UnitFact *unit) {
  return (double)(unit->gather_ns + unit->reduce_ns + unit->replicate_ns);
}

/* Of every stride-th of units, count in all. */
typedef struct Run {
  const int32_t *units;
  uint32_t stride, count;
} Run;

static Pair mean(const Facts *predicted, const Facts *measured, Run run, double (*ns)(const UnitFact *)) {
  Pair pair = {0, 0};
  for (uint32_t k = 0; k < run.count; k++) {
    pair.predicted += ns(&predicted->units[run.units[k * run.stride]]) / run.count;
    pair.measured += ns(&measured->units[run.units[k * run.stride]]) / run.count;
  }
  return pair;
}

static void print_run(Text *out, const Facts *predicted, const Facts *measured, Run run) {
  const Plan *plan = predicted->plan;
  const char *name = range_name(predicted->arena, plan_str(plan, plan->units.data[run.units[0]].name),
                                plan_str(plan, plan->units.data[run.units[(run.count - 1) * run.stride]].name));
  print_pair(out, 4, run.count > 1 ? arena_printf(predicted->arena, "%s, mean", name) : name, mean(predicted, measured, run, compute_ns));
  Pair comm = mean(predicted, measured, run, comm_ns);
  if (comm.predicted > 0 || comm.measured > 0) print_pair(out, 6, "collectives", comm);
}

static void print_units(Text *out, const Facts *predicted, const Facts *measured) {
  UnitOrder order = {predicted->plan, units_by_use(predicted)};
  text_printf(out, "  units: computing, and their collectives (with waiting for other ranks)\n");
  for (uint32_t i = 0; i < predicted->plan->units.count;) {
    Repeat repeat = find_unit_repeat(&order, i);
    for (uint32_t place = i; place < i + repeat.period; place++)
      print_run(out, predicted, measured, (Run){&order.units[place], repeat.period, repeat.count});
    i += repeat.period * repeat.count;
  }
}

void view_measured(Text *out, const Facts *predicted, const Facts *measured, const ExplainStyle *style) {
  text_printf(out, "\n%sPredicted beside measured%s\n%-36s %10s %10s %8s\n", style->color ? "\033[1m" : "", style->color ? "\033[0m" : "", "",
              "predicted", "measured", "ratio");
  print_pair(out, 2, "step", (Pair){(double)predicted->sim->step_ns, (double)measured->sim->step_ns});
  print_shares(out, predicted, measured);
  print_streams(out, predicted, measured);
  print_units(out, predicted, measured);
}
