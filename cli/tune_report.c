/* Owns: what `fsdpc tune` says: the front and its neighbours for people, every point for scripts. */
#include "cli/tune.h"

#include <jansson.h>
#include <math.h>

enum { ROWS_MOST = 40 };

static const char *bytes(const Tune *t, uint64_t value) {
  char buffer[32];
  return arena_strdup(t->cli->arena, text_bytes(buffer, value));
}

static const char *duration(const Tune *t, double ns) {
  char buffer[32];
  return arena_strdup(t->cli->arena, text_time(buffer, ns));
}

static const char *count(const Tune *t, double value) {
  char buffer[32];
  return arena_strdup(t->cli->arena, text_count(buffer, value));
}

/* --- the front ----------------------------------------------------------------------------------------- */

/* Columns whose words may be long. */
typedef struct Widths {
  int strategy, wrap;
} Widths;

static void widen(int *width, const char *text) {
  if ((int)strlen(text) > *width) *width = (int)strlen(text);
}

static Widths find_widths(const Tune *t) {
  Widths widths = {13, 14};
  for (uint32_t k = 0; k < t->front.count; k++) {
    widen(&widths.strategy, t->points[t->front.data[k]].strategy);
    widen(&widths.wrap, t->points[t->front.data[k]].wrap);
  }
  return widths;
}

static void print_row(const Tune *t, const Widths *widths, uint32_t p, FILE *out) {
  const TunePoint *point = &t->points[p];
  fprintf(out, "  %6u  %9s  %9s  %9s", point->ranks, duration(t, (double)point->step_ns), count(t, 1e9 / point->ns_per_token),
          bytes(t, point->arena_bytes));
  if (t->priced) fprintf(out, "  %8.3g", point->usd_per_million);
  fprintf(out, "  %-*s  %5llu x %-5llu  %-*s  %s", widths->strategy, point->strategy, (unsigned long long)point->micro_batch,
          (unsigned long long)point->accumulation, widths->wrap, point->wrap, point->checkpoint);
  if (t->dims[0].values.count > 1) fprintf(out, "  on %s", tune_value(t, p, 0));
  fprintf(out, "\n");
}

/* A long front is thinned for the eye: of each number of ranks those are shown whose memory or time differ by more than
 * a hundredth from the one shown before. */
static bool is_near(const TunePoint *a, const TunePoint *b) {
  return a->ranks == b->ranks && fabs(a->ns_per_token / b->ns_per_token - 1) < 0.01 &&
         fabs((double)a->arena_bytes / (double)b->arena_bytes - 1) < 0.01;
}

static void print_front(const Tune *t, FILE *out) {
  uint32_t hidden = 0, shown = 0;
  const TunePoint *last = NULL;
  Widths widths = find_widths(t);
  fprintf(out, "  %6s  %9s  %9s  %9s", "ranks", "step", "tokens/s", "memory");
  if (t->priced) fprintf(out, "  %8s", "USD/Mtok");
  fprintf(out, "  %-*s  %13s  %-*s  %s\n", widths.strategy, "strategy", "micro-batch  ", widths.wrap, "wrap", "checkpoint");
  for (uint32_t k = 0; k < t->front.count; k++) {
    const TunePoint *point = &t->points[t->front.data[k]];
    if ((last && is_near(point, last)) || shown == ROWS_MOST) {
      hidden++;
      continue;
    }
    print_row(t, &widths, t->front.data[k], out);
    last = point;
    shown++;
  }
  if (hidden) fprintf(out, "  and %u more within a hundredth of these: --csv or --json lists all\n", hidden);
}

/* --- neighbours ---------------------------------------------------------------------------------------- */

static const char *changed_by(const Tune *t, double now, double then) {
  double percent = 100 * (now / then - 1);
  return fabs(percent) < 0.05 ? "0.0 %" : arena_printf(t->cli->arena, "%+.1f %%", percent);
}

/* "memory 38.5 GiB": a value as people would write it. */
static const char *value_text(const Tune *t, uint32_t p, int d) {
  const char *value = tune_value(t, p, d), *why;
  Quantity quantity;
  if (t->dims[d].option == OPTION_MEMORY && quantity_parse(value, &quantity, &why)) return bytes(t, (uint64_t)quantity.value);
  return value;
}

const char *tune_why_lost(const Tune *t, uint32_t p, uint32_t neighbour, int d) {
  const TunePoint *point = &t->points[p], *other = &t->points[neighbour];
  const char *what = arena_printf(t->cli->arena, "%s %s", option_info(t->dims[d].option)->name, value_text(t, neighbour, d));
  if (other->state == TUNE_IMPOSSIBLE) return arena_printf(t->cli->arena, "%s: %s", what, other->why);
  if (other->state == TUNE_TOO_LARGE)
    return arena_printf(t->cli->arena, "%s: does not fit, needs %s of %s", what, bytes(t, other->arena_bytes),
                        bytes(t, other->budget_bytes));
  if (t->same_as[neighbour] != PLAN_NONE || t->dominated_by[neighbour] == PLAN_NONE) return NULL;
  if (other->micro_batch != point->micro_batch && t->dims[d].option != OPTION_MICRO_BATCH)
    what = arena_printf(t->cli->arena, "%s (then micro-batch %llu)", what, (unsigned long long)other->micro_batch);
  return arena_printf(t->cli->arena, "%s: time a token %s, memory %s", what, changed_by(t, other->ns_per_token, point->ns_per_token),
                      changed_by(t, (double)other->arena_bytes, (double)point->arena_bytes));
}

static void print_neighbours(const Tune *t, uint32_t p, FILE *out) {
  const TunePoint *point = &t->points[p];
  bool any = false;
  for (int d = 0; d < TUNE_DIMS; d++)
    for (uint32_t v = 0; v < t->dims[d].values.count; v++) {
      uint32_t neighbour = tune_neighbour(t, p, d, v);
      const char *why = neighbour == p ? NULL : tune_why_lost(t, p, neighbour, d);
      if (!why) continue;
      if (!any)
        fprintf(out, "\nAround the fastest on %u rank%s (%s, micro-batch %llu, wrap %s, checkpoint %s) lost\n", point->ranks,
                text_plural(point->ranks), point->strategy, (unsigned long long)point->micro_batch, point->wrap, point->checkpoint);
      any = true;
      fprintf(out, "  %s\n", why);
    }
}

void tune_print(const Tune *t, FILE *out) {
  uint32_t by_state[4] = {0}, ranks = 0;
  for (uint32_t p = 0; p < t->count; p++) by_state[t->points[p].state]++;
  if (t->front.count) {
    fprintf(out, "Pareto front of %s in time, memory%s and ranks%s\n", t->graphs[0]->name, t->priced ? ", cost" : "",
            t->stopped_by ? ", incomplete: the sweep was interrupted" : "");
    print_front(t, out);
  }
  for (uint32_t k = 0; k < t->front.count; k++) { /* sorted: the first of each number of ranks is its fastest */
    uint32_t p = t->front.data[k];
    if (t->points[p].ranks != ranks) print_neighbours(t, p, out);
    ranks = t->points[p].ranks;
  }
  uint32_t done = t->count - by_state[TUNE_UNFINISHED];
  fprintf(out, "%sTune: ", t->front.count ? "\n" : "");
  if (t->stopped_by) fprintf(out, "interrupted, %u of ", done);
  fprintf(out, "%u plan%s in %.1f s: %u fitting, %u too large, %u impossible, %u on the front\n", t->count, text_plural(t->count), t->seconds,
          by_state[TUNE_FITS], by_state[TUNE_TOO_LARGE], by_state[TUNE_IMPOSSIBLE], t->front.count);
  if (t->graphs[0]->cluster.device.host_memory && tune_leaves_host(t->cli, t->graphs[0]))
    fprintf(out, "In these plans nothing lies in host memory; --offload auto weighs that too, and takes longer\n");
  if (t->front.count) fprintf(out, "Each was searched briefly: fsdpc plan with the options of one may find a faster plan\n");
}

/* --- nothing fits -------------------------------------------------------------------------------------- */

static const TunePoint *smallest(const Tune *t) {
  const TunePoint *found = NULL;
  for (uint32_t p = 0; p < t->count; p++) {
    const TunePoint *point = &t->points[p];
    if (point->state == TUNE_TOO_LARGE && (!found || point->arena_bytes < found->arena_bytes)) found = point;
  }
  return found;
}

/* Points that are impossible for the same reason, this one and those after it; 0: it has been counted. */
static uint32_t count_alike(const Tune *t, uint32_t p) {
  uint32_t alike = 1;
  if (t->points[p].state != TUNE_IMPOSSIBLE) return 0;
  for (uint32_t k = 0; k < p; k++)
    if (t->points[k].state == TUNE_IMPOSSIBLE && !strcmp(t->points[k].why, t->points[p].why)) return 0;
  for (uint32_t k = p + 1; k < t->count; k++)
    alike += t->points[k].state == TUNE_IMPOSSIBLE && !strcmp(t->points[k].why, t->points[p].why);
  return alike;
}

static void explain_impossible(const Tune *t) {
  enum { REASONS_MOST = 8 };
  int reasons = 0;
  for (uint32_t p = 0; p < t->count && reasons < REASONS_MOST; p++) {
    uint32_t alike = count_alike(t, p);
    if (!alike) continue;
    reasons++;
    fprintf(stderr, "note: %u plan%s: %s\n", alike, text_plural(alike), t->points[p].why);
    if (*t->points[p].help) fprintf(stderr, "help: %s\n", t->points[p].help);
  }
}

int tune_explain(const Tune *t) {
  const TunePoint *least = smallest(t);
  if (!least) {
    cli_error("none of %u plan%s is possible", t->count, text_plural(t->count));
    return explain_impossible(t), EXIT_INVALID;
  }
  cli_error("no plan fits; the smallest needs %s of the budget of %s", bytes(t, least->arena_bytes), bytes(t, least->budget_bytes));
  fprintf(stderr, "note: it is for %u rank%s: %s, micro-batch %llu, wrap %s, checkpoint %s\n", least->ranks, text_plural(least->ranks),
          least->strategy, (unsigned long long)least->micro_batch, least->wrap, least->checkpoint);
  return explain_impossible(t), EXIT_NO_FIT;
}

/* --- for scripts --------------------------------------------------------------------------------------- */

static const char *state_name(TuneState state) {
  static const char *const names[] = {"unfinished", "impossible", "too_large", "fits"};
  return names[state];
}

static bool on_front(const Tune *t, uint32_t p) {
  return t->points[p].state == TUNE_FITS && t->dominated_by[p] == PLAN_NONE && t->same_as[p] == PLAN_NONE;
}

static json_t *asked_json(const Tune *t, uint32_t p) {
  json_t *asked = json_object();
  for (int d = 0; d < TUNE_DIMS; d++) { /* a cluster that the file states is no option's */
    const char *value = tune_value(t, p, d);
    json_object_set_new(asked, option_info(t->dims[d].option)->name, *value ? json_string(value) : json_null());
  }
  return asked;
}

static json_t *point_json(const Tune *t, uint32_t p) {
  const TunePoint *point = &t->points[p];
  json_t *object = json_pack("{s:I, s:s, s:o, s:b}", "id", (json_int_t)p, "state", state_name(point->state), "asked", asked_json(t, p),
                             "front", on_front(t, p));
  if (point->state == TUNE_IMPOSSIBLE) {
    json_object_set_new(object, "why", json_string(point->why));
    return object;
  }
  json_object_update_new(
      object, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:s, s:s, s:I}", "ranks", (json_int_t)point->ranks, "shard",
                        (json_int_t)point->shard, "micro_batch", (json_int_t)point->micro_batch, "accumulation",
                        (json_int_t)point->accumulation, "step_ns", (json_int_t)point->step_ns, "exposed_comm_ns",
                        (json_int_t)point->exposed_ns, "peak_bytes", (json_int_t)point->arena_bytes, "tokens_per_s",
                        1e9 / point->ns_per_token, "strategy", point->strategy, "wrap", point->wrap, "checkpoint", point->checkpoint,
                        "prefetch", (json_int_t)point->prefetch));
  if (point->usd_per_million > 0) json_object_set_new(object, "usd_per_million_tokens", json_real(point->usd_per_million));
  if (t->dominated_by[p] != PLAN_NONE) json_object_set_new(object, "dominated_by", json_integer(t->dominated_by[p]));
  if (t->same_as[p] != PLAN_NONE) json_object_set_new(object, "same_as", json_integer(t->same_as[p]));
  return object;
}

void tune_json(const Tune *t, FILE *out) {
  json_t *points = json_array(), *front = json_array();
  for (uint32_t p = 0; p < t->count; p++) json_array_append_new(points, point_json(t, p));
  for (uint32_t k = 0; k < t->front.count; k++) json_array_append_new(front, json_integer(t->front.data[k]));
  json_t *object = json_pack("{s:i, s:s, s:f, s:o, s:o}", "schema_version", 1, "model", t->graphs[0]->name, "seconds", t->seconds, "front",
                             front, "points", points);
  json_dumpf(object, out, JSON_INDENT(1));
  fprintf(out, "\n");
  json_decref(object);
}

void tune_csv(const Tune *t, Text *out) {
  for (int d = 0; d < TUNE_DIMS; d++) text_printf(out, "asked_%s,", option_info(t->dims[d].option)->name);
  text_printf(out, "state,front,ranks,shard,strategy,micro_batch,accumulation,wrap,checkpoint,prefetch,step_ns,tokens_per_s,peak_bytes,usd_per_million_tokens\n");
  for (uint32_t p = 0; p < t->count; p++) {
    const TunePoint *point = &t->points[p];
    for (int d = 0; d < TUNE_DIMS; d++) text_printf(out, "\"%s\",", tune_value(t, p, d));
    text_printf(out, "%s,%d,%u,%u,%s,%llu,%llu,\"%s\",\"%s\",%u,%llu,%.17g,%llu,", state_name(point->state), on_front(t, p), point->ranks,
                point->shard, point->strategy, (unsigned long long)point->micro_batch, (unsigned long long)point->accumulation, point->wrap,
                point->checkpoint, point->prefetch, (unsigned long long)point->step_ns,
                point->ns_per_token > 0 ? 1e9 / point->ns_per_token : 0, (unsigned long long)point->arena_bytes);
    if (point->usd_per_million > 0) text_printf(out, "%.17g", point->usd_per_million); /* else no price is known */
    text_printf(out, "\n");
  }
}
