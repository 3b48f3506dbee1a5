/* Owns: see remedy.h. */
#include "base/remedy.h"

#include <errno.h>
#include <stddef.h>

const char *remedy_of(int error) {
  static const struct {
    int error;
    const char *remedy;
  } remedies[] = {
      {ENOSPC, "; free some space there, or choose another folder"},
      {EDQUOT, "; free some space there, or choose another folder"},
      {ENAMETOOLONG, "; choose a shorter one"},
      {EISDIR, "; name a file"},
      {ENOTDIR, "; a folder is wanted there"},
      {EFBIG, "; raise the limit of file sizes (ulimit -f)"},
      {EIO, "; the disk or its file system is in trouble: see the kernel's log, and choose another disk"},
      {ENODATA, "; it became shorter while it was read: is something else writing it?"},
      {EAGAIN, "; raise the limits of processes and memory (ulimit -u, -v), or start fewer"},
      {ENOMEM, "; free some memory, or raise the limit of address space (ulimit -v)"},
      {EMFILE, "; raise the limit of open files (ulimit -n)"},
      {ENFILE, "; close other programs' files"},
      {EACCES, "; check its permissions"},
      {EPERM, "; check its permissions"},
      {EROFS, "; choose a folder that can be written to"},
  };
  for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++)
    if (remedies[i].error == error) return remedies[i].remedy;
  return "";
}
