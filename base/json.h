/* Owns: what is said of JSON that cannot be read. */
#ifndef FSDPC_BASE_JSON_H
#define FSDPC_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

/* Jansson's reason, but where it names a flag of its own. */
static inline const char *json_trouble(const json_error_t *error) {
  enum json_error_code code = json_error_code(error);
  bool is_nul = code == json_error_null_character || code == json_error_null_byte_in_key;
  return is_nul ? "a text holds the character \\u0000" : error->text;
}

#endif
