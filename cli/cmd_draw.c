/* Owns: `fsdpc draw`: a plan as pictures, traces and reports. */
#include "cli/cli.h"

#include "planner/view/html.h"
#include "planner/view/trace.h"
#include "planner/view/view.h"

static void draw_svg(Text *out, const Planned *planned, const SimResult *measured) {
  (void)measured;
  view_timeline_svg(out, planned->plan, &planned->sim);
}

static void draw_dot(Text *out, const Planned *planned, const SimResult *measured) {
  (void)measured;
  view_units_dot(out, planned->plan, &planned->sim);
}

static void draw_trace(Text *out, const Planned *planned, const SimResult *measured) {
  (void)measured;
  view_trace(out, planned->plan, &planned->sim);
}

static void draw_html(Text *out, const Planned *planned, const SimResult *measured) {
  view_html(out, planned->plan, &planned->sim, measured);
}

/* What can be drawn, each to the file of its option. */
static const struct {
  OptionId option;
  void (*draw)(Text *out, const Planned *planned, const SimResult *measured);
} kinds[] = {{OPTION_SVG, draw_svg}, {OPTION_DOT, draw_dot}, {OPTION_TRACE, draw_trace}, {OPTION_HTML, draw_html}};
enum { KINDS = sizeof kinds / sizeof *kinds };

int cmd_draw(Cli *cli) {
  Planned planned;
  bool any = false;
  for (int k = 0; k < KINDS; k++) any |= option_given(&cli->options, kinds[k].option);
  if (!any) return usage_error("give --html FILE, --svg FILE, --dot FILE or --trace FILE", "there is nothing to draw to");
  if (option_given(&cli->options, OPTION_MEASURED) && !option_given(&cli->options, OPTION_HTML))
    return usage_error("give --html FILE", "--measured has no effect without --html");
  int code = open_plan(cli, cli->options.operands.data[0], &planned);
  if (code != EXIT_OK) return code;
  const char *trace = option_text(&cli->options, OPTION_MEASURED, NULL);
  const SimResult *measured = trace ? read_measured(cli, planned.plan, trace) : NULL;
  if (trace && !measured) return EXIT_INVALID;
  for (int k = 0; k < KINDS; k++) {
    const char *path = option_text(&cli->options, kinds[k].option, NULL);
    Text text = {.arena = cli->arena};
    if (!path) continue;
    kinds[k].draw(&text, &planned, measured);
    if (!cli_write_file(cli, path, text.data, text.length)) return EXIT_INVALID;
  }
  return EXIT_OK;
}
