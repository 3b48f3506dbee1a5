/* Owns: that a path may lead to a stream that is open already, as /dev/stdout does. */
#ifndef FSDPC_BASE_STREAM_H
#define FSDPC_BASE_STREAM_H

/* Standard output or error, as a file descriptor, when the path leads to the same file; else -1. Who writes there does so through a
 * duplicate: a file that is opened once more has a second position, and what is printed would overwrite what was written. */
int stream_behind(const char *path);

#endif
