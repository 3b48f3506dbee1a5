/* Owns: the .safetensors format. Data are read with pread, not mapped: a file that shrinks is then an error and not a
 * SIGBUS. */
#include "runtime/files/safetensors.h"

#include "base/checked.h"
#include "base/json.h"
#include "kernels/half.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct StDType {
  char name[12];
  uint32_t bits;
} StDType;

/* In the writer's order. */
static const StDType dtypes[] = {
    {"U64", 64},        {"I64", 64},        {"F64", 64},    {"C64", 64},    {"F32", 32},    {"U32", 32},
    {"I32", 32},        {"BF16", 16},       {"F16", 16},    {"U16", 16},    {"I16", 16},    {"F8_E5M2FNUZ", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E8M0", 8},     {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"I8", 8},      {"U8", 8},
    {"F6_E3M2", 6},     {"F6_E2M3", 6},     {"F4", 4},      {"BOOL", 8},
};

enum { READ_CHUNK = 65536 };

/* --- reading ------------------------------------------------------------------------------------------------------- */

/* A system call failed. */
static bool unreadable(const char *path, const char *what, Failure *failure) {
  failure->damaged = failure->code == 0 && errno_means_damage(errno);
  return fail_file(failure, "weights", path, what);
}

static bool bad(const Safetensors *file, Failure *failure, const char *name, const char *reason) {
  failure->damaged = failure->code == 0;
  if (name == NULL) return fail(failure, RUN_INVALID, "%s: not a safetensors file: %s", file->path, reason);
  return fail(failure, RUN_INVALID, "%s: tensor \"%.200s\": %s", file->path, name, reason);
}

static bool read_all(int fd, void *out, uint64_t bytes, uint64_t offset) {
  unsigned char *to = out;
  while (bytes > 0) {
    ssize_t got = pread(fd, to, bytes, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ENODATA;
    if (got <= 0) return false;
    to += got;
    offset += (uint64_t)got;
    bytes -= (uint64_t)got;
  }
  return true;
}

static const StDType *find_dtype(const char *name) {
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
  return NULL;
}

static bool parse_shape(const Safetensors *file, SafeTensor *tensor, const json_t *shape, Failure *failure) {
  size_t rank = json_array_size(shape);
  if (!json_is_array(shape)) return bad(file, failure, tensor->name, "\"shape\" is not a list");
  if (rank > SAFETENSORS_MAX_RANK) return bad(file, failure, tensor->name, "it has more than 8 dimensions");
  tensor->rank = (uint32_t)rank;
  tensor->numel = 1;
  for (size_t i = 0; i < rank; i++) {
    const json_t *dim = json_array_get(shape, i);
    if (!json_is_integer(dim) || json_integer_value(dim) < 0)
      return bad(file, failure, tensor->name, "\"shape\" holds something that is not a size");
    tensor->dim[i] = json_integer_value(dim);
    if (!checked_mul(tensor->numel, (uint64_t)tensor->dim[i], &tensor->numel))
      return bad(file, failure, tensor->name, "its size overflows");
  }
  return true;
}

static bool parse_offsets(const Safetensors *file, SafeTensor *tensor, const json_t *offsets, Failure *failure) {
  const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
  uint64_t bits;
  if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
      json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
    return bad(file, failure, tensor->name, "\"data_offsets\" is not [begin, end]");
  tensor->begin = (uint64_t)json_integer_value(begin);
  tensor->end = (uint64_t)json_integer_value(end);
  if (!checked_mul(tensor->numel, tensor->bits, &bits)) return bad(file, failure, tensor->name, "its size overflows");
  if (bits % 8 != 0) return bad(file, failure, tensor->name, "its elements do not fill whole bytes");
  if (tensor->end - tensor->begin != bits / 8)
    return bad(file, failure, tensor->name, "\"data_offsets\" do not span the bytes that its shape and dtype take");
  return true;
}

static bool parse_tensor(Arena *arena, Safetensors *file, const char *name, const json_t *entry, Failure *failure) {
  SafeTensor tensor = {.name = arena_strdup(arena, name)};
  const json_t *dtype = json_object_get(entry, "dtype");
  if (!json_is_object(entry)) return bad(file, failure, name, "its entry is not an object");
  if (!json_is_string(dtype)) return bad(file, failure, name, "it has no \"dtype\"");
  const StDType *known = find_dtype(json_string_value(dtype));
  if (known == NULL) return bad(file, failure, name, "its dtype is unknown");
  tensor.dtype = known->name;
  tensor.bits = known->bits;
  if (!parse_shape(file, &tensor, json_object_get(entry, "shape"), failure)) return false;
  if (!parse_offsets(file, &tensor, json_object_get(entry, "data_offsets"), failure)) return false;
  vec_push(arena, &file->tensors, tensor);
  return true;
}

static const char step_key[] = "fsdpc.step", layers_key[] = "fsdpc.layers";

static bool parse_metadata(Arena *arena, Safetensors *file, json_t *metadata, Failure *failure) {
  const char *key;
  json_t *value;
  if (!json_is_object(metadata)) return bad(file, failure, NULL, "\"__metadata__\" is not an object");
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value)) return bad(file, failure, NULL, "\"__metadata__\" holds something other than strings");
  }
  const char *step = json_string_value(json_object_get(metadata, step_key));
  const char *layers = json_string_value(json_object_get(metadata, layers_key));
  if (step != NULL) file->origin.step = strtoull(step, NULL, 10);
  if (layers != NULL) file->origin.layers = arena_strdup(arena, layers);
  return true;
}

static int by_place(const void *a, const void *b) {
  const SafeTensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

static void sort(Safetensors *file, int (*order)(const void *, const void *)) {
  if (file->tensors.count > 1) qsort(file->tensors.data, file->tensors.count, sizeof *file->tensors.data, order);
}

/* The tensors tile the buffer, and the buffer ends the file. */
static bool check_places(Safetensors *file, uint64_t buffer_bytes, Failure *failure) {
  uint64_t end = 0;
  sort(file, by_place);
  for (uint32_t i = 0; i < file->tensors.count; i++) {
    const SafeTensor *tensor = &file->tensors.data[i];
    if (tensor->begin < end) return bad(file, failure, tensor->name, "it overlaps another tensor");
    if (tensor->begin > end) return bad(file, failure, tensor->name, "there is a hole before it");
    end = tensor->end;
  }
  if (end > buffer_bytes) return bad(file, failure, NULL, "it is cut short: tensors lie beyond its end");
  if (end < buffer_bytes) return bad(file, failure, NULL, "bytes follow the last tensor");
  sort(file, by_name);
  return true;
}

static bool parse_header(Arena *arena, Safetensors *file, const char *text, size_t length, Failure *failure) {
  json_error_t error;
  const char *key;
  json_t *entry, *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  bool ok = true;
  if (root == NULL) {
    if (json_error_code(&error) == json_error_duplicate_key)
      return bad(file, failure, NULL, "its header names something twice");
    failure->damaged = failure->code == 0;
    return fail(failure, RUN_INVALID, "%s: not a safetensors file: its header is not JSON (%s, at byte %d)", file->path,
                json_trouble(&error), error.position);
  }
  json_object_foreach(root, key, entry) {
    ok = strcmp(key, "__metadata__") == 0 ? parse_metadata(arena, file, entry, failure)
                                          : parse_tensor(arena, file, key, entry, failure);
    if (!ok) break;
  }
  json_decref(root);
  return ok;
}

static bool read_file(Arena *arena, Safetensors *file, Failure *failure) {
  struct stat info;
  uint64_t header;
  if (fstat(file->fd, &info) != 0)
    return unreadable(file->path, "cannot be read", failure);
  if (!S_ISREG(info.st_mode)) return bad(file, failure, NULL, "it is not a plain file");
  if (info.st_size < 8) return bad(file, failure, NULL, "it is shorter than its length field");
  if (!read_all(file->fd, &header, sizeof header, 0))
    return unreadable(file->path, "cannot be read", failure);
  if (header > SAFETENSORS_MAX_HEADER) return bad(file, failure, NULL, "its header would be larger than 100 MB");
  if (header < 2 || 8 + header > (uint64_t)info.st_size)
    return bad(file, failure, NULL, "its header does not fit into the file");
  char *text = malloc(header);
  if (text == NULL) return fail(failure, RUN_INVALID, "%s: no memory for its header", file->path);
  bool ok = read_all(file->fd, text, header, 8);
  if (!ok)
    unreadable(file->path, "cannot be read", failure);
  else if (text[0] != '{')
    ok = bad(file, failure, NULL, "its header does not start with \"{\"");
  else
    ok = parse_header(arena, file, text, header, failure);
  free(text);
  file->buffer = 8 + header;
  return ok && check_places(file, (uint64_t)info.st_size - file->buffer, failure);
}

bool safetensors_open(Arena *arena, Safetensors *file, const char *path, Failure *failure) {
  *file = (Safetensors){.path = arena_strdup(arena, path), .origin.step = SAFETENSORS_NO_STEP};
  file->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe would wait for its writer */
  if (file->fd < 0) return unreadable(path, "cannot be opened", failure);
  if (read_file(arena, file, failure)) return true;
  safetensors_close(file);
  return false;
}

void safetensors_close(Safetensors *file) {
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
}

const SafeTensor *safetensors_find(const Safetensors *file, const char *name) {
  SafeTensor key = {.name = name};
  if (file->tensors.count == 0) return NULL;
  return bsearch(&key, file->tensors.data, file->tensors.count, sizeof key, by_name);
}

/* --- values -------------------------------------------------------------------------------------------------------- */

static void widen(const char *dtype, const unsigned char *bytes, uint64_t n, float *out) {
  FloatType type = dtype[0] == 'B' ? FLOAT_BF16 : FLOAT_F16;
  for (uint64_t i = 0; i < n; i++) {
    Half half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    out[i] = float_of_half(type, half);
  }
}

static bool unreadable_tensor(const Safetensors *file, const SafeTensor *tensor, Failure *failure) {
  char what[240];
  snprintf(what, sizeof what, "tensor \"%.200s\" cannot be read", tensor->name);
  return unreadable(file->path, what, failure);
}

bool safetensors_read_bytes(const Safetensors *file, const SafeTensor *tensor, uint64_t first, uint64_t bytes, void *out,
                            Failure *failure) {
  if (read_all(file->fd, out, bytes, file->buffer + tensor->begin + first)) return true;
  return unreadable_tensor(file, tensor, failure);
}

bool safetensors_read_f32(const Safetensors *file, const SafeTensor *tensor, uint64_t first, uint64_t n, float *out,
                          Failure *failure) {
  bool f32 = strcmp(tensor->dtype, "F32") == 0;
  if (!f32 && strcmp(tensor->dtype, "BF16") != 0 && strcmp(tensor->dtype, "F16") != 0)
    return fail(failure, RUN_INVALID, "%s: tensor \"%s\" is %s; only F32, BF16 and F16 can be loaded", file->path,
                tensor->name, tensor->dtype);
  uint64_t size = tensor->bits / 8, offset = file->buffer + tensor->begin + first * size;
  unsigned char chunk[READ_CHUNK];
  while (n > 0) {
    uint64_t now = f32 || n < READ_CHUNK / 2 ? n : READ_CHUNK / 2;
    if (!read_all(file->fd, f32 ? (void *)out : (void *)chunk, now * size, offset))
      return unreadable_tensor(file, tensor, failure);
    if (!f32) widen(tensor->dtype, chunk, now, out);
    out += now;
    offset += now * size;
    n -= now;
  }
  return true;
}

/* --- writing ------------------------------------------------------------------------------------------------------- */

static json_t *entry_of(const SafeTensor *tensor) {
  json_t *shape = json_array();
  for (uint32_t i = 0; i < tensor->rank; i++) json_array_append_new(shape, json_integer(tensor->dim[i]));
  json_t *offsets = json_array();
  json_array_append_new(offsets, json_integer((json_int_t)tensor->begin));
  json_array_append_new(offsets, json_integer((json_int_t)tensor->end));
  json_t *entry = json_object();
  json_object_set_new(entry, "dtype", json_string(tensor->dtype));
  json_object_set_new(entry, "shape", shape);
  json_object_set_new(entry, "data_offsets", offsets);
  return entry;
}

const char *safetensors_layout(Arena *arena, SafeTensor *tensors, uint32_t count, uint64_t *header_bytes) {
  return safetensors_layout_of(arena, tensors, count, (SafeOrigin){.step = SAFETENSORS_NO_STEP}, header_bytes);
}

const char *safetensors_layout_of(Arena *arena, SafeTensor *tensors, uint32_t count, SafeOrigin origin, uint64_t *header_bytes) {
  uint64_t end = 0;
  if (count > 1) qsort(tensors, count, sizeof *tensors, by_name);
  json_t *root = json_object(), *metadata = json_object();
  json_object_set_new(metadata, "format", json_string("pt")); /* older loaders crash without it */
  if (origin.step != SAFETENSORS_NO_STEP) json_object_set_new(metadata, step_key, json_sprintf("%" PRIu64, origin.step));
  if (origin.layers != NULL) json_object_set_new(metadata, layers_key, json_string(origin.layers));
  json_object_set_new(root, "__metadata__", metadata);
  for (uint32_t i = 0; i < count; i++) {
    if (tensors[i].dtype == NULL) tensors[i].dtype = "F32", tensors[i].bits = 32;
    tensors[i].begin = end;
    tensors[i].end = end += tensors[i].numel * (tensors[i].bits / 8);
    json_object_set_new(root, tensors[i].name, entry_of(&tensors[i]));
  }
  /* Names that are not UTF-8, or not distinct, are not in there. */
  char *text = json_object_size(root) == count + 1 ? json_dumps(root, JSON_COMPACT) : NULL;
  json_decref(root);
  if (text == NULL) return NULL;
  uint64_t length = strlen(text), padded = round_up(length, 8);
  char *header = arena_alloc(arena, 8 + padded);
  memcpy(header, &padded, 8); /* little-endian hosts only, as the rest of the runtime */
  memcpy(header + 8, text, length);
  memset(header + 8 + length, ' ', padded - length);
  free(text);
  *header_bytes = 8 + padded;
  return header;
}
