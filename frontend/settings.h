/* Owns: reading a block of settings (train, cluster, plan) by a table of its keys. */
#ifndef FSDPC_FRONTEND_SETTINGS_H
#define FSDPC_FRONTEND_SETTINGS_H

#include "frontend/sema.h"
#include <stddef.h>

/* What follows a key; the value is stored `offset` bytes into the block's target. */
typedef enum {
  KEY_COUNT,  /* int64_t or uint64_t, from `least` on */
  KEY_REAL,   /* double, from `least` to `most` */
  KEY_BYTES,  /* uint64_t */
  KEY_RATE,   /* double, bytes/s */
  KEY_NS,     /* double, nanoseconds from a time */
  KEY_PRICE,  /* double, USD/h */
  KEY_WORD,   /* int32_t or an enum: index in `words` */
  KEY_YES_NO, /* bool */
  KEY_STRING, /* const char * */
  KEY_CUSTOM  /* read() does it */
} KeyType;

typedef struct Reader Reader;
typedef struct Key Key;

struct Key {
  const char *name;
  KeyType type;
  size_t offset;
  double least, most;                           /* most 0: no limit */
  const char *const *words;                     /* NULL-terminated */
  bool (*read)(Reader *reader, const Key *key); /* false after an error */
  bool repeats;                                 /* may be stated several times */
  const char *usage;                            /* "lr RATE [constant|linear|cosine]" */
};

/* What must not be stated a second time in a block: "gather 8". */
typedef struct Stated {
  const char *what;
  Span span;
} Stated;

struct Reader {
  Sema *sema;
  const char *block; /* "train", "optimizer": for messages */
  const Key *keys;
  uint32_t key_count;
  const ItemList *items;
  uint32_t at;     /* next item */
  Span key_span;   /* of the key being read */
  const Key *last; /* NULL before the first */
  VEC(Stated) stated;
  void *target;
};

/* A block and its keys, by which a key that stands in the wrong one is recognised; block NULL: the end. */
typedef struct KeyTable {
  const char *block;
  const Key *keys;
  size_t count;
} KeyTable;
#define KEY_TABLE(block, keys) {(block), (keys), sizeof(keys) / sizeof *(keys)}
extern const KeyTable settings_train_tables[], settings_plan_tables[], settings_cluster_tables[];
/* Of the block that begins with this word, such as "adamw"; NULL: it is none. */
const KeyTable *settings_table(const char *word);

/* Reads all keys; errors are reported, reading goes on at the next key. */
void read_block(Sema *sema, const char *block, const Key *keys, uint32_t key_count, const ItemList *items,
                void *target);
#define READ_BLOCK(sema, block, keys, items, target)                                                         \
  read_block((sema), (block), (keys), sizeof(keys) / sizeof *(keys), (items), (target))

/* The key, as it stands among these items, or NULL. */
const Item *key_stated(const ItemList *items, const char *key);

/* For custom keys. Each yields NULL or false, with an error reported, when the next item is not of its kind.
 */
const Item *next_item(const Reader *reader); /* NULL at the end; does not advance */
bool next_is_key(const Reader *reader);      /* also at the end */
bool read_number(Reader *reader, const Key *key, QuantityKind kind, double least, double most, Quantity *out);
bool read_word(Reader *reader, const Key *key, const char *const *words, int32_t *out);
/* Says which words there are; near: the one that was meant, or NULL. Returns false. */
bool refuse_word(Reader *reader, const Key *key, const char *const *words, const char *near);
bool read_auto_count(Reader *reader, const Key *key, double least, double most, int64_t *out); /* auto or a number */
bool is_pattern(const Item *item); /* NULL is none */
/* The next item, which is a pattern; settings_plan_finish checks that it matches. key: "unit" or "no_decay" for parameters,
 * else it is of layers. */
const char *read_pattern(Reader *reader, const char *key);
const Item *read_block_item(Reader *reader, const Key *key);
bool key_error(Reader *reader, const Key *key, Span span, const char *saw);
/* An error where the block has stated this before. */
void state_once(Reader *reader, const char *what, Span span);

/* The words of the plan block by the value they stand for, NULL at the end (settings_plan.c). */
extern const char *const settings_strategy[], *const settings_wrap[], *const settings_checkpoint[], *const settings_cadence[],
    *const settings_states[],
    *const settings_loss[], *const settings_attention[], *const settings_reduce[], *const settings_selective[],
    *const settings_update[], *const settings_trainer_offload[], *const settings_offload[];

#endif
