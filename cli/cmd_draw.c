/* Owns: `fsdpc draw`. */
#include "cli/cli.h"

int cmd_draw(Cli *cli) {
  (void)cli;
  return usage_error(NULL, "command 'draw' is not available in this version");
}
