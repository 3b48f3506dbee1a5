/* Owns: "what would it have cost otherwise?": plans again with one decision turned round. */
#ifndef FSDPC_CLI_ALTERNATIVES_H
#define FSDPC_CLI_ALTERNATIVES_H

#include "cli/cli.h"
#include "planner/view/explain.h"

/* Prints the rejected alternatives to what was decided about the subject, and what each would have cost. The
 * model file of the plan is cli's operand. Returns the exit code. */
int print_alternatives(Cli *cli, const Planned *planned, const Subject *subject, bool costs);

#endif
