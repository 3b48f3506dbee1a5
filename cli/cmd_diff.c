/* Owns: `fsdpc diff`: what differs between two plans. */
#include "cli/cli.h"

#include "planner/view/diff.h"
#include <jansson.h>

static json_t *side(const Facts *f, int32_t unit) {
  if (unit == PLAN_NONE) return json_null();
  const PlanUnit *u = &f->plan->units.data[unit];
  const UnitFact *fact = &f->units[unit];
  return json_pack("{s:I, s:I, s:b, s:I, s:I, s:I}", "numel", (json_int_t)u->numel, "shard", (json_int_t)u->shard, "reshard",
                   u->reshard, "gather_bytes", (json_int_t)fact->gather_bytes, "gathers", (json_int_t)fact->gathers, "ns",
                   (json_int_t)unit_ns(fact));
}

static json_t *whole(const Facts *f) {
  return json_pack("{s:I, s:I, s:I, s:I}", "step_ns", (json_int_t)f->sim->step_ns, "arena_bytes", (json_int_t)f->plan->arena_bytes,
                   "host_bytes", (json_int_t)f->plan->host_bytes, "exposed_comm_ns", (json_int_t)f->sim->exposed_comm_ns);
}

static void print_json(const Facts *a, const Facts *b, const PlanDiff *diff) {
  static const char *const changes[] = {"added", "removed", "changed", "same"};
  json_t *units = json_array();
  for (uint32_t i = 0; i < diff->rows.count; i++) {
    const DiffRow *row = &diff->rows.data[i];
    const Facts *named = row->after == PLAN_NONE ? a : b;
    int32_t unit = row->after == PLAN_NONE ? row->before : row->after;
    json_array_append_new(units, json_pack("{s:s, s:s, s:o, s:o}", "name",
                                           plan_str(named->plan, named->plan->units.data[unit].name), "change",
                                           changes[row->mark == '+' ? 0 : row->mark == '-' ? 1 : row->mark == '~' ? 2 : 3],
                                           "before", side(a, row->before), "after", side(b, row->after)));
  }
  json_t *object = json_pack("{s:i, s:b, s:o, s:o, s:o}", "schema_version", 1, "same", diff_is_empty(diff), "before", whole(a),
                             "after", whole(b), "units", units);
  json_dumpf(object, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(object);
}

static void print_facts(const Cli *cli, const Facts *a, const Facts *b, const PlanDiff *diff) {
  ExplainStyle style = {!option_given(&cli->options, OPTION_NO_COSTS), cli_color(cli, stdout), cli_width(stdout)};
  Text text = {.arena = cli->arena};
  view_diff(&text, a, b, diff, &style);
  fwrite(text.data, 1, text.length, stdout);
}

bool print_diff(const Cli *cli, const Planned *before, const Planned *after) {
  Facts *a = facts_of(cli->arena, before->plan, &before->sim), *b = facts_of(cli->arena, after->plan, &after->sim);
  PlanDiff diff = diff_plans(cli->arena, a, b);
  if (option_given(&cli->options, OPTION_JSON) && cli->options.command == COMMAND_DIFF)
    print_json(a, b, &diff);
  else
    print_facts(cli, a, b, &diff);
  return !diff_is_empty(&diff);
}

int cmd_diff(Cli *cli) {
  Planned before, after;
  int code = open_plan(cli, cli->options.operands.data[0], &before);
  if (code == EXIT_OK) code = open_plan(cli, cli->options.operands.data[1], &after);
  if (code != EXIT_OK) return code;
  bool differ = print_diff(cli, &before, &after);
  return option_given(&cli->options, OPTION_DETAILED) && differ ? EXIT_CHANGED : EXIT_OK;
}
