/* Owns: `fsdpc draw`: the timeline as SVG, the units as a Graphviz graph. */
#include "cli/cli.h"

#include "planner/view/view.h"

static bool draw_svg(const Cli *cli, const Planned *planned, const char *path) {
  Text text = {.arena = cli->arena};
  view_timeline_svg(&text, planned->plan, &planned->sim);
  return cli_write_file(cli, path, text.data, text.length);
}

static bool draw_dot(const Cli *cli, const Planned *planned, const char *path) {
  Text text = {.arena = cli->arena};
  view_units_dot(&text, planned->plan);
  return cli_write_file(cli, path, text.data, text.length);
}

int cmd_draw(Cli *cli) {
  const char *svg = option_text(&cli->options, OPTION_SVG, NULL),
             *dot = option_text(&cli->options, OPTION_DOT, NULL);
  Planned planned;
  if (!svg && !dot) return usage_error("give --svg FILE, --dot FILE or both", "there is nothing to draw to");
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  if (svg && !draw_svg(cli, &planned, svg)) return EXIT_INVALID;
  if (dot && !draw_dot(cli, &planned, dot)) return EXIT_INVALID;
  return EXIT_OK;
}
