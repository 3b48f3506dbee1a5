/* Owns: `fsdpc man`: the man page in roff, made from the two tables. */
#include "cli/cli.h"

#include "runtime/environment.h"

/* A line of text: backslashes and leading dots mean something to roff, and hyphens of options must stay hyphens. */
static void put(const char *text) {
  if (*text == '.' || *text == '\'') printf("\\&");
  for (; *text; text++) {
    if (*text == '\\')
      printf("\\e");
    else if (*text == '-')
      printf("\\-");
    else
      putchar(*text);
  }
}

static void paragraph(const char *text) {
  put(text);
  printf("\n");
}

static void put_option(const OptionInfo *option) {
  printf(".TP\n");
  if (option->letter) printf("\\fB\\-%c\\fR, ", option->letter);
  printf("\\fB\\-\\-");
  put(option->name);
  printf("\\fR");
  if (option->value) {
    printf(" \\fI");
    put(option->value);
    printf("\\fR");
  }
  printf("\n");
  paragraph(option->help);
}

static void put_command(int c) {
  const CommandText *text = command_text((CommandId)c);
  printf(".SS fsdpc %s [OPTION]... ", text->name);
  put(text->operands);
  printf("\n");
  paragraph(text->summary);
  printf(".PP\n.nf\n.RS\n");
  for (const char *line = text->examples; *line;) {
    size_t length = strcspn(line, "\n");
    char one[200];
    snprintf(one, sizeof one, "%.*s", (int)length, line);
    paragraph(one);
    line += length + (line[length] == '\n');
  }
  printf(".RE\n.fi\n");
  for (int id = 0; id < OPTION_COUNT; id++) {
    const OptionInfo *option = option_info((OptionId)id);
    bool general = id == OPTION_HELP || id == OPTION_COLOR; /* said once, below */
    if (!option->later && !general && option->commands >> c & 1) put_option(option);
  }
}

static void table(const char *const rows[][2], size_t count) {
  for (size_t k = 0; k < count; k++) {
    printf(".TP\n\\fB");
    put(rows[k][0]);
    printf("\\fR\n");
    paragraph(rows[k][1]);
  }
}

static void put_setting(Arena *arena, Setting setting) {
  printf(".TP\n\\fB%s\\fR\n", environment_name(setting));
  paragraph(arena_printf(arena, "%s; %s", environment_values(arena, setting), environment_summary(setting)));
}

int cmd_man(Cli *cli) {
  static const char *const exits[][2] = {{"0", "success"},
                                         {"1", "invalid input, or the command failed"},
                                         {"2", "with --detailed-exitcode: the plans differ"},
                                         {"3", "no plan fits the budget"},
                                         {"4", "another rank or communication failed"},
                                         {"64", "wrong usage of the command line"},
                                         {"70", "internal error: a bug in fsdpc"},
                                         {"128+n", "ended by signal n"}};
  static const char *const variables[][2] = {{"FSDPC_MODELS", "folder where paths of models and clusters are looked for last (default: the installed one)"},
                                             {"NO_COLOR", "when set and not empty: no colour"},
                                             {"COLUMNS", "width of tables where output is no terminal"}};
  printf(".TH FSDPC 1 \"\" \"fsdpc %s\" \"User Commands\"\n.SH NAME\nfsdpc \\- plans and runs fully sharded data parallel training\n", FSDPC_VERSION);
  printf(".SH SYNOPSIS\n.B fsdpc\n.I COMMAND\n[\\fIOPTION\\fR]... [\\fIOPERAND\\fR]...\n.SH DESCRIPTION\n");
  paragraph("fsdpc compiles a model, a training recipe, a cluster and a memory budget into one static plan of a training step, and "
            "executes that plan. Results go to standard output, everything else to standard error.");
  printf(".SH COMMANDS\n");
  for (int c = 0; c < COMMAND_COUNT; c++) put_command(c);
  printf(".SH OPTIONS OF EVERY COMMAND\n");
  put_option(option_info(OPTION_COLOR));
  put_option(option_info(OPTION_HELP));
  printf(".SH EXIT STATUS\n");
  table(exits, sizeof exits / sizeof *exits);
  printf(".SH ENVIRONMENT\n");
  table(variables, sizeof variables / sizeof *variables);
  for (int s = 0; s < SETTING_COUNT; s++) put_setting(cli->arena, (Setting)s);
  return EXIT_OK;
}
