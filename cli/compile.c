/* Owns: the ways from a path on the command line to a graph and to a plan: the options that override the
 * file's plan block, and the refusal of options that a finished plan cannot heed. */
#include "cli/cli.h"

#include "planner/plan/plan_text.h"
#include "planner/plan/verify.h"
#include "planner/world.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

/* Beside this program, wherever the installation was moved to; NULL: it was not installed. */
static const char *installed_models(Arena *arena) {
  char program[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return NULL;
  program[length] = '\0';
  *strrchr(program, '/') = '\0';
  char *folder = realpath(arena_printf(arena, "%s/../share/fsdpc/models", program), NULL); /* where CMakeLists.txt installs them */
  const char *found = folder ? arena_strdup(arena, folder) : NULL;
  free(folder);
  return found;
}

const char *models_folder(Arena *arena) {
  const char *asked = getenv("FSDPC_MODELS"), *installed = installed_models(arena);
  if (asked && *asked) return asked;
  return installed ? installed : frontend_models();
}

FrontendOptions compile_options(const Cli *cli) {
  const Words *sets = &cli->options.given[OPTION_SET];
  return (FrontendOptions){.sets = sets->data,
                           .set_count = sets->count,
                           .cluster_path = option_text(&cli->options, OPTION_CLUSTER, NULL),
                           .models_path = cli->models};
}

int compile_graph(Cli *cli, const char *path, Graph **graph) {
  FrontendOptions options = compile_options(cli);
  *graph = frontend_compile(cli->arena, &cli->sources, &cli->sink, path, &options);
  if (*graph) return paths_spare_sources(cli) ? EXIT_OK : EXIT_USAGE;
  cli_print_diags(cli);
  return EXIT_INVALID;
}

/* --- overrides ----------------------------------------------------------------------------------------- */

/* "prefix:rest" -> rest, else NULL. */
static const char *after(const char *text, const char *prefix) {
  size_t length = strlen(prefix);
  return text && strncmp(text, prefix, length) == 0 && text[length] == ':' ? text + length + 1 : NULL;
}

/* A whole number from 1 on, such as the F of hybrid_shard:F. */
static bool count_after(OptionId id, const char *text, uint64_t *out) {
  Quantity quantity;
  const char *why;
  if (quantity_parse(text, &quantity, &why) && quantity.kind == QUANTITY_NUMBER && quantity.is_integer &&
      quantity.integer >= 1) {
    *out = (uint64_t)quantity.integer;
    return true;
  }
  usage_error(NULL, "option --%s expects a whole number from 1 to %lld after the colon, but got \"%s\"",
              option_info(id)->name, (long long)INT64_MAX, text);
  return false;
}

static bool override_strategy(const Cli *cli, PlanSettings *settings) {
  static const char *const words[] = {"auto",     "full_shard",  "shard_grad_op",
                                      "no_shard", "shard_optim", "hybrid_shard:F"};
  static const Strategy values[] = {STRATEGY_AUTO,     STRATEGY_FULL_SHARD,  STRATEGY_SHARD_GRAD_OP,
                                    STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_HYBRID_SHARD};
  const char *width = after(option_text(&cli->options, OPTION_STRATEGY, NULL), "hybrid_shard");
  uint64_t shard = 0;
  int which = -1;
  if (width) {
    if (!count_after(OPTION_STRATEGY, width, &shard)) return false;
    which = 5;
  } else if (!option_word(&cli->options, OPTION_STRATEGY, words, 6, &which)) {
    return false;
  }
  if (which < 0) return true;
  settings->strategy = values[which];
  settings->shard = (int64_t)shard;
  return true;
}

static bool override_wrap(const Cli *cli, PlanSettings *settings) {
  static const char *const words[] = {"auto", "block", "whole", "size:N"};
  static const WrapKind values[] = {WRAP_AUTO, WRAP_BLOCK, WRAP_WHOLE};
  const char *size = after(option_text(&cli->options, OPTION_WRAP, NULL), "size");
  int which = -1;
  if (size) {
    settings->wrap = WRAP_SIZE;
    return count_after(OPTION_WRAP, size, &settings->wrap_numel);
  }
  if (!option_word(&cli->options, OPTION_WRAP, words, 4, &which)) return false;
  if (which >= 0) settings->wrap = values[which];
  return true;
}

/* "auto" or a number. */
static bool override_auto(const Cli *cli, OptionId id, int64_t least, int64_t most, int64_t *out) {
  static const char *const words[] = {"auto"};
  const char *text = option_text(&cli->options, id, NULL), *why;
  Quantity quantity;
  if (!text) return true;
  if (strcmp(text, words[0]) == 0) return *out = SETTING_AUTO, true;
  if (quantity_parse(text, &quantity, &why) && quantity.kind == QUANTITY_NUMBER && quantity.is_integer && quantity.integer >= least &&
      quantity.integer <= most)
    return *out = quantity.integer, true;
  usage_error(setting_meant(text, words, 1) ? "did you mean auto?" : NULL, "option --%s expects auto or a whole number from %lld to %lld, but got \"%s\"",
              option_info(id)->name, (long long)least, (long long)most, text);
  return false;
}

/* "auto", "yes", "no" or a number of ranks. */
static bool override_reshard(const Cli *cli, int32_t *out) {
  static const char *const words[] = {"no", "yes", "auto", "N"};
  const char *text = option_text(&cli->options, OPTION_RESHARD, "");
  int64_t ranks = *out;
  int word = -1;
  bool number = *text >= '0' && *text <= '9';
  if (!strcmp(text, "0") || !strcmp(text, "1"))
    return usage_error("--reshard yes or no; a number is of ranks in a group", "option --reshard expects no, yes, auto or N from 2 on, but got \"%s\"", text), false;
  if (number ? !option_integer(&cli->options, OPTION_RESHARD, 2, MOST_RANKS_OF_A_JOB, &ranks)
             : !option_word(&cli->options, OPTION_RESHARD, words, 4, &word))
    return false;
  if (word == 3) return usage_error(NULL, "option --reshard N needs a number for N, such as 8"), false;
  *out = word < 0 ? (int32_t)ranks : word == 2 ? SETTING_AUTO : word;
  return true;
}

static bool override_executor(const Cli *cli, ExecutorId *out) {
  const char *name = option_text(&cli->options, OPTION_EXECUTOR, NULL);
  int which = name ? executor_find(name) : (int)*out;
  if (which >= 0) return *out = (ExecutorId)which, true;
  const char *meant = executor_nearest(name);
  Text all = {.arena = cli->arena};
  for (const char *const *known = executor_names(); *known; known++) text_printf(&all, "%s%s", !all.length ? "" : known[1] ? ", " : " or ", *known);
  usage_error(meant ? arena_printf(cli->arena, "did you mean %s?", meant) : "'fsdpc predict --help' says what each is",
              "option --executor expects %s, but got \"%s\"", all.data, name);
  return false;
}

/* --offload auto | none | parameters,gradients,optimizer,activations */
static bool override_offload(const Cli *cli, int32_t *out) {
  const char *const *names = offload_names(), *text = option_text(&cli->options, OPTION_OFFLOAD, NULL);
  if (!text) return true;
  *out = !strcmp(text, "auto") ? SETTING_AUTO : 0;
  if (!strcmp(text, "auto") || !strcmp(text, "none")) return true;
  char *rest = arena_strdup(cli->arena, text);
  for (char *word; (word = strsep(&rest, ",")) != NULL;) {
    int which = 0;
    while (which < OFFLOAD_KINDS && strcmp(word, names[which])) which++;
    if (which == OFFLOAD_KINDS) {
      const char *meant = text_nearest(word, names, OFFLOAD_KINDS);
      usage_error(meant ? arena_printf(cli->arena, "did you mean %s?", meant) : "give auto, none, or a comma list of parameters, gradients, optimizer, activations",
                  "option --offload knows no \"%s\"", word);
      return false;
    }
    *out |= 1 << which;
  }
  return true;
}

/* What contradicts an option has no place in the file. */
static void forget_place(const Cli *cli, PlanSettings *settings) {
  static const OptionId asked[] = {OPTION_STRATEGY, OPTION_RESHARD, OPTION_GATHER, OPTION_REDUCE};
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
    if (option_given(&cli->options, asked[i])) settings->span = SPAN_NONE;
}

static bool override_settings(const Cli *cli, PlanSettings *settings) {
  static const char *const checkpoints[] = {"auto", "none", "full"};
  static const CheckpointKind kinds[] = {CHECKPOINT_AUTO, CHECKPOINT_NONE, CHECKPOINT_FULL};
  static const char *const cadences[] = {"auto", "micro_batch", "step"}; /* in the order of Cadence */
  int checkpoint = -1, gather = (int)settings->gather, reduce = (int)settings->reduce;
  if (!override_strategy(cli, settings) || !override_wrap(cli, settings) ||
      !option_bytes(&cli->options, OPTION_MEMORY, &settings->memory_bytes) ||
      !option_word(&cli->options, OPTION_CHECKPOINT, checkpoints, 3, &checkpoint) ||
      !override_reshard(cli, &settings->reshard) || !override_executor(cli, &settings->executor.id) ||
      !option_word(&cli->options, OPTION_GATHER, cadences, 3, &gather) ||
      !option_word(&cli->options, OPTION_REDUCE, cadences, 3, &reduce) || !override_offload(cli, &settings->offload) ||
      !override_auto(cli, OPTION_PREFETCH, 0, SETTING_MOST_PREFETCH, &settings->prefetch) ||
      !override_auto(cli, OPTION_MICRO_BATCH, 1, SETTING_MOST_SAMPLES, &settings->micro_batch))
    return false;
  settings->gather = (Cadence)gather;
  settings->reduce = (Cadence)reduce;
  if (checkpoint >= 0) settings->checkpoint = kinds[checkpoint];
  forget_place(cli, settings);
  return true;
}

bool compile_options_of_planner(const Cli *cli, const Graph *graph, PlannerOptions *options) {
  *options = (PlannerOptions){.settings = graph->plan, .thorough = option_given(&cli->options, OPTION_THOROUGH)};
  return option_integer(&cli->options, OPTION_RANKS, 1, MOST_RANKS_OF_A_JOB, &options->ranks) &&
         option_integer(&cli->options, OPTION_RANKS_PER_NODE, 1, MOST_RANKS_OF_A_JOB, &options->ranks_per_node) &&
         override_settings(cli, &options->settings);
}

static const DType float_dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
enum { FLOAT_DTYPES = sizeof float_dtypes / sizeof *float_dtypes };

static bool float_dtype(const char *text, DType *out) {
  for (int i = 0; i < FLOAT_DTYPES; i++)
    if (!strcmp(text, dtype_name(float_dtypes[i]))) return *out = float_dtypes[i], true;
  return false;
}

/* As others call it: f16 for fp16. The word itself where none is near. */
static const char *dtype_meant(const char *text) {
  const char *names[FLOAT_DTYPES];
  DType own;
  for (int i = 0; i < FLOAT_DTYPES; i++) names[i] = dtype_name(float_dtypes[i]);
  const char *meant = float_dtype(text, &own) ? NULL : setting_meant(text, names, FLOAT_DTYPES);
  return meant ? meant : text;
}

static void refuse_precision(Arena *arena, const char *text, const char *compute, const char *reduce) {
  DType known;
  const char *first = dtype_meant(compute), *second = reduce ? dtype_meant(reduce) : NULL, *help = "such as --precision bf16:f32";
  if (float_dtype(first, &known) && (!second || float_dtype(second, &known)))
    help = arena_printf(arena, "did you mean %s%s%s?", first, second ? ":" : "", second ? second : "");
  usage_error(help, "option --precision expects f32, bf16 or f16, and after a colon one of them, but got \"%s\"", text);
}

/* --precision bf16:f32 over the file's. */
static bool override_precision(const Cli *cli, Recipe *recipe) {
  const char *text = option_text(&cli->options, OPTION_PRECISION, NULL), *colon = text ? strchr(text, ':') : NULL;
  DType compute, reduce;
  if (!text) return true;
  const char *first = colon ? arena_strndup(cli->arena, text, (size_t)(colon - text)) : text;
  if (!float_dtype(first, &compute) || !float_dtype(colon ? colon + 1 : "f32", &reduce)) {
    refuse_precision(cli->arena, text, first, colon ? colon + 1 : NULL);
    return false;
  }
  recipe->compute = compute;
  recipe->reduce = reduce;
  if (recipe->master == compute) return true; /* bf16, of the file's precision bf16 */
  recipe->master = DTYPE_F32;
  recipe->rounding = ROUNDING_NEAREST;
  return true;
}

int compile_settings(Cli *cli, const char *path, Graph **graph, PlannerOptions *options) {
  static const Graph nothing = {0};
  if (!compile_options_of_planner(cli, &nothing, options)) return EXIT_USAGE; /* usage errors first: they need no file */
  if (!override_precision(cli, &(Recipe){0})) return EXIT_USAGE;
  int code = compile_graph(cli, path, graph);
  if (code != EXIT_OK) return code;
  override_precision(cli, &(*graph)->recipe);
  compile_options_of_planner(cli, *graph, options);
  return code;
}

bool compile_on_cluster(Cli *cli, const char *path, const char *cluster, Graph **graph, PlannerOptions *options, int *code) {
  Words *given = &cli->options.given[OPTION_CLUSTER];
  if (given->count || !*cluster || strchr(cluster, '/')) return false;
  if (access(arena_printf(cli->arena, "%s/clusters/%s.fsdp", cli->models, cluster), R_OK) != 0) return false;
  vec_push(cli->arena, given, cluster);
  cli->sink = (DiagSink){.arena = cli->arena, .sources = &cli->sources}; /* its warnings come again */
  *code = compile_settings(cli, path, graph, options);
  return true;
}

/* --- planning ------------------------------------------------------------------------------------------ */

int plan_graph(Cli *cli, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text, Planned *planned) {
  PlannerResult *result = ARENA_NEW(cli->arena, PlannerResult);
  plan_watched(cli, &cli->sink, graph, options, dump, dump_text, result);
  if (!cli_print_diags(cli)) return EXIT_INVALID;
  if (!result->plan) cli_bug("the planner gave neither a plan nor a reason for %s", graph->path);
  *planned = (Planned){.plan = result->plan,
                       .sim = result->sim,
                       .fits = result->fits,
                       .infeasible = &result->infeasible,
                       .unplaced_ns = result->unplaced_ns,
                       .bound_of = result->bound_of,
                       .own_bound_ns = result->own_bound_ns,
                       .seconds = result->seconds};
  return EXIT_OK;
}

/* --- reading ------------------------------------------------------------------------------------------- */

static void print_violations(const char *path, const VerifyResult *result) {
  cli_error("%s violates %u rule%s of a plan", path, result->total, text_plural(result->total));
  for (uint32_t i = 0; i < result->violations.count; i++) {
    const Violation *violation = &result->violations.data[i];
    fprintf(stderr, "  %s: %s\n", verify_rule_name(violation->rule), violation->text);
  }
  fprintf(stderr, "help: 'fsdpc verify %s' says what each rule means\n", path);
}

/* What a plan has decided cannot be asked for again. */
static bool refuse_planning_options(const Cli *cli, const Plan *plan, const char *path) {
  for (int id = 0; id < OPTION_COUNT; id++) {
    const OptionInfo *option = option_info((OptionId)id);
    bool planning = (option->commands & SET_PLANNING) == SET_PLANNING && option->commands != SET_ALL;
    if (!planning || id == OPTION_RANKS || !option_given(&cli->options, (OptionId)id)) continue;
    usage_error("give the model file instead, or plan again",
                "--%s has no effect on a finished plan, and %s is one", option->name, path);
    return false;
  }
  int64_t ranks = plan->world.ranks;
  if (!option_integer(&cli->options, OPTION_RANKS, 1, MOST_RANKS_OF_A_JOB, &ranks)) return false;
  if (ranks == (int64_t)plan->world.ranks) return true;
  usage_error("leave --ranks out, or plan again", "--ranks is %lld, but %s is a plan for %u rank%s",
              (long long)ranks, path, plan->world.ranks, text_plural(plan->world.ranks));
  return false;
}

int read_plan(Cli *cli, const char *path, Planned *planned) {
  VerifyResult result = {0};
  Plan *plan = plan_read(cli->arena, &cli->sources, &cli->sink, path);
  if (!cli_print_diags(cli) || !plan) return EXIT_INVALID;
  if (!plan_verify(cli->arena, plan, &result)) return print_violations(path, &result), EXIT_INVALID;
  if (!refuse_planning_options(cli, plan, path) || !paths_spare(cli, plan_str(plan, plan->source_path))) return EXIT_USAGE;
  *planned = (Planned){.plan = plan, .fits = true};
  plan_simulate(cli->arena, plan, &planned->sim);
  return EXIT_OK;
}

int read_plan_alone(const Cli *cli, const char *path, Planned *planned) {
  Cli plain = *cli;
  memset(plain.options.given, 0, sizeof plain.options.given);
  plain.sources = (SourceSet){.arena = cli->arena};
  plain.sink = (DiagSink){.arena = cli->arena, .sources = &plain.sources};
  return read_plan(&plain, path, planned);
}

void note_own_runtime(const char *path, const PlanSettings *settings) {
  if (settings->executor.id != EXECUTOR_NATIVE)
    fprintf(stderr, "note: this is about our own runtime; %s, which %s names, is heeded by 'fsdpc plan', predict and export\n",
            executor_name(settings->executor.id), path);
}

int plan_fitting(Cli *cli, const Graph *graph, const PlannerOptions *options, Planned *planned) {
  int code = plan_graph(cli, graph, options, 0, NULL, planned);
  if (code != EXIT_OK || planned->fits) return code;
  report_infeasible(planned, stderr);
  return EXIT_NO_FIT;
}

int open_plan(Cli *cli, const char *path, Planned *planned) {
  if (plan_is_plan_file(path)) return read_plan(cli, path, planned);
  Graph *graph;
  PlannerOptions options;
  int code = compile_settings(cli, path, &graph, &options);
  if (code != EXIT_OK) return code;
  note_own_runtime(path, &options.settings);
  return plan_fitting(cli, graph, &options, planned);
}
