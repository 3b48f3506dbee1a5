/* Owns: how many processors this process may run on. */
#ifndef FSDPC_BASE_CORES_H
#define FSDPC_BASE_CORES_H

#include <stdint.h>

/* At least 1. */
uint32_t cores_available(void);

#endif
