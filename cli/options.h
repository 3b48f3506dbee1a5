/* Owns: the parsed command line. Everything is made from commands.def and options.def. */
#ifndef FSDPC_CLI_OPTIONS_H
#define FSDPC_CLI_OPTIONS_H

#include "base/vec.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { EXIT_OK = 0, EXIT_INVALID = 1, EXIT_CHANGED = 2, EXIT_NO_FIT = 3, EXIT_PEER = 4, EXIT_USAGE = 64, EXIT_BUG = 70 };

typedef enum {
#define COMMAND(id, name, operands, least, most, summary, examples) COMMAND_##id,
#include "cli/commands.def"
#undef COMMAND
  COMMAND_COUNT
} CommandId;

/* Sets of commands, for the table of options. */
#define ON(id)       (1u << COMMAND_##id)
#define SET_PLANNING (ON(PLAN) | ON(PREDICT) | ON(EXPLAIN) | ON(DRAW) | ON(TUNE) | ON(RUN) | ON(EXPORT))
#define SET_SOURCE   (SET_PLANNING | ON(CHECK) | ON(GENERATE))
#define SET_ALL      ((1u << COMMAND_COUNT) - 1)

typedef enum {
#define OPTION(id, letter, name, value, commands, help) OPTION_##id,
#define OPTION_LATER(id, name, value, commands)         OPTION_##id,
#include "cli/options.def"
#undef OPTION
#undef OPTION_LATER
  OPTION_COUNT
} OptionId;

typedef enum { PATH_NONE, PATH_READ, PATH_WRITTEN, PATH_OPENED, PATH_FOLDER } PathUse;

typedef struct OptionInfo {
  const char *name, *value, *help; /* value NULL: takes none */
  char letter;                     /* 0: none */
  uint32_t commands;
  bool later; /* not available in this version */
} OptionInfo;

typedef VEC(const char *) Words;

typedef struct Options {
  CommandId command;
  Words given[OPTION_COUNT]; /* arguments in order; "" for options without one */
  Words operands;
} Options;

const OptionInfo *option_info(OptionId id);

/* Parses argv[1..] as options and operands of one command; argv[0] is its name. False after a message:
 * exit 64. */
bool options_parse(Arena *arena, CommandId command, int argc, char **argv, Options *options);

static inline bool option_given(const Options *options, OptionId id) {
  return options->given[id].count > 0;
}
/* The last argument given, or otherwise. */
const char *option_text(const Options *options, OptionId id, const char *otherwise);
/* Readers of one option; absent options leave *out alone. False after a message. */
bool option_integer(const Options *options, OptionId id, int64_t least, int64_t most, int64_t *out);
bool option_real(const Options *options, OptionId id, double least, double most, double *out);
bool option_bytes(const Options *options, OptionId id, uint64_t *out);
/* One of words[count]; *out is its index. */
bool option_word(const Options *options, OptionId id, const char *const *words, uint32_t count, int *out);

/* words.c: that an option's argument may be, beside paths where it takes these, with spaces between; NULL: none are known. models: the models
 * folder. */
const char *option_words(Arena *arena, const char *models, OptionId id);
/* Those of which the argument may be a comma list instead; NULL: none. */
const char *option_list(Arena *arena, OptionId id);
/* Every argument is NAME=VALUE. */
bool option_pairs(const Options *options, OptionId id);
/* --backend; cpu where it is not given. */
bool option_backend(const Options *options, const char **out);
/* --gemm; NULL where it is not given. */
bool option_gemm(const Options *options, const char **out);

/* "fsdpc: error: ..." on stderr; with "help: ..." (NULL: none), and EXIT_USAGE returned. */
void print_error(const char *format, va_list args);
int usage_error(const char *help, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
