/* Owns: tests of token files: every kind, and every way in which one can be wrong. */
#include "testing.h"

#include "base/hash.h"
#include "runtime/data.h"
#include "runtime/runtime.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Bin {
  int32_t header[256];
  unsigned char tokens[64];
} Bin;

static bool open_one(Scratch *scratch, TokenData *data, const char *path, int64_t vocab, uint64_t needed,
                     Failure *failure) {
  *failure = (Failure){0};
  return data_open(scratch->arena, data, &path, 1, vocab, needed, failure);
}

static void refused(Scratch *scratch, const char *path, int64_t vocab, uint64_t needed, const char *part) {
  TokenData data;
  Failure failure;
  assert_false(open_one(scratch, &data, path, vocab, needed, &failure));
  assert_int_equal(failure.code, RUN_INVALID);
  assert_said(failure.text, part);
  assert_said(failure.text, "data: ");
  assert_int_equal(data.pieces.count, 0);
}

static void text_is_bytes(void **state) {
  Scratch *scratch = *state;
  TokenData data;
  Failure failure;
  int32_t out[5];
  const char *path = scratch_file(scratch, "a.txt", "h\xffllo world", 11);
  assert_true(open_one(scratch, &data, path, 256, 11, &failure));
  assert_int_equal(data.count, 11);
  assert_int_equal(data_copy(&data, 0, 5, 256, out), UINT64_MAX);
  assert_int_equal(out[0], 'h');
  assert_int_equal(out[1], 255);
  data_close(&data);
}

static void folders_are_sorted_and_joined(void **state) {
  Scratch *scratch = *state;
  TokenData data;
  Failure failure;
  int32_t out[6];
  mkdir(scratch_path(scratch, "d"), 0700);
  mkdir(scratch_path(scratch, "d/m"), 0700);
  scratch_file(scratch, "d/z", "E", 1);
  scratch_file(scratch, "d/b", "B", 1);
  scratch_file(scratch, "d/empty", "", 0);
  scratch_file(scratch, "d/.hidden", "X", 1);
  scratch_file(scratch, "d/m/one", "CD", 2);
  scratch_file(scratch, "d/a", "A", 1);
  assert_int_equal(symlink("a", scratch_path(scratch, "d/a-again")), 0); /* each file once */
  assert_int_equal(symlink("..", scratch_path(scratch, "d/m/up")), 0);   /* no circles */
  assert_true(open_one(scratch, &data, scratch_path(scratch, "d"), 256, 2, &failure));
  assert_int_equal(data.count, 5);
  data_copy(&data, 0, 5, 256, out);
  for (int i = 0; i < 5; i++) assert_int_equal(out[i], 'A' + i);
  data_copy(&data, 2, 2, 256, out);
  assert_int_equal(out[0], 'C');
  assert_int_equal(out[1], 'D');
  data_close(&data);
  const char *twice[] = {scratch_path(scratch, "d"), scratch_path(scratch, "d")}; /* asked for twice, read twice */
  assert_true(data_open(scratch->arena, &data, twice, 2, 256, 2, &failure));
  assert_int_equal(data.count, 10);
  data_close(&data);
}

static void token_files_are_recognised(void **state) {
  Scratch *scratch = *state;
  TokenData data;
  Failure failure;
  int32_t out[4];
  static const uint16_t two[4] = {1, 50256, 3, 65535};
  static const uint32_t four[4] = {1, 128255, 3, 4};
  Bin bin = {.header = {20240520, 1, 4}};
  memcpy(bin.tokens, two, sizeof two);
  const char *gpt2 = scratch_file(scratch, "gpt2.bin", &bin, 1024 + sizeof two);
  const char *nano = scratch_file(scratch, "nano.bin", two, sizeof two);
  bin.header[0] = 20240801, bin.header[1] = 7;
  memcpy(bin.tokens, four, sizeof four);
  const char *llama = scratch_file(scratch, "llama.bin", &bin, 1024 + sizeof four);

  assert_true(open_one(scratch, &data, gpt2, 65536, 4, &failure));
  assert_int_equal(data.count, 4);
  data_copy(&data, 0, 4, 65536, out);
  assert_int_equal(out[1], 50256);
  data_close(&data);
  assert_true(open_one(scratch, &data, nano, 65536, 4, &failure));
  assert_int_equal(data.count, 4);
  data_copy(&data, 3, 1, 65536, out);
  assert_int_equal(out[0], 65535);
  data_close(&data);
  assert_true(open_one(scratch, &data, llama, 128256, 4, &failure));
  data_copy(&data, 1, 1, 128256, out);
  assert_int_equal(out[0], 128255);
  data_close(&data);

  const char *with_empty[] = {gpt2, scratch_file(scratch, "empty.bin", "", 0)};
  failure = (Failure){0};
  assert_false(data_open(scratch->arena, &data, with_empty, 2, 128256, 2, &failure));
  assert_said(failure.text, "empty.bin: it is empty");

  const char *both[] = {gpt2, llama};
  failure = (Failure){0};
  assert_false(data_open(scratch->arena, &data, both, 2, 128256, 2, &failure));
  assert_said(failure.text, "one kind of data");
}

static void wrong_files_are_refused(void **state) {
  Scratch *scratch = *state;
  Bin bin = {.header = {20240520, 1, 4}};
  refused(scratch, scratch_path(scratch, "none"), 256, 2, "No such file");
  refused(scratch, scratch_file(scratch, "short", "abc", 3), 256, 17, "needs 17 tokens (context length + 1), but only 3");
  refused(scratch, scratch_file(scratch, "empty", "", 0), 256, 2, "empty: it is empty");
  refused(scratch, scratch_file(scratch, "odd.bin", "abc", 3), 70000, 2, "not a whole number of uint16");
  refused(scratch, scratch_file(scratch, "cut.bin", &bin, 1024 + 7), 70000, 2, "was the file cut short?");
  refused(scratch, scratch_file(scratch, "long.bin", &bin, 1024 + 9), 70000, 2, "promises 4 tokens of 2 bytes, but 9");
  bin.header[2] = -1;
  refused(scratch, scratch_file(scratch, "negative.bin", &bin, 1024 + 8), 70000, 2, "promises -1 tokens");
  bin.header[2] = 4, bin.header[1] = 2;
  refused(scratch, scratch_file(scratch, "version.bin", &bin, 1024 + 8), 70000, 2, "only version 1 is known");
  bin.header[0] = 20240326;
  refused(scratch, scratch_file(scratch, "weights.bin", &bin, sizeof bin), 70000, 2, "this is llm.c weights, not tokens");
  refused(scratch, "/dev/null", 256, 2, "not a file or folder");
  mkdir(scratch_path(scratch, "bare"), 0700);
  refused(scratch, scratch_path(scratch, "bare"), 256, 2, "only 0");
}

static void folders_too_deep_are_refused(void **state) {
  Scratch *scratch = *state;
  const char *path = scratch->dir;
  for (int depth = 0; depth < 33; depth++) {
    path = arena_printf(scratch->arena, "%s/d", path);
    assert_int_equal(mkdir(path, 0700), 0);
  }
  refused(scratch, scratch_path(scratch, "d"), 256, 2, "nested more than 32 deep");
}

/* As many small files do, one that is too large exhausts what a process may map. */
static void what_cannot_be_mapped_says_why(void **state) {
  Scratch *scratch = *state;
  int fd = memfd_create("vast", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, (off_t)1 << 60), 0);
  refused(scratch, arena_printf(scratch->arena, "/proc/self/fd/%d", fd), 256, 2, "cannot be mapped beside 0 other files: Cannot allocate memory; join");
  close(fd);
}

static void ids_are_checked_against_the_vocabulary(void **state) {
  Scratch *scratch = *state;
  TokenData data;
  Failure failure;
  int32_t out[4];
  refused(scratch, scratch_file(scratch, "a.txt", "abz", 3), 'z', 2, "token 2 is 122, but the model's vocabulary has 122");
  static const uint16_t two[3] = {5, 6, 300};
  refused(scratch, scratch_file(scratch, "t.bin", two, sizeof two), 300, 2, "another tokenizer");
  static const uint16_t beyond_gpt2[2] = {5, 50257};
  refused(scratch, scratch_file(scratch, "u.bin", beyond_gpt2, sizeof beyond_gpt2), 50257, 2, "token 1 is 50257");
  /* and again when they are handed out */
  assert_true(open_one(scratch, &data, scratch_path(scratch, "t.bin"), 301, 2, &failure));
  assert_int_equal(data_copy(&data, 0, 3, 300, out), 2);
  assert_int_equal(out[2], 0);
  data_close(&data);
}

static uint64_t hash_of(Scratch *scratch, const char *text, size_t bytes) {
  TokenData data;
  Failure failure;
  assert_true(open_one(scratch, &data, scratch_file(scratch, "hashed.txt", text, bytes), 256, 1, &failure));
  uint64_t hash = data_hash(HASH_START, &data);
  data_close(&data);
  return hash;
}

static void other_data_have_another_hash(void **state) {
  Scratch *scratch = *state;
  static char text[20000];
  memset(text, 'a', sizeof text);
  uint64_t hash = hash_of(scratch, text, sizeof text);
  assert_true(hash_of(scratch, text, sizeof text) == hash);
  assert_true(hash_of(scratch, text, sizeof text - 1) != hash);
  text[0] = 'b';
  assert_true(hash_of(scratch, text, sizeof text) != hash);
  text[0] = 'a', text[sizeof text - 1] = 'b';
  assert_true(hash_of(scratch, text, sizeof text) != hash);
}

static void no_data_is_said(void **state) {
  Scratch *scratch = *state;
  TokenData data;
  Failure failure = {0};
  assert_false(data_open(scratch->arena, &data, NULL, 0, 256, 2, &failure));
  assert_said(failure.text, "--data PATH");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(text_is_bytes),           SCRATCH_TEST(folders_are_sorted_and_joined),
      SCRATCH_TEST(token_files_are_recognised), SCRATCH_TEST(wrong_files_are_refused), SCRATCH_TEST(folders_too_deep_are_refused),
      SCRATCH_TEST(what_cannot_be_mapped_says_why),
      SCRATCH_TEST(ids_are_checked_against_the_vocabulary), SCRATCH_TEST(other_data_have_another_hash),
      SCRATCH_TEST(no_data_is_said),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
