/* Owns: a random model as text, for scripts: print_model SEED. */
#include "tests/planner/random_model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  Arena *arena = arena_new();
  fputs(random_model(arena, strtoull(argv[1], NULL, 10)), stdout);
  arena_free(arena);
  return 0;
}
