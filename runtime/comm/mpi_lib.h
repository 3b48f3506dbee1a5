/* Owns: Open MPI, loaded when a run needs it: planning and runs on one host never do. */
#ifndef FSDPC_RUNTIME_MPI_LIB_H
#define FSDPC_RUNTIME_MPI_LIB_H

#include "runtime/failure.h"

enum { MPI_VERSION_BYTES = 256 };

/* "Open MPI v4.1.4", or false with what to install. */
bool mpi_lib_version(char out[MPI_VERSION_BYTES], Failure *failure);

#if FSDPC_HAVE_MPI
#include <mpi.h>

#define MPI_LIB_FUNCTIONS(X)                                                                                           \
  X(Init_thread) X(Finalize) X(Comm_size) X(Comm_rank) X(Comm_set_errhandler) X(Isend) X(Irecv) X(Ibcast)              \
  X(Iallgather) X(Ibarrier) X(Testall) X(Get_library_version)

typedef struct MpiLib {
#define X(name) __typeof__(MPI_##name) *name;
  MPI_LIB_FUNCTIONS(X)
#undef X
  MPI_Comm world; /* mpi.h's names for these are symbols of the library, and so need it to be linked */
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
} MpiLib;

bool mpi_lib_open(MpiLib *lib, Failure *failure);
#endif

#endif
