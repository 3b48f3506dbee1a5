/* Owns: JSON strings in text that is written piece by piece. Views do not build trees: a trace has a hundred thousand events. */
#ifndef FSDPC_PLANNER_VIEW_JSON_H
#define FSDPC_PLANNER_VIEW_JSON_H

#include "base/text.h"

/* With quotes. Also safe inside a <script>: '<' is escaped. Bytes that are not UTF-8 become U+FFFD. */
void json_text(Text *out, const char *text);

#endif
