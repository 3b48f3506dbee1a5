/* Owns: CRC-32C (polynomial 0x82F63B78, reflected), the checksum of checkpoints and of TensorBoard's records. */
#ifndef FSDPC_RUNTIME_CRC32C_H
#define FSDPC_RUNTIME_CRC32C_H

#include <stdint.h>

/* Checksum of what `crc` was of, followed by these bytes; 0 is that of nothing. Allocates nothing. */
uint32_t crc32c(uint32_t crc, const void *data, uint64_t bytes);

#endif
