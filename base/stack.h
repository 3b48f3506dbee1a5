/* Owns: how much stack the threads of this process get. */
#ifndef FSDPC_BASE_STACK_H
#define FSDPC_BASE_STACK_H

#include <stdbool.h>

/* Gives this thread and those started from now on at least STACK_BYTES, whatever the limit of stacks (ulimit -s) was, where that may
 * be raised. False after a message: it may not. */
bool stack_ensure(void);

#endif
