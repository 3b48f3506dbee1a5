/* Owns: `fsdpc completions SHELL`: completion for bash, zsh and fish, made from the two tables. */
#include "cli/cli.h"

#define SHELLS "bash zsh fish"

/* What the operand of a command may be, or NULL: a path. */
static const char *operands_of(int command) {
  return command == COMMAND_COMPLETIONS ? SHELLS : NULL;
}

static bool takes_path(const OptionInfo *option) {
  static const char *const values[] = {"FILE", "PLAN", "PATH", "DIR", "TRACE"};
  for (size_t k = 0; option->value && k < sizeof values / sizeof *values; k++)
    if (!strcmp(option->value, values[k])) return true;
  return false;
}

static bool applies(OptionId id, int command) {
  const OptionInfo *option = option_info(id);
  return !option->later && option->commands >> command & 1;
}

/* Inside '...' of a shell, less the characters that zsh's _arguments takes for its own. */
static void put_quoted(const char *text, bool zsh) {
  for (; *text; text++) {
    if (*text == '\'')
      printf("'\\''");
    else if (zsh && strchr("[]:", *text))
      printf("\\%c", *text);
    else
      putchar(*text);
  }
}

/* --- bash ---------------------------------------------------------------------------------------------- */

static void bash_values(Cli *cli) {
  printf("  case $prev in\n");
  for (int id = 0; id < OPTION_COUNT; id++) {
    const OptionInfo *option = option_info((OptionId)id);
    const char *words = option_words(cli->arena, cli->models, (OptionId)id), *listed = option_list(cli->arena, (OptionId)id);
    if (option->later || !option->value) continue;
    printf("    --%s", option->name);
    if (option->letter) printf("|-%c", option->letter);
    printf(") ");
    if (words || listed || takes_path(option)) {
      printf("COMPREPLY=($(compgen%s", takes_path(option) ? " -f" : "");
      if (words) printf(" -W '%s'", words);
      printf(" -- \"$cur\"");
      if (listed) /* what stands before the last comma stays */
        printf("; compgen -P \"${cur%%\"${cur##*,}\"}\" -W '%s' -- \"${cur##*,}\"", listed);
      printf(")); ");
    }
    printf("return ;;\n");
  }
  printf("  esac\n");
}

static void bash(Cli *cli) {
  printf("# bash completion of fsdpc, made by 'fsdpc completions bash'\n_fsdpc() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= operands=\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '");
  for (int c = 0; c < COMMAND_COUNT; c++) printf("%s%s", c ? " " : "", command_text((CommandId)c)->name);
  printf("' -- \"$cur\")); return; fi\n"
         "  [ \"$cur\" = '=' ] && cur=\n  [ \"$prev\" = '=' ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"); /* --name=value is three words */
  bash_values(cli);
  printf("  case ${COMP_WORDS[1]} in\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("    %s) options='", command_text((CommandId)c)->name);
    for (int id = 0; id < OPTION_COUNT; id++)
      if (applies((OptionId)id, c)) printf("--%s ", option_info((OptionId)id)->name);
    printf("'");
    if (operands_of(c)) printf(" operands='%s'", operands_of(c));
    printf(" ;;\n");
  }
  printf("  esac\n  case $cur in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
         "    *) if [ \"$operands\" ]; then COMPREPLY=($(compgen -W \"$operands\" -- \"$cur\"));\n"
         "       else COMPREPLY=($(compgen -f -- \"$cur\")); fi ;;\n"
         "  esac\n}\ncomplete -o filenames -F _fsdpc fsdpc\n");
}

/* --- zsh ----------------------------------------------------------------------------------------------- */

/* What follows an option: any of paths, words, and words that commas join. */
static void zsh_value(Cli *cli, OptionId id) {
  const OptionInfo *option = option_info(id);
  const char *words = option_words(cli->arena, cli->models, id), *listed = option_list(cli->arena, id);
  printf(":");
  put_quoted(option->value, true);
  if (!words && !listed) {
    printf(takes_path(option) ? ":_files" : ": ");
    return;
  }
  printf(":{_alternative");
  if (takes_path(option)) printf(" \"files\\:file\\:_files\"");
  if (words) {
    printf(" \"words\\:word\\:(");
    put_quoted(words, true);
    printf(")\"");
  }
  if (listed) printf(" \"lists\\:word\\:_sequence compadd - %s\"", listed);
  printf("}");
}

/* spelling: "--set=", "-o". One that is given is not offered again, under neither of its names, unless its help calls it repeatable. */
static void zsh_option(Cli *cli, OptionId id, const char *spelling) {
  const OptionInfo *option = option_info(id);
  bool repeats = strstr(option->help, "(repeatable)") != NULL;
  printf("        '");
  if (repeats) printf("*");
  if (option->letter && !repeats) printf("(--%s -%c)", option->name, option->letter);
  printf("%s[", spelling);
  put_quoted(option->help, true);
  printf("]");
  if (option->value) zsh_value(cli, id);
  printf("' \\\n");
}

static void zsh_options(Cli *cli, OptionId id) {
  const OptionInfo *option = option_info(id);
  zsh_option(cli, id, arena_printf(cli->arena, option->value ? "--%s=" : "--%s", option->name));
  if (option->letter) zsh_option(cli, id, arena_printf(cli->arena, "-%c", option->letter));
}

static void zsh(Cli *cli) {
  printf("#compdef fsdpc\n# zsh completion of fsdpc, made by 'fsdpc completions zsh'\n_fsdpc() {\n  local -a commands\n  commands=(\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("    '%s:", command_text((CommandId)c)->name);
    put_quoted(command_text((CommandId)c)->summary, true);
    printf("'\n");
  }
  printf("  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n  case $words[2] in\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("    %s)\n      _arguments \\\n", command_text((CommandId)c)->name);
    for (int id = 0; id < OPTION_COUNT; id++)
      if (applies((OptionId)id, c)) zsh_options(cli, (OptionId)id);
    if (operands_of(c))
      printf("        '*:operand:(%s)' ;;\n", operands_of(c));
    else
      printf("        '*:file:_files' ;;\n");
  }
  printf("  esac\n}\n_fsdpc \"$@\"\n");
}

/* --- fish ---------------------------------------------------------------------------------------------- */

static void fish(Cli *cli) {
  printf("# fish completion of fsdpc, made by 'fsdpc completions fish'\n"
         "function __fsdpc_is\n  set -l words (commandline -opc)\n  test \"$words[2]\" = $argv[1]\nend\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("complete -c fsdpc -f -n __fish_use_subcommand -a %s -d '", command_text((CommandId)c)->name);
    put_quoted(command_text((CommandId)c)->summary, false);
    printf("'\n");
  }
  for (int c = 0; c < COMMAND_COUNT; c++) {
    if (operands_of(c))
      printf("complete -c fsdpc -f -n '__fsdpc_is %s' -a '%s'\n", command_text((CommandId)c)->name, operands_of(c));
    for (int id = 0; id < OPTION_COUNT; id++) {
      const OptionInfo *option = option_info((OptionId)id);
      const char *words = option_words(cli->arena, cli->models, (OptionId)id), *listed = option_list(cli->arena, (OptionId)id);
      if (!applies((OptionId)id, c)) continue;
      printf("complete -c fsdpc -n '__fsdpc_is %s' -l %s", command_text((CommandId)c)->name, option->name);
      if (option->letter) printf(" -s %c", option->letter);
      if (option->value) printf(takes_path(option) ? " -r -F" : " -x");
      if (words || listed)
        printf(" -a '%s%s%s%s%s'", words ? words : "", words && listed ? " " : "", listed ? "(__fish_append , " : "", listed ? listed : "",
               listed ? ")" : "");
      printf(" -d '");
      put_quoted(option->help, false);
      printf("'\n");
    }
  }
}

int cmd_completions(Cli *cli) {
  static const struct {
    const char *shell;
    void (*print)(Cli *);
  } makers[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  const char *shell = cli->options.operands.data[0];
  for (size_t k = 0; k < sizeof makers / sizeof *makers; k++)
    if (!strcmp(shell, makers[k].shell)) return makers[k].print(cli), EXIT_OK;
  return usage_error("there are completions for " SHELLS, "unknown shell \"%s\"", shell);
}
