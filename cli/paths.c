/* Owns: the paths that a command line names for output, looked at before any work: they are compared with those it names for
 * input, since a mistyped output must not cost the data, the model or the plan that it was to be made from, nor become data itself,
 * and can be written to, since minutes of work must not end without a result. Which options name what stands in options.def; operands are read. */
#include "cli/cli.h"


#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_DEPTH = 32 };

typedef struct OptionPath {
  PathUse use;
  const char *inside; /* of a folder, which files are read */
} OptionPath;

static const OptionPath uses[OPTION_COUNT] = {
#define OPTION(id, letter, name, value, commands, help)
#define OPTION_LATER(id, name, value, commands)
#define OPTION_PATH(id, use, inside) [OPTION_##id] = {use, inside},
#include "cli/options.def"
#undef OPTION
#undef OPTION_LATER
};

/* Pipes and devices may be shared: only what is in a file can be lost. */
static bool is_file(const char *path, struct stat *info) {
  return stat(path, info) == 0 && S_ISREG(info->st_mode);
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static const char *output_of(const Cli *cli, OptionId id) {
  return uses[id].use == PATH_WRITTEN || uses[id].use == PATH_OPENED ? option_text(&cli->options, id, NULL) : NULL;
}

/* --- inputs -------------------------------------------------------------------------------------------- */

/* The file among those that a folder is read for, or NULL. Links to folders could go in circles. */
static const char *find_inside(Arena *arena, const char *folder, const char *inside, const struct stat *wanted, int depth) {
  struct dirent *entry;
  const char *found = NULL;
  DIR *listed = depth < MOST_DEPTH ? opendir(folder) : NULL;
  while (listed && !found && (entry = readdir(listed))) {
    struct stat link, info;
    const char *path = arena_printf(arena, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] == '.' || lstat(path, &link) != 0 || stat(path, &info) != 0) continue;
    if (S_ISDIR(link.st_mode))
      found = find_inside(arena, path, inside, wanted, depth + 1);
    else if (same_file(&info, wanted) && fnmatch(inside, entry->d_name, FNM_EXTMATCH) == 0)
      found = path;
  }
  if (listed) closedir(listed);
  return found;
}

static const char *find_in(Arena *arena, const char *input, const char *inside, const struct stat *wanted) {
  struct stat info;
  if (stat(input, &info) != 0) return NULL;
  if (S_ISDIR(info.st_mode)) return inside ? find_inside(arena, input, inside, wanted, 0) : NULL;
  return same_file(&info, wanted) ? input : NULL;
}

static const char *find_among(Arena *arena, const Words *inputs, const char *inside, const struct stat *wanted) {
  const char *found = NULL;
  for (uint32_t i = 0; i < inputs->count && !found; i++) found = find_in(arena, inputs->data[i], inside, wanted);
  return found;
}

static const char *find_input(const Cli *cli, const struct stat *wanted) {
  const char *found = find_among(cli->arena, &cli->options.operands, "config.json", wanted); /* what import reads of a folder */
  for (int id = 0; id < OPTION_COUNT && !found; id++)
    if (uses[id].use == PATH_READ) found = find_among(cli->arena, &cli->options.given[id], uses[id].inside, wanted);
  return found;
}

/* --- outputs ------------------------------------------------------------------------------------------- */

static int refuse(OptionId id, const char *output, const char *kind, const char *other) {
  return usage_error("name another file", "output %s (--%s) is the same file as %s %s", output, option_info(id)->name, kind, other);
}

/* With what is not there yet as it stands. */
static const char *full_path(Arena *arena, const char *path) {
  char real[PATH_MAX];
  if (realpath(path, real)) return arena_strdup(arena, real);
  const char *folder = dirname(arena_strdup(arena, path));
  if (!strcmp(folder, path)) return path;
  return arena_printf(arena, "%s/%s", full_path(arena, folder), basename(arena_strdup(arena, path)));
}

/* Hidden files are not read. */
static bool would_be_read(Arena *arena, const char *folder, const char *output) {
  struct stat info;
  char top[PATH_MAX];
  if (stat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || !realpath(folder, top)) return false;
  const char *full = full_path(arena, output);
  size_t length = strcmp(top, "/") ? strlen(top) : 0;
  return strncmp(full, top, length) == 0 && (full[length] == '/' || full[length] == '\0') && !strstr(full + length, "/.");
}

/* A folder that is read for whatever lies in it would have the output in it, when the command is given again. */
static int check_outside(const Cli *cli, OptionId id, const char *output) {
  for (int other = 0; other < OPTION_COUNT; other++)
    for (uint32_t i = 0; uses[other].inside && !strcmp(uses[other].inside, "*") && i < cli->options.given[other].count; i++) {
      const char *folder = cli->options.given[other].data[i];
      if (!would_be_read(cli->arena, folder, output)) continue;
      return usage_error("name a place outside of it, or a hidden one in it: hidden files are not read",
                         "output %s (--%s) lies in folder %s (--%s), all of which is read: another start would read it, too", output,
                         option_info(id)->name, folder, option_info((OptionId)other)->name);
    }
  return EXIT_OK;
}

/* Of a path in a folder, there or to come, what follows the folder's own; NULL: it lies elsewhere. */
static const char *beyond(Arena *arena, const char *folder, const char *path) {
  const char *top = full_path(arena, folder), *full = full_path(arena, path);
  size_t length = strlen(top);
  return strncmp(full, top, length) == 0 && full[length] == '/' ? full + length + 1 : NULL;
}

/* Nor would it take the place of what the command itself writes in a folder. */
static int check_apart(const Cli *cli, OptionId id, const char *output) {
  for (int other = 0; other < OPTION_COUNT; other++) {
    const char *folder = uses[other].use == PATH_FOLDER && uses[other].inside ? option_text(&cli->options, (OptionId)other, NULL) : NULL;
    const char *name = folder ? beyond(cli->arena, folder, output) : NULL;
    if (name && fnmatch(uses[other].inside, name, FNM_EXTMATCH) == 0)
      return usage_error("name another file", "output %s (--%s) is where --%s puts files of its own", output, option_info(id)->name,
                         option_info((OptionId)other)->name);
  }
  return EXIT_OK;
}

/* Also before either exists: the same name in the same folder. */
static bool same_place(const Cli *cli, const char *a, const char *b) {
  struct stat one, two;
  char left[PATH_MAX], right[PATH_MAX];
  if (is_file(a, &one) && is_file(b, &two)) return same_file(&one, &two);
  if (stat(a, &one) == 0 || stat(b, &two) == 0) return false;
  return realpath(dirname(arena_strdup(cli->arena, a)), left) && realpath(dirname(arena_strdup(cli->arena, b)), right) &&
         !strcmp(left, right) && !strcmp(basename(arena_strdup(cli->arena, a)), basename(arena_strdup(cli->arena, b)));
}

/* An option before this one that writes to the same file, or NULL. */
static const char *find_output(const Cli *cli, int id, const char *output) {
  for (int other = 0; other < id; other++) {
    const char *path = output_of(cli, (OptionId)other);
    if (path && same_place(cli, path, output)) return arena_printf(cli->arena, "%s (--%s)", path, option_info((OptionId)other)->name);
  }
  return NULL;
}

/* As write_file would find it: files are renamed into their folder, all else is opened. Where a link leads to nothing, that is left to see. */
static bool can_write(const Cli *cli, const char *path) {
  struct stat info;
  bool exists = stat(path, &info) == 0;
  if (!exists && errno != ENOENT) return false; /* too long, under a file, a circle of links */
  if (path[strlen(path) - 1] == '/' || (exists && S_ISDIR(info.st_mode))) return errno = EISDIR, false;
  const char *file = write_replaces(cli->arena, path);
  if (!file) return !exists || access(path, W_OK) == 0;
  return access(dirname(arena_strdup(cli->arena, file)), W_OK | X_OK) == 0;
}

/* Neither "", as "$FILE" gives it in a script that has not set it, nor "-", which elsewhere is no file. */
static bool names_file(const char *path) {
  return *path && strcmp(path, "-") != 0;
}

static int check_named(const Cli *cli) {
  static const char no_input[] = "standard input is not read; a file of that name is ./-",
                    no_output[] = "standard output is /dev/stdout; a file of that name is ./-";
  for (int id = 0; id < OPTION_COUNT; id++)
    for (uint32_t i = 0; uses[id].use != PATH_NONE && i < cli->options.given[id].count; i++) {
      const char *path = cli->options.given[id].data[i];
      if (names_file(path)) continue;
      return usage_error(!*path ? NULL : uses[id].use == PATH_READ ? no_input : no_output, "option --%s expects a path, but got \"%s\"",
                         option_info((OptionId)id)->name, path);
    }
  for (uint32_t i = 0; i < cli->options.operands.count; i++) {
    const char *path = cli->options.operands.data[i];
    if (names_file(path)) continue;
    return *path ? usage_error(no_input, "operand %u is \"-\", which names no file", i + 1)
                 : usage_error(NULL, "operand %u is empty", i + 1);
  }
  return EXIT_OK;
}

static int check_file(const Cli *cli, OptionId id, const char *output) {
  struct stat info;
  const char *other;
  if ((other = find_output(cli, id, output)) != NULL) return refuse(id, output, "output", other);
  if (check_apart(cli, id, output) != EXIT_OK) return EXIT_USAGE;
  if (is_file(output, &info) && (other = find_input(cli, &info)) != NULL) return refuse(id, output, "input", other);
  if (uses[id].use == PATH_WRITTEN && !can_write(cli, output)) return cli_error("%s", write_trouble(cli->arena, output));
  return EXIT_OK;
}

int paths_check(const Cli *cli) {
  int code = check_named(cli);
  for (int id = 0; id < OPTION_COUNT && code == EXIT_OK; id++) {
    const char *file = output_of(cli, (OptionId)id),
               *output = uses[id].use == PATH_FOLDER ? option_text(&cli->options, (OptionId)id, NULL) : file;
    if (file) code = check_file(cli, (OptionId)id, file);
    if (output && code == EXIT_OK) code = check_outside(cli, (OptionId)id, output);
  }
  return code;
}

bool paths_spare(const Cli *cli, const char *source) {
  struct stat output, info;
  for (int id = 0; id < OPTION_COUNT; id++) {
    const char *path = output_of(cli, (OptionId)id);
    if (path && is_file(path, &output) && is_file(source, &info) && same_file(&output, &info))
      return refuse((OptionId)id, path, "input", source), false;
  }
  return true;
}

bool paths_spare_sources(const Cli *cli) {
  for (uint32_t i = 0; i < cli->sources.files.count; i++)
    if (!paths_spare(cli, cli->sources.files.data[i].path)) return false;
  return true;
}
