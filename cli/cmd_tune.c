/* Owns: `fsdpc tune`: which grid is swept. Options name lists; what is not named gets a list that suits the model and the
 * machine. */
#include "cli/tune.h"

#include "base/cores.h"
#include "planner/world.h"

enum { DIM_CLUSTER, DIM_RANKS, DIM_MEMORY, DIM_STRATEGY, DIM_WRAP, DIM_CHECKPOINT, DIM_PREFETCH, DIM_RESHARD, DIM_MICRO_BATCH };
static const OptionId dim_options[TUNE_DIMS] = {
    [DIM_CLUSTER] = OPTION_CLUSTER,   [DIM_RANKS] = OPTION_RANKS,           [DIM_MEMORY] = OPTION_MEMORY,
    [DIM_STRATEGY] = OPTION_STRATEGY, [DIM_WRAP] = OPTION_WRAP,             [DIM_CHECKPOINT] = OPTION_CHECKPOINT,
    [DIM_PREFETCH] = OPTION_PREFETCH, [DIM_RESHARD] = OPTION_RESHARD,       [DIM_MICRO_BATCH] = OPTION_MICRO_BATCH};

/* --- the grid ------------------------------------------------------------------------------------------ */

/* Points count the clusters fastest, then ranks, and so on. */
static uint32_t stride_of(const Tune *t, int d) {
  uint32_t stride = 1;
  for (int k = 0; k < d; k++) stride *= t->dims[k].values.count;
  return stride;
}

const char *tune_value(const Tune *t, uint32_t p, int d) {
  return t->dims[d].values.data[p / stride_of(t, d) % t->dims[d].values.count];
}

uint32_t tune_neighbour(const Tune *t, uint32_t p, int d, uint32_t v) {
  uint32_t stride = stride_of(t, d), now = p / stride % t->dims[d].values.count;
  return p + (v - now) * stride;
}

static bool among(const Words *words, const char *word) {
  for (uint32_t i = 0; i < words->count; i++)
    if (!strcmp(words->data[i], word)) return true;
  return false;
}

/* --ranks 8,16 --ranks 32, each value once. False after a message. */
static bool split_values(Cli *cli, TuneDim *dim) {
  const Words *given = &cli->options.given[dim->option];
  for (uint32_t g = 0; g < given->count; g++) {
    char *rest = arena_strdup(cli->arena, given->data[g]);
    for (char *one = strsep(&rest, ","); one; one = strsep(&rest, ",")) {
      if (!*one)
        return usage_error(NULL, "option --%s expects values with a comma between, but got \"%s\"", option_info(dim->option)->name,
                           given->data[g]),
               false;
      if (!among(&dim->values, one)) vec_push(cli->arena, &dim->values, one);
    }
  }
  return true;
}

static void add(Tune *t, int d, const char *value) {
  vec_push(t->cli->arena, &t->dims[d].values, value);
}

static void default_ranks(Tune *t, const Cluster *cluster) {
  int64_t node = cluster->node_devices > 0 ? cluster->node_devices : 1, most = node * (cluster->nodes > 0 ? cluster->nodes : 1);
  for (int64_t ranks = most > node ? node : 1; ranks <= most; ranks *= 2)
    add(t, DIM_RANKS, arena_printf(t->cli->arena, "%lld", (long long)ranks));
}

/* The whole device, three quarters, half: what the rest of it would be needed for is the user's to know. */
static void default_memory(Tune *t, const Graph *graph) {
  uint64_t all = graph->plan.memory_bytes ? graph->plan.memory_bytes : graph->cluster.device.memory_bytes;
  for (uint64_t quarters = 4; quarters >= 2; quarters--)
    add(t, DIM_MEMORY, arena_printf(t->cli->arena, "%lluB", (unsigned long long)(all / 4 * quarters + all % 4 * quarters / 4)));
}

static void add_all(Tune *t, int d, const char *const names[]) {
  for (int k = 0; names[k]; k++) add(t, d, names[k]);
}

/* Over several nodes also shards within a node and replicas across. */
static void default_strategies(Tune *t, const Cluster *cluster) {
  static const char *const names[] = {"auto", "full_shard", "shard_grad_op", "shard_optim", "no_shard", NULL};
  add_all(t, DIM_STRATEGY, names);
  if (cluster->node_devices > 1 && cluster->nodes > 1)
    add(t, DIM_STRATEGY, arena_printf(t->cli->arena, "hybrid_shard:%lld", (long long)cluster->node_devices));
}

static void default_values(Tune *t, int d, const Graph *graph) {
  static const char *const wraps[] = {"auto", "block", "whole", NULL}, *const checkpoints[] = {"auto", "none", "full", NULL},
                           *const micros[] = {"auto", "1", "2", "4", NULL};
  switch (d) {
  case DIM_CLUSTER: add(t, d, ""); break;
  case DIM_RANKS: default_ranks(t, &graph->cluster); break;
  case DIM_MEMORY: default_memory(t, graph); break;
  case DIM_WRAP: add_all(t, d, wraps); break;
  case DIM_STRATEGY: default_strategies(t, &graph->cluster); break;
  case DIM_CHECKPOINT: add_all(t, d, checkpoints); break;
  case DIM_MICRO_BATCH: add_all(t, d, micros); break;
  default: add(t, d, "auto"); break;
  }
}

/* What all plans share, then each value of a list, before hundreds of plans are made with it. */
static bool check_values(Tune *t) {
  Graph nothing = {0};
  PlannerOptions ignored;
  Cli shared = *t->cli;
  for (int d = 0; d < TUNE_DIMS; d++) shared.options.given[t->dims[d].option] = (Words){0};
  if (!compile_options_of_planner(&shared, &nothing, &ignored)) return false;
  for (int d = 1; d < TUNE_DIMS; d++)
    for (uint32_t v = 0; v < t->dims[d].values.count; v++) {
      Cli one = shared;
      vec_push(t->cli->arena, &one.options.given[t->dims[d].option], t->dims[d].values.data[v]);
      if (!compile_options_of_planner(&one, &nothing, &ignored)) return false;
    }
  return true;
}

/* One graph a cluster: the file's own where --cluster is not given. */
static int compile_graphs(Tune *t) {
  Cli *cli = t->cli;
  Words given = cli->options.given[OPTION_CLUSTER], *clusters = &t->dims[DIM_CLUSTER].values;
  uint32_t count = clusters->count ? clusters->count : 1;
  t->graphs = ARENA_ARRAY(cli->arena, const Graph *, count);
  for (uint32_t c = 0; c < count; c++) {
    Words one = {0};
    Graph *graph;
    if (clusters->count) vec_push(cli->arena, &one, clusters->data[c]);
    cli->options.given[OPTION_CLUSTER] = one;
    int code = compile_graph(cli, cli->options.operands.data[0], &graph);
    if (code != EXIT_OK) return code;
    if (!world_knows_device(&cli->sink, graph)) return cli_print_diags(cli), EXIT_INVALID; /* once, not for each plan */
    t->graphs[c] = graph;
  }
  cli->options.given[OPTION_CLUSTER] = given;
  cli_print_diags(cli); /* warnings */
  return EXIT_OK;
}

static int make_grid(Tune *t) {
  uint64_t count = 1;
  for (int d = 0; d < TUNE_DIMS; d++) {
    t->dims[d].option = dim_options[d];
    if (!split_values(t->cli, &t->dims[d])) return EXIT_USAGE;
  }
  if (!check_values(t)) return EXIT_USAGE;
  int code = compile_graphs(t);
  if (code != EXIT_OK) return code;
  note_own_runtime(t->cli->options.operands.data[0], &t->graphs[0]->plan);
  for (int d = 0; d < TUNE_DIMS; d++) {
    if (!t->dims[d].values.count) default_values(t, d, t->graphs[0]);
    count *= t->dims[d].values.count;
  }
  if (!*t->dims[DIM_CLUSTER].values.data[0]) t->dims[DIM_CLUSTER].values.data[0] = t->graphs[0]->cluster.name ? t->graphs[0]->cluster.name : "";
  if (count > TUNE_MOST)
    return usage_error("name fewer values", "these lists make %llu plans, more than %d", (unsigned long long)count, TUNE_MOST);
  t->count = (uint32_t)count;
  return EXIT_OK;
}

/* --- the command --------------------------------------------------------------------------------------- */

static bool write_text(const Tune *t, OptionId option, void (*make)(const Tune *, Text *)) {
  const char *path = option_text(&t->cli->options, option, NULL);
  Text text = {.arena = t->cli->arena};
  if (!path) return true;
  make(t, &text);
  return cli_write_file(t->cli, path, text.data, text.length);
}

/* The front of what is done, for people: a script that reads half a sweep would take it for a whole one. */
static int tell_interrupted(const Tune *t) {
  static const OptionId files[] = {OPTION_CSV, OPTION_HTML};
  cli_error("stopped by signal %d (%s) before all plans were made", t->stopped_by, strsignal(t->stopped_by));
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (option_given(&t->cli->options, files[i])) fprintf(stderr, "note: %s is not written\n", option_text(&t->cli->options, files[i], ""));
  if (option_given(&t->cli->options, OPTION_JSON))
    fprintf(stderr, "note: --json prints whole sweeps only; without it the front so far is shown\n");
  else
    tune_print(t, stdout);
  return 128 + t->stopped_by;
}

int cmd_tune(Cli *cli) {
  Tune tune = {.cli = cli};
  int64_t jobs = cores_available();
  if (!option_integer(&cli->options, OPTION_JOBS, 1, 1024, &jobs)) return EXIT_USAGE;
  int code = make_grid(&tune);
  if (code != EXIT_OK) return code;
  if ((code = tune_run(&tune, jobs)) != EXIT_OK) return code;
  tune_front(&tune);
  if (tune.stopped_by) return tell_interrupted(&tune);
  if (!write_text(&tune, OPTION_CSV, tune_csv) || !write_text(&tune, OPTION_HTML, tune_html)) return EXIT_INVALID;
  if (option_given(&cli->options, OPTION_JSON))
    tune_json(&tune, stdout);
  else
    tune_print(&tune, stdout);
  fflush(stdout);
  return tune.front.count ? EXIT_OK : tune_explain(&tune);
}
