/* Owns: the lock of what one run at a time may write to. */
#ifndef FSDPC_RUNTIME_LOCK_H
#define FSDPC_RUNTIME_LOCK_H

#include <stdbool.h>

/* False: another process has it, and keeps it. The lock is the descriptor's, and so this process's and its children's. On a file
 * system without locks one run at a time is the user's care. */
bool lock_take(int fd);

#endif
