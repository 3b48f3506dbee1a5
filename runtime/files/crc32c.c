/* Owns: CRC-32C, by the processor's instruction where it has one, else four bits at a time. */
#include "runtime/files/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const unsigned char *data,
                                                                 uint64_t bytes) {
  uint64_t wide = crc, word;
  for (; bytes >= sizeof word; bytes -= sizeof word, data += sizeof word) {
    memcpy(&word, data, sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = (uint32_t)wide;
  for (; bytes > 0; bytes--) crc = __builtin_ia32_crc32qi(crc, *data++);
  return crc;
}
#endif

static uint32_t by_table(uint32_t crc, const unsigned char *data, uint64_t bytes) {
  static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
                                     0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
                                     0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
  for (; bytes > 0; bytes--) {
    crc ^= *data++;
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return crc;
}

uint32_t crc32c(uint32_t crc, const void *data, uint64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~by_instruction(~crc, data, bytes);
#endif
  return ~by_table(~crc, data, bytes);
}
