/* Owns: `fsdpc plan`: the summary, the JSON, the dumps and the plan file. */
#include "cli/cli.h"

#include "base/text.h"
#include "planner/plan/plan_text.h"

/* --dump=graph,units -> DumpMask. */
static bool dump_mask(const Cli *cli, unsigned *mask) {
  static const char *const names[] = {"graph", "program", "units", "checkpoint", "memory", "plan"};
  static const unsigned bits[] = {DUMP_GRAPH,      DUMP_PROGRAM, DUMP_UNITS,
                                  DUMP_CHECKPOINT, DUMP_MEMORY,  DUMP_PLAN};
  char *rest = arena_strdup(cli->arena, option_text(&cli->options, OPTION_DUMP, ""));
  for (char *name = strsep(&rest, ","); name; name = strsep(&rest, ",")) {
    int which = 0;
    while (which < 6 && strcmp(name, names[which])) which++;
    if (which == 6) {
      const char *meant = text_nearest(name, names, 6);
      usage_error(meant ? arena_printf(cli->arena, "did you mean %s?", meant) : NULL,
                  "option --dump expects graph, program, units, checkpoint, memory or plan, but got \"%s\"",
                  name);
      return false;
    }
    *mask |= bits[which];
  }
  return true;
}

static bool save_plan(Cli *cli, const Plan *plan, const char *path) {
  Text text = {.arena = cli->arena};
  plan_write(&text, plan);
  return cli_write_file(cli, path, text.data, text.length);
}

static void print_result(const Cli *cli, const Planned *planned, const Text *dump) {
  if (option_given(&cli->options, OPTION_JSON))
    report_json(cli, planned, stdout);
  else if (option_given(&cli->options, OPTION_DUMP))
    fwrite(dump->data, 1, dump->length, stdout);
  else
    report_print(cli, planned, stdout);
}

/* --against OLD, if given: before the new plan is made, which may take minutes. */
static int read_old(const Cli *cli, Planned *old) {
  return option_given(&cli->options, OPTION_AGAINST) ? read_plan_alone(cli, option_text(&cli->options, OPTION_AGAINST, ""), old) : EXIT_OK;
}

/* The plan's one line after a comparison, else all of it. Whether they differ. */
static bool show(Cli *cli, const Planned *planned, const Planned *old, const Text *dump) {
  if (!option_given(&cli->options, OPTION_AGAINST)) return print_result(cli, planned, dump), false;
  bool differ = print_diff(cli, old, planned);
  report_line(cli, planned, stdout);
  return differ;
}

int cmd_plan(Cli *cli) {
  const char *output = option_text(&cli->options, OPTION_OUTPUT, NULL), *path = cli->options.operands.data[0];
  Text dump = {.arena = cli->arena};
  unsigned mask = 0;
  Planned planned, old;
  Graph *graph;
  PlannerOptions options;
  if (option_given(&cli->options, OPTION_DETAILED) && !option_given(&cli->options, OPTION_AGAINST))
    return usage_error("give --against OLD.plan", "--detailed-exitcode compares with an earlier plan");
  if (option_given(&cli->options, OPTION_AGAINST) &&
      (option_given(&cli->options, OPTION_JSON) || option_given(&cli->options, OPTION_DUMP)))
    return usage_error("write the plan with -o and use 'fsdpc diff --json'", "--against goes with neither --json nor --dump");
  if (option_given(&cli->options, OPTION_JSON) && option_given(&cli->options, OPTION_DUMP))
    return usage_error("give one of them", "--json prints one object, --dump text instead of it");
  if (option_given(&cli->options, OPTION_DUMP) && !dump_mask(cli, &mask)) return EXIT_USAGE;
  if (option_given(&cli->options, OPTION_MAX)) return plan_largest(cli, path, option_text(&cli->options, OPTION_MAX, ""));
  int code = compile_settings(cli, path, &graph, &options);
  if (code == EXIT_OK && options.settings.executor.id != EXECUTOR_NATIVE) return plan_for_executor(cli, graph, &options);
  if (code == EXIT_OK) code = read_old(cli, &old);
  if (code == EXIT_OK) code = plan_graph(cli, graph, &options, mask, &dump, &planned);
  if (code != EXIT_OK) return code;
  if (planned.fits && output && !save_plan(cli, planned.plan, output)) return EXIT_INVALID; /* whoever reads the rest may stop */
  bool differ = show(cli, &planned, &old, &dump);
  if (!planned.fits) return fflush(stdout), report_infeasible(&planned, stderr), EXIT_NO_FIT;
  return differ && option_given(&cli->options, OPTION_DETAILED) ? EXIT_CHANGED : EXIT_OK;
}
