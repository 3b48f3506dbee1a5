/* Owns: the words of a training run. */
#include "runtime/report.h"

#include "base/clock.h"
#include "base/stream.h"
#include "base/terminal.h"
#include "base/text.h"
#include "runtime/files/lock.h"
#include "runtime/schedule.h"
#include "runtime/tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  LINES_A_RUN = 40,      /* of progress, where it does not go to a terminal */
  REDRAW_NS = 100000000, /* on a terminal */
  SCHEMA_VERSION = 1
};

struct Report {
  ReportConfig config;
  Arena *arena;
  bool terminal;
  uint64_t begin_ns, drawn_ns, done_steps, skipped_steps, every;
  double smooth_ns; /* of a step, for rate and remaining time */
  StepResult last;
  Tensorboard *board; /* or NULL */
};

static const char *const optimizers[] = {OPTIMIZER_NAMES};
static const char *const schedules[] = {SCHEDULE_NAMES};
static const char *const orders[] = {"sequential", "shuffled"};
static const char *const roundings[] = {ROUNDING_NAMES};

static uint64_t tokens_per_step(const ReportConfig *config) {
  return config->samples_per_step * config->ctx;
}

static const char *processor(Arena *arena) {
  char line[256];
  const char *name = "cpu";
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (file == NULL) return name;
  while (fgets(line, sizeof line, file) != NULL) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
    line[strcspn(line, "\n")] = '\0';
    name = arena_strdup(arena, colon + 1 + strspn(colon + 1, " "));
    break;
  }
  fclose(file);
  return name;
}

void report_close(Report *report) {
  tensorboard_close(report->board);
}

Report *report_open(Arena *arena, const ReportConfig *config, Failure *failure) {
  Report *report = ARENA_NEW(arena, Report);
  report->config = *config;
  report->arena = arena;
  report->terminal = terminal_shows_progress();
  report->begin_ns = clock_ns();
  report->every = (config->steps + LINES_A_RUN - 1) / LINES_A_RUN;
  const char *dir = config->options->tensorboard;
  if (dir != NULL && (report->board = tensorboard_open(arena, dir, failure)) == NULL) return NULL;
  return report;
}

/* --- header and footer -------------------------------------------------------------------------------------------- */

static void print_batch(const ReportConfig *config) {
  const PlanWorld *world = &config->plan->world;
  const char *reduce = world->accumulation > 1 ? plan_cadence(config->plan, STREAM_REDUCE) : NULL; /* last bits depend on it */
  char tokens[32];
  fprintf(stderr,
          "  batch      %" PRIu64 " sample%s of %" PRIu64 " (%s tokens) a step: micro-batch %" PRIu64 " x %" PRIu64
          " x %u rank%s%s%s\n",
          config->samples_per_step, text_plural(config->samples_per_step), config->ctx, text_count(tokens, (double)tokens_per_step(config)),
          world->micro_batch, world->accumulation, world->ranks, text_plural(world->ranks), reduce != NULL ? ", reduce " : "",
          reduce != NULL ? reduce : "");
}

static void print_optimizer(const Recipe *recipe, uint64_t steps) {
  fprintf(stderr, "  optimizer  %s, lr %g %s", optimizers[recipe->optimizer], recipe->lr, schedules[recipe->schedule]);
  if (recipe->schedule != SCHEDULE_CONSTANT) fprintf(stderr, " to %g", recipe->min_lr);
  if (recipe->warmup_steps > 0) fprintf(stderr, ", warmup %" PRIu64, recipe->warmup_steps);
  if (recipe->decay > 0) fprintf(stderr, ", decay %g", recipe->decay);
  if (recipe->clip > 0) fprintf(stderr, ", clip %g", recipe->clip);
  fprintf(stderr, "; %" PRIu64 " step%s, seed %" PRIu64 "\n", steps, text_plural(steps), recipe->seed);
  if (recipe->warmup_steps > steps)
    fprintf(stderr, "             the warmup is longer: lr rises to %g, and no further\n", schedule_lr(recipe, steps, steps));
  /* It is the model file's whatever --steps says, so that a run that goes on does so at the rates it began with. */
  uint64_t end = recipe->steps > recipe->warmup_steps ? recipe->steps : recipe->warmup_steps; /* no schedule cuts the warmup short */
  if (recipe->schedule != SCHEDULE_CONSTANT && recipe->steps != 0 && end < steps)
    fprintf(stderr, "             the schedule ends after %" PRIu64 " steps: lr stays at %g from there; `steps %" PRIu64 "` in the train block stretches it\n",
            end, recipe->min_lr, steps);
}

/* "1.0 times" would not say why it is said. */
static const char *times_over(char buffer[32], double times) {
  if (times < 1.05) return "more than once";
  snprintf(buffer, 32, "%.1f times over", times);
  return buffer;
}

/* There is one stream: a model that wants two, such as a text and its language, would learn from the wrong one. */
static void print_same_inputs(const Plan *plan) {
  uint32_t fed = 0;
  for (uint32_t i = 0; i < plan->inputs.count; i++) fed += plan->inputs.data[i].feed == FEED_TOKENS;
  if (fed < 2) return;
  const char *separator = "             inputs ";
  for (uint32_t i = 0; i < plan->inputs.count; i++) {
    if (plan->inputs.data[i].feed != FEED_TOKENS) continue;
    fprintf(stderr, "%s%s", separator, plan_str(plan, plan->inputs.data[i].name));
    separator = ", ";
  }
  fprintf(stderr, " are all given the same tokens\n");
}

static void print_data(const ReportConfig *config) {
  char count[32], over[32];
  uint64_t wanted = config->steps * config->samples_per_step;
  fprintf(stderr, "  data       %s %s of %s", text_count(count, (double)config->data->count),
          config->data->width == 1 ? "bytes" : "tokens", config->data->kind);
  for (uint32_t i = 0; i < config->options->data_count && i < 4; i++)
    fprintf(stderr, "%s %s", i == 0 ? ":" : ",", config->options->data[i]);
  fprintf(stderr, "%s; %s\n", config->options->data_count > 4 ? ", ..." : "", orders[config->plan->recipe.order]);
  if (wanted > config->samples)
    fprintf(stderr,
            "             read %s: %" PRIu64 " step%s %" PRIu64 " sample%s, and it has %" PRIu64 "\n",
            times_over(over, (double)wanted / (double)config->samples), config->steps, config->steps == 1 ? " takes" : "s take", wanted,
            text_plural(wanted), config->samples);
  const char *binary = data_find_binary(config->data);
  if (binary != NULL) fprintf(stderr, "             %s holds NUL bytes, so it may be no text\n", binary);
  print_same_inputs(config->plan);
}

static void print_header(const ReportConfig *config) {
  const Plan *plan = config->plan;
  char params[32], bytes[32];
  fprintf(stderr, "fsdpc %s: %s, %s parameters in %u unit%s, plan %016" PRIx64 "\n", FSDPC_VERSION,
          plan_str(plan, plan->model), text_count(params, (double)plan->param_numel), plan->units.count,
          text_plural(plan->units.count), config->plan_hash);
  const Launcher *launcher = config->options->launcher;
  char here[32] = "on this machine";
  if (launcher != NULL && launcher_spans_hosts(launcher)) snprintf(here, sizeof here, "(%u here)", launcher->local_ranks);
  fprintf(stderr, "  ranks      %u %s (shard %u x replicas %u), %u compute thread%s each; %s, %s\n",
          plan->world.ranks, here, plan->world.shard, plan->world.replicas, config->threads, text_plural(config->threads),
          config->kernels, config->gemm);
  if (launcher != NULL && launcher->ranks > 1)
    fprintf(stderr, "  launcher   %s, one process a rank%s\n", launcher->name,
            launcher_spans_hosts(launcher) ? "; Open MPI between hosts" : "");
  print_batch(config);
  print_optimizer(&plan->recipe, config->steps);
  print_data(config);
  fprintf(stderr, "  memory     %s a rank, planned to the byte", text_bytes(bytes, plan->arena_bytes));
  if (config->checkpoint_bytes > 0)
    fprintf(stderr, "; %s more for writing checkpoints", text_bytes(bytes, config->checkpoint_bytes));
  if (config->beside_bytes > 0) fprintf(stderr, "; %s beside it on the GPU", text_bytes(bytes, config->beside_bytes));
  fputc('\n', stderr);
}

static void print_footer(const Report *report, double seconds, double rate, const char *saved) {
  const ReportConfig *config = &report->config;
  char tokens[32], peak[32], planned[32];
  if (report->done_steps == 0)
    printf("all %" PRIu64 " step%s had been done before\n", config->steps, text_plural(config->steps));
  else
    printf("%" PRIu64 " step%s in %.1f s: loss %.4f, %s tokens/s, peak %s a rank (planned %s)\n", report->done_steps, text_plural(report->done_steps),
           seconds, report->last.loss, text_count(tokens, rate), text_bytes(peak, report->last.peak_bytes),
           text_bytes(planned, config->plan->arena_bytes));
  if (report->skipped_steps > 0)
    printf("%" PRIu64 " step%s skipped, as gradients overflowed the range of f16\n", report->skipped_steps,
           report->skipped_steps == 1 ? " was" : "s were");
  if (saved != NULL) printf("weights: %s\n", saved);
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

void report_break(Report *report) { control_end_line(report->config.control); }

/* Share of the devices' peak, as the plan knows it, that the model's own arithmetic takes: no recompute counted. 0: unknown, as where a plan
 * that was made for CPUs runs on GPUs. */
static double mfu(const ReportConfig *config, double step_ns) {
  const PlanSummary *summary = &config->plan->summary;
  if (summary->device != config->device) return 0;
  double peak = summary->peak_flops * config->plan->world.ranks, flops = summary->model_flops_per_sample;
  return peak > 0 && step_ns > 0 ? flops * (double)config->samples_per_step / (step_ns * 1e-9) / peak : 0;
}

static void draw(Report *report, const StepResult *result) {
  const ReportConfig *config = &report->config;
  char line[400], rate[32], left[32], memory[32], share[32] = "";
  double tokens = (double)tokens_per_step(config) / (report->smooth_ns * 1e-9);
  double remaining = (double)(config->steps - result->step) * report->smooth_ns, busy = mfu(config, report->smooth_ns);
  if (busy > 0) snprintf(share, sizeof share, "mfu %.1f %%  ", 100 * busy);
  snprintf(line, sizeof line,
           "step %*" PRIu64 "/%" PRIu64 "  loss %.4f  norm %.3f  lr %.2e  %s tok/s  %s%s  %s%s",
           snprintf(NULL, 0, "%" PRIu64, config->steps), result->step, config->steps, result->loss, result->grad_norm,
           result->lr, text_count(rate, tokens), share,
           text_bytes(memory, result->peak_bytes), remaining > 0 ? text_time(left, remaining) : "done", remaining > 0 ? " left" : "");
  if (report->terminal) terminal_cut(line);
  fprintf(stderr, report->terminal ? "\r%s\x1b[K" : "%s\n", line);
  atomic_store(&config->control->line_open, report->terminal);
  fflush(stderr);
}

static void progress(Report *report, const StepResult *result) {
  const ReportConfig *config = &report->config;
  bool last = result->step == config->steps;
  uint64_t now = clock_ns();
  if (report->terminal) {
    if (!last && now - report->drawn_ns < REDRAW_NS) return;
  } else if (!last && result->step != 1 && result->step % report->every != 0) {
    return;
  }
  report->drawn_ns = now;
  draw(report, result);
  if (last) report_break(report);
}

/* --- metrics ------------------------------------------------------------------------------------------------------ */

/* The place after the last whole line. */
static long after_last_line(FILE *file) {
  long after = 0, at = 0;
  for (int c = getc(file); c != EOF; c = getc(file)) {
    at++;
    if (c == '\n') after = at;
  }
  return after;
}

/* Lines of two runs would make none that can be read. Pipes and devices may be shared. */
static bool take_metrics(FILE *file, const char *path, Failure *failure) {
  struct stat info;
  if (file == NULL && errno == ENOENT)
    return fail(failure, RUN_INVALID, "metrics: %s: cannot be opened: %s; make its folder first", path, strerror(errno));
  if (file == NULL || fstat(fileno(file), &info) != 0) return fail_file(failure, "metrics", path, "cannot be opened");
  if (!S_ISREG(info.st_mode)) return true;
  return lock_take(fileno(file)) ||
         fail(failure, RUN_INVALID, "metrics: %s: another run is writing to it; stop it or name another file", path);
}

FILE *report_open_metrics(const char *path, bool goes_on, Failure *failure) {
  int stream = stream_behind(path);
  FILE *file = stream >= 0 ? fdopen(dup(stream), "w") : fopen(path, goes_on ? "a+e" : "ae");
  if (file != NULL && stream >= 0) return file;
  if (take_metrics(file, path, failure)) return file;
  if (file != NULL) fclose(file);
  return NULL;
}

static bool written(const Report *report, bool ok, Failure *failure) {
  FILE *file = report->config.metrics;
  if (ok && fflush(file) == 0 && !ferror(file)) return true;
  return fail_file(failure, "metrics", report->config.options->metrics_path, "cannot be written");
}

static json_t *start_plan(const ReportConfig *config) {
  const Plan *plan = config->plan;
  const PlanWorld *world = &plan->world;
  char hash[17];
  snprintf(hash, sizeof hash, "%016" PRIx64, config->plan_hash);
  return json_pack("{ss si ss* sI ss si si si sI sI sI sI sI sI}", "reason", "start", "schema_version", SCHEMA_VERSION,
                   "model", plan_str(plan, plan->model), "params", (json_int_t)plan->param_numel, "plan_hash", hash,
                   "ranks", (int)world->ranks, "shard", (int)world->shard, "replicas", (int)world->replicas,
                   "micro_batch", (json_int_t)world->micro_batch, "accumulation", (json_int_t)world->accumulation,
                   "samples_per_step", (json_int_t)config->samples_per_step, "tokens_per_step",
                   (json_int_t)tokens_per_step(config), "arena_bytes", (json_int_t)plan->arena_bytes,
                   "predicted_step_ns", (json_int_t)plan->summary.step_ns);
}

static json_t *start_recipe(const Report *report) {
  const ReportConfig *config = &report->config;
  const Recipe *recipe = &config->plan->recipe;
  json_t *data = json_array();
  for (uint32_t i = 0; i < config->options->data_count; i++)
    json_array_append_new(data, json_string(text_utf8(report->arena, config->options->data[i])));
  return json_pack("{sI ss ss sf sf sI sf sf sf sf sf sf sI ss ss ss ss ss so sI ss*}", "steps", (json_int_t)config->steps,
                   "optimizer", optimizers[recipe->optimizer], "schedule", schedules[recipe->schedule], "peak_lr",
                   recipe->lr, "min_lr", recipe->min_lr, "warmup_steps", (json_int_t)recipe->warmup_steps, "beta1",
                   recipe->beta1, "beta2", recipe->beta2, "eps", recipe->eps, "momentum", recipe->momentum, "decay",
                   recipe->decay, "clip", recipe->clip, "seed", (json_int_t)recipe->seed, "order",
                   orders[recipe->order], "compute_dtype", dtype_name(recipe->compute), "reduce_dtype",
                   dtype_name(recipe->reduce), "master_dtype", dtype_name(recipe->master), "rounding",
                   roundings[recipe->rounding], "data", data, "data_tokens", (json_int_t)config->data->count, "init",
                   text_utf8(report->arena, config->options->init_path));
}

static json_t *start_machine(const Report *report) {
  const ReportConfig *config = &report->config;
  json_t *devices = json_array();
  const char *device = config->beside_bytes > 0 ? config->kernels : processor(report->arena); /* a GPU's kernels name it */
  for (uint32_t rank = 0; rank < config->plan->world.ranks; rank++) json_array_append_new(devices, json_string(device));
  return json_pack("{ss ss ss si ss sI sI so}", "version", FSDPC_VERSION, "backend", config->backend, "gemm", config->gemm, "threads",
                   (int)config->threads, "kernels", config->kernels, "checkpoint_host_bytes",
                   (json_int_t)config->checkpoint_bytes, "beside_bytes", (json_int_t)config->beside_bytes, "devices", devices);
}

static bool write_start(const Report *report) {
  json_t *record = start_plan(&report->config), *recipe = start_recipe(report);
  json_t *machine = start_machine(report);
  bool ok = record != NULL && json_object_update(record, recipe) == 0 && json_object_update(record, machine) == 0 &&
            json_dumpf(record, report->config.metrics, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 &&
            fputc('\n', report->config.metrics) != EOF;
  json_decref(record);
  json_decref(recipe);
  json_decref(machine);
  return ok;
}

/* What lies behind an open stream is whose that stream is. */
static bool cut_metrics(const ReportConfig *config) {
  struct stat info;
  int fd = fileno(config->metrics);
  if (stream_behind(config->options->metrics_path) >= 0) return true;
  return fstat(fd, &info) == 0 &&
         (!S_ISREG(info.st_mode) || ftruncate(fd, config->goes_on ? after_last_line(config->metrics) : 0) == 0);
}

bool report_start(Report *report, Failure *failure) {
  if (!report->config.options->quiet) print_header(&report->config);
  report->begin_ns = clock_ns();
  return report->config.metrics == NULL || written(report, cut_metrics(&report->config) && write_start(report), failure);
}

/* JSON has no NaN. */
static const char *number(char out[32], double value) {
  if (!isfinite(value)) return "null";
  snprintf(out, 32, "%.17g", value);
  return out;
}

static bool write_step(const Report *report, const StepResult *result) {
  char loss[32], norm[32], lr[32], rate[32];
  uint64_t tokens = tokens_per_step(&report->config);
  char scale[64] = "";
  if (result->loss_scale > 0)
    snprintf(scale, sizeof scale, ",\"loss_scale\":%.17g,\"skipped\":%s", result->loss_scale,
             result->skipped ? "true" : "false");
  return fprintf(report->config.metrics,
                 "{\"reason\":\"step\",\"step\":%" PRIu64 ",\"loss\":%s,\"grad_norm\":%s,\"lr\":%s,\"tokens\":%" PRIu64
                 ",\"tokens_per_s\":%s,\"step_ns\":%" PRIu64 ",\"peak_bytes\":%" PRIu64 ",\"mfu\":%.6g%s}\n",
                 result->step, number(loss, result->loss), number(norm, result->grad_norm), number(lr, result->lr),
                 tokens, number(rate, (double)tokens / ((double)result->step_ns * 1e-9)), result->step_ns,
                 result->peak_bytes, mfu(&report->config, (double)result->step_ns), scale) > 0;
}

static bool show_step(const Report *report, const StepResult *result, Failure *failure) {
  double seconds = (double)result->step_ns * 1e-9;
  const Scalar scalars[] = {{"train/loss", result->loss},
                            {"train/grad_norm", result->grad_norm},
                            {"train/lr", result->lr},
                            {"speed/tokens_per_s", (double)tokens_per_step(&report->config) / seconds},
                            {"speed/mfu", mfu(&report->config, (double)result->step_ns)},
                            {"train/loss_scale", result->loss_scale}};
  size_t count = sizeof scalars / sizeof *scalars - (result->loss_scale == 0); /* the last is there in f16 only */
  return tensorboard_add(report->board, result->step, scalars, (uint32_t)count, failure);
}

bool report_step(Report *report, const StepResult *result, Failure *failure) {
  double ns = (double)result->step_ns;
  report->smooth_ns = report->done_steps < 2 ? ns /* the first step warms up */ : 0.9 * report->smooth_ns + 0.1 * ns;
  report->done_steps++;
  report->skipped_steps += result->skipped;
  report->last = *result;
  if (report->config.metrics != NULL && !written(report, write_step(report, result), failure)) return false;
  if (!report->config.options->quiet) progress(report, result);
  return report->board == NULL || show_step(report, result, failure);
}

static bool write_eval(const Report *report, uint64_t step, double loss, uint64_t tokens) {
  char text[32];
  return fprintf(report->config.metrics,
                 "{\"reason\":\"eval\",\"step\":%" PRIu64 ",\"loss\":%s,\"tokens\":%" PRIu64 "}\n", step,
                 number(text, loss), tokens) > 0;
}

bool report_eval(Report *report, uint64_t step, double loss, uint64_t tokens, Failure *failure) {
  const Scalar scalar = {"eval/loss", loss};
  if (report->config.metrics != NULL && !written(report, write_eval(report, step, loss, tokens), failure)) return false;
  if (report->board != NULL && !tensorboard_add(report->board, step, &scalar, 1, failure)) return false;
  if (report->config.options->quiet) return true;
  report_break(report);
  fprintf(stderr, "eval after step %" PRIu64 "  loss %.4f  over %" PRIu64 " tokens\n", step, loss, tokens);
  return true;
}

void report_no_eval(Report *report, uint64_t step) {
  report_break(report);
  fprintf(stderr, "note: the evaluation after step %" PRIu64 " was broken off\n", step);
}

static bool write_end(const Report *report, double seconds, double rate, const char *saved) {
  bool any = report->done_steps > 0;
  json_t *record = json_pack("{ss sI sI sf sf so sI ss* so}", "reason", "end", "steps", (json_int_t)report->done_steps,
                             "tokens", (json_int_t)(report->done_steps * tokens_per_step(&report->config)), "seconds",
                             seconds, "tokens_per_s", rate, "peak_bytes", any ? json_integer((json_int_t)report->last.peak_bytes) : json_null(),
                             "planned_peak_bytes", (json_int_t)report->config.plan->arena_bytes, "weights", text_utf8(report->arena, saved),
                             "loss", any ? json_real(report->last.loss) : json_null());
  bool ok = record != NULL && json_dumpf(record, report->config.metrics, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0 &&
            fputc('\n', report->config.metrics) != EOF;
  json_decref(record);
  return ok;
}

bool report_end(Report *report, const char *saved, Failure *failure) {
  const TrainOptions *options = report->config.options;
  double seconds = (double)(clock_ns() - report->begin_ns) * 1e-9;
  double rate = seconds > 0 ? (double)(report->done_steps * tokens_per_step(&report->config)) / seconds : 0;
  report_break(report);
  if (report->config.metrics != NULL && !written(report, write_end(report, seconds, rate, saved), failure))
    return false;
  if (!options->quiet) print_footer(report, seconds, rate, saved);
  if (report->done_steps == 0 && (options->observer != NULL || options->analyze))
    fprintf(stderr, "note: no step was run, so there is none to trace or to analyze\n");
  return true;
}
