/* Owns: turning argv into Options, and what is said about options that are wrong.
 *
 * getopt_long does the reading. Its abbreviations are refused: a script that says --mem would break on the
 * day a second option starts so. */
#include "cli/options.h"

#include "base/text.h"
#include "frontend/graph.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>

static const OptionInfo infos[OPTION_COUNT] = {
#define OPTION(id, letter, name, value, commands, help) {name, value, help, letter, commands, false},
#define OPTION_LATER(id, name, value, commands)         {name, value, "", 0, commands, true},
#include "cli/options.def"
#undef OPTION
#undef OPTION_LATER
};

static const char *const command_names[COMMAND_COUNT] = {
#define COMMAND(id, name, operands, least, most, summary, examples) #name,
#include "cli/commands.def"
#undef COMMAND
};

const OptionInfo *option_info(OptionId id) {
  return &infos[id];
}

static bool applies(OptionId id, CommandId command) {
  return infos[id].commands >> command & 1;
}

/* Texts may hold what stands in files and on the command line, which a terminal should not obey. */
static void print_said(const char *what, const char *text) {
  Arena *arena = arena_new();
  fprintf(stderr, "%s: %s\n", what, text_mask(arena_strdup(arena, text), strlen(text)));
  arena_free(arena);
}

void print_error(const char *format, va_list args) {
  Arena *arena = arena_new();
  print_said("fsdpc: error", arena_vprintf(arena, format, args));
  arena_free(arena);
}

int usage_error(const char *help, const char *format, ...) {
  va_list args;
  va_start(args, format);
  print_error(format, args);
  va_end(args);
  if (help) print_said("help", help);
  return EXIT_USAGE;
}

/* --- reading argv -------------------------------------------------------------------------------------- */

enum { CODE_LONG = 256, CODE_OPERAND = 1 }; /* getopt's codes: CODE_LONG + OptionId, 1 for an operand */

typedef struct Getopt {
  char letters[2 * OPTION_COUNT + 3];
  struct option longs[OPTION_COUNT + 1];
} Getopt;

/* "-": operands are reported in order and nothing is permuted; ':': a missing argument is told from an
 * unknown option. */
static void getopt_tables(CommandId command, Getopt *tables) {
  char *letter = tables->letters;
  struct option *next = tables->longs;
  *letter++ = '-', *letter++ = ':';
  for (int id = 0; id < OPTION_COUNT; id++) {
    if (!applies((OptionId)id, command)) continue;
    *next++ = (struct option){infos[id].name, infos[id].value ? required_argument : no_argument, NULL,
                              CODE_LONG + id};
    if (!infos[id].letter) continue;
    *letter++ = infos[id].letter;
    if (infos[id].value) *letter++ = ':';
  }
  *letter = 0;
  *next = (struct option){0};
}

/* Length of the name in "--name=value". */
static size_t name_length(const char *word) {
  return strcspn(word + 2, "=");
}

static int find_long(const char *word, CommandId command) {
  size_t length = name_length(word);
  for (int id = 0; id < OPTION_COUNT; id++)
    if (applies((OptionId)id, command) && strlen(infos[id].name) == length &&
        strncmp(infos[id].name, word + 2, length) == 0)
      return id;
  return -1;
}

static int find_letter(int letter) {
  for (int id = 0; id < OPTION_COUNT; id++)
    if (infos[id].letter && infos[id].letter == letter) return id;
  return -1;
}

/* The option that the user may have meant: an abbreviation's only completion, else the nearest spelling. */
static const char *suggestion(Arena *arena, const char *word, CommandId command) {
  const char *name = arena_strndup(arena, word + 2, name_length(word)), *names[OPTION_COUNT],
             *completion = NULL;
  uint32_t count = 0, completions = 0;
  for (int id = 0; id < OPTION_COUNT; id++) {
    if (!applies((OptionId)id, command)) continue;
    names[count++] = infos[id].name;
    if (strncmp(infos[id].name, name, strlen(name)) == 0) completions++, completion = infos[id].name;
  }
  const char *meant = completions == 1 ? completion : text_nearest(name, names, count);
  return meant ? arena_printf(arena, "did you mean --%s?", meant) : NULL;
}

/* A known option of other commands: "--steps is an option of 'fsdpc run'", and of which more. */
static const char *owners(Arena *arena, const char *word) {
  const char *names[COMMAND_COUNT];
  uint32_t count = 0;
  for (int command = 0; command < COMMAND_COUNT; command++)
    if (find_long(word, (CommandId)command) >= 0) names[count++] = command_names[command];
  if (!count) return NULL;
  Text text = {.arena = arena};
  text_printf(&text, "--%.*s is an option of 'fsdpc %s'", (int)name_length(word), word + 2, names[0]);
  for (uint32_t i = 1; i < count; i++) text_printf(&text, "%s%s", i + 1 < count ? ", " : " and ", names[i]);
  return text.data;
}

static int unknown_option(Arena *arena, const Options *options, const char *word) {
  bool is_long = strncmp(word, "--", 2) == 0;
  if (is_long && find_long(word, options->command) >= 0)
    return usage_error(NULL, "option --%.*s takes no argument", (int)name_length(word), word + 2);
  const char *all = arena_printf(arena, "'fsdpc %s --help' lists the options", command_names[options->command]);
  if (!is_long) return usage_error(all, "unknown option -%c", optopt);
  const char *help = owners(arena, word);
  if (!help) help = suggestion(arena, word, options->command);
  if (!help) help = all;
  return usage_error(help, "unknown option --%.*s", (int)name_length(word), word + 2);
}

/* One answer of getopt; word is the element of argv that it came from. */
static bool take(Arena *arena, Options *options, int code, const char *word) {
  if (code == CODE_OPERAND) return vec_push(arena, &options->operands, optarg), true;
  if (code == '?') return unknown_option(arena, options, word), false;
  int id = code >= CODE_LONG                    ? code - CODE_LONG
           : code == ':' && optopt >= CODE_LONG ? optopt - CODE_LONG
                                                : find_letter(code == ':' ? optopt : code);
  if (strncmp(word, "--", 2) == 0 && find_long(word, options->command) != id)
    return unknown_option(arena, options, word), false;
  if (infos[id].later)
    return usage_error(NULL, "option --%s is not available in this version", infos[id].name), false;
  if (code == ':')
    return usage_error(NULL, "option --%s needs an argument (%s)", infos[id].name, infos[id].value), false;
  vec_push(arena, &options->given[id], optarg ? optarg : "");
  return true;
}

bool options_parse(Arena *arena, CommandId command, int argc, char **argv, Options *options) {
  Getopt tables;
  getopt_tables(command, &tables);
  options->command = command;
  opterr = 0;
  optind = 0; /* glibc: start afresh */
  for (;;) {
    const char *word = argv[optind ? optind : 1];
    int code = getopt_long(argc, argv, tables.letters, tables.longs, NULL);
    if (code == -1) break;
    if (!take(arena, options, code, word)) return false;
  }
  for (; optind < argc; optind++) vec_push(arena, &options->operands, argv[optind]); /* after "--" */
  return true;
}

/* --- reading values ------------------------------------------------------------------------------------ */

const char *option_text(const Options *options, OptionId id, const char *otherwise) {
  const Words *words = &options->given[id];
  return words->count ? words->data[words->count - 1] : otherwise;
}

static bool bad_value(const Options *options, OptionId id, const char *expected) {
  usage_error(NULL, "option --%s expects %s, but got \"%s\"", infos[id].name, expected,
              option_text(options, id, ""));
  return false;
}

bool option_integer(const Options *options, OptionId id, int64_t least, int64_t most, int64_t *out) {
  const char *text = option_text(options, id, NULL), *why = NULL;
  if (!text) return true;
  Quantity quantity;
  char expected[80];
  snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)least, (long long)most);
  if (!quantity_parse(text, &quantity, &why) || quantity.kind != QUANTITY_NUMBER || !quantity.is_integer)
    return bad_value(options, id, expected);
  if (quantity.integer < least || quantity.integer > most) return bad_value(options, id, expected);
  *out = quantity.integer;
  return true;
}

bool option_real(const Options *options, OptionId id, double least, double most, double *out) {
  const char *text = option_text(options, id, NULL), *why = NULL;
  if (!text) return true;
  Quantity quantity;
  char expected[80];
  snprintf(expected, sizeof expected, "a number from %g to %g", least, most);
  if (!quantity_parse(text, &quantity, &why) || quantity.kind != QUANTITY_NUMBER)
    return bad_value(options, id, expected);
  if (!(quantity.value >= least && quantity.value <= most)) return bad_value(options, id, expected);
  *out = quantity.value;
  return true;
}

static bool bad_size(OptionId id, const char *text) {
  Arena *arena = arena_new();
  const char *meant = quantity_meant(arena, text), *why;
  Quantity size;
  bool good = meant && quantity_parse(meant, &size, &why) && size.kind == QUANTITY_BYTES && size.value >= 1;
  usage_error(good ? arena_printf(arena, "did you mean %s?", meant) : NULL,
              "option --%s expects a size with a unit, such as 40GiB, below 8000000TiB, but got \"%s\"", infos[id].name, text);
  arena_free(arena);
  return false;
}

bool option_bytes(const Options *options, OptionId id, uint64_t *out) {
  const char *text = option_text(options, id, NULL), *why = NULL;
  if (!text) return true;
  Quantity quantity;
  if (!quantity_parse(text, &quantity, &why) || quantity.kind != QUANTITY_BYTES || !(quantity.value >= 1))
    return bad_size(id, text);
  *out = quantity.is_integer ? (uint64_t)quantity.integer : (uint64_t)quantity.value;
  return true;
}

bool option_word(const Options *options, OptionId id, const char *const *words, uint32_t count, int *out) {
  const char *text = option_text(options, id, NULL);
  if (!text) return true;
  char expected[200] = "";
  for (uint32_t i = 0; i < count; i++) {
    if (strcmp(text, words[i]) == 0) return *out = (int)i, true;
    size_t used = strlen(expected);
    snprintf(expected + used, sizeof expected - used, "%s%s",
             i == 0          ? ""
             : i + 1 < count ? ", "
                             : " or ",
             words[i]);
  }
  const char *meant = setting_meant(text, words, count);
  char help[100];
  if (meant) snprintf(help, sizeof help, "did you mean %s?", meant);
  usage_error(meant ? help : NULL, "option --%s expects %s, but got \"%s\"", infos[id].name, expected, text);
  return false;
}

bool option_pairs(const Options *options, OptionId id) {
  const Words *words = &options->given[id];
  for (uint32_t i = 0; i < words->count; i++) {
    const char *text = words->data[i], *equal = strchr(text, '=');
    if (equal && equal > text && equal[1]) continue;
    usage_error(NULL, "option --%s expects %s, but got \"%s\"", infos[id].name, infos[id].value, text);
    return false;
  }
  return true;
}

bool option_gemm(const Options *options, const char **out) {
  static const char *const libraries[] = {"onednn", "openblas", "builtin"};
  int chosen = 0;
  if (!option_word(options, OPTION_GEMM, libraries, 3, &chosen)) return false;
  *out = option_given(options, OPTION_GEMM) ? libraries[chosen] : NULL;
  return true;
}

bool option_backend(const Options *options, const char **out) {
  static const char *const backends[] = {"cpu", "cuda"};
  int chosen = 0;
  if (!option_word(options, OPTION_BACKEND, backends, 2, &chosen)) return false;
  *out = backends[chosen];
  return true;
}
