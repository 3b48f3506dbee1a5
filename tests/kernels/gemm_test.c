/* Owns: every product library against a plain sum in double: transposes, strides, alpha, beta, and one thread
 * each. */
#include "tests/kernels/support.h"
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const LIBRARIES[] = {"onednn", "openblas", "builtin"};

typedef struct Shape {
  int64_t m, n, k;
} Shape;

static const Shape SHAPES[] = {{1, 1, 1},    {3, 5, 7},    {17, 33, 129}, {64, 64, 64},
                               {6, 64, 128}, {70, 1, 300}, {1, 515, 40},  {130, 520, 257}};

static void check_product(const Gemm *gemm, Shape s, char ta, char tb, float alpha, float beta) {
  uint64_t state = 9;
  int64_t lda = (ta == 'N' ? s.k : s.m) + 3, ldb = (tb == 'N' ? s.n : s.k) + 1, ldc = s.n + 2;
  int64_t a_rows = ta == 'N' ? s.m : s.k, b_rows = tb == 'N' ? s.k : s.n;
  float *a = memory_get((size_t)(a_rows * lda) * sizeof *a),
        *b = memory_get((size_t)(b_rows * ldb) * sizeof *b);
  float *c = memory_get((size_t)(s.m * ldc) * sizeof *c), *old = memory_get((size_t)(s.m * ldc) * sizeof *c);
  fill_f32(&state, a_rows * lda, a), fill_f32(&state, b_rows * ldb, b), fill_f32(&state, s.m * ldc, c);
  if (beta == 0) {
    for (int64_t i = 0; i < s.m; i++) {
      for (int64_t j = 0; j < s.n; j++) c[i * ldc + j] = NAN;
    }
  }
  memcpy(old, c, (size_t)(s.m * ldc) * sizeof *c);
  gemm->sgemm(ta, tb, s.m, s.n, s.k, alpha, a, lda, b, ldb, beta, c, ldc);
  for (int64_t i = 0; i < s.m; i++) {
    for (int64_t j = 0; j < ldc; j++) {
      if (j >= s.n) {
        assert_true(c[i * ldc + j] == old[i * ldc + j]);
        continue;
      }
      double sum = 0;
      for (int64_t p = 0; p < s.k; p++) {
        sum += (double)(ta == 'N' ? a[i * lda + p] : a[p * lda + i]) *
               (double)(tb == 'N' ? b[p * ldb + j] : b[j * ldb + p]);
      }
      double want = (double)alpha * sum + (beta == 0 ? 0 : (double)beta * (double)old[i * ldc + j]);
      if (fabs((double)c[i * ldc + j] - want) < 2e-6 * (1 + sqrt((double)s.k))) continue;
      fail_msg("%s %c%c %dx%dx%d: %g, not %g", gemm->name, ta, tb, (int)s.m, (int)s.n, (int)s.k,
               (double)c[i * ldc + j], want);
    }
  }
  memory_free();
}

static void test_products(void **unused) {
  (void)unused;
  static const char transposes[][2] = {{'N', 'N'}, {'N', 'T'}, {'T', 'N'}, {'T', 'T'}};
  static const float factors[][2] = {{1, 0}, {1, 1}, {-0.5f, 2}};
  for (int l = 0; l < 3; l++) {
    const Gemm *gemm = gemm_open(LIBRARIES[l], NULL);
    if (!gemm) continue; /* not installed here */
    assert_string_equal(gemm->name, LIBRARIES[l]);
    for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++) {
      for (int t = 0; t < 4; t++) {
        for (int f = 0; f < 3; f++) {
          check_product(gemm, SHAPES[s], transposes[t][0], transposes[t][1], factors[f][0], factors[f][1]);
        }
      }
    }
  }
}

static void test_opening(void **unused) {
  (void)unused;
  const char *why = NULL;
  assert_non_null(gemm_open(NULL, &why));
  assert_null(why);
  assert_null(gemm_open("mkl", &why));
  assert_non_null(strstr(why, "builtin"));
  assert_ptr_equal(gemm_open("builtin", NULL), gemm_builtin());
}

static int process_threads(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  if (!tasks) return 0;
  for (struct dirent *entry; (entry = readdir(tasks));) count += entry->d_name[0] != '.';
  closedir(tasks);
  return count;
}

/* Threads and their buffers are memory that a limit may not have left; what is done without is not asked for. */
static void test_loading_starts_no_threads(void **unused) {
  (void)unused;
  int before = process_threads();
  for (int l = 0; l < 3; l++) gemm_open(LIBRARIES[l], NULL);
  assert_int_equal(process_threads(), before);
}

/* In a process of its own, before a library is loaded here. */
static bool in_child(bool (*holds)(void)) {
  int status;
  pid_t child = fork();
  if (child == 0) _exit(holds() ? 0 : 1);
  assert_int_equal(waitpid(child, &status, 0), child);
  return status == 0;
}

static bool is_installed(void) { return gemm_open("openblas", NULL) != NULL; }

static bool says_why(void) {
  const char *why = "";
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_NOFILE, &none);
  return gemm_open("openblas", &why) == NULL && strstr(why, "Too many open files (Debian package libopenblas0-pthread)") != NULL;
}

static void test_what_does_not_load_says_why(void **unused) {
  (void)unused;
  if (in_child(is_installed)) assert_true(in_child(says_why));
}

enum { SIDE = 600, CALLERS = 3 };

typedef struct Caller {
  const Gemm *gemm;
  float *a, *c;
  int most;
  pthread_t thread;
} Caller;

static void *multiply(void *arg) {
  Caller *caller = arg;
  if (caller->gemm->thread_init) caller->gemm->thread_init();
  for (int i = 0; i < 4; i++) {
    caller->gemm->sgemm('N', 'T', SIDE, SIDE, SIDE, 1, caller->a, SIDE, caller->a, SIDE, 0, caller->c, SIDE);
    int threads = process_threads();
    if (threads > caller->most) caller->most = threads;
  }
  return NULL;
}

/* Libraries keep their helpers, had they started any: the process would have more threads than callers. */
static void test_callers_stay_alone(void **unused) {
  (void)unused;
  for (int l = 0; l < 3; l++) {
    Caller callers[CALLERS] = {{0}};
    uint64_t state = 3;
    const Gemm *gemm = gemm_open(LIBRARIES[l], NULL);
    if (!gemm) continue;
    int before = process_threads(), most = 0;
    float *a = memory_get(SIDE * SIDE * sizeof *a);
    fill_f32(&state, SIDE * SIDE, a);
    for (int i = 0; i < CALLERS; i++) {
      callers[i] = (Caller){.gemm = gemm, .a = a, .c = memory_get(SIDE * SIDE * sizeof *a)};
      assert_int_equal(pthread_create(&callers[i].thread, NULL, multiply, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < CALLERS; i++) {
      most = callers[i].most > most ? callers[i].most : most;
      assert_memory_equal(callers[i].c, callers[0].c, SIDE * SIDE * sizeof *a);
    }
    assert_true(most <= before + CALLERS);
    memory_free();
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_does_not_load_says_why), cmocka_unit_test(test_loading_starts_no_threads),
      cmocka_unit_test(test_opening), cmocka_unit_test(test_products), cmocka_unit_test(test_callers_stay_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
