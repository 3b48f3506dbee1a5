/* Owns: the format: records of length, checksum, data, checksum; data are protocol buffers of a few fields. */
#include "runtime/tensorboard.h"

#include "runtime/files/crc32c.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_BYTES = 2048 };

struct Tensorboard {
  FILE *file;
  const char *path;
};

/* A message being built. What does not fit is left out: tags are ours and short. */
typedef struct Message {
  unsigned char bytes[EVENT_BYTES];
  size_t length;
} Message;

static void add_bytes(Message *message, const void *data, size_t bytes) {
  if (bytes > sizeof message->bytes - message->length) return;
  memcpy(message->bytes + message->length, data, bytes);
  message->length += bytes;
}

static void add_varint(Message *message, uint64_t value) {
  do {
    unsigned char byte = (unsigned char)((value & 127) | (value > 127 ? 128 : 0));
    add_bytes(message, &byte, 1);
    value >>= 7;
  } while (value != 0);
}

enum { WIRE_VARINT = 0, WIRE_DOUBLE = 1, WIRE_BYTES = 2, WIRE_FLOAT = 5 };

static void add_key(Message *message, uint32_t field, uint32_t wire) {
  add_varint(message, field << 3 | wire);
}

static void add_field(Message *message, uint32_t field, const void *data, size_t bytes) {
  add_key(message, field, WIRE_BYTES);
  add_varint(message, bytes);
  add_bytes(message, data, bytes);
}

static Message begin_event(uint64_t step) {
  Message event = {.length = 0};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
  add_key(&event, 1, WIRE_DOUBLE);
  add_bytes(&event, &seconds, sizeof seconds);
  add_key(&event, 2, WIRE_VARINT);
  add_varint(&event, step);
  return event;
}

static uint32_t masked(const void *data, size_t bytes) {
  uint32_t crc = crc32c(0, data, bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static bool write_record(const Tensorboard *board, const Message *event, Failure *failure) {
  uint64_t length = event->length;
  uint32_t of_length = masked(&length, sizeof length), of_data = masked(event->bytes, event->length);
  if (fwrite(&length, sizeof length, 1, board->file) == 1 &&
      fwrite(&of_length, sizeof of_length, 1, board->file) == 1 &&
      fwrite(event->bytes, event->length, 1, board->file) == 1 &&
      fwrite(&of_data, sizeof of_data, 1, board->file) == 1 && fflush(board->file) == 0)
    return true;
  return fail_file(failure, "tensorboard", board->path, "cannot be written");
}

Tensorboard *tensorboard_open(Arena *arena, const char *dir, Failure *failure) {
  static const char version[] = "brain.Event:2";
  Tensorboard *board = ARENA_NEW(arena, Tensorboard);
  char host[64] = "host";
  gethostname(host, sizeof host - 1);
  board->path =
      arena_printf(arena, "%s/events.out.tfevents.%010lld.%s.%ld", dir, (long long)time(NULL), host, (long)getpid());
  if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
    fail_file(failure, "tensorboard", dir, "cannot be made");
    return NULL;
  }
  board->file = fopen(board->path, "we");
  if (board->file == NULL) {
    fail_file(failure, "tensorboard", board->path, "cannot be created");
    return NULL;
  }
  Message event = begin_event(0);
  add_field(&event, 3, version, sizeof version - 1);
  if (write_record(board, &event, failure)) return board;
  fclose(board->file);
  return NULL;
}

bool tensorboard_add(Tensorboard *board, uint64_t step, const Scalar *scalars, uint32_t count, Failure *failure) {
  Message event = begin_event(step), summary = {.length = 0};
  for (uint32_t i = 0; i < count; i++) {
    Message value = {.length = 0};
    float number = (float)scalars[i].value;
    add_field(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
    add_key(&value, 2, WIRE_FLOAT);
    add_bytes(&value, &number, sizeof number);
    add_field(&summary, 1, value.bytes, value.length);
  }
  add_field(&event, 5, summary.bytes, summary.length);
  return write_record(board, &event, failure);
}

void tensorboard_close(Tensorboard *board) {
  if (board != NULL) fclose(board->file);
}
