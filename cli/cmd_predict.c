/* Owns: `fsdpc predict`: the file's policy, pinned as it stands, under an executor's habits. */
#include "cli/cli.h"

#include "cli/executor.h"
#include "planner/world.h"

#include <jansson.h>
#include <math.h>

/* Times and sizes are whole, as wherever JSON is printed. */
static json_int_t whole(double value) {
  return (json_int_t)llround(value);
}

static json_t *block_json(const ExecutorPrediction *p) {
  return json_pack("{s:I, s:I, s:I, s:I, s:I}", "forward_ns", whole(p->block_forward_ns), "backward_ns", whole(p->block_backward_ns),
                   "recompute_ns", whole(p->block_recompute_ns), "gather_ns", whole(p->gather_ns), "reduce_ns", whole(p->reduce_ns));
}

/* What the step and the memory do not show by themselves; NULL: nothing. */
static const char *warning(Arena *arena, const ExecutorPrediction *p) {
  char time[32];
  if (p->retried_ns > 0)
    return arena_printf(arena, "the device is full, and %s of the step are retries of its allocator", text_time(time, p->retried_ns));
  if (p->fits && p->crowded)
    return "above 95 % of what can be reserved, retries of the allocator cost up to a quarter of the speed";
  return NULL;
}

/* By the names of `plan --executor`. */
static json_t *policy_json(const char *const *words) {
  json_t *object = json_object();
  for (int axis = 0; axis < AXIS_COUNT; axis++)
    json_object_set_new(object, executor_axis_name((ExecutorAxis)axis), words[axis] ? json_string(words[axis]) : json_null());
  return object;
}

static void print_json(Arena *arena, const PlanSettings *settings, const ExecutorWorld *world, const char *const *words,
                       const ExecutorPrediction *p) {
  const struct {
    const char *name;
    double value;
  } figures[] = {{"step_ns", p->step_ns},
                 {"exposed_ns", p->exposed_ns},
                 {"active_bytes", p->active_bytes},
                 {"reserved_bytes", p->reserved_bytes},
                 {"states_bytes", p->states_bytes},
                 {"saved_bytes", p->saved_bytes},
                 {"retried_ns", p->retried_ns},
                 {"host_bytes", p->host_bytes},
                 {"capacity_bytes", p->capacity_bytes},
                 {"budget_bytes", p->limit_bytes},
                 {"head_ns", p->head_ns},
                 {"update_ns", p->update_ns}};
  json_t *object = json_pack("{s:i, s:s, s:I, s:I, s:I, s:b, s:f}", "schema_version", 1, "executor", executor_name(settings->executor.id),
                             "ranks", (json_int_t)world->ranks, "micro_batch", (json_int_t)world->micro_batch, "accumulation",
                             (json_int_t)world->accumulation, "fits", p->fits, "tokens_per_s_per_rank", p->tokens_per_s_per_rank);
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
    json_object_set_new(object, figures[i].name, json_integer(whole(figures[i].value)));
  json_object_set_new(object, "policy", policy_json(words));
  json_object_set_new(object, "block", block_json(p));
  json_object_set_new(object, "warnings", warnings_json(warning(arena, p)));
  json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  putchar('\n');
  json_decref(object);
}

static void print_text(Arena *arena, const PlanSettings *settings, const ExecutorWorld *world, const char *const *words,
                       const ExecutorPrediction *p) {
  char a[32], b[32], c[32], d[32], e[32];
  printf("executor %s, %u rank%s, micro-batch %lld x %lld\n", executor_name(settings->executor.id),
         world->ranks, text_plural(world->ranks), (long long)world->micro_batch,
         (long long)world->accumulation);
  printf("  policy    ");
  executor_print_decisions(words);
  putchar('\n');
  printf("  step      %s, %s; waiting for communication %s\n", text_time(a, p->step_ns), rank_speed(arena, p->tokens_per_s_per_rank),
         text_time(b, p->exposed_ns));
  printf("  block     forward %s, backward %s, recompute %s; gather %s, reduce %s\n",
         text_time(a, p->block_forward_ns), text_time(b, p->block_backward_ns),
         text_time(c, p->block_recompute_ns), text_time(d, p->gather_ns), text_time(e, p->reduce_ns));
  printf("  head      %s; optimizer %s\n", text_time(a, p->head_ns), text_time(b, p->update_ns));
  printf("  memory    peak %s active, %s reserved of %s; states %s, saved %s: %s\n",
         text_bytes(a, (uint64_t)p->active_bytes), text_bytes(b, (uint64_t)p->reserved_bytes),
         text_bytes(c, (uint64_t)p->limit_bytes), text_bytes(d, (uint64_t)p->states_bytes),
         text_bytes(e, (uint64_t)p->saved_bytes), p->fits ? "fits" : "does not fit");
  if (p->host_bytes > 0)
    printf("  host      %s of parameters, gradients and moments%s\n", text_bytes(a, (uint64_t)p->host_bytes),
           p->host_fits ? "" : ": more than host_memory");
  if (warning(arena, p)) printf("  warning: %s\n", warning(arena, p));
}

static void print_lack(const PlanSettings *settings, const ExecutorPrediction *p) {
  char need[32], more[32];
  if (executor_print_host_lack(p))
    fprintf(stderr, "help: offload less\n");
  else
    fprintf(stderr,
            "fsdpc: error: the policy reserves %s, %s more than there is\n"
            "help: 'fsdpc plan FILE --executor %s' finds one that fits, if any does; or change --micro-batch, --checkpoint or --memory\n",
            text_bytes(need, (uint64_t)p->reserved_bytes), text_bytes(more, (uint64_t)(p->reserved_bytes - p->limit_bytes)),
            executor_name(settings->executor.id));
}

int cmd_predict(Cli *cli) {
  PlannerOptions options;
  ExecutorWorld world;
  ExecutorPrediction prediction;
  Graph *graph;
  int code = compile_settings(cli, cli->options.operands.data[0], &graph, &options);
  if (code != EXIT_OK) return code;
  bool good = executor_world(&cli->sink, graph, &options, &world) &&
              executor_predict(cli->arena, &cli->sink, graph, &options.settings, &world, &prediction) &&
              world_states_time(&cli->sink, graph, prediction.step_ns);
  if (!cli_print_diags(cli) || !good) return EXIT_INVALID;
  const char *words[AXIS_COUNT];
  executor_policy_words(cli->arena, graph, &options.settings, &world, words);
  if (option_given(&cli->options, OPTION_JSON))
    print_json(cli->arena, &options.settings, &world, words, &prediction);
  else
    print_text(cli->arena, &options.settings, &world, words, &prediction);
  executor_note_assumed(graph, &options.settings, &world);
  if (prediction.fits) return EXIT_OK;
  fflush(stdout);
  print_lack(&options.settings, &prediction);
  return EXIT_NO_FIT;
}
