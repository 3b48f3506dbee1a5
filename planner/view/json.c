/* Owns: see json.h. */
#include "planner/view/json.h"

/* Bytes of the UTF-8 sequence at text, 0 when it is malformed. */
static size_t sequence(const unsigned char *text) {
  size_t length = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 : *text >= 0xe0 && *text < 0xf0 ? 3 : *text >= 0xf0 && *text < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < length; i++)
    if ((text[i] & 0xc0) != 0x80) return 0;
  return length;
}

void json_text(Text *out, const char *text) {
  text_add(out, "\"", 1);
  for (const unsigned char *c = (const unsigned char *)text; *c;) {
    size_t length = sequence(c);
    if (!length) {
      text_add(out, "\xef\xbf\xbd", 3);
      c++;
      continue;
    }
    if (*c == '"' || *c == '\\')
      text_printf(out, "\\%c", *c);
    else if (*c < 0x20 || *c == '<' || *c == 0x7f)
      text_printf(out, "\\u%04x", *c);
    else
      text_add(out, (const char *)c, length);
    c += length;
  }
  text_add(out, "\"", 1);
}
