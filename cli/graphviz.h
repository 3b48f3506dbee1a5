/* Owns: having Graphviz lay out a graph. */
#ifndef FSDPC_CLI_GRAPHVIZ_H
#define FSDPC_CLI_GRAPHVIZ_H

#include "base/text.h"

/* The digraph as an SVG, added to out. False after a message: dot is missing, or refuses the graph. */
bool graphviz_svg(Text *out, const Text *digraph);

#endif
