/* Owns: the comparisons that the scripts of tests/ need and a shell cannot make: numbers of JSON Lines,
 * tensors of safetensors files. Shares no code with the runtime.
 *
 *   compare metrics A.jsonl B.jsonl TOLERANCE        losses, gradient norms and rates of every step agree
 *   compare reference A.jsonl EXPECTED.json TOLERANCE  the same against make_reference.py
 *   compare gradient W0 W1 GRADIENT TOLERANCE [FROZEN...]  W0 - W1 is the gradient, see compare_gradient; tensors whose
 *                                                     names begin with FROZEN are equal bit for bit
 *   compare weights A B                               the same tensors, bit for bit, in any order
 *   compare fields FILE.json NAME[.NAME]...           every field is there
 *   compare keys PAGE.md SECTION FILE.json...         a section's tables have the keys of these files, no more and no fewer
 *
 * TOLERANCE is relative; 0 asks for equal bits. Exit 0 or 1. */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  fprintf(stderr, "\n");
  va_end(args);
  exit(1);
}

/* --- metrics ------------------------------------------------------------------------------------------- */

enum { MOST_STEPS = 4096, LINE_BYTES = 1 << 16 };
typedef struct Series {
  int steps;
  double loss[MOST_STEPS], norm[MOST_STEPS], rate[MOST_STEPS];
} Series;

static double number(const json_t *object, const char *name, const char *path) {
  json_t *value = json_object_get(object, name);
  if (!json_is_number(value)) fail("%s: no number \"%s\"", path, name);
  return json_number_value(value);
}

static void take_line(Series *series, const char *line, const char *path) {
  json_error_t error;
  json_t *object = json_loads(line, 0, &error);
  if (!object) fail("%s: %s: %s", path, error.text, line);
  const char *reason = json_string_value(json_object_get(object, "reason"));
  if (!reason) fail("%s: a line without a reason", path);
  if (strcmp(reason, "step") == 0) {
    if (series->steps == MOST_STEPS) fail("%s: too many steps", path);
    int i = series->steps++;
    if ((int)number(object, "step", path) != i + 1) fail("%s: step %d is missing", path, i + 1);
    series->loss[i] = number(object, "loss", path);
    bool skipped = json_is_true(json_object_get(object, "skipped")); /* gradients overflowed: they have no norm */
    series->norm[i] = skipped ? -1 : number(object, "grad_norm", path);
    series->rate[i] = number(object, "lr", path);
  }
  json_decref(object);
}

static Series *read_metrics(const char *path) {
  Series *series = calloc(1, sizeof *series);
  char *line = malloc(LINE_BYTES);
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot read %s", path);
  while (fgets(line, LINE_BYTES, file)) take_line(series, line, path);
  fclose(file);
  free(line);
  if (!series->steps) fail("%s: no steps", path);
  return series;
}

static void copy_array(const json_t *array, double *out, int steps, const char *path) {
  if ((int)json_array_size(array) != steps) fail("%s: an array has the wrong length", path);
  for (int i = 0; i < steps; i++) out[i] = json_number_value(json_array_get(array, (size_t)i));
}

static Series *read_expected(const char *path) {
  json_error_t error;
  Series *series = calloc(1, sizeof *series);
  json_t *object = json_load_file(path, 0, &error);
  if (!object) fail("%s: %s", path, error.text);
  series->steps = (int)json_array_size(json_object_get(object, "losses"));
  copy_array(json_object_get(object, "losses"), series->loss, series->steps, path);
  copy_array(json_object_get(object, "grad_norms"), series->norm, series->steps, path);
  copy_array(json_object_get(object, "rates"), series->rate, series->steps, path);
  json_decref(object);
  return series;
}

static bool close_to(double a, double b, double tolerance) {
  return tolerance == 0 ? memcmp(&a, &b, sizeof a) == 0 : fabs(a - b) <= tolerance * fabs(b);
}

static void compare_series(const char *what, const double *a, const double *b, int steps, double tolerance) {
  double worst = 0;
  for (int i = 0; i < steps; i++) {
    double off = b[i] != 0 ? fabs(a[i] - b[i]) / fabs(b[i]) : fabs(a[i]);
    if (off > worst) worst = off;
    if (!close_to(a[i], b[i], tolerance))
      fail("%s of step %d: %.17g and %.17g differ by %.2g, allowed %.2g", what, i + 1, a[i], b[i], off,
           tolerance);
  }
  printf("%s of %d steps: largest relative difference %.2g\n", what, steps, worst);
}

static int compare_metrics(Series *a, Series *b, double tolerance) {
  if (a->steps != b->steps) fail("%d steps and %d steps", a->steps, b->steps);
  compare_series("loss", a->loss, b->loss, a->steps, tolerance);
  compare_series("grad_norm", a->norm, b->norm, a->steps, tolerance);
  compare_series("lr", a->rate, b->rate, a->steps, tolerance);
  free(a);
  free(b);
  return 0;
}

/* --- tensors ------------------------------------------------------------------------------------------- */

typedef struct Tensors {
  char *bytes;
  json_t *header;
  const char *data;
} Tensors;

static char *read_file(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot read %s", path);
  fseek(file, 0, SEEK_END);
  *length = (size_t)ftell(file);
  rewind(file);
  char *bytes = malloc(*length + 1);
  if (fread(bytes, 1, *length, file) != *length) fail("cannot read %s", path);
  fclose(file);
  return bytes;
}

static Tensors read_tensors(const char *path) {
  size_t length;
  uint64_t header;
  json_error_t error;
  Tensors tensors = {.bytes = read_file(path, &length)};
  if (length < 8) fail("%s: too short", path);
  memcpy(&header, tensors.bytes, 8);
  if (header > length - 8) fail("%s: header too long", path);
  tensors.header = json_loadb(tensors.bytes + 8, header, 0, &error);
  if (!tensors.header) fail("%s: %s", path, error.text);
  json_object_del(tensors.header, "__metadata__");
  tensors.data = tensors.bytes + 8 + header;
  return tensors;
}

static void drop_tensors(Tensors tensors) {
  json_decref(tensors.header);
  free(tensors.bytes);
}

/* Bytes of one tensor; *length bytes. */
static const char *tensor_bytes(const Tensors *tensors, const char *name, size_t *length) {
  json_t *entry = json_object_get(tensors->header, name), *range = json_object_get(entry, "data_offsets");
  if (!range) fail("tensor %s is missing", name);
  json_int_t begin = json_integer_value(json_array_get(range, 0)),
             end = json_integer_value(json_array_get(range, 1));
  *length = (size_t)(end - begin);
  return tensors->data + begin;
}

static const float *tensor(const Tensors *tensors, const char *name, size_t *count) {
  json_t *dtype = json_object_get(json_object_get(tensors->header, name), "dtype");
  if (!dtype || strcmp(json_string_value(dtype), "F32")) fail("tensor %s is missing or not F32", name);
  const char *bytes = tensor_bytes(tensors, name, count);
  *count /= sizeof(float);
  float *copy = malloc(*count * sizeof(float) + 1); /* files promise no alignment */
  memcpy(copy, bytes, *count * sizeof(float));
  return copy;
}

static double largest(const float *x, size_t count) {
  double most = 0;
  for (size_t i = 0; i < count; i++)
    if (fabs((double)x[i]) > most) most = fabs((double)x[i]);
  return most;
}

/* SGD with rate 1 and nothing else makes w1 = w0 - g. Rounding of w1 costs half a unit in the last place of
 * w, so an element may be off by TOLERANCE of the tensor's largest gradient plus 2^-23 of the larger weight.
 */
static void compare_gradient_of(const char *name, const Tensors *w0, const Tensors *w1,
                                const Tensors *gradient, double tolerance) {
  size_t n, m, k;
  const float *before = tensor(w0, name, &n), *after = tensor(w1, name, &m), *g = tensor(gradient, name, &k);
  if (n != m || n != k) fail("%s: %zu, %zu and %zu elements", name, n, m, k);
  double scale = largest(g, n), worst = 0;
  for (size_t i = 0; i < n; i++) {
    double w = fmax(fabs((double)before[i]), fabs((double)after[i]));
    double off = fabs((double)before[i] - (double)after[i] - (double)g[i]);
    double allowed = tolerance * scale + ldexp(w, -23) + 1e-9;
    if (!(off <= allowed))
      fail("gradient of %s[%zu]: %.9g, expected %.9g: off by %.2g, allowed %.2g", name, i,
           (double)before[i] - (double)after[i], (double)g[i], off, allowed);
    if (scale > 0 && off / scale > worst) worst = off / scale;
  }
  printf("gradient of %-44s within %.1e of its largest element %.2e\n", name, worst, scale);
  free((void *)before), free((void *)after), free((void *)g);
}

static bool begins_with_any(const char *name, char **prefixes, int count) {
  for (int i = 0; i < count; i++)
    if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) return true;
  return false;
}

static void compare_bits_of(const char *name, const Tensors *a, const Tensors *b) {
  size_t n, m;
  const char *x = tensor_bytes(a, name, &n), *y = tensor_bytes(b, name, &m);
  if (n != m || memcmp(x, y, n)) fail("tensor %s differs", name);
}

static int compare_gradient(const char *path0, const char *path1, const char *expected, double tolerance, char **frozen,
                            int frozen_count) {
  Tensors w0 = read_tensors(path0), w1 = read_tensors(path1), gradient = read_tensors(expected);
  const char *name;
  json_t *entry;
  json_object_foreach(gradient.header, name, entry) {
    if (begins_with_any(name, frozen, frozen_count))
      compare_bits_of(name, &w0, &w1);
    else
      compare_gradient_of(name, &w0, &w1, &gradient, tolerance);
  }
  if (json_object_size(w1.header) != json_object_size(gradient.header))
    fail("the files hold different tensors");
  drop_tensors(w0), drop_tensors(w1), drop_tensors(gradient);
  return 0;
}

static int compare_weights(const char *path_a, const char *path_b) {
  Tensors a = read_tensors(path_a), b = read_tensors(path_b);
  if (json_object_size(a.header) != json_object_size(b.header)) fail("the files hold different tensors");
  const char *name;
  json_t *entry;
  json_object_foreach(a.header, name, entry) compare_bits_of(name, &a, &b);
  printf("%zu tensors are equal\n", json_object_size(a.header));
  drop_tensors(a), drop_tensors(b);
  return 0;
}

/* --- fields -------------------------------------------------------------------------------------------- */

/* "units.name" looks into the first element of an array. */
static void need_field(const json_t *object, const char *path) {
  char *copy = strdup(path), *rest = copy;
  for (char *name = strsep(&rest, "."); name; name = strsep(&rest, ".")) {
    if (json_is_array(object)) object = json_array_get(object, 0);
    object = json_object_get(object, name);
    if (!object) fail("field %s is missing (at %s)", path, name);
  }
  free(copy);
}

static int compare_fields(const char *path, char **names, int count) {
  json_error_t error;
  json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (!object) fail("%s:%d: %s", path, error.line, error.text);
  for (int i = 0; i < count; i++) need_field(object, names[i]);
  json_decref(object);
  return 0;
}

/* --- keys ---------------------------------------------------------------------------------------------- */

/* Adds "a.b" and "a[].b" of all that is neither an object, nor a list of them, nor null, nor an empty list. */
static void add_keys(json_t *keys, const char *path, const json_t *value) {
  char inner[256];
  const char *name;
  json_t *part;
  size_t i;
  if (json_is_object(value)) {
    json_object_foreach((json_t *)value, name, part) {
      snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", name);
      add_keys(keys, inner, part);
    }
  } else if (json_is_object(json_array_get(value, 0))) {
    snprintf(inner, sizeof inner, "%s[]", path);
    json_array_foreach(value, i, part) add_keys(keys, inner, part);
  } else if (!json_is_null(value) && (!json_is_array(value) || json_array_size(value))) {
    json_object_set_new(keys, path, json_true());
  }
}

/* Of one object, or of JSON Lines. */
static void add_file(json_t *keys, const char *path) {
  json_error_t error;
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot read %s", path);
  for (int c = getc(file); c != EOF; c = getc(file)) {
    ungetc(c, file);
    json_t *object = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &error);
    if (!object) fail("%s:%d: %s", path, error.line, error.text);
    add_keys(keys, "", object);
    json_decref(object);
    while ((c = getc(file)) == '\n') {}
    ungetc(c, file);
  }
  fclose(file);
}

/* What stands in backquotes in a row's first cell. */
static void add_cell(json_t *keys, char *row) {
  row[strcspn(row + 1, "|") + 1] = '\0';
  for (char *open = strchr(row, '`'), *close; open && (close = strchr(open + 1, '`')); open = strchr(close + 1, '`')) {
    *close = '\0';
    json_object_set_new(keys, open + 1, json_true());
  }
}

static json_t *read_section(const char *path, const char *section) {
  json_t *keys = json_object();
  char *line = malloc(LINE_BYTES);
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot read %s", path);
  for (bool within = false; fgets(line, LINE_BYTES, file);) {
    line[strcspn(line, "\n")] = '\0';
    if (!strncmp(line, "## ", 3)) within = !strcmp(line + 3, section);
    if (within && !strncmp(line, "| `", 3)) add_cell(keys, line);
  }
  fclose(file);
  free(line);
  return keys;
}

/* How many of some are not among others. */
static int lacking(const json_t *some, const json_t *others, const char *section, const char *what) {
  int count = 0;
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)some, name, value) {
    if (json_object_get(others, name)) continue;
    fprintf(stderr, "%s: %s is %s\n", section, name, what);
    count++;
  }
  return count;
}

static int compare_keys(const char *page, const char *section, char **files, int count) {
  json_t *said = read_section(page, section), *printed = json_object();
  for (int i = 0; i < count; i++) add_file(printed, files[i]);
  int wrong = lacking(printed, said, section, "printed, but not on the page") + lacking(said, printed, section, "on the page, but not printed");
  json_decref(said);
  json_decref(printed);
  return wrong > 0;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (argc == 5 && strcmp(mode, "metrics") == 0)
    return compare_metrics(read_metrics(argv[2]), read_metrics(argv[3]), atof(argv[4]));
  if (argc == 5 && strcmp(mode, "reference") == 0)
    return compare_metrics(read_metrics(argv[2]), read_expected(argv[3]), atof(argv[4]));
  if (argc >= 6 && strcmp(mode, "gradient") == 0)
    return compare_gradient(argv[2], argv[3], argv[4], atof(argv[5]), argv + 6, argc - 6);
  if (argc == 4 && strcmp(mode, "weights") == 0) return compare_weights(argv[2], argv[3]);
  if (argc > 3 && strcmp(mode, "fields") == 0) return compare_fields(argv[2], argv + 3, argc - 3);
  if (argc > 4 && strcmp(mode, "keys") == 0) return compare_keys(argv[2], argv[3], argv + 4, argc - 4);
  fail("usage: compare metrics|reference|gradient|weights|fields|keys FILE...");
}
