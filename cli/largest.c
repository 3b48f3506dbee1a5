/* Owns: `fsdpc plan --max`: the largest value of a `let` with which a plan fits. */
#include "cli/cli.h"

#include "base/progress.h"
#include "planner/executor/executor_search.h"

#include <jansson.h>

enum { MOST_DOUBLINGS = 40, NARROW = 100, MOST_NARROWINGS = 20 };

/* Values are whole multiples of `unit`. */
typedef struct Search {
  Cli *cli;
  const char *path, *name;
  int64_t unit, largest, first; /* that fits; that does not: 0 until one is found */
  uint32_t tried;
  Progress progress;
} Search;

/* --- one value ----------------------------------------------------------------------------------------- */

/* Whether a plan fits with this value of a `let`, or -1: no model, or no step of whole samples, has it. */
static int fits_with(Cli *cli, const char *path, const char *name, int64_t value) {
  Cli trial = *cli;
  Graph *graph;
  PlannerOptions options;
  PlannerResult native;
  bool executor;
  int fits = -1;
  trial.arena = arena_new();
  trial.sources = (SourceSet){.arena = trial.arena};
  trial.sink = (DiagSink){.arena = trial.arena, .sources = &trial.sources};
  trial.options.given[OPTION_SET] = (Words){0};
  for (uint32_t i = 0; i < cli->options.given[OPTION_SET].count; i++)
    vec_push(trial.arena, &trial.options.given[OPTION_SET], cli->options.given[OPTION_SET].data[i]);
  vec_push(trial.arena, &trial.options.given[OPTION_SET], arena_printf(trial.arena, "%s=%lld", name, (long long)value));
  FrontendOptions frontend = compile_options(&trial);
  graph = frontend_compile(trial.arena, &trial.sources, &trial.sink, path, &frontend);
  if (graph && compile_options_of_planner(&trial, graph, &options)) {
    if (options.settings.executor.id == EXECUTOR_NATIVE) {
      planner_plan(trial.arena, &trial.sink, graph, &options, 0, NULL, &native);
      if (native.plan) fits = native.fits;
    } else if (executor_fits(trial.arena, &trial.sink, graph, &options, &executor)) {
      fits = executor;
    }
  }
  arena_free(trial.arena);
  return fits;
}

static void say_tried(Search *s, int64_t value, int fits) {
  char line[256];
  snprintf(line, sizeof line, "%u tried; %.100s %lld %s", s->tried, s->name, (long long)value, fits > 0 ? "fits" : fits ? "makes no step" : "does not fit");
  progress_say(&s->progress, line);
}

/* The same, counted and shown. */
static int try_value(Search *s, int64_t value) {
  int fits = fits_with(s->cli, s->path, s->name, value);
  s->tried++;
  if (fits > 0) s->largest = value;
  if (fits == 0) s->first = value;
  if (progress_due(&s->progress)) say_tried(s, value, fits);
  return fits;
}

/* --- the search ---------------------------------------------------------------------------------------- */

static void double_up(Search *s) {
  int64_t value = s->unit;
  for (int i = 0; i < MOST_DOUBLINGS && !s->first && value <= INT64_MAX / 4; i++, value *= 2) try_value(s, value);
}

/* Tries what lies about the middle. Not every value makes a step of whole samples, or of whole heads: then numbers rounder
 * than the middle, the less round first. False when none does. */
static bool narrow(Search *s) {
  int64_t low = s->largest / s->unit, high = s->first / s->unit, before = 0;
  for (int64_t round = 1; round < high; round *= 2) {
    int64_t middle = (low + (high - low) / 2 + round / 2) / round * round;
    if (middle <= low || middle >= high || middle == before) continue;
    if (try_value(s, middle * s->unit) >= 0) return true;
    before = middle;
  }
  return false;
}

/* To a hundredth, or to neighbours: each try is a whole search of plans, of ever larger models. */
static void search(Search *s) {
  double_up(s);
  for (int i = 0; i < MOST_NARROWINGS && s->largest && s->first; i++) {
    int64_t apart = s->first - s->largest;
    if (apart <= s->unit || apart <= s->largest / NARROW || !narrow(s)) break;
  }
  progress_clear(&s->progress);
}

/* --- the answer ---------------------------------------------------------------------------------------- */

/* Whether a plan is made of it, not whether that fits; else says why not. */
static bool makes_plan(Cli *cli, const Graph *graph, const PlannerOptions *options) {
  Planned planned;
  bool fits;
  if (options->settings.executor.id == EXECUTOR_NATIVE) return plan_graph(cli, graph, options, 0, NULL, &planned) == EXIT_OK;
  executor_fits(cli->arena, &cli->sink, graph, options, &fits);
  return cli_print_diags(cli);
}

/* Of a value that the user did not name: 1, where nothing says of what multiples to try. */
static void help_unit(const Search *s) {
  const DiagSink *sink = &s->cli->sink;
  if (s->unit > 1 || !sink->list.count || sink->list.data[0]->span.file < 0) return; /* without a place it is about no value */
  fprintf(stderr, "help: values are tried from %s=1 on; with --set %s=VALUE beside --max they are that value's multiples\n", s->name, s->name);
}

/* No value makes a plan: says what is wrong with the first. */
static int explain_value(const Search *s) {
  Graph *graph;
  PlannerOptions options;
  vec_push(s->cli->arena, &s->cli->options.given[OPTION_SET], arena_printf(s->cli->arena, "%s=%lld", s->name, (long long)s->unit));
  int code = compile_settings(s->cli, s->path, &graph, &options);
  if (code != EXIT_OK || !makes_plan(s->cli, graph, &options)) return help_unit(s), code == EXIT_OK ? EXIT_INVALID : code;
  return cli_error("no value of %s makes a step that can be planned", s->name);
}

static void print_json(const Search *s) {
  json_t *object = json_pack("{s:i, s:s, s:I, s:I}", "schema_version", 1, "let", s->name, "step", (json_int_t)s->unit, "tried", (json_int_t)s->tried);
  json_object_set_new(object, "fits", s->largest ? json_integer((json_int_t)s->largest) : json_null());
  json_object_set_new(object, "does_not_fit", s->first ? json_integer((json_int_t)s->first) : json_null());
  json_dumpf(object, stdout, JSON_INDENT(2));
  putchar('\n');
  json_decref(object);
}

static void print_text(const Search *s) {
  printf("%s %lld fits%s\n", s->name, (long long)s->largest, s->first ? "" : ", and nothing larger was tried");
  if (s->first) printf("%s %lld does not\n", s->name, (long long)s->first);
}

static bool takes_options(const Cli *cli, const char *name) {
  static const OptionId refused[] = {OPTION_OUTPUT, OPTION_DUMP, OPTION_AGAINST, OPTION_THOROUGH};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (option_given(&cli->options, refused[i]))
      return usage_error(arena_printf(cli->arena, "leave it out, and plan with --set %s=VALUE afterwards", name),
                         "--max finds a value and makes no plan that --%s could use", option_info(refused[i])->name),
             false;
  if (*name && !strchr(name, '=')) return true;
  usage_error("--set NAME=VALUE beside it says of what multiples are tried", "option --max expects the name of a `let`, but got \"%s\"", name);
  return false;
}

/* What `--set NAME=` says, else 1; 0 after a message. */
static int64_t unit_of(const Cli *cli, const char *name) {
  const Words *sets = &cli->options.given[OPTION_SET];
  size_t length = strlen(name);
  for (uint32_t i = sets->count; i-- > 0;) {
    if (strncmp(sets->data[i], name, length) || sets->data[i][length] != '=') continue;
    Quantity value;
    const char *why;
    bool whole = quantity_parse(sets->data[i] + length + 1, &value, &why) && value.kind == QUANTITY_NUMBER && value.is_integer;
    if (whole && value.integer > 0) return value.integer;
    usage_error(NULL, "beside --max, --set %s expects a whole number whose multiples are tried, but got \"%s\"", name, sets->data[i] + length + 1);
    return 0;
  }
  return 1;
}

int plan_largest(Cli *cli, const char *path, const char *name) {
  if (!takes_options(cli, name)) return EXIT_USAGE;
  const int64_t unit = unit_of(cli, name);
  if (!unit) return EXIT_USAGE;
  Search s = {.cli = cli, .path = path, .name = name, .unit = unit, .progress = progress_start()};
  search(&s);
  if (!s.largest && !s.first) return explain_value(&s);
  if (option_given(&cli->options, OPTION_JSON))
    print_json(&s);
  else if (s.largest)
    print_text(&s);
  if (s.largest) return EXIT_OK;
  cli_error("no value of %s makes a plan that fits", name);
  fprintf(stderr, "help: plan with --set %s=%lld in place of --max %s to read what would fit\n", name, (long long)s.unit, name);
  return EXIT_NO_FIT;
}
