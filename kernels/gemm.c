/* Owns: matrix-product libraries found at run time. Each calling thread multiplies by itself: oneDNN takes
 * its number of threads from OpenMP, whose setting belongs to the thread that makes it, so every call makes
 * sure; OpenBLAS has one setting for the process.
 *
 * One thread at GPT-2's sizes, GFLOP/s: oneDNN 2.6.3 145 to 190, built-in with AVX-512 120 to 150. OpenBLAS
 * 0.3.21 gives 95 to 120 on processors it knows and 31 on newer ones, where it falls back to SSE: so it comes
 * last of the three where the built-in kernel has AVX-512. */
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*DnnlSgemm)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *,
                         int64_t, float, float *, int64_t);
typedef void (*CblasSgemm)(int, int, int, int, int, int, float, const float *, int, const float *, int, float,
                           float *, int);

/* What dlopen found; written once, under pthread_once. */
typedef struct Libraries {
  DnnlSgemm dnnl_sgemm;
  void (*omp_set_num_threads)(int);
  int (*omp_get_max_threads)(void);
  CblasSgemm cblas_sgemm;
  void (*openblas_set_num_threads)(int);
  char onednn_why[256], openblas_why[256]; /* each was not loaded */
} Libraries;

static Libraries libraries;
static pthread_once_t onednn_once = PTHREAD_ONCE_INIT, openblas_once = PTHREAD_ONCE_INIT;

/* why: what the system says, rather of a library that is there and, say, lacks memory; and what to install otherwise. */
static void *open_first(const char *const *names, const char *package, char *why, size_t bytes) {
  for (; *names; names++) {
    void *library = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    if (library) return library;
    const char *error = dlerror();
    if (*why == '\0' || strstr(why, strerror(ENOENT)) != NULL) snprintf(why, bytes, "%s (Debian package %s)", error ? error : "it cannot be loaded", package);
  }
  return NULL;
}

/* ISO C has no conversion from object to function pointers; POSIX promises that their bits are the same. */
static void find(void *library, const char *name, void *function) {
  void *symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
}

static void open_onednn(void) {
  const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
  void *library = open_first(names, "libdnnl2", libraries.onednn_why, sizeof libraries.onednn_why);
  if (!library) return;
  snprintf(libraries.onednn_why, sizeof libraries.onednn_why, "what is found is not built on OpenMP");
  find(library, "omp_set_num_threads", &libraries.omp_set_num_threads);
  find(library, "omp_get_max_threads", &libraries.omp_get_max_threads);
  /* Built on another threading runtime it could not be held to one thread: then it does not serve. */
  if (!libraries.omp_set_num_threads || !libraries.omp_get_max_threads) return;
  find(library, "dnnl_sgemm", &libraries.dnnl_sgemm);
}

static void open_openblas(void) {
  const char *const names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
  /* Else it starts a thread a core as it is loaded, and a buffer for each; where memory is limited it interrupts the process by a
   * SIGINT of its own, or waits for the buffer for ever. */
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  void *library = open_first(names, "libopenblas0-pthread", libraries.openblas_why, sizeof libraries.openblas_why);
  if (!library) return;
  snprintf(libraries.openblas_why, sizeof libraries.openblas_why, "what is found is no OpenBLAS");
  find(library, "openblas_set_num_threads", &libraries.openblas_set_num_threads);
  if (!libraries.openblas_set_num_threads) return;
  libraries.openblas_set_num_threads(1);
  find(library, "cblas_sgemm", &libraries.cblas_sgemm);
}

static void onednn_thread_init(void) {
  libraries.omp_set_num_threads(1);
}

static void onednn_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                         int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  if (m <= 0 || n <= 0) return;
  if (libraries.omp_get_max_threads() != 1) libraries.omp_set_num_threads(1);
  libraries.dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void openblas_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                           int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };
  if (m <= 0 || n <= 0) return;
  libraries.cblas_sgemm(ROW_MAJOR, ta == 'N' ? PLAIN : TRANSPOSED, tb == 'N' ? PLAIN : TRANSPOSED, (int)m,
                        (int)n, (int)k, alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

enum { OPENBLAS_BUFFER = 1 << 27 }; /* BUFFER_SIZE of its common.h on x86-64 since Haswell, the largest; waits for ever where it is not there */

static const Gemm ONEDNN = {"onednn", onednn_sgemm, onednn_thread_init, 0};
static const Gemm OPENBLAS = {"openblas", openblas_sgemm, NULL, OPENBLAS_BUFFER};

const Gemm *gemm_open(const char *name, const char **why) {
  int any = name == NULL;
  if (any || strcmp(name, "onednn") == 0) {
    pthread_once(&onednn_once, open_onednn);
    if (libraries.dnnl_sgemm) return &ONEDNN;
    if (!any && why) *why = libraries.onednn_why;
  }
  if (any && kernels_cpu_named("avx512")) return gemm_builtin();
  if (any || strcmp(name, "openblas") == 0) {
    pthread_once(&openblas_once, open_openblas);
    if (libraries.cblas_sgemm) return &OPENBLAS;
    if (!any && why) *why = libraries.openblas_why;
  }
  if (any || strcmp(name, "builtin") == 0) return gemm_builtin();
  if (why && strcmp(name, "onednn") != 0 && strcmp(name, "openblas") != 0) {
    *why = "no such library: onednn, openblas and builtin are known";
  }
  return NULL;
}
