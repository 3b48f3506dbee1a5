/* Owns: the settings of a graph as text, for goldens. */
#ifndef FSDPC_TESTS_FRONTEND_SETTINGS_PRINT_H
#define FSDPC_TESTS_FRONTEND_SETTINGS_PRINT_H

#include "frontend/graph.h"

/* Recipe, cluster and plan settings in effect, one fact a line. */
void settings_print(Text *out, const Graph *graph);

#endif
