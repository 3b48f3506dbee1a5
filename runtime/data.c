/* Owns: opening, checking and reading token files. */
#include "runtime/data.h"

#include "base/hash.h"
#include "base/text.h"
#include "runtime/runtime.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_BYTES = 1024, MAX_DEPTH = 32, SCAN_BATCH = 4096 };

/* What a file's first number says it is. width 0: ours to refuse. */
typedef struct Magic {
  int32_t magic, version;
  uint32_t width;
  const char *what;
} Magic;

static const Magic magics[] = {
    {20240520, 1, 2, "gpt-2 tokens"},      {20240801, 7, 4, "llama-3 tokens"},
    {20240326, 0, 0, "llm.c weights"},     {20240522, 0, 0, "an llm.c evaluation set"},
    {20240328, 0, 0, "an llm.c tokenizer"}, {20240527, 0, 0, "an llm.c training state"},
    {20240327, 0, 0, "an llm.c debug state"},
};

static const Magic *find_magic(const unsigned char *bytes, uint64_t size) {
  int32_t magic;
  if (size < HEADER_BYTES) return NULL;
  memcpy(&magic, bytes, sizeof magic);
  for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
    if (magics[i].magic == magic) return &magics[i];
  return NULL;
}

/* Fills in tokens, count, *width and *kind of a mapped .bin file. */
static bool read_bin(DataPiece *piece, uint32_t *width, const char **kind, Failure *failure) {
  const unsigned char *bytes = piece->map;
  const Magic *magic = find_magic(bytes, piece->map_bytes);
  int32_t header[3];
  if (magic == NULL) {
    *width = 2;
    *kind = "uint16 tokens";
    piece->tokens = bytes;
    piece->count = piece->map_bytes / 2;
    if (piece->map_bytes % 2 == 0) return true;
    return fail(failure, RUN_INVALID,
                "data: %s: %" PRIu64 " bytes are not a whole number of uint16 tokens, and no llm.c header says otherwise",
                piece->path, piece->map_bytes);
  }
  if (magic->width == 0)
    return fail(failure, RUN_INVALID, "data: %s: this is %s, not tokens", piece->path, magic->what);
  memcpy(header, bytes, sizeof header);
  if (header[1] != magic->version)
    return fail(failure, RUN_INVALID, "data: %s: version %d of %s; only version %d is known", piece->path,
                (int)header[1], magic->what, (int)magic->version);
  *width = magic->width;
  *kind = magic->what;
  piece->tokens = bytes + HEADER_BYTES;
  piece->count = header[2] < 0 ? 0 : (uint64_t)header[2];
  if (header[2] >= 0 && piece->map_bytes == HEADER_BYTES + piece->count * magic->width) return true;
  return fail(failure, RUN_INVALID,
              "data: %s: the header promises %d tokens of %u bytes, but %" PRIu64
              " bytes follow it; was the file cut short?",
              piece->path, (int)header[2], magic->width, piece->map_bytes - HEADER_BYTES);
}

/* By another name in the same folder: a link. */
static bool known(const TokenData *data, const struct stat *info) {
  for (uint32_t i = data->first_of_path; i < data->pieces.count; i++)
    if (data->pieces.data[i].device == info->st_dev && data->pieces.data[i].inode == info->st_ino) return true;
  return false;
}

static bool map_file(const TokenData *data, DataPiece *piece, int fd, Failure *failure) {
  piece->map = mmap(NULL, piece->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (piece->map != MAP_FAILED) return true;
  piece->map = NULL;
  if (errno == ENOMEM)
    return fail(failure, RUN_INVALID,
                "data: %s: cannot be mapped beside %u other files: %s; join small files, or raise the limits of mappings "
                "(vm.max_map_count) and of address space (ulimit -v)",
                piece->path, data->pieces.count, strerror(errno));
  return fail_file(failure, "data", piece->path, "cannot be mapped");
}

static bool same_kind(TokenData *data, const char *path, uint32_t width, const char *kind, Failure *failure) {
  if (data->kind == NULL) {
    data->kind = kind;
    data->width = width;
  }
  if (data->kind == kind) return true;
  return fail(failure, RUN_INVALID, "data: %s: this is %s, but %s is %s; one run reads one kind of data", path, kind,
              data->pieces.data[0].path, data->kind);
}

static bool add_open_file(Arena *arena, TokenData *data, const char *path, int fd, const struct stat *info,
                          Failure *failure) {
  DataPiece piece = {.path = path,
                     .map_bytes = (uint64_t)info->st_size,
                     .device = info->st_dev,
                     .inode = info->st_ino,
                     .first = data->count};
  uint32_t width = 1;
  const char *kind = "text";
  if (piece.map_bytes == 0) return true;
  if (!map_file(data, &piece, fd, failure)) return false;
  vec_push(arena, &data->pieces, piece); /* from here on data_close unmaps it */
  DataPiece *kept = &data->pieces.data[data->pieces.count - 1];
  kept->tokens = kept->map;
  kept->count = kept->map_bytes;
  if (text_ends_with(path, ".bin") && !read_bin(kept, &width, &kind, failure)) return false;
  data->count += kept->count;
  return same_kind(data, path, width, kind, failure);
}

static bool add_path(Arena *arena, TokenData *data, const char *path, uint32_t depth, Failure *failure);

static int visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static bool is_linked_folder(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool add_folder(Arena *arena, TokenData *data, const char *path, uint32_t depth, Failure *failure) {
  struct dirent **entries;
  int count = scandir(path, &entries, visible, by_name);
  bool ok = true;
  if (count < 0) return fail_file(failure, "data", path, "cannot be listed");
  for (int i = 0; i < count; i++) {
    const char *inner = arena_printf(arena, "%s%s%s", path, text_ends_with(path, "/") ? "" : "/", entries[i]->d_name);
    /* Links to folders could go in circles. */
    if (ok && !is_linked_folder(inner)) ok = add_path(arena, data, inner, depth + 1, failure);
    free(entries[i]);
  }
  free(entries);
  return ok;
}

static bool add_path(Arena *arena, TokenData *data, const char *path, uint32_t depth, Failure *failure) {
  struct stat info;
  if (stat(path, &info) != 0) return fail_file(failure, "data", path, "cannot be found");
  if (S_ISDIR(info.st_mode)) {
    if (depth < MAX_DEPTH) return add_folder(arena, data, path, depth, failure);
    return fail(failure, RUN_INVALID, "data: %s: folders are nested more than %d deep", path, MAX_DEPTH);
  }
  if (!S_ISREG(info.st_mode)) {
    if (depth > 0) return true; /* sockets and pipes among the files of a folder */
    return fail(failure, RUN_INVALID, "data: %s: not a file or folder; data is mapped, so pipes cannot be read", path);
  }
  if (depth == 0 && info.st_size == 0) /* named, which files of a folder are not */
    return fail(failure, RUN_INVALID, "data: %s: it is empty; name another file, or leave it out", path);
  if (depth > 0 && known(data, &info)) return true;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_file(failure, "data", path, "cannot be opened");
  bool ok = fstat(fd, &info) == 0 && add_open_file(arena, data, path, fd, &info, failure);
  close(fd);
  return ok;
}

static bool scan(const TokenData *data, int64_t vocab, Failure *failure) {
  uint64_t end = data->count < DATA_SCAN_TOKENS ? data->count : DATA_SCAN_TOKENS;
  int32_t batch[SCAN_BATCH];
  if ((data->width == 1 && vocab >= 256) || (data->width == 2 && vocab >= 65536)) return true;
  for (uint64_t first = 0; first < end; first += SCAN_BATCH) {
    uint64_t n = end - first < SCAN_BATCH ? end - first : SCAN_BATCH;
    uint64_t bad = data_copy(data, first, n, vocab, batch);
    if (bad != UINT64_MAX) return data_fail_id(data, bad, vocab, failure);
  }
  return true;
}

bool data_open(Arena *arena, TokenData *data, const char *const *paths, uint32_t path_count, int64_t vocab,
               uint64_t needed, Failure *failure) {
  *data = (TokenData){0};
  if (path_count == 0)
    return fail(failure, RUN_INVALID, "data: none given; name a text file, a folder or token files with --data PATH");
  for (uint32_t i = 0; i < path_count; i++) {
    data->first_of_path = data->pieces.count;
    if (!add_path(arena, data, paths[i], 0, failure)) goto failed;
  }
  if (data->count < needed) {
    fail(failure, RUN_INVALID,
         "data: %s%s: one sample needs %" PRIu64 " tokens (context length + 1), but only %" PRIu64
         " were found; give more data or a shorter context",
         paths[0], path_count > 1 ? " ..." : "", needed, data->count);
    goto failed;
  }
  if (!scan(data, vocab, failure)) goto failed;
  return true;
failed:
  data_close(data);
  return false;
}

void data_close(TokenData *data) {
  for (uint32_t i = 0; i < data->pieces.count; i++) munmap(data->pieces.data[i].map, data->pieces.data[i].map_bytes);
  *data = (TokenData){0};
}

/* Index of the piece that holds a position. */
static uint32_t find_piece(const TokenData *data, uint64_t position) {
  uint32_t low = 0, high = data->pieces.count - 1;
  while (low < high) {
    uint32_t middle = low + (high - low + 1) / 2;
    if (data->pieces.data[middle].first <= position)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

static uint32_t load(const unsigned char *bytes, uint32_t width) {
  uint16_t two;
  uint32_t four;
  switch (width) {
  case 1: return *bytes;
  case 2: memcpy(&two, bytes, sizeof two); return two;
  default: memcpy(&four, bytes, sizeof four); return four;
  }
}

uint64_t data_copy(const TokenData *data, uint64_t first, uint64_t count, int64_t vocab, int32_t *out) {
  uint64_t bad = UINT64_MAX;
  uint32_t width = data->width;
  for (uint32_t p = find_piece(data, first); count > 0; p++) {
    const DataPiece *piece = &data->pieces.data[p];
    uint64_t begin = first - piece->first, n = piece->count - begin < count ? piece->count - begin : count;
    const unsigned char *tokens = piece->tokens + begin * width;
    for (uint64_t i = 0; i < n; i++) {
      uint32_t id = load(tokens + i * width, width);
      bool good = (int64_t)id < vocab;
      if (!good && bad == UINT64_MAX) bad = first + i;
      out[i] = good ? (int32_t)id : 0;
    }
    out += n;
    first += n;
    count -= n;
  }
  return bad;
}

uint64_t data_hash(uint64_t hash, const TokenData *data) {
  enum { BLOCKS = 64, BLOCK_TOKENS = 4096 };
  int32_t block[BLOCK_TOKENS];
  uint64_t tokens = data->count < BLOCK_TOKENS ? data->count : BLOCK_TOKENS;
  hash = hash_word(hash, data->count);
  for (uint64_t i = 0; tokens > 0 && i < BLOCKS; i++) {
    data_copy(data, (data->count - tokens) * i / (BLOCKS - 1), tokens, INT64_MAX, block);
    hash = hash_bytes(hash, block, tokens * sizeof *block);
  }
  return hash;
}

const char *data_find_binary(const TokenData *data) {
  enum { PIECES = 256, BYTES = 1 << 16 };
  for (uint32_t i = 0; data->width == 1 && i < data->pieces.count && i < PIECES; i++) {
    const DataPiece *piece = &data->pieces.data[i];
    if (piece->count && memchr(piece->tokens, 0, piece->count < BYTES ? piece->count : BYTES)) return piece->path;
  }
  return NULL;
}

bool data_fail_id(const TokenData *data, uint64_t position, int64_t vocab, Failure *failure) {
  const DataPiece *piece = &data->pieces.data[find_piece(data, position)];
  uint64_t index = position - piece->first;
  return fail(failure, RUN_INVALID,
              "data: %s: token %" PRIu64 " is %u, but the model's vocabulary has %" PRId64
              " entries; was the data made with another tokenizer?",
              piece->path, index, load(piece->tokens + index * data->width, data->width), vocab);
}
