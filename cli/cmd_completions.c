/* Owns: `fsdpc completions SHELL`: completion for bash, zsh and fish, made from the two tables. */
#include "cli/cli.h"

#define SHELLS "bash zsh fish"

static const char *executor_words(Arena *arena) {
  Text words = {.arena = arena};
  for (const char *const *name = executor_names(); *name; name++) text_printf(&words, "%s%s", words.length ? " " : "", *name);
  return words.data;
}

/* Words that an option's argument may be, beside paths where it takes these; NULL: none are known. */
static const char *words_of(Arena *arena, OptionId id) {
  static const char *const words[OPTION_COUNT] = {
      [OPTION_STRATEGY] = "auto full_shard shard_grad_op shard_optim hybrid_shard: no_shard",
      [OPTION_WRAP] = "auto block size: whole",
      [OPTION_CHECKPOINT] = "auto none full",
      [OPTION_RESHARD] = "auto yes no",
      [OPTION_GATHER] = "auto micro_batch step",
      [OPTION_REDUCE] = "auto micro_batch step",
      [OPTION_PREFETCH] = "auto",
      [OPTION_MICRO_BATCH] = "auto",
      [OPTION_OFFLOAD] = "auto none parameters gradients optimizer activations",
      [OPTION_PRECISION] = "f32 bf16 f16",
      [OPTION_DUMP] = "graph program units checkpoint memory plan",
      [OPTION_COLOR] = "auto always never",
      [OPTION_BACKEND] = "cpu cuda",
      [OPTION_GEMM] = "onednn openblas builtin",
      [OPTION_RESUME] = "auto",
      [OPTION_TO] = "safetensors torch transformers accelerate",
      [OPTION_DTYPE] = "f32 bf16 f16",
  };
  return id == OPTION_EXECUTOR ? executor_words(arena) : words[id];
}

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

static void bash_values(Arena *arena) {
  printf("  case $prev in\n");
  for (int id = 0; id < OPTION_COUNT; id++) {
    const OptionInfo *option = option_info((OptionId)id);
    const char *words = words_of(arena, (OptionId)id);
    if (option->later || !option->value) continue;
    printf("    --%s", option->name);
    if (option->letter) printf("|-%c", option->letter);
    printf(") ");
    if (words || takes_path(option)) {
      printf("COMPREPLY=($(compgen%s", takes_path(option) ? " -f" : "");
      if (words) printf(" -W '%s'", words);
      printf(" -- \"$cur\")); ");
    }
    printf("return ;;\n");
  }
  printf("  esac\n");
}

static void bash(Arena *arena) {
  printf("# bash completion of fsdpc, made by 'fsdpc completions bash'\n_fsdpc() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= operands=\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '");
  for (int c = 0; c < COMMAND_COUNT; c++) printf("%s%s", c ? " " : "", command_text((CommandId)c)->name);
  printf("' -- \"$cur\")); return; fi\n"
         "  [ \"$cur\" = '=' ] && cur=\n  [ \"$prev\" = '=' ] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"); /* --name=value is three words */
  bash_values(arena);
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

static void zsh_option(Arena *arena, OptionId id) {
  const OptionInfo *option = option_info(id);
  const char *words = words_of(arena, id);
  printf("        '--%s[", option->name);
  put_quoted(option->help, true);
  printf("]");
  if (option->value) {
    printf(":");
    put_quoted(option->value, true);
    if (words && !takes_path(option)) {
      printf(":(");
      put_quoted(words, true);
      printf(")");
    } else {
      printf(takes_path(option) ? ":_files" : ": ");
    }
  }
  printf("' \\\n");
}

static void zsh(Arena *arena) {
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
      if (applies((OptionId)id, c)) zsh_option(arena, (OptionId)id);
    if (operands_of(c))
      printf("        '*:operand:(%s)' ;;\n", operands_of(c));
    else
      printf("        '*:file:_files' ;;\n");
  }
  printf("  esac\n}\n_fsdpc \"$@\"\n");
}

/* --- fish ---------------------------------------------------------------------------------------------- */

static void fish(Arena *arena) {
  printf("# fish completion of fsdpc, made by 'fsdpc completions fish'\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("complete -c fsdpc -f -n __fish_use_subcommand -a %s -d '", command_text((CommandId)c)->name);
    put_quoted(command_text((CommandId)c)->summary, false);
    printf("'\n");
  }
  for (int c = 0; c < COMMAND_COUNT; c++) {
    if (operands_of(c))
      printf("complete -c fsdpc -f -n '__fish_seen_subcommand_from %s' -a '%s'\n", command_text((CommandId)c)->name, operands_of(c));
    for (int id = 0; id < OPTION_COUNT; id++) {
      const OptionInfo *option = option_info((OptionId)id);
      const char *words = words_of(arena, (OptionId)id);
      if (!applies((OptionId)id, c)) continue;
      printf("complete -c fsdpc -n '__fish_seen_subcommand_from %s' -l %s", command_text((CommandId)c)->name, option->name);
      if (option->letter) printf(" -s %c", option->letter);
      if (option->value) printf(takes_path(option) ? " -r -F" : " -x");
      if (words) printf(" -a '%s'", words);
      printf(" -d '");
      put_quoted(option->help, false);
      printf("'\n");
    }
  }
}

int cmd_completions(Cli *cli) {
  static const struct {
    const char *shell;
    void (*print)(Arena *);
  } makers[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};
  const char *shell = cli->options.operands.data[0];
  for (size_t k = 0; k < sizeof makers / sizeof *makers; k++)
    if (!strcmp(shell, makers[k].shell)) return makers[k].print(cli->arena), EXIT_OK;
  return usage_error("there are completions for " SHELLS, "unknown shell \"%s\"", shell);
}
