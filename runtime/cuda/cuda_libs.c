/* Owns: finding and loading cuBLASLt, NCCL and cuDNN. */
#include "runtime/cuda/cuda_libs.h"

#include "runtime/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

typedef struct Library {
  const char *name;
  const char *const *files; /* to try, NULL at the end */
  const char *help;
} Library;

static const char *const cublaslt_files[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
static const char *const nccl_files[] = {"libnccl.so.2", "libnccl.so", NULL};
static const char *const cudnn_files[] = {"libcudnn.so.9", "libcudnn.so", NULL};
static const Library cublaslt = {"cuBLASLt", cublaslt_files,
                                 "install libcublas of the CUDA toolkit, or pip install nvidia-cublas, and put its "
                                 "folder into LD_LIBRARY_PATH"};
static const Library nccl = {"NCCL", nccl_files,
                             "install libnccl2, or pip install nvidia-nccl-cu13, and set NCCL_HOME to its folder"};
static const Library cudnn = {"cuDNN", cudnn_files, NULL}; /* can be done without */

static void *open_in(const char *folder, size_t length, const char *file) {
  char path[PATH_BYTES];
  if (snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, file) >= (int)sizeof path) return NULL;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* In the folders of a list separated by colons. */
static void *open_in_list(const char *list, const char *file) {
  void *handle = NULL;
  while (handle == NULL && *list != '\0') {
    size_t length = strcspn(list, ":");
    if (length > 0) handle = open_in(list, length, file);
    list += length + (list[length] == ':');
  }
  return handle;
}

static void *open_near(const char *variable, const char *file) {
  static const char *const folders[] = {"lib", "lib64"};
  const char *home = getenv(variable);
  void *handle = NULL;
  char path[PATH_BYTES];
  for (int i = 0; i < 2 && handle == NULL && home != NULL; i++)
    if (snprintf(path, sizeof path, "%s/%s", home, folders[i]) < (int)sizeof path)
      handle = open_in(path, strlen(path), file);
  return handle;
}

static void *library_open(const Library *library) {
  for (const char *const *file = library->files; *file != NULL; file++) {
    void *handle = dlopen(*file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL && library == &nccl) handle = open_near("NCCL_HOME", *file);
    if (handle == NULL) handle = open_near("CUDA_HOME", *file);
    if (handle == NULL) handle = open_in_list(FSDPC_CUDA_LIBRARY_PATH, *file);
    if (handle == NULL) handle = open_in_list("/usr/local/cuda/lib64", *file);
    if (handle != NULL) return handle;
  }
  return NULL;
}

/* Function pointers pass through memory: ISO C has no cast from void *. */
static bool find(void *handle, const char *name, void *to) {
  void *function = dlsym(handle, name);
  memcpy(to, &function, sizeof function);
  return function != NULL;
}

static bool resolve(void *handle, const char *name, void *to, const Library *library, Failure *failure) {
  if (find(handle, name, to)) return true;
  return fail(failure, RUN_INVALID, "cuda: the %s found here has no function %s: it is too old; %s", library->name, name,
              library->help);
}

static void *open_or_fail(const Library *library, Failure *failure) {
  void *handle = library_open(library);
  if (handle == NULL) fail(failure, RUN_INVALID, "cuda: %s does not load; %s", library->name, library->help);
  return handle;
}

bool cuda_libs_cublaslt(CudaLibs *libs, Failure *failure) {
  void *handle = open_or_fail(&cublaslt, failure);
  bool ok = handle != NULL;
#define X(name) ok = ok && resolve(handle, #name, &libs->name, &cublaslt, failure);
  CUBLASLT_FUNCTIONS(X)
#undef X
  return ok;
}

bool cuda_libs_nccl(CudaLibs *libs, Failure *failure) {
  void *handle = open_or_fail(&nccl, failure);
  bool ok = handle != NULL;
#define X(name) ok = ok && resolve(handle, #name, &libs->name, &nccl, failure);
  NCCL_FUNCTIONS(X)
#undef X
  if (!ok) return false;
#define X(name) find(handle, #name, &libs->name);
  NCCL_WINDOW_FUNCTIONS(X)
#undef X
  return true;
}

void *cuda_libs_cudnn(void) { return library_open(&cudnn); }
