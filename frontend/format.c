#include "frontend/graph.h"
const char *frontend_format(Arena *arena, SourceSet *sources, DiagSink *sink, const char *path) {
  (void)arena; (void)sources; (void)sink; (void)path;
  return NULL;
}
