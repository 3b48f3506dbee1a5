/* Owns: what the commands share: the state of one invocation, and the ways from a path to a plan. */
#ifndef FSDPC_CLI_CLI_H
#define FSDPC_CLI_CLI_H

#include "base/diag.h"
#include "cli/options.h"
#include "frontend/graph.h"
#include "planner/plan/plan.h"
#include "planner/plan/sim.h"
#include "planner/planner.h"
#include "planner/view/facts.h"

typedef struct Cli {
  Arena *arena; /* lives as long as the process's one command */
  const char *models; /* the models folder, where paths are looked for last */
  SourceSet sources;
  DiagSink sink;
  Options options;
} Cli;

/* The commands; each returns the exit code. */
#define COMMAND(id, name, operands, least, most, summary, examples) int cmd_##name(Cli *cli);
#include "cli/commands.def"
#undef COMMAND

/* Colour on this stream: --color, then NO_COLOR, then whether it is a terminal. */
bool cli_color(const Cli *cli, FILE *stream);
/* Columns of the terminal behind this stream; COLUMNS, else 100, where there is none. */
int cli_width(FILE *stream);
/* --threads, left alone where it is not given: at most a few for each of these cores, or a note. False after a message. */
bool cli_threads(const Options *options, int64_t *out);
/* Prints what was collected on stderr; true when there was no error. */
bool cli_print_diags(Cli *cli);
/* "fsdpc: error: ..." on stderr, for failures that have no place in a source. Returns EXIT_INVALID. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Our mistake, not the user's: says so and ends the process with EXIT_BUG. */
_Noreturn void cli_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The file that is replaced as a whole when a path is written to: through links, also one that is not there yet. NULL: the path is
 * opened as it stands, for it leads to a pipe, to a device, to one of our own streams or to nothing. */
const char *write_replaces(Arena *arena, const char *path);
/* Why a path could not be written to, by errno, with a remedy. */
const char *write_trouble(Arena *arena, const char *path);
/* Writes a file whole, then renames it into place; why that failed, with a remedy, or NULL. */
const char *write_file(Arena *arena, const char *path, const char *bytes, size_t length);
/* The same; false after a message. */
bool cli_write_file(const Cli *cli, const char *path, const char *bytes, size_t length);

/* A file of JSON; NULL after a message. Flags are Jansson's. */
struct json_t *cli_read_json(const char *path, size_t flags);

/* --- paths.c ---------------------------------------------------------------------------------------------- */

/* That no output which the command line names is an input, or another output, and that each can be written. An exit code. */
int paths_check(const Cli *cli);
/* That none is a file that the model was read from, with those that it uses. False after a message: EXIT_USAGE. */
bool paths_spare_sources(const Cli *cli);
/* Nor this one, which a plan was made from. */
bool paths_spare(const Cli *cli, const char *source);

/* --- from a path to a plan (compile.c). Exit codes; messages are printed. ------------------------------ */

typedef struct Planned {
  Plan *plan;
  SimResult sim;
  bool fits;
  const Infeasible *infeasible; /* when !fits */
  uint64_t unplaced_ns;         /* PlannerResult; 0 for a plan that was read */
  const char *bound_of;         /* likewise; NULL */
  uint64_t own_bound_ns;        /* likewise */
  double seconds;               /* spent planning; 0 for a plan that was read */
} Planned;

/* The models folder: FSDPC_MODELS, else the one that was installed with this program, else that of the source tree. */
const char *models_folder(Arena *arena);
/* --set, --cluster, and the models folder. */
FrontendOptions compile_options(const Cli *cli);
/* FILE -> checked graph. */
int compile_graph(Cli *cli, const char *path, Graph **graph);
/* The planner's options: the graph's plan block with the command line's overrides. False after a message. */
bool compile_options_of_planner(const Cli *cli, const Graph *graph, PlannerOptions *options);
/* FILE -> checked graph, and its plan block with the command line's overrides. */
int compile_settings(Cli *cli, const char *path, Graph **graph, PlannerOptions *options);
/* Likewise as if --cluster named this shipped one; false, without a message, where --cluster was given or there is none of this name. */
bool compile_on_cluster(Cli *cli, const char *path, const char *cluster, Graph **graph, PlannerOptions *options, int *code);
/* planner_plan, said on a terminal while it takes long (progress.c). */
void plan_watched(Cli *cli, DiagSink *sink, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text,
                  PlannerResult *result);
/* dump: DumpMask, its text into *dump_text. EXIT_OK also when the plan does not fit: see planned->fits. */
int plan_graph(Cli *cli, const Graph *graph, const PlannerOptions *options, unsigned dump, Text *dump_text, Planned *planned);
/* The same where what does not fit is EXIT_NO_FIT, explained. */
int plan_fitting(Cli *cli, const Graph *graph, const PlannerOptions *options, Planned *planned);
/* PLAN -> plan that the verifier accepts. Planning options are refused. */
int read_plan(Cli *cli, const char *path, Planned *planned);
/* The same with nothing but its path: planning options are about another plan. */
int read_plan_alone(const Cli *cli, const char *path, Planned *planned);
/* A note on stderr where a file names an executor that the command does not heed. */
void note_own_runtime(const char *path, const PlanSettings *settings);
/* PLAN or FILE, told apart by the first line; a FILE that does not fit is EXIT_NO_FIT, explained. */
int open_plan(Cli *cli, const char *path, Planned *planned);

/* A measured step out of a trace of this plan (measured.c); NULL after a message. */
SimResult *read_measured(const Cli *cli, const Plan *plan, const char *path);

/* --- what is said about a plan (report.c, report_json.c) ----------------------------------------------- */

/* Of a plan for GPUs; nothing where they are not known. */
Beside planned_beside(Arena *arena, const Planned *planned);
/* What may stop a run of the plan, though the plan fits its budget; NULL: nothing. */
const char *planned_warning(Arena *arena, const Planned *planned);

/* Figures that both reports print. */
typedef struct PlanFigures {
  uint64_t by_class[BUF_CLASS_COUNT]; /* live at the peak */
  const char *peak_at;                /* "h.17.mlp.c_fc backward" */
  double tokens_per_s_per_rank, mfu;
  double gap; /* step / lower bound - 1; 0 when there is no bound */
  uint64_t recompute_ns;
} PlanFigures;

/* A unit's all-gathers. */
typedef struct UnitFigures {
  uint64_t gather_bytes; /* of the gathered tensor, 0: never gathered */
  uint64_t gather_ns;    /* over the whole step */
} UnitFigures;

void plan_figures(Arena *arena, const Plan *plan, const SimResult *sim, PlanFigures *out);
/* "7439 tokens/s a rank" */
const char *rank_speed(Arena *arena, double tokens_per_s);
UnitFigures *unit_figures(Arena *arena, const Plan *plan, const SimResult *sim); /* one a unit */
void report_print(const Cli *cli, const Planned *planned, FILE *out);
/* "Plan: 34 units, peak 61.2/80.0 GiB ..., fits" */
void report_line(const Cli *cli, const Planned *planned, FILE *out);
void report_json(const Cli *cli, const Planned *planned, FILE *out);
/* A list of the warning; NULL: an empty list. */
struct json_t *warnings_json(const char *warning);
/* Why it does not fit, and the cheapest ways out. */
void report_infeasible(const Planned *planned, FILE *out);
/* What would fit, and what would not do. */
void report_relaxations(const Relaxations *relaxations, FILE *out);
struct json_t *relaxations_json(const Relaxations *relaxations);

/* `plan --max NAME` (largest.c). */
int plan_largest(Cli *cli, const char *path, const char *name);
/* `plan` for another executor than ours (plan_executor.c): the choice, its runners-up, and with -o the model with its policy. */
int plan_for_executor(Cli *cli, const Graph *graph, const PlannerOptions *options);

/* What differs between two plans, on stdout (cmd_diff.c). True when something does. */
bool print_diff(const Cli *cli, const Planned *before, const Planned *after);

/* Diagnostics as one SARIF 2.1.0 log (sarif.c). */
void sarif_print(const DiagSink *sink, FILE *out);

/* --- help.c -------------------------------------------------------------------------------------------- */

/* A row of commands.def. */
typedef struct CommandText {
  const char *name, *operands, *summary, *examples;
} CommandText;
const CommandText *command_text(CommandId command);

void help_all(FILE *out);
void help_command(CommandId command, FILE *out);
void help_version(bool json, FILE *out);

#endif
