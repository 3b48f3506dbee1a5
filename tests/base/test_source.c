/* Owns: that reading a source leaves nothing open, whatever fails, and reads to the end of the file. */
#include "base/source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const char path[] = "README.md";

FILE *__real_fdopen(int descriptor, const char *mode);
FILE *__wrap_fdopen(int descriptor, const char *mode);

FILE *__wrap_fdopen(int descriptor, const char *mode) {
  if (!mock_type(bool)) return __real_fdopen(descriptor, mode);
  errno = ENOMEM;
  return NULL;
}

/* The descriptor that the next file would get. */
static int next_descriptor(void) {
  int descriptor = open("/dev/null", O_RDONLY);
  assert_true(descriptor >= 0);
  close(descriptor);
  return descriptor;
}

static void read_leaves_nothing_open(bool fails, const char *expected) {
  SourceSet set = {.arena = arena_new()};
  const char *why = NULL;
  int before = next_descriptor();
  will_return(__wrap_fdopen, fails);
  assert_int_equal(source_read(&set, path, &why), fails ? -1 : 0);
  assert_int_equal(next_descriptor(), before);
  assert_true(expected ? why && strcmp(why, expected) == 0 : !why);
  arena_free(set.arena);
}

static void test_whole(void **state) {
  (void)state;
  read_leaves_nothing_open(false, NULL);
}

static void test_no_memory(void **state) {
  (void)state;
  read_leaves_nothing_open(true, strerror(ENOMEM));
}

/* A file that is said to hold nothing. */
static void test_of_the_system(void **state) {
  (void)state;
  SourceSet set = {.arena = arena_new()};
  const char *why = NULL;
  will_return_count(__wrap_fdopen, false, 2);
  assert_int_equal(source_read(&set, "/proc/self/mounts", &why), 0);
  assert_true(set.files.data[0].length > 5);
  assert_int_equal(source_read_most(&set, "/proc/self/mounts", 5, &why), -1);
  assert_non_null(strstr(why, "larger than"));
  arena_free(set.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_of_the_system)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
