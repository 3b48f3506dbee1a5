/* Owns: the table of environment variables. Empty is as good as not set. */
#include "runtime/environment.h"

#include "base/text.h"
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 4 };
#define PREFIX "FSDPC_"

typedef struct Row {
  const char *name;
  uint32_t least, most, otherwise;
  const char *words[MOST_WORDS];
  const char *summary;
} Row;

#define WORDS(...) {__VA_ARGS__}
#define NO_WORDS {NULL}
#define A_FILE {""} /* no word that a value could be */
static const Row rows[SETTING_COUNT] = {
#define SETTING(id, least, most, otherwise, words, summary) {#id, least, most, otherwise, words, summary},
#include "runtime/environment.def"
#undef SETTING
};

static bool read_number(const Row *row, const char *value, uint32_t *out) {
  char *end;
  if (*value < '0' || *value > '9') return false; /* strtoull takes signs and blanks */
  unsigned long long number = strtoull(value, &end, 10);
  *out = (uint32_t)number;
  return *end == '\0' && number >= row->least && number <= row->most; /* too large: ULLONG_MAX */
}

static bool read_word(const Row *row, const char *value, uint32_t *out) {
  for (uint32_t i = 0; i <= row->most; i++) {
    *out = i;
    if (strcmp(value, row->words[i]) == 0) return true;
  }
  return false;
}

static bool is_file(const Row *row) { return row->words[0] != NULL && row->words[0][0] == '\0'; }

static bool read_row(const Row *row, uint32_t *out) {
  const char *value = getenv(row->name);
  *out = row->otherwise;
  if (value == NULL || *value == '\0') return true;
  if (is_file(row)) return *out = row->most, true; /* who uses it says what is wrong with it */
  return (row->words[0] != NULL ? read_word : read_number)(row, value, out);
}

const char *environment_values(Arena *arena, Setting setting) {
  const Row *row = &rows[setting];
  Text text = {.arena = arena};
  if (row->words[0] == NULL) return arena_printf(arena, "from %u to %u", row->least, row->most);
  if (is_file(row)) return "the name of a file";
  for (uint32_t i = 0; i <= row->most; i++) text_printf(&text, "%s%s", i == 0 ? "" : i < row->most ? ", " : " or ", row->words[i]);
  return text.data;
}

bool environment_check(Failure *failure) {
  uint32_t ignored;
  bool fine = true;
  Arena *arena = arena_new();
  for (int s = 0; s < SETTING_COUNT && fine; s++)
    if (!read_row(&rows[s], &ignored))
      fine = fail(failure, RUN_INVALID, "environment: %s is \"%.60s\", but must be %s; unset it to have its default",
                  rows[s].name, getenv(rows[s].name), environment_values(arena, (Setting)s));
  arena_free(arena);
  return fine;
}

/* What other names that begin alike are for (scripts, tests) is not known here, so only near ones count. The beginning itself
 * must not make them near. */
static const char *meant_by(const char *name) {
  const char *ends[SETTING_COUNT], *end;
  for (int s = 0; s < SETTING_COUNT; s++) {
    if (strcmp(name, rows[s].name) == 0) return NULL;
    ends[s] = rows[s].name + strlen(PREFIX);
  }
  end = text_nearest(name + strlen(PREFIX), ends, SETTING_COUNT);
  return end != NULL ? end - strlen(PREFIX) : NULL;
}

bool environment_stray(uint32_t *at, Stray *out) {
  while (environ[*at] != NULL) {
    const char *variable = environ[(*at)++];
    size_t length = strcspn(variable, "=");
    if (length >= sizeof out->name || strncmp(variable, PREFIX, strlen(PREFIX)) != 0) continue;
    memcpy(out->name, variable, length);
    out->name[length] = '\0';
    out->meant = meant_by(out->name);
    if (out->meant != NULL) return true;
  }
  return false;
}

void environment_note_strays(void) {
  Stray stray;
  for (uint32_t at = 0; environment_stray(&at, &stray);)
    fprintf(stderr, "note: the environment variable %s has no effect; did you mean %s?\n", stray.name, stray.meant);
}

uint32_t environment_setting(Setting setting) {
  uint32_t value;
  return read_row(&rows[setting], &value) ? value : rows[setting].otherwise;
}

bool environment_is_file(Setting setting) { return is_file(&rows[setting]); }

const char *environment_file(Setting setting) { return environment_setting(setting) == 1 && is_file(&rows[setting]) ? getenv(rows[setting].name) : NULL; }

const char *environment_name(Setting setting) { return rows[setting].name; }
const char *environment_summary(Setting setting) { return rows[setting].summary; }
