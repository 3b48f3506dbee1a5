/* Owns: tests of .safetensors files: a round trip, conversions, and files that break one promise each. */
#include "testing.h"

#include "runtime/runtime.h"
#include "runtime/files/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A file from its header's text and buffer; length < 0: the true one. */
static const char *make(Scratch *scratch, const char *name, int64_t length, const char *header, const void *buffer,
                        size_t bytes) {
  size_t text = strlen(header);
  uint64_t prefix = length < 0 ? text : (uint64_t)length;
  unsigned char *file = arena_alloc(scratch->arena, 8 + text + bytes);
  memcpy(file, &prefix, 8);
  memcpy(file + 8, header, text);
  if (bytes > 0) memcpy(file + 8 + text, buffer, bytes);
  return scratch_file(scratch, name, file, 8 + text + bytes);
}

static void written_files_read_back(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  SafeTensor tensors[3] = {{.name = "z.weight", .rank = 2, .dim = {2, 3}, .numel = 6},
                           {.name = "a.bias", .rank = 1, .dim = {4}, .numel = 4},
                           {.name = "m \"quoted\"\n", .rank = 0, .numel = 1}};
  float values[11];
  uint64_t header_bytes;
  const char *header = safetensors_layout(scratch->arena, tensors, 3, &header_bytes);
  assert_int_equal(header_bytes % 8, 0);
  assert_string_equal(tensors[0].name, "a.bias");
  unsigned char *file = arena_alloc(scratch->arena, header_bytes + sizeof values);
  memcpy(file, header, header_bytes);
  for (int i = 0; i < 11; i++) values[i] = (float)i + 0.5f;
  memcpy(file + header_bytes, values, sizeof values);
  const char *path = scratch_file(scratch, "model.safetensors", file, header_bytes + sizeof values);

  Safetensors read;
  float out[6];
  assert_true(safetensors_open(scratch->arena, &read, path, &failure));
  assert_int_equal(read.tensors.count, 3);
  const SafeTensor *z = safetensors_find(&read, "z.weight");
  assert_non_null(z);
  assert_int_equal(z->rank, 2);
  assert_int_equal(z->dim[1], 3);
  assert_true(safetensors_read_f32(&read, z, 0, 6, out, &failure));
  assert_memory_equal(out, values + 5, sizeof out);
  assert_true(safetensors_read_f32(&read, z, 4, 2, out, &failure)); /* only a part */
  assert_memory_equal(out, values + 9, 2 * sizeof *out);
  assert_non_null(safetensors_find(&read, "m \"quoted\"\n"));
  assert_null(safetensors_find(&read, "b"));
  safetensors_close(&read);
}

static void equal_names_have_no_layout(void **state) {
  Scratch *scratch = *state;
  uint64_t bytes;
  SafeTensor twice[2] = {{.name = "w", .numel = 1}, {.name = "w", .numel = 1}};
  SafeTensor binary[1] = {{.name = "\xff\xfe", .numel = 1}};
  assert_null(safetensors_layout(scratch->arena, twice, 2, &bytes));
  assert_null(safetensors_layout(scratch->arena, binary, 1, &bytes));
}

static void halves_are_widened(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  Safetensors file;
  static const uint16_t halves[] = {0x3f80, 0xc000, 0x7f80, 0x0001,                     /* bf16: 1, -2, inf, tiny */
                                    0x3c00, 0xc000, 0x7c00, 0x0001, 0x8000, 0x03ff, 0x7bff}; /* f16 */
  const char *path = make(scratch, "half", -1,
                          "{\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                          "\"h\":{\"dtype\":\"F16\",\"shape\":[7],\"data_offsets\":[8,22]}}  ",
                          halves, sizeof halves);
  float b[4], h[7];
  assert_true(safetensors_open(scratch->arena, &file, path, &failure));
  assert_true(safetensors_read_f32(&file, safetensors_find(&file, "b"), 0, 4, b, &failure));
  assert_true(safetensors_read_f32(&file, safetensors_find(&file, "h"), 0, 7, h, &failure));
  assert_true(b[0] == 1 && b[1] == -2 && isinf(b[2]) && b[3] > 0 && b[3] < 1e-38f);
  assert_true(h[0] == 1 && h[1] == -2 && isinf(h[2]) && h[3] == 0x1p-24f && h[4] == 0 && signbit(h[4]));
  assert_true(h[5] == 1023 * 0x1p-24f && h[6] == 65504);
  safetensors_close(&file);
}

static void unusual_files_are_legal(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  Safetensors file;
  assert_true(safetensors_open(scratch->arena, &file, make(scratch, "none", -1, "{}", NULL, 0), &failure));
  assert_int_equal(file.tensors.count, 0);
  safetensors_close(&file);
  const char *path = make(scratch, "odd", -1,
                          "{\"__metadata__\":{\"format\":\"pt\"},"
                          "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
                          "\"flag\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[0,1]},"
                          "\"nibbles\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[1,3]},"
                          "\"unaligned\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[3,7]}}",
                          "\1\2\3\0\0\x80?", 7);
  float one;
  assert_true(safetensors_open(scratch->arena, &file, path, &failure));
  assert_true(safetensors_read_f32(&file, safetensors_find(&file, "unaligned"), 0, 1, &one, &failure));
  assert_true(one == 1);
  assert_false(safetensors_read_f32(&file, safetensors_find(&file, "flag"), 0, 1, &one, &failure));
  assert_said(failure.text, "tensor \"flag\" is BOOL");
  safetensors_close(&file);
}

typedef struct Broken {
  const char *name, *header;
  int64_t length; /* of the header as the file says; -1: the true one */
  size_t bytes;   /* of the buffer */
  const char *said;
} Broken;

#define ENTRY(rest) "{\"w\":{" rest "}}"

static const Broken broken[] = {
    {"header-too-long", "{}", 1000, 0, "does not fit into the file"},
    {"header-huge", "{}", 100000001, 0, "larger than 100 MB"},
    {"header-negative", "{}", INT64_MAX, 0, "larger than 100 MB"},
    {"header-empty", "", 0, 8, "does not fit"},
    {"no-brace", " {}", -1, 0, "does not start with"},
    {"not-json", "{\"w\":", -1, 0, "not JSON"},
    {"garbage-after", "{}x", -1, 0, "not JSON"},
    {"not-utf8", "{\"\xff\":{}}", -1, 0, "not JSON"},
    {"duplicate", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                  "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", -1, 2, "twice"},
    {"metadata-list", "{\"__metadata__\":[]}", -1, 0, "\"__metadata__\" is not an object"},
    {"metadata-number", "{\"__metadata__\":{\"step\":3}}", -1, 0, "other than strings"},
    {"entry-list", "{\"w\":[1]}", -1, 0, "tensor \"w\": its entry is not an object"},
    {"no-dtype", ENTRY("\"shape\":[1],\"data_offsets\":[0,4]"), -1, 4, "it has no \"dtype\""},
    {"unknown-dtype", ENTRY("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), -1, 4, "its dtype is unknown"},
    {"no-shape", ENTRY("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), -1, 4, "\"shape\" is not a list"},
    {"negative-size", ENTRY("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), -1, 4, "not a size"},
    {"real-size", ENTRY("\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]"), -1, 4, "not a size"},
    {"overflow", ENTRY("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), -1, 0, "overflows"},
    {"bits-overflow", ENTRY("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]"), -1, 0, "overflows"},
    {"huge-integer", ENTRY("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]"), -1, 0, "not JSON"},
    {"many-dimensions", ENTRY("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), -1, 4, "8 dimensions"},
    {"half-a-byte", ENTRY("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), -1, 2, "whole bytes"},
    {"no-offsets", ENTRY("\"dtype\":\"F32\",\"shape\":[1]"), -1, 4, "not [begin, end]"},
    {"three-offsets", ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), -1, 4, "not [begin, end]"},
    {"backwards", ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), -1, 4, "not [begin, end]"},
    {"wrong-span", ENTRY("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]"), -1, 4, "do not span the bytes"},
    {"starts-late", ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]"), -1, 8, "a hole before it"},
    {"hole", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}", -1, 3, "tensor \"b\": there is a hole"},
    {"overlap", "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}", -1, 3, "tensor \"b\": it overlaps"},
    {"cut-short", ENTRY("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), -1, 7, "cut short"},
    {"trailing", ENTRY("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), -1, 5, "bytes follow the last tensor"},
};

static void broken_files_are_refused(void **state) {
  Scratch *scratch = *state;
  char buffer[16] = {0};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    const Broken *b = &broken[i];
    Failure failure = {0};
    Safetensors file;
    const char *path = make(scratch, b->name, b->length, b->header, buffer, b->bytes);
    if (safetensors_open(scratch->arena, &file, path, &failure)) fail_msg("%s was accepted", b->name);
    assert_int_equal(failure.code, RUN_INVALID);
    assert_said(failure.text, b->said);
    assert_said(failure.text, path);
    assert_int_equal(file.fd, -1);
  }
}

static void other_files_are_refused(void **state) {
  Scratch *scratch = *state;
  Failure failure = {0};
  Safetensors file;
  assert_false(safetensors_open(scratch->arena, &file, scratch_path(scratch, "none"), &failure));
  assert_said(failure.text, "No such file");
  failure = (Failure){0};
  assert_false(safetensors_open(scratch->arena, &file, scratch_file(scratch, "tiny", "abc", 3), &failure));
  assert_said(failure.text, "shorter than its length field");
  failure = (Failure){0};
  assert_false(safetensors_open(scratch->arena, &file, scratch->dir, &failure));
  assert_said(failure.text, "not a plain file");
}

/* Cutting a good file anywhere, or changing any byte of its header, never crashes. */
static void damage_is_survived(void **state) {
  Scratch *scratch = *state;
  Failure failure;
  Safetensors file;
  const char *header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},\"__metadata__\":{\"f\":\"pt\"}}";
  size_t bytes, text = strlen(header);
  char *good = read_text(scratch->arena, make(scratch, "good", -1, header, "12345678", 8), &bytes);
  for (size_t cut = 0; cut < bytes; cut++) {
    failure = (Failure){0};
    assert_false(safetensors_open(scratch->arena, &file, scratch_file(scratch, "cut", good, cut), &failure));
  }
  for (size_t at = 0; at < 8 + text; at++) {
    static const char changes[] = {0, '"', '{', '9', (char)0xff};
    for (size_t c = 0; c < sizeof changes; c++) {
      char kept = good[at];
      good[at] = changes[c];
      failure = (Failure){0};
      if (safetensors_open(scratch->arena, &file, scratch_file(scratch, "bent", good, bytes), &failure))
        safetensors_close(&file);
      good[at] = kept;
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(written_files_read_back), SCRATCH_TEST(equal_names_have_no_layout),
      SCRATCH_TEST(halves_are_widened),      SCRATCH_TEST(unusual_files_are_legal),
      SCRATCH_TEST(broken_files_are_refused), SCRATCH_TEST(other_files_are_refused),
      SCRATCH_TEST(damage_is_survived),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
