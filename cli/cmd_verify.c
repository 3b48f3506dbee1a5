/* Owns: `fsdpc verify`: every rule that a plan breaks, with its meaning. */
#include "cli/cli.h"

#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include <jansson.h>

static void print_rule(const VerifyResult *result, VerifyRule rule) {
  bool named = false;
  for (uint32_t i = 0; i < result->violations.count; i++) {
    const Violation *violation = &result->violations.data[i];
    if (violation->rule != rule) continue;
    if (!named) printf("%s: %s\n", verify_rule_name(rule), verify_rule_meaning(rule));
    named = true;
    printf("  %s\n", violation->text);
  }
}

static void print_text(const char *path, const Plan *plan, const VerifyResult *result) {
  if (result->total == 0) {
    printf("%s: valid: %u instructions and %u buffers keep all %d rules\n", path, plan->instrs.count,
           plan->bufs.count, VERIFY_RULE_COUNT);
    return;
  }
  for (int rule = 0; rule < VERIFY_RULE_COUNT; rule++) print_rule(result, (VerifyRule)rule);
  if (result->total > result->violations.count)
    printf("and %u more\n", result->total - result->violations.count);
  printf("%s: invalid: %u violation%s\n", path, result->total, text_plural(result->total));
}

static json_t *violation_json(const Violation *violation) {
  return json_pack("{s:s, s:s, s:s, s:i, s:i}", "rule", verify_rule_name(violation->rule), "meaning",
                   verify_rule_meaning(violation->rule), "message", violation->text, "instruction",
                   violation->instr, "buffer", violation->buf);
}

static void print_json(const VerifyResult *result) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < result->violations.count; i++)
    json_array_append_new(list, violation_json(&result->violations.data[i]));
  json_t *object = json_pack("{s:i, s:b, s:i, s:o}", "schema_version", 1, "valid", result->total == 0,
                             "total", (int)result->total, "violations", list);
  json_dumpf(object, stdout, JSON_INDENT(2));
  printf("\n");
  json_decref(object);
}

int cmd_verify(Cli *cli) {
  const char *path = cli->options.operands.data[0];
  VerifyResult result = {0};
  Plan *plan = plan_read(cli->arena, &cli->sources, &cli->sink, path);
  bool json = option_given(&cli->options, OPTION_JSON);
  if (!plan && json) return diag_print_json(&cli->sink, stdout), EXIT_INVALID;
  if (!cli_print_diags(cli) || !plan) return EXIT_INVALID;
  bool valid = plan_verify(cli->arena, plan, &result);
  if (json)
    print_json(&result);
  else
    print_text(path, plan, &result);
  return valid ? EXIT_OK : EXIT_INVALID;
}
