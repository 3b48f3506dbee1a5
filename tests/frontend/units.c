/* Owns: tests of the small functions that other folders call: paths, shapes, names; of --set and --cluster;
 * of hashes. */
#include "tests/frontend/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static Graph *compile(World *world, const char *path, const FrontendOptions *options) {
  return frontend_compile(world->arena, &world->sources, &world->sink, path, options);
}

static void test_path_matches(void **state) {
  (void)state;
  assert_true(path_matches("h.0", "h.0"));
  assert_true(path_matches("h.0", "h.0.attn.c_attn.weight"));
  assert_false(path_matches("h.0", "h.01"));
  assert_false(path_matches("h.1", "h.10.attn"));
  assert_false(path_matches("h.0.attn", "h.0"));
  assert_true(path_matches("h.*.attn", "h.11.attn.c_proj"));
  assert_false(path_matches("h.*.attn", "h.11.mlp"));
  assert_true(path_matches("*", "wte.weight"));
  assert_true(path_matches("*.weight", "wte.weight"));
  assert_false(path_matches("*.weight", "h.0.weight"));
  assert_false(path_matches("", "wte"));
  assert_false(path_matches("wte.", "wte"));
  assert_false(path_matches("wte..x", "wte.x"));
}

static void test_shapes(void **state) {
  (void)state;
  World world;
  open_world(&world);
  Shape shape = {3, {DIM_BATCH, 8, 16}}, vector = {1, {5}}, scalar = {0},
        huge = {2, {INT64_C(1) << 40, INT64_C(1) << 40}};
  uint64_t numel = 0;
  assert_true(shape_numel(&shape, 4, &numel));
  assert_int_equal(numel, 512);
  assert_true(shape_numel(&scalar, 4, &numel));
  assert_int_equal(numel, 1);
  assert_false(shape_numel(&huge, 1, &numel));
  assert_int_equal(shape_rows(&shape, 4), 32);
  assert_int_equal(shape_cols(&shape), 16);
  assert_int_equal(shape_rows(&vector, 4), 1);
  assert_int_equal(shape_cols(&vector), 5);
  assert_int_equal(shape_rows(&scalar, 4), 1);
  assert_int_equal(shape_cols(&scalar), 1);
  Text text = {.arena = world.arena};
  shape_print(&text, &shape);
  assert_string_equal(text.data, "[batch, 8, 16]");
  assert_string_equal(layer_name(LAYER_CROSS_ENTROPY), "cross_entropy");
  arena_free(world.arena);
}

/* Options change what they say and the hash; equal inputs give equal hashes. */
static void test_options(void **state) {
  (void)state;
  World world;
  open_world(&world);
  const char *sets[] = {"layers=3", "layers=5"};
  FrontendOptions options = {.sets = sets, .set_count = 2, .cluster_path = "dgx-a100-40"};
  Graph *plain = compile(&world, "models/gpt2.fsdp", NULL),
        *again = compile(&world, "models/gpt2.fsdp", NULL);
  Graph *other = compile(&world, "models/gpt2.fsdp", &options);
  assert_non_null(plain);
  assert_non_null(other);
  assert_int_equal(world.sink.warnings, 0);
  assert_int_equal(plain->source_hash, again->source_hash);
  assert_int_not_equal(plain->source_hash, other->source_hash);
  assert_string_equal(plain->cluster.name, "dgx-a100-80");
  assert_string_equal(other->cluster.name, "dgx-a100-40");
  assert_int_equal(plain->recipe.samples_per_step, 512);
  assert_int_equal(other->ops.count, 126 - 7 * 10); /* 5 of 12 blocks of 10 ops */
  arena_free(world.arena);
}

/* A node's speed, stated after `use`, goes before measured times of the cluster used; the block's own stay. */
static void test_speed_overrides_tables(void **state) {
  (void)state;
  static const char *const nodes[] = {"", "node { devices 4 }", "node { gather 8 { 1MiB 1ms } bandwidth 20GB/s }", "node { latency 9us }"};
  static const uint32_t tables[] = {9, 9, 1, 0};
  for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
    World world;
    open_world(&world);
    const char *text = arena_printf(world.arena, "model m { input t: int[batch] input y: int[batch] loss = cross_entropy(embedding(t, 8, 8), y) }\n"
                                                 "cluster { use \"clusters/dgx-h100.fsdp\" %s }\n", nodes[i]);
    SourceFile file = {"override.fsdp", text, strlen(text)};
    vec_push(world.arena, &world.sources.overlays, file);
    const Graph *graph = compile(&world, "override.fsdp", NULL);
    assert_non_null(graph);
    assert_int_equal(graph->cluster.tables.count, tables[i]);
    assert_true((graph->cluster.node.reduce_bandwidth > 0) == (i != 2));
    arena_free(world.arena);
  }
}

/* base/text.h: what is no UTF-8 is replaced byte by byte; what is near enough is proposed. */
static void test_text(void **state) {
  (void)state;
  Arena *arena = arena_new();
  const char *const rows[][2] = {{"gr\u00fcn \u20ac \U0001F600", "gr\u00fcn \u20ac \U0001F600"},
                                 {"a\xff", "a\uFFFD"},
                                 {"\xc3", "\uFFFD"},                     /* cut off */
                                 {"\xe0\x80\x80", "\uFFFD\uFFFD\uFFFD"}, /* overlong */
                                 {"\xed\xa0\x80", "\uFFFD\uFFFD\uFFFD"}, /* a surrogate */
                                 {"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_string_equal(text_utf8(arena, rows[i][0]), rows[i][1]);
  assert_null(text_utf8(arena, NULL));
  const char *const names[] = {"x", "gelu", "silu", "linear"};
  assert_string_equal(text_nearest("LINEAR", names, 4), "linear");
  assert_string_equal(text_nearest("liner", names, 4), "linear");
  assert_string_equal(text_nearest("glu", names, 4), "gelu");
  assert_null(text_nearest("y", names, 4)); /* any letter is one away from any other */
  assert_null(text_nearest("ge", names, 4));
  assert_null(text_nearest("liar", names, 4));
  arena_free(arena);
}

static Quantity parsed(const char *text) {
  Quantity quantity;
  const char *why;
  if (!quantity_parse(text, &quantity, &why)) fail_msg("%s: %s", text, why);
  return quantity;
}

static void test_quantities(void **state) {
  (void)state;
  Quantity quantity;
  const char *why;
  assert_true(parsed("9223372036854775807").integer == INT64_MAX);
  assert_true(parsed("-9223372036854775807").integer == -INT64_MAX);
  assert_true(parsed("9007199254740993").integer == INT64_C(9007199254740993)); /* no double is it */
  assert_int_equal(parsed("1_000").integer, 1000);
  assert_int_equal(parsed("1.5K").integer, 1500);
  assert_false(parsed("1.5").is_integer);
  const char *const refused[] = {"9223372036854775808", "-9223372036854775808", "9.3e18", "9223372036854775807K", "1__0", "1_", "_1", "1_.5", "1._5", ""};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (quantity_parse(refused[i], &quantity, &why)) fail_msg("\"%s\" passes as a number", refused[i]);
}

static void test_wrap(void **state) {
  (void)state;
  Arena *arena = arena_new();
  static const struct {
    const char *words, *wrapped;
    int indent, width;
  } rows[] = {{"one two three", "one two three", 0, 13},   {"one two three", "one two\nthree", 0, 12}, {"one two", "one\n  two", 2, 8},
              {"at 12.3 GiB most", "at\n12.3 GiB\nmost", 0, 9}, {"longer than that", "longer\n    than\n    that", 4, 3}, {"", "", 2, 80}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    Text text = {.arena = arena};
    text_printf(&text, "%s", "");
    text_wrap(&text, rows[i].words, rows[i].indent, rows[i].width);
    assert_string_equal(text.data, rows[i].wrapped);
  }
  arena_free(arena);
}

static void test_missing_file(void **state) {
  (void)state;
  World world;
  open_world(&world);
  assert_null(compile(&world, "models/nowhere.fsdp", NULL));
  assert_int_equal(world.sink.errors, 1);
  assert_null(frontend_format(world.arena, &world.sources, &world.sink, "models/nowhere.fsdp"));
  assert_int_equal(world.sink.errors, 2);
  arena_free(world.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_path_matches),
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_options),
      cmocka_unit_test(test_speed_overrides_tables),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_quantities),
      cmocka_unit_test(test_wrap),
      cmocka_unit_test(test_missing_file),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
