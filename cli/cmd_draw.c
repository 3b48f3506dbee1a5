/* Owns: `fsdpc draw`: a plan as pictures, traces and reports. */
#include "cli/cli.h"
#include "cli/graphviz.h"

#include "planner/view/html.h"
#include "planner/view/trace.h"
#include "planner/view/view.h"

typedef struct Drawn {
  const Planned *planned;
  const SimResult *measured; /* or NULL */
} Drawn;

static bool draw_dot(Text *out, const Drawn *drawn) {
  view_units_dot(out, drawn->planned->plan, &drawn->planned->sim);
  return true;
}

static bool draw_svg(Text *out, const Drawn *drawn) {
  Text digraph = {.arena = out->arena};
  return draw_dot(&digraph, drawn) && graphviz_svg(out, &digraph);
}

static bool draw_timeline(Text *out, const Drawn *drawn) {
  view_timeline_svg(out, drawn->planned->plan, &drawn->planned->sim);
  return true;
}

static bool draw_trace(Text *out, const Drawn *drawn) {
  view_trace(out, drawn->planned->plan, &drawn->planned->sim);
  return true;
}

static bool draw_html(Text *out, const Drawn *drawn) {
  view_html(out, drawn->planned->plan, &drawn->planned->sim, drawn->measured, planned_beside(out->arena, drawn->planned));
  return true;
}

/* What can be drawn, each to the file of its option. */
static const struct {
  OptionId option;
  bool (*draw)(Text *out, const Drawn *drawn); /* false after a message */
} kinds[] = {{OPTION_DOT, draw_dot},
             {OPTION_SVG, draw_svg},
             {OPTION_TIMELINE, draw_timeline},
             {OPTION_TRACE, draw_trace},
             {OPTION_HTML, draw_html}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Without Graphviz there is no picture of the units, but all else that was asked for. */
static int draw_all(const Cli *cli, const Drawn *drawn) {
  int code = EXIT_OK;
  for (int k = 0; k < KINDS; k++) {
    const char *path = option_text(&cli->options, kinds[k].option, NULL);
    Text text = {.arena = cli->arena};
    if (path && !(kinds[k].draw(&text, drawn) && cli_write_file(cli, path, text.data, text.length))) code = EXIT_INVALID;
  }
  return code;
}

int cmd_draw(Cli *cli) {
  Planned planned;
  bool any = false;
  for (int k = 0; k < KINDS; k++) any |= option_given(&cli->options, kinds[k].option);
  if (!any) return usage_error("give --html, --timeline, --svg, --dot or --trace, each with a FILE", "there is nothing to draw to");
  if (option_given(&cli->options, OPTION_MEASURED) && !option_given(&cli->options, OPTION_HTML))
    return usage_error("give --html FILE", "--measured has no effect without --html");
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  const char *trace = option_text(&cli->options, OPTION_MEASURED, NULL);
  const SimResult *measured = trace ? read_measured(cli, planned.plan, trace) : NULL;
  if (trace && !measured) return EXIT_INVALID;
  Drawn drawn = {&planned, measured};
  return draw_all(cli, &drawn);
}
