/* Owns: a small driver for the frontend's goldens: frontend_tool check|fmt|graph FILE [--set name=value]
 * [--cluster FILE] [--models DIR] [--json] [--settings] [--model]. With --model a file without a model is an
 * error. Results on stdout, diagnostics on stderr; exit 0 or 1. */
#include "frontend/graph.h"
#include "tests/frontend/settings_print.h"

#include <string.h>

enum { MAX_SETS = 16 };

typedef struct Options {
  const char *mode, *path;
  const char *sets[MAX_SETS];
  FrontendOptions frontend;
  bool json, settings, model;
} Options;

static bool parse_options(int argc, char **argv, Options *options) {
  options->mode = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--json")) {
      options->json = true;
    } else if (!strcmp(argv[i], "--settings")) {
      options->settings = true;
    } else if (!strcmp(argv[i], "--model")) {
      options->model = true;
    } else if (!strcmp(argv[i], "--set") && options->frontend.set_count < MAX_SETS) {
      options->sets[options->frontend.set_count++] = value;
      i++;
    } else if (!strcmp(argv[i], "--cluster")) {
      options->frontend.cluster_path = value;
      i++;
    } else if (!strcmp(argv[i], "--models")) {
      options->frontend.models_path = value;
      i++;
    } else {
      options->path = argv[i];
    }
  }
  options->frontend.sets = options->sets;
  return options->path != NULL;
}

static void run(const Options *options, Arena *arena, SourceSet *sources, DiagSink *sink) {
  Text out = {.arena = arena};
  if (!strcmp(options->mode, "fmt")) {
    const char *text = frontend_format(arena, sources, sink, options->path);
    if (text) fputs(text, stdout);
  } else if (!strcmp(options->mode, "graph")) {
    Graph *graph = frontend_compile(arena, sources, sink, options->path, &options->frontend);
    if (graph) graph_print(&out, graph);
    if (graph && options->settings) settings_print(&out, graph);
  } else if (options->model) {
    frontend_compile(arena, sources, sink, options->path, &options->frontend);
  } else {
    frontend_check(arena, sources, sink, options->path, &options->frontend);
  }
  if (out.data) fputs(out.data, stdout);
}

int main(int argc, char **argv) {
  Options options = {0};
  if (!parse_options(argc, argv, &options)) {
    fprintf(stderr, "usage: frontend_tool check|fmt|graph FILE [options]\n");
    return 64;
  }
  Arena *arena = arena_new();
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  run(&options, arena, &sources, &sink);
  if (options.json)
    diag_print_json(&sink, stdout);
  else
    diag_print(&sink, stderr, false);
  int status = sink.errors ? 1 : 0;
  arena_free(arena);
  return status;
}
