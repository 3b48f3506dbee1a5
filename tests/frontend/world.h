/* Owns: what compiling a file takes, for tests. */
#ifndef FSDPC_TESTS_FRONTEND_WORLD_H
#define FSDPC_TESTS_FRONTEND_WORLD_H

#include "frontend/graph.h"

typedef struct World {
  Arena *arena;
  SourceSet sources;
  DiagSink sink;
} World;

static inline void open_world(World *world) {
  *world = (World){.arena = arena_new()};
  world->sources.arena = world->arena;
  world->sink = (DiagSink){.arena = world->arena, .sources = &world->sources};
}

#endif
