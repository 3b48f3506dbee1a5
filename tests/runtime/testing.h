/* Owns: what the runtime's tests share: cmocka, scratch folders, captured stderr. */
#ifndef FSDPC_TESTS_RUNTIME_TESTING_H
#define FSDPC_TESTS_RUNTIME_TESTING_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
/* The runtime has a function called fail; cmocka's macros of the name make way. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#include "base/arena.h"
#include "base/clock.h"

/* Setup and teardown of a test: *state is a Scratch with a fresh folder. */
typedef struct Scratch {
  char dir[64];
  Arena *arena;
} Scratch;
int scratch_setup(void **state);
int scratch_teardown(void **state);

/* DIR/name. */
const char *scratch_path(Scratch *scratch, const char *name);
/* Writes a file into the folder and returns its path. */
const char *scratch_file(Scratch *scratch, const char *name, const void *data, size_t bytes);
/* Whole contents, NUL-terminated; fails the test when there is no such file. */
char *read_text(Arena *arena, const char *path, size_t *bytes);
/* Removes a file or a folder and everything in it, if there is one. */
void scratch_remove(Scratch *scratch, const char *name);
uint32_t folder_entries(const char *dir); /* hidden ones too */

/* Everything written to stderr between the two goes to a file, whose text the second returns. */
void capture_stderr(Scratch *scratch);
const char *captured_stderr(Scratch *scratch);

/* Seconds for what takes a moment, where a machine is slow and busy; without what is tested it would take for ever. */
enum { SOON_S = 30 };
#define assert_soon(begin) assert_true(clock_seconds() - (begin) < SOON_S)

#define assert_near(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))
void assert_said(const char *text, const char *part);
/* This process has no children, dead or alive. */
void assert_no_children(void);
/* Nothing of ours has a name in /dev/shm. */
void assert_no_shared_memory(void);

#define SCRATCH_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

#endif
