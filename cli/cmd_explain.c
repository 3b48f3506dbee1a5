/* Owns: `fsdpc explain`: the plan in words and tables; with --why what was decided about one unit, parameter or result, and
 * what the alternatives would have cost; with --measured its times beside those of a run. */
#include "cli/alternatives.h"

#include "planner/plan/plan_text.h"
#include "planner/program/fusion.h"

/* The layer that reads this one and whose instruction computes it, a product a silu or a loss in chunks the logits, or NULL. */
static const GraphOp *computed_by(const Graph *graph, const int32_t *with, int32_t op) {
  const GraphOp *ops = graph->ops.data, *loss = &ops[graph->loss_op];
  if (with[op] >= 0 && ops[op].kind == LAYER_SILU) return &ops[with[op]];
  return graph->tensors.data[loss->inputs[0]].op == op ? loss : NULL;
}

/* "lm_head.weight" of a layer whose weight is another's. */
static bool is_weight_of(const GraphOp *op, const char *name) {
  size_t length = strlen(op->name);
  return op->weight >= 0 && !strncmp(op->name, name, length) && !strcmp(name + length, ".weight");
}

/* What the model calls so and its plan does not: the name that the plan has for it, after a word about it, or NULL. A finished plan
 * does not know its model's other names. */
static const char *planned_name(Cli *cli, const char *path, const char *name) {
  Graph *graph;
  PlannerOptions options;
  if (plan_is_plan_file(path) || compile_settings(cli, path, &graph, &options) != EXIT_OK) return NULL;
  const int32_t *with = fusion_find(cli->arena, graph, &options.settings);
  for (int32_t i = 0; i < (int32_t)graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i], *reader = strcmp(op->name, name) ? NULL : computed_by(graph, with, i);
    if (is_weight_of(op, name)) {
      printf("%s is the weight that it shares, %s\n", name, graph->params.data[op->weight].name);
      return graph->params.data[op->weight].name;
    }
    if (!reader) continue;
    printf("%s is computed by the instruction of the %s that reads it, and has no result of its own\n", name,
           reader->kind == LAYER_MUL ? "product" : "loss");
    return reader->name;
  }
  return NULL;
}

/* False after a message. */
static bool find_subject(Cli *cli, const Planned *planned, Facts *facts, const char *path, const char *name, Subject *subject) {
  const char *meant = NULL, *ignored;
  if (view_subject(facts, name, subject, &meant)) return true;
  const char *other = planned_name(cli, path, name);
  if (other && view_subject(facts, other, subject, &ignored)) return true;
  usage_error(meant ? arena_printf(cli->arena, "did you mean %s?", meant) : "'fsdpc explain' without --why lists the units",
              "%s has no unit, parameter, layer or module named \"%s\"", plan_str(planned->plan, planned->plan->model), name);
  return false;
}

static int explain_why(Cli *cli, const Planned *planned, Facts *facts, const ExplainStyle *style) {
  const char *name = option_text(&cli->options, OPTION_WHY, ""), *path = cli->options.operands.data[0];
  Subject subject;
  Text text = {.arena = cli->arena};
  if (!find_subject(cli, planned, facts, path, name, &subject)) return EXIT_USAGE;
  view_why(&text, facts, &subject, style);
  fwrite(text.data, 1, text.length, stdout);
  if (!plan_is_plan_file(path)) return print_alternatives(cli, planned, &subject, style->costs);
  printf("  a finished plan does not hold what was rejected: give the model file %s to have it planned again\n",
         plan_str(planned->plan, planned->plan->source_path));
  return EXIT_OK;
}

int cmd_explain(Cli *cli) {
  Planned planned;
  const char *trace = option_text(&cli->options, OPTION_MEASURED, NULL);
  if (trace && (option_given(&cli->options, OPTION_WHY) || option_given(&cli->options, OPTION_NO_COSTS)))
    return usage_error(NULL, "--measured compares times: it goes with neither --why nor --no-costs");
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  Facts *facts = facts_of(cli->arena, planned.plan, &planned.sim);
  facts->beside = planned_beside(cli->arena, &planned);
  ExplainStyle style = {!option_given(&cli->options, OPTION_NO_COSTS), cli_color(cli, stdout), cli_width(stdout)};
  if (option_given(&cli->options, OPTION_WHY)) return explain_why(cli, &planned, facts, &style);
  Text text = {.arena = cli->arena};
  if (trace) {
    const SimResult *measured = read_measured(cli, planned.plan, trace);
    if (!measured) return EXIT_INVALID;
    view_measured(&text, facts, facts_of(cli->arena, planned.plan, measured), &style);
  } else {
    view_explain(&text, facts, &style);
  }
  fwrite(text.data, 1, text.length, stdout);
  return EXIT_OK;
}
