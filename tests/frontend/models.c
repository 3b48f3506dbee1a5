/* Owns: the shipped models and clusters. Each compiles without a word, in canonical layout, to a graph that
 * keeps what graph.h promises; the published ones have exactly the published number of parameters and the
 * names of Hugging Face. */
#include "tests/frontend/world.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

typedef struct Published {
  const char *path;
  uint64_t numel;
  const char *names[5];
} Published;

/* Counts: model cards and config.json of the checkpoints on Hugging Face; gpt3-175b by its table 2.1 (dense).
 */
static const Published published[] = {
    {"models/gpt2.fsdp",
     124439808,
     {"wte.weight", "wpe.weight", "h.11.attn.c_attn.bias", "h.0.mlp.c_proj.weight", "ln_f.bias"}},
    {"models/gpt2-medium.fsdp", 354823168, {"h.23.ln_1.weight"}},
    {"models/gpt2-large.fsdp", 774030080, {"h.35.ln_2.bias"}},
    {"models/gpt2-xl.fsdp", 1557611200, {"h.47.mlp.c_fc.weight"}},
    {"models/gpt3-175b.fsdp", 174604259328, {"h.95.attn.c_proj.weight"}},
    {"models/llama3.2-1b.fsdp",
     1235814400,
     {"model.embed_tokens.weight", "model.layers.15.self_attn.q_proj.weight", "model.norm.weight"}},
    {"models/llama3-8b.fsdp",
     8030261248,
     {"model.layers.31.self_attn.o_proj.weight", "model.layers.0.mlp.gate_proj.weight",
      "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
      "lm_head.weight"}},
    {"models/llama3-70b.fsdp", 70553706496, {"model.layers.79.mlp.down_proj.weight"}},
    {"models/llama3-405b.fsdp", 405853388800, {"model.layers.125.self_attn.v_proj.weight"}},
    {"models/qwen3-0.6b.fsdp", 596049920, {"model.embed_tokens.weight", "model.layers.27.self_attn.q_norm.weight"}},
    {"models/qwen3-8b.fsdp",
     8190735360,
     {"model.layers.35.self_attn.k_norm.weight", "model.layers.0.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight",
      "model.layers.0.post_attention_layernorm.weight", "lm_head.weight"}},
    {"models/quickstart.fsdp", 842496, {"wte.weight"}},
};

static void assert_silent(World *world) {
  if (world->sink.errors + world->sink.warnings) diag_print(&world->sink, stderr, false);
  assert_int_equal(world->sink.errors + world->sink.warnings, 0);
}

static int32_t find_param(const Graph *graph, const char *name) {
  for (uint32_t i = 0; i < graph->params.count; i++)
    if (!strcmp(graph->params.data[i].name, name)) return (int32_t)i;
  return -1;
}

/* Every operand comes first; ids are in range; uses of parameters are where the parameter says. */
static void check_ops(const Graph *graph) {
  for (int32_t i = 0; i < (int32_t)graph->ops.count; i++) {
    const GraphOp *op = &graph->ops.data[i];
    assert_int_equal(graph->tensors.data[op->output].op, i);
    for (int32_t k = 0; k < op->input_count; k++) {
      const GraphTensor *tensor = &graph->tensors.data[op->inputs[k]];
      assert_true(tensor->op < i);
      if (tensor->view_of < 0) continue;
      const GraphTensor *base = &graph->tensors.data[tensor->view_of];
      assert_int_equal(base->view_of, -1);
      assert_int_equal(base->op, tensor->op);
      assert_true(tensor->view_column + shape_cols(&tensor->shape) <= shape_cols(&base->shape));
    }
    int32_t params[] = {op->weight, op->bias};
    for (int k = 0; k < 2; k++) {
      if (params[k] < 0) continue;
      const GraphParam *param = &graph->params.data[params[k]];
      assert_true(param->first_op <= i && i <= param->last_op);
    }
    const GraphModule *module = &graph->modules.data[op->module];
    assert_true(module->first_op <= i && i < module->end_op);
  }
  assert_int_equal(graph->loss_op, graph->ops.count - 1);
}

/* Children lie inside their parents and come after them; none is empty. */
static void check_modules(const Graph *graph) {
  for (int32_t i = 0; i < (int32_t)graph->modules.count; i++) {
    const GraphModule *module = &graph->modules.data[i];
    assert_true(module->parent < i && (module->parent >= 0) == (i > 0));
    assert_true(module->first_op < module->end_op);
    if (i == 0) continue;
    const GraphModule *parent = &graph->modules.data[module->parent];
    assert_true(parent->first_op <= module->first_op && module->end_op <= parent->end_op);
  }
}

static void test_published(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
    World world;
    open_world(&world);
    Graph *graph = frontend_compile(world.arena, &world.sources, &world.sink, published[i].path, NULL);
    assert_silent(&world);
    assert_non_null(graph);
    uint64_t total = 0, numel = 0;
    for (uint32_t k = 0; k < graph->params.count; k++) {
      assert_true(shape_numel(&graph->params.data[k].shape, 1, &numel));
      total += numel;
    }
    assert_int_equal(total, published[i].numel);
    for (int k = 0; k < 5 && published[i].names[k]; k++)
      assert_true(find_param(graph, published[i].names[k]) >= 0);
    check_ops(graph);
    check_modules(graph);
    assert_true(graph->cluster.device.kind != DEVICE_NONE);
    assert_true(graph->recipe.samples_per_step > 0);
    arena_free(world.arena);
  }
}

static void check_folder(const char *folder) {
  DIR *dir = opendir(folder);
  assert_non_null(dir);
  for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
    size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 5, ".fsdp")) continue;
    World world;
    open_world(&world);
    const char *path = arena_printf(world.arena, "%s/%s", folder, entry->d_name);
    assert_true(frontend_check(world.arena, &world.sources, &world.sink, path, NULL));
    const char *formatted = frontend_format(world.arena, &world.sources, &world.sink, path);
    assert_silent(&world);
    assert_string_equal(formatted, world.sources.files.data[world.sources.files.count - 1].text);
    arena_free(world.arena);
  }
  closedir(dir);
}

static void test_all_files(void **state) {
  (void)state;
  check_folder("models");
  check_folder("models/families");
  check_folder("models/clusters");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_all_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
