/* Owns: the texts of --help and --version, made from commands.def and options.def. */
#include "cli/cli.h"

#include <jansson.h>

static const CommandText commands[COMMAND_COUNT] = {
#define COMMAND(id, name, operands, least, most, summary, examples) {#name, operands, summary, examples},
#include "cli/commands.def"
#undef COMMAND
};

const CommandText *command_text(CommandId command) {
  return &commands[command];
}

static void print_indented(FILE *out, const char *lines) {
  while (*lines) {
    size_t length = strcspn(lines, "\n");
    fprintf(out, "  %.*s\n", (int)length, lines);
    lines += length + (lines[length] == '\n');
  }
}

void help_all(FILE *out) {
  fprintf(out, "fsdpc plans and runs fully sharded data parallel training.\n\n"
               "Examples:\n"
               "  fsdpc plan models/gpt2.fsdp --ranks 8 --memory 16GiB\n"
               "  fsdpc run models/quickstart.fsdp --ranks 2 --data text.txt --save out\n\n"
               "Usage: fsdpc COMMAND [OPTION]... OPERAND...\n\nCommands:\n");
  for (int id = 0; id < COMMAND_COUNT; id++)
    fprintf(out, "  %-11s %s\n", commands[id].name, commands[id].summary);
  fprintf(out,
          "\n'fsdpc COMMAND --help' shows the options of a command; 'fsdpc --version [--json]' the version.\n"
          "Exit codes: 0 ok, 1 invalid input, 2 plans differ, 3 does not fit the budget, 4 a rank failed, 64 usage,\n"
          "70 internal error, 128+n signal n.\n");
}

static void print_option(const OptionInfo *option, FILE *out) {
  char form[60], letter[6] = "";
  if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
  snprintf(form, sizeof form, "%s--%s%s%s", letter, option->name, option->value ? " " : "",
           option->value ? option->value : "");
  fprintf(out, strlen(form) <= 22 ? "  %-22s %s\n" : "  %s\n                         %s\n", form,
          option->help);
}

static void print_executors(FILE *out) {
  fprintf(out, "\nExecutors:\n");
  for (const char *const *name = executor_names(); *name; name++) fprintf(out, "  %-27s %s\n", *name, executor_meaning(*name));
}

static void print_sweep(FILE *out) {
  fprintf(out, "\n--cluster, --ranks, --memory, --strategy, --wrap, --checkpoint, --prefetch, --reshard and --micro-batch take several values with commas\n"
               "between; every combination is planned. Left out, ranks from one node up, the budget, three quarters and half of it, strategies, wraps,\n"
               "checkpoint and micro-batch are swept: what the planner finds, and what people set by hand. Each plan is searched\n"
               "briefly; `fsdpc plan` with the options of one may find a faster one. Ctrl-C ends a sweep with the front of what is done.\n");
}

void help_command(CommandId command, FILE *out) {
  const CommandText *text = &commands[command];
  fprintf(out, "fsdpc %s: %s\n\nExamples:\n", text->name, text->summary);
  print_indented(out, text->examples);
  fprintf(out, "\nUsage: fsdpc %s [OPTION]...%s%s\n\nOptions:\n", text->name, *text->operands ? " " : "",
          text->operands);
  for (int id = 0; id < OPTION_COUNT; id++) {
    const OptionInfo *option = option_info((OptionId)id);
    if (!option->later && option->commands >> command & 1) print_option(option, out);
  }
  if (option_info(OPTION_EXECUTOR)->commands >> command & 1) print_executors(out);
  if (command == COMMAND_TUNE) print_sweep(out);
}

void help_version(bool json, FILE *out) {
  if (!json) {
    fprintf(out, "fsdpc %s (plan format %d)\n", FSDPC_VERSION, PLAN_VERSION);
    return;
  }
  json_t *version = json_pack("{s:i, s:s, s:i, s:s}", "schema_version", 1, "version", FSDPC_VERSION,
                              "plan_format", PLAN_VERSION, "compiler", __VERSION__);
  json_dumpf(version, out, JSON_INDENT(2));
  fprintf(out, "\n");
  json_decref(version);
}
