/* Owns: finding and loading Open MPI. */
#include "runtime/comm/mpi_lib.h"

#include "runtime/runtime.h"

#if FSDPC_HAVE_MPI
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The name of Open MPI 2 to 5's interface. */
static const char file_name[] = "libmpi.so.40";

/* Pointers pass through memory: ISO C has no cast from void * to a function. */
static bool resolve(void *handle, const char *name, void *to, Failure *failure) {
  void *symbol = dlsym(handle, name);
  memcpy(to, &symbol, sizeof symbol);
  return symbol != NULL || fail(failure, RUN_INVALID, "mpi: %s has no %s: it is not Open MPI's; apt-get install openmpi-bin",
                                file_name, name);
}

bool mpi_lib_open(MpiLib *lib, Failure *failure) {
  /* Its own plug-ins look for its symbols among everybody's. */
  void *handle = dlopen(file_name, RTLD_NOW | RTLD_GLOBAL);
  if (handle == NULL)
    return fail(failure, RUN_INVALID, "mpi: Open MPI does not load (%s); apt-get install openmpi-bin on every host",
                dlerror());
  bool ok = true;
#define X(name) ok = ok && resolve(handle, "MPI_" #name, &lib->name, failure);
  MPI_LIB_FUNCTIONS(X)
#undef X
  return ok && resolve(handle, "ompi_mpi_comm_world", &lib->world, failure) &&
         resolve(handle, "ompi_mpi_byte", &lib->byte, failure) &&
         resolve(handle, "ompi_mpi_errors_return", &lib->errors_return, failure);
}

bool mpi_lib_version(char out[MPI_VERSION_BYTES], Failure *failure) {
  MpiLib lib;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  if (!mpi_lib_open(&lib, failure)) return false;
  lib.Get_library_version(text, &length);
  text[strcspn(text, ",")] = '\0'; /* package, ident and date follow */
  snprintf(out, MPI_VERSION_BYTES, "%.*s", MPI_VERSION_BYTES - 1, text);
  return true;
}
#else
bool mpi_lib_version(char out[MPI_VERSION_BYTES], Failure *failure) {
  out[0] = '\0';
  return fail(failure, RUN_INVALID,
              "mpi: this build joins the ranks of one host only; apt-get install libopenmpi-dev and openmpi-bin, and "
              "build again");
}
#endif
