/* Owns: `fsdpc completions SHELL`: completion for bash, zsh and fish, made from the two tables. */
#include "cli/cli.h"

static const char *const shells[] = {"bash", "zsh", "fish"};

static const char *executor_words(Arena *arena) {
  Text words = {.arena = arena};
  for (const char *const *name = executor_names(); *name; name++) text_printf(&words, "%s%s", words.length ? " " : "", *name);
  return words.data;
}

/* Words that an option's argument may be; NULL: none are known. */
static const char *words_of(Arena *arena, OptionId id) {
  switch (id) {
  case OPTION_STRATEGY: return "auto full_shard shard_grad_op shard_optim hybrid_shard: no_shard";
  case OPTION_WRAP: return "auto block size: whole";
  case OPTION_CHECKPOINT: return "auto none full";
  case OPTION_RESHARD: return "auto yes no";
  case OPTION_GATHER:
  case OPTION_REDUCE: return "auto micro_batch step";
  case OPTION_PREFETCH:
  case OPTION_MICRO_BATCH: return "auto";
  case OPTION_DUMP: return "graph program units checkpoint memory plan";
  case OPTION_EXECUTOR: return executor_words(arena);
  case OPTION_COLOR: return "auto always never";
  case OPTION_GEMM: return "onednn openblas builtin";
  default: return NULL;
  }
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
    if (words)
      printf("    --%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", option->name, words);
    else if (takes_path(option))
      printf("    --%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", option->name);
    else
      printf("    --%s) return ;;\n", option->name);
  }
  printf("  esac\n");
}

static void bash(Arena *arena) {
  printf("# bash completion of fsdpc, made by 'fsdpc completions bash'\n_fsdpc() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options=\n"
         "  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '");
  for (int c = 0; c < COMMAND_COUNT; c++) printf("%s%s", c ? " " : "", command_text((CommandId)c)->name);
  printf("' -- \"$cur\")); return; fi\n");
  bash_values(arena);
  printf("  case ${COMP_WORDS[1]} in\n");
  for (int c = 0; c < COMMAND_COUNT; c++) {
    printf("    %s) options='", command_text((CommandId)c)->name);
    for (int id = 0; id < OPTION_COUNT; id++)
      if (applies((OptionId)id, c)) printf("--%s ", option_info((OptionId)id)->name);
    printf("' ;;\n");
  }
  printf("  esac\n  case $cur in\n    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")) ;;\n"
         "    *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n  esac\n}\ncomplete -o filenames -F _fsdpc fsdpc\n");
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
    if (words) {
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
  for (int c = 0; c < COMMAND_COUNT; c++)
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

int cmd_completions(Cli *cli) {
  static void (*const make[])(Arena *) = {bash, zsh, fish};
  const char *shell = cli->options.operands.data[0];
  for (int k = 0; k < 3; k++)
    if (!strcmp(shell, shells[k])) return make[k](cli->arena), EXIT_OK;
  return usage_error("there are completions for bash, zsh and fish", "unknown shell \"%s\"", shell);
}
