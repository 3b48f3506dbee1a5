/* Owns: diagnostics, hover and definition. */
#include "cli/lsp.h"

/* --- diagnostics --------------------------------------------------------------------------------------- */

static json_t *place(const Lsp *lsp, const Analysis *a, Span span) {
  const SourceFile *file = &a->sources.files.data[span.file];
  return json_pack("{s:s, s:o}", "uri", lsp_uri(a->arena, file->path), "range", lsp_range(lsp, file, span.begin, span.end));
}

static json_t *related(const Lsp *lsp, const Analysis *a, const Diag *diag) {
  json_t *list = json_array();
  for (uint32_t n = 0; n < diag->notes.count; n++)
    if (diag->notes.data[n].span.file >= 0)
      json_array_append_new(list, json_pack("{s:o, s:s}", "location", place(lsp, a, diag->notes.data[n].span), "message", diag->notes.data[n].text));
  return list;
}

/* What is wrong in another file, or in none, is said at the document's first character. */
static json_t *diagnostic(const Lsp *lsp, const Analysis *a, const Diag *diag) {
  Text text = {.arena = a->arena};
  bool here = diag->span.file == 0;
  if (!here && diag->span.file > 0) text_printf(&text, "%s: ", a->sources.files.data[diag->span.file].path);
  text_printf(&text, "%s", diag->text);
  for (uint32_t h = 0; h < diag->helps.count; h++) text_printf(&text, "\nhelp: %s", diag->helps.data[h]);
  const SourceFile nothing = {"", "", 0}, *file = a->sources.files.count ? &a->sources.files.data[0] : &nothing;
  json_t *range = lsp_range(lsp, file, here ? diag->span.begin : 0, here ? diag->span.end : 0);
  return json_pack("{s:o, s:i, s:s, s:s, s:o}", "range", range, "severity", diag->level == DIAG_ERROR ? 1 : 2, "source", "fsdpc", "message",
                   text.data, "relatedInformation", related(lsp, a, diag));
}

json_t *lsp_diagnostics(const Lsp *lsp, const Document *document) {
  Analysis *a = lsp_analyse(lsp, document);
  json_t *list = json_array();
  for (uint32_t d = 0; d < a->sink.list.count; d++) json_array_append_new(list, diagnostic(lsp, a, a->sink.list.data[d]));
  lsp_analysis_free(a);
  return list;
}

/* --- hover --------------------------------------------------------------------------------------------- */

static bool holds(Span span, uint32_t offset) {
  return span.file == 0 && span.begin <= offset && offset < span.end;
}

/* The innermost layer here: the first of those that a repeat makes of it; *count: how many. */
static const GraphOp *op_at(const Graph *graph, uint32_t offset, uint32_t *count) {
  const GraphOp *best = NULL;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    if (!holds(op->span, offset)) continue;
    uint32_t length = op->span.end - op->span.begin;
    if (!best || length < best->span.end - best->span.begin) best = op, *count = 0;
    *count += length == best->span.end - best->span.begin && op->span.begin == best->span.begin;
  }
  return best;
}

static const GraphModule *module_at(const Graph *graph, uint32_t offset, uint32_t *count) {
  const GraphModule *best = NULL;
  for (uint32_t i = 1; i < graph->modules.count; i++) {
    const GraphModule *module = &graph->modules.data[i];
    if (!holds(module->span, offset)) continue;
    uint32_t length = module->span.end - module->span.begin;
    if (!best || length < best->span.end - best->span.begin) best = module, *count = 0;
    *count += length == best->span.end - best->span.begin;
  }
  return best;
}

static void add_param(Text *out, const Graph *graph, const Plan *plan, int32_t p) {
  if (p < 0) return;
  const GraphParam *param = &graph->params.data[p];
  uint64_t numel = 0;
  char bytes[32];
  shape_numel(&param->shape, 1, &numel);
  text_printf(out, "\n- `%s` ", param->name);
  shape_print(out, &param->shape);
  text_printf(out, ", %s%s", text_bytes(bytes, numel * dtype_bytes(graph->recipe.compute)), param->frozen ? ", frozen" : "");
  for (uint32_t k = 0; plan && k < plan->params.count; k++)
    if (!strcmp(plan_str(plan, plan->params.data[k].name), param->name)) {
      const PlanUnit *unit = &plan->units.data[plan->params.data[k].unit];
      text_printf(out, ", unit `%s` (%s)", plan_str(plan, unit->name),
                  plan->world.shard == 1 ? "whole on the rank" : unit->reshard ? "released after forward" : "kept gathered after forward");
    }
}

/* The plan as the file asks for it; NULL where it cannot be made. */
static const Plan *plan_of(const Analysis *a) {
  DiagSink quiet = {.arena = a->arena, .sources = &a->sources};
  PlannerOptions options = {.settings = a->graph->plan};
  PlannerResult result = {0};
  planner_plan(a->arena, &quiet, a->graph, &options, 0, NULL, &result);
  return result.plan;
}

static void hover_op(Text *out, const Analysis *a, const GraphOp *op, uint32_t count) {
  const Graph *graph = a->graph;
  const GraphTensor *result = &graph->tensors.data[op->output];
  const Plan *plan = plan_of(a);
  int64_t batch = plan ? (int64_t)plan->world.micro_batch : 1;
  uint64_t numel = 0;
  char bytes[32];
  text_printf(out, "**%s** `%s`", op->name, layer_name(op->kind));
  if (count > 1) text_printf(out, " \xc3\x97 %u", count);
  text_printf(out, "\n\nresult ");
  shape_print(out, &result->shape);
  if (shape_numel(&result->shape, batch, &numel))
    text_printf(out, ", %s with %lld sample%s", text_bytes(bytes, numel * dtype_bytes(graph->recipe.compute)), (long long)batch,
                text_plural(batch));
  text_printf(out, "\n");
  add_param(out, graph, plan, op->weight);
  add_param(out, graph, plan, op->bias);
}

static void hover_module(Text *out, const Graph *graph, const GraphModule *module, uint32_t count) {
  uint64_t elements = 0, numel;
  char total[32];
  for (uint32_t p = 0; p < graph->params.count; p++) {
    const GraphParam *param = &graph->params.data[p];
    if (param->first_op >= module->first_op && param->first_op < module->end_op && shape_numel(&param->shape, 1, &numel)) elements += numel;
  }
  text_printf(out, "**%s** module `%s`", module->name, module->kind);
  if (count > 1) text_printf(out, " \xc3\x97 %u", count);
  text_printf(out, "\n\n%d layer%s, %s parameters%s", module->end_op - module->first_op, text_plural((uint64_t)(module->end_op - module->first_op)), text_count(total, (double)elements), count > 1 ? " each" : "");
}

/* The line of a definition, as written. */
static void hover_definition(Text *out, const Analysis *a, const Definition *d) {
  const SourceFile *file = &a->sources.files.data[d->file];
  uint32_t begin = d->name.span.begin, end = begin;
  while (begin && file->text[begin - 1] != '\n') begin--;
  while (file->text[begin] == ' ') begin++;
  while (file->text[end] && file->text[end] != '\n') end++;
  text_printf(out, "%s `%s`\n\n```fsdp\n%.*s\n```", d->kind, d->name.text, (int)(end - begin), file->text + begin);
}

/* A layer's own name at the offset: "linear(x, out:int ...)". */
static bool hover_layer_name(Text *out, const char *word, size_t length) {
  static const char *const rows[][3] = {
#define LAYER(id, name, arguments, meaning) {name, arguments, meaning},
#include "frontend/layers.def"
#undef LAYER
  };
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
    if (strlen(rows[k][0]) == length && !strncmp(rows[k][0], word, length))
      return text_printf(out, "\n\n---\n`%s` %s\n\n%s", rows[k][0], rows[k][1], rows[k][2]), true;
  return false;
}

json_t *lsp_hover(const Lsp *lsp, const Document *document, uint32_t offset) {
  Analysis *a = lsp_analyse(lsp, document);
  Definitions all = lsp_definitions(a);
  Text text = {.arena = a->arena};
  uint32_t count = 0, begin;
  size_t length = lsp_word(document->text, offset, &begin);
  const Definition *definition = length ? lsp_resolve(&all, document->text + begin, length, offset) : NULL;
  const GraphOp *op = a->graph ? op_at(a->graph, offset, &count) : NULL;
  bool names_value = definition && (!strcmp(definition->kind, "let") || !strcmp(definition->kind, "parameter"));
  if (op && !names_value) {
    hover_op(&text, a, op, count);
  } else {
    const GraphModule *module = a->graph && !names_value ? module_at(a->graph, offset, &count) : NULL;
    if (module) hover_module(&text, a->graph, module, count);
    if (definition) {
      if (module) text_printf(&text, "\n\n");
      hover_definition(&text, a, definition);
    }
  }
  if (length && !definition) hover_layer_name(&text, document->text + begin, length);
  json_t *result = text.length ? json_pack("{s:{s:s, s:s}}", "contents", "kind", "markdown", "value", text.data) : json_null();
  lsp_analysis_free(a);
  return result;
}

/* --- definition ---------------------------------------------------------------------------------------- */

/* The file that a `use "..."` under the offset names. */
static json_t *used_file(const Lsp *lsp, const Analysis *a, uint32_t offset) {
  const Ast *ast = a->files.count ? a->files.data[0] : NULL;
  for (uint32_t i = 0; ast && i < ast->statements->count; i++) {
    const Stmt *stmt = ast->statements->data[i];
    if (stmt->kind != STMT_USE || !holds(stmt->name.span, offset)) continue;
    for (uint32_t f = 1; f < a->sources.files.count; f++) {
      const char *path = a->sources.files.data[f].path;
      size_t length = strlen(path), tail = strlen(stmt->name.text);
      if (length >= tail && !strcmp(path + length - tail, stmt->name.text)) return place(lsp, a, (Span){(int32_t)f, 0, 0});
    }
  }
  return NULL;
}

json_t *lsp_definition(const Lsp *lsp, const Document *document, uint32_t offset) {
  Analysis *a = lsp_analyse(lsp, document);
  Definitions all = lsp_definitions(a);
  uint32_t begin;
  size_t length = lsp_word(document->text, offset, &begin);
  json_t *result = used_file(lsp, a, offset);
  const Definition *definition = !result && length ? lsp_resolve(&all, document->text + begin, length, offset) : NULL;
  if (definition) result = place(lsp, a, (Span){definition->file, definition->name.span.begin, definition->name.span.end});
  lsp_analysis_free(a);
  return result ? result : json_null();
}
