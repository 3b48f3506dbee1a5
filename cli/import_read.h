/* Owns: what the files that read a config.json share: the tables of keys, and the reader that goes through them. */
#ifndef FSDPC_CLI_IMPORT_READ_H
#define FSDPC_CLI_IMPORT_READ_H

#include "cli/import.h"

#include <jansson.h>
#include <stddef.h>

/* Columns of the table of keys that classes share; GPT-2 has one of its own, with one column. */
enum { LLAMA, MISTRAL, QWEN2, QWEN3, PHI3, OLMO2, GRANITE, STABLELM, PHI, IMPORT_CLASSES };

/* KEY_DERIVED: a size that may be null, and then follows from the others, or is none: 0. */
typedef enum { KEY_SIZE, KEY_DERIVED, KEY_REAL, KEY_FLAG } KeyKind;

#define MUST (-1.0) /* the key must be there */
#define NOT  (-2.0) /* the class has no such key */

typedef struct Key {
  const char *name;
  KeyKind kind;
  size_t field;                  /* in Imported: int64_t, double or bool */
  double absent[IMPORT_CLASSES]; /* by class: the value where the key is absent, MUST or NOT */
} Key;

/* A key that must be absent, null, or this JSON value, unless the class has it as a Key. */
typedef struct Only {
  const char *name, *value, *remedy;
} Only;

typedef struct Reader {
  Arena *arena;
  const char *path;
  json_t *root;
  Imported *model;
  uint32_t errors;
} Reader;

typedef struct Architecture {
  const char *model_type;
  int column; /* of its keys */
  const Key *keys;
  const Only *only;
  const char *activation;   /* the key of the activation */
  void (*finish)(Reader *); /* what follows from several keys, once each is sound */
  Imported model;           /* what is the same for all of the class */
} Architecture;

/* What is known, and cannot be said in the language. */
typedef struct Impossible {
  const char *model_type, *class, *reason;
} Impossible;

extern const Architecture import_architectures[]; /* ends with one without a model_type */
extern const Impossible import_impossible[];      /* so does this */
/* Known, and without effect on what is computed in training here, or read by a finish. A '*' at the end stands for any rest.
 * Ends with NULL. */
extern const char *const import_inert[];

#define BY_HAND      "write the model by hand, from a copy of models/families/llama.fsdp"
#define BY_HAND_GPT2 "write the model by hand, from a copy of models/families/gpt2.fsdp"
#define BY_HAND_STABLELM "write the model by hand, from a copy of models/families/stablelm.fsdp"
#define BY_HAND_PHI  "write the model by hand, from a copy of models/families/phi.fsdp"
/* Where no rewriting helps. */
#define ANOTHER_MODEL "no layer of the language does that: choose another model"

#define IMPORT_REAL "must be a number above 0, and at most 1e18"

void import_finish_gpt2(Reader *reader);
void import_finish_decoder(Reader *reader);
void import_finish_phi(Reader *reader);

/* A message: `PATH: "KEY" is VALUE: REASON; REMEDY`. Where the key is absent it says that what is wrong is its default. */
void import_wrong(Reader *reader, const char *key, const char *reason, const char *remedy);

/* The key in quotes, without control characters, which would reach the terminal. */
const char *import_shown(const Reader *reader, const char *key);

/* Values; false, or "" for a word, where they are something else. A size is whole, and small enough that products of two do not
 * overflow; a real is what IMPORT_REAL says. */
bool import_absent(const json_t *value);
bool import_size(const json_t *value, int64_t *out);
bool import_real(const json_t *value, double *out);
const char *import_word(const Reader *reader, const json_t *object, const char *key, const char *otherwise);

#endif
