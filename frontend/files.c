/* Owns: path resolution and the list of files read. */
#include "frontend/files.h"

#include "base/file.h"
#include "base/hash.h"
#include "frontend/parse.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void files_init(Files *files, Arena *arena, SourceSet *sources, DiagSink *sink, const char *models) {
  *files = (Files){
      .arena = arena, .sources = sources, .sink = sink, .models = models, .hash = HASH_START};
}

void files_hash(Files *files, const void *bytes, size_t length) {
  files->hash = hash_bytes(files->hash, bytes, length);
}

/* The folder of a path with its slash, "" for the current one. */
static const char *folder_of(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_strndup(arena, path, (size_t)(slash - path) + 1) : "";
}

static bool exists(const char *path) {
  return access(path, F_OK) == 0;
}

static bool is_link(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* Where the file is, or where it was first looked for. */
static const char *resolve(Files *files, const char *path, Span at) {
  const char *first = path;
  if (at.file >= 0 && *path != '/')
    first = arena_printf(files->arena, "%s%s",
                         folder_of(files->arena, files->sources->files.data[at.file].path), path);
  if (*path == '/' || exists(first)) return first;
  const char *second = arena_printf(files->arena, "%s/%s", files->models, path);
  return exists(second) ? second : first;
}

static int32_t find(const Files *files, const char *real) {
  for (uint32_t i = 0; i < files->list.count; i++)
    if (!strcmp(files->list.data[i].real, real)) return (int32_t)i;
  return -1;
}

typedef VEC(const char *) Names;

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files of the language in a folder, in order. */
static Names list_folder(Files *files, const char *folder) {
  Names names = {0};
  DIR *dir = opendir(*folder ? folder : ".");
  if (!dir) return names;
  for (struct dirent *entry = readdir(dir); entry && names.count < FILES_MAX; entry = readdir(dir)) {
    size_t length = strlen(entry->d_name);
    if (length > 5 && !strcmp(entry->d_name + length - 5, ".fsdp"))
      vec_push(files->arena, &names, arena_strdup(files->arena, entry->d_name));
  }
  closedir(dir);
  if (names.count) qsort(names.data, names.count, sizeof *names.data, by_text);
  return names;
}

/* Without the extension, which all names share. */
static const char *stem(Arena *arena, const char *name) {
  size_t length = strlen(name);
  return length > 5 && !strcmp(name + length - 5, ".fsdp") ? arena_strndup(arena, name, length - 5) : name;
}

/* The entry of a folder that is spelled nearly like the last component of path, or NULL. */
static const char *nearest_in(Files *files, const char *path) {
  const char *folder = folder_of(files->arena, path);
  Names names = list_folder(files, folder), stems = {0};
  for (uint32_t i = 0; i < names.count; i++) vec_push(files->arena, &stems, stem(files->arena, names.data[i]));
  const char *near = text_nearest(stem(files->arena, path + strlen(folder)), stems.data, stems.count);
  return near ? arena_printf(files->arena, "%s.fsdp", near) : NULL;
}

/* "clusters/ holds cpu.fsdp, ..." of a folder of the models folder, or NULL. */
static const char *listed(Files *files, const char *path) {
  const char *folder = folder_of(files->arena, path);
  Names names = {0};
  Text text = {.arena = files->arena};
  if (*folder && !strchr("./", *folder)) names = list_folder(files, arena_printf(files->arena, "%s/%s", files->models, folder));
  for (uint32_t i = 0; i < names.count; i++) text_printf(&text, i ? ", %s" : "%s", names.data[i]);
  return names.count ? arena_printf(files->arena, "%s holds %s", folder, text.data) : NULL;
}

/* The end of a path that the models folder has: of models/gpt2.fsdp, which is so called from the folder around it only. NULL: none. */
static const char *tail_in_models(const Files *files, const char *path) {
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/'))
    if (slash[1] && exists(arena_printf(files->arena, "%s%s", files->models, slash))) return slash + 1;
  return NULL;
}

/* A bare name that the models folder has, or one of its folders: of gpt2, gpt2.fsdp, of dgx-h100, clusters/dgx-h100.fsdp. NULL: none. */
static const char *deeper_in_models(const Files *files, const char *path) {
  static const char *const folders[] = {"", "clusters/", "families/"};
  if (strchr(path, '/')) return NULL;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    const char *name = arena_printf(files->arena, "%s%s.fsdp", folders[i], stem(files->arena, path));
    if (exists(arena_printf(files->arena, "%s/%s", files->models, name))) return name;
  }
  return NULL;
}

static void missing(Files *files, const char *path, const char *where, Span at, const char *why) {
  Diag *diag = diag_error(files->sink, at, "cannot read \"%s\": %s", path, why);
  if (exists(where)) return;
  if (is_link(where)) {
    diag_help(diag, "it is a symbolic link: let it lead to a file");
    return;
  }
  const char *tail = tail_in_models(files, path), *near = nearest_in(files, where), *others = listed(files, path);
  if (!near && *path != '/') near = nearest_in(files, arena_printf(files->arena, "%s/%s", files->models, path));
  if (!tail) tail = deeper_in_models(files, path);
  if (tail)
    diag_help(diag, "the models folder, %s, has it as \"%s\"", files->models, tail);
  else if (near)
    diag_help(diag, "did you mean \"%s%s\"?", folder_of(files->arena, path), near);
  else if (others)
    diag_help(diag, "%s", others);
  else if (!exists(files->models))
    diag_help(diag, "the models folder, %s, is not there: FSDPC_MODELS names it", files->models);
  else if (at.file >= 0)
    diag_help(diag, "a path is relative to the file that uses it, then to the models folder");
}

/* Reports a use that leads back to a file still being read. */
static void cycle(Files *files, int32_t index, Span at) {
  const File *file = &files->list.data[index];
  const char *path = files->sources->files.data[file->ast->file].path;
  Diag *diag = at.file == file->ast->file
                   ? diag_error(files->sink, at, "this file uses itself")
                   : diag_error(files->sink, at, "\"%s\" uses itself through this file", path);
  for (uint32_t i = (uint32_t)index + 1; i < files->list.count; i++)
    if (files->list.data[i].open) diag_note(diag, files->list.data[i].used_at, "it is used on the way here");
}

static void open_uses(Files *files, int32_t index) {
  const Ast *ast = files->list.data[index].ast;
  files->list.data[index].open = true;
  for (uint32_t i = 0; i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind == STMT_USE) files_open(files, stmt->name.text, stmt->name.span);
  }
  files->list.data[index].open = false;
  vec_push(files->arena, &files->order, index);
}

int32_t files_open(Files *files, const char *path, Span at) {
  const char *where = resolve(files, path, at), *why = NULL;
  char *canonical = realpath(where, NULL);
  if (!canonical && !source_overlay(files->sources, where)) {
    why = strerror(errno);
    FILE *unnamed = file_open(where, &why); /* a pipe behind /dev/stdin has no path, but is there */
    if (unnamed) fclose(unnamed);
    missing(files, path, where, at, why);
    return -1;
  }
  const char *real = arena_strdup(files->arena, canonical ? canonical : where);
  free(canonical);
  int32_t known = find(files, real);
  if (known >= 0) {
    if (files->list.data[known].open) cycle(files, known, at);
    return files->list.data[known].open || !files->list.data[known].ast ? -1 : known;
  }
  if (files->list.count >= FILES_MAX) {
    diag_error(files->sink, at, "more than %d files are used", FILES_MAX);
    return -1;
  }
  int32_t source = source_read(files->sources, where, &why);
  if (source < 0) {
    missing(files, path, where, at, why);
    return -1;
  }
  const SourceFile *text = &files->sources->files.data[source];
  files_hash(files, text->text, text->length);
  File file = {
      .real = real, .used_at = at, .ast = parse_file(files->arena, files->sources, files->sink, source)};
  vec_push(files->arena, &files->list, file);
  int32_t index = (int32_t)files->list.count - 1;
  if (!file.ast) return -1;
  open_uses(files, index);
  return index;
}
