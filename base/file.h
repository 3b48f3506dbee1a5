/* Owns: opening a file by the name that a user gave, which may be that of anything. */
#ifndef FSDPC_BASE_FILE_H
#define FSDPC_BASE_FILE_H

#include <stdio.h>

/* Opens a plain file to be read; NULL with the reason (static text). Does not wait for the writer of a pipe. */
FILE *file_open(const char *path, const char **why);

#endif
