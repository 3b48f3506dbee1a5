/* Owns: small questions about a graph: names of layers, sizes of shapes, paths and patterns. */
#include "frontend/graph.h"

#include "base/checked.h"

const char *layer_name(LayerKind kind) {
  static const char *const names[] = {
#define LAYER(id, name, arguments, meaning) name,
#include "frontend/layers.def"
#undef LAYER
  };
  return names[kind];
}

static uint64_t dim_value(int64_t dim, int64_t batch) {
  return (uint64_t)(dim == DIM_BATCH ? batch : dim);
}

bool shape_numel(const Shape *shape, int64_t batch, uint64_t *out) {
  *out = 1;
  for (int32_t i = 0; i < shape->rank; i++)
    if (!checked_mul(*out, dim_value(shape->dim[i], batch), out)) return false;
  return true;
}

int64_t shape_rows(const Shape *shape, int64_t batch) {
  uint64_t rows = 1;
  for (int32_t i = 0; i + 1 < shape->rank; i++) rows *= dim_value(shape->dim[i], batch);
  return (int64_t)rows;
}

int64_t shape_cols(const Shape *shape) {
  return shape->rank ? shape->dim[shape->rank - 1] : 1;
}

bool shape_same(const Shape *a, const Shape *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

void shape_print(Text *out, const Shape *shape) {
  text_printf(out, "[");
  for (int32_t i = 0; i < shape->rank; i++) {
    if (i) text_printf(out, ", ");
    if (shape->dim[i] == DIM_BATCH)
      text_printf(out, "batch");
    else
      text_printf(out, "%lld", (long long)shape->dim[i]);
  }
  text_printf(out, "]");
}

bool graph_share_columns(const Graph *graph, int32_t a, int32_t b) {
  const GraphTensor *x = &graph->tensors.data[a], *y = &graph->tensors.data[b];
  if (a == b || x->view_of == b || y->view_of == a) return true;
  if (x->view_of < 0 || x->view_of != y->view_of) return false;
  return x->view_column < y->view_column + shape_cols(&y->shape) && y->view_column < x->view_column + shape_cols(&x->shape);
}

bool graph_is_block(const Graph *graph, uint32_t module) {
  for (int32_t p = graph->modules.data[module].parent; p >= 0; p = graph->modules.data[p].parent)
    if (graph->modules.data[p].repeat >= 0) return false;
  return graph->modules.data[module].repeat >= 0;
}

bool path_matches(const char *pattern, const char *path) {
  for (bool begins = true; *pattern; pattern++) { /* a component */
    bool any = begins && *pattern == '*' && (pattern[1] == '.' || !pattern[1]) && *path && *path != '.';
    if (!any && *pattern != *path) return false;
    begins = *pattern == '.';
    path += any ? strcspn(path, ".") : 1;
  }
  return !*path || *path == '.'; /* the path is at least as long */
}

uint64_t graph_sample_tokens(const Graph *graph) {
  uint64_t tokens = 0;
  for (uint32_t i = 0; i < graph->inputs.count && !tokens; i++) {
    const GraphTensor *tensor = &graph->tensors.data[graph->inputs.data[i].tensor];
    if (tensor->is_index) shape_numel(&tensor->shape, 1, &tokens);
  }
  return tokens;
}
