/* Owns: tests of reading Hugging Face's files by a plan's names: prefixes, transposed matrices, buffers, tied heads,
 * several files, and every way in which they may not fit. */
#include "training.h"

#include "runtime/files/pretrained.h"
#include "runtime/ranges.h"
#include "runtime/files/weights.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 16 };

typedef struct Entry {
  const char *name;
  int64_t rows, cols; /* cols 0: rank 1 */
  float base;         /* value of element 0; each next is 1 more */
} Entry;

static uint64_t numel_of(const Entry *entry) {
  return (uint64_t)(entry->rows * (entry->cols > 0 ? entry->cols : 1));
}

static const char *write_file(Scratch *scratch, const char *name, const Entry *entries, uint32_t count) {
  SafeTensor tensors[MOST] = {0};
  uint64_t header_bytes;
  for (uint32_t i = 0; i < count; i++) {
    tensors[i] =
        (SafeTensor){.name = entries[i].name, .rank = entries[i].cols > 0 ? 2 : 1, .numel = numel_of(&entries[i])};
    tensors[i].dim[0] = entries[i].rows;
    tensors[i].dim[1] = entries[i].cols;
  }
  const char *header = safetensors_layout(scratch->arena, tensors, count, &header_bytes);
  uint64_t bytes = header_bytes + tensors[count - 1].end;
  char *file = arena_alloc(scratch->arena, bytes);
  memcpy(file, header, header_bytes);
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t k = 0; k < count; k++) {
      if (strcmp(tensors[k].name, entries[i].name) != 0) continue;
      float *values = (float *)(void *)(file + header_bytes + tensors[k].begin);
      for (uint64_t e = 0; e < tensors[k].numel; e++) values[e] = entries[i].base + (float)e;
    }
  return scratch_file(scratch, name, file, bytes);
}

static void add_param(Arena *arena, Plan *plan, const char *name, int64_t rows, int64_t cols) {
  PlanParam *param = vec_add(arena, &plan->params);
  *param = (PlanParam){.name = plan_intern(arena, plan, name), .rank = cols > 0 ? 2 : 1, .dim = {rows, cols}};
}

/* A GPT-2 of width 2, as far as its names go. */
static Plan *gpt2(Arena *arena) {
  Plan *plan = plan_new(arena);
  add_param(arena, plan, "wte.weight", 5, 2);
  add_param(arena, plan, "h.0.attn.c_attn.weight", 6, 2);
  add_param(arena, plan, "h.0.attn.c_attn.bias", 6, 0);
  add_param(arena, plan, "h.0.attn.c_proj.weight", 2, 2);
  return plan;
}

static float value(const Pretrained *weights, const Plan *plan, uint32_t param, uint64_t element) {
  float out = -1;
  Failure failure = {0};
  assert_true(pretrained_read(weights, &plan->params.data[param], param, element, 1, &out, &failure));
  return out;
}

static void check_values(Scratch *scratch, const char *path, bool transposed) {
  const Plan *plan = gpt2(scratch->arena);
  Pretrained weights;
  Failure failure = {0};
  bool opened = pretrained_open(scratch->arena, &weights, plan, path, &failure);
  if (!opened) fail_msg("%s", failure.text);
  for (uint64_t e = 0; e < 10; e++) assert_near(value(&weights, plan, 0, e), 100 + (float)e, 0);
  for (uint64_t o = 0; o < 6; o++)
    for (uint64_t i = 0; i < 2; i++)
      assert_near(value(&weights, plan, 1, o * 2 + i), 200 + (float)(transposed ? i * 6 + o : o * 2 + i), 0);
  float all[12], middle[7];
  assert_true(pretrained_read(&weights, &plan->params.data[1], 1, 0, 12, all, &failure));
  assert_true(pretrained_read(&weights, &plan->params.data[1], 1, 3, 7, middle, &failure));
  assert_memory_equal(middle, all + 3, sizeof middle);
  assert_near(value(&weights, plan, 3, 1), transposed ? 402 : 401, 0); /* square: as its siblings */
  pretrained_close(&weights);
}

static void prefixes_and_transposes(void **state) {
  static const Entry ours[] = {{"wte.weight", 5, 2, 100},
                               {"h.0.attn.c_attn.weight", 6, 2, 200},
                               {"h.0.attn.c_attn.bias", 6, 0, 300},
                               {"h.0.attn.c_proj.weight", 2, 2, 400}};
  static const Entry theirs[] = {{"transformer.wte.weight", 5, 2, 100},
                                 {"transformer.h.0.attn.c_attn.weight", 2, 6, 200},
                                 {"transformer.h.0.attn.c_attn.bias", 6, 0, 300},
                                 {"transformer.h.0.attn.c_proj.weight", 2, 2, 400},
                                 {"transformer.h.0.attn.bias", 4, 4, 0},
                                 {"transformer.h.0.attn.masked_bias", 1, 0, 0},
                                 {"lm_head.weight", 5, 2, 100}};
  check_values(*state, write_file(*state, "ours.safetensors", ours, 4), false);
  check_values(*state, write_file(*state, "theirs.safetensors", theirs, 7), true);
}

static void several_files_with_an_index(void **state) {
  static const Entry one[] = {{"wte.weight", 5, 2, 100}, {"h.0.attn.c_attn.weight", 2, 6, 200}};
  static const Entry two[] = {{"h.0.attn.c_attn.bias", 6, 0, 300}, {"h.0.attn.c_proj.weight", 2, 2, 400}};
  static const char index[] = "{\"metadata\":{\"total_size\":1},\"weight_map\":{"
                              "\"wte.weight\":\"model-00001-of-00002.safetensors\","
                              "\"h.0.attn.c_attn.weight\":\"model-00001-of-00002.safetensors\","
                              "\"h.0.attn.c_attn.bias\":\"model-00002-of-00002.safetensors\","
                              "\"h.0.attn.c_proj.weight\":\"model-00002-of-00002.safetensors\"}}";
  Scratch *scratch = *state;
  mkdir(scratch_path(scratch, "hf"), 0700);
  write_file(scratch, "hf/model-00001-of-00002.safetensors", one, 2);
  write_file(scratch, "hf/model-00002-of-00002.safetensors", two, 2);
  scratch_file(scratch, "hf/model.safetensors.index.json", index, sizeof index - 1);
  check_values(scratch, scratch_path(scratch, "hf"), true);
  check_values(scratch, scratch_path(scratch, "hf/model.safetensors.index.json"), true);
}

/* Names as transformers writes them for a llama: with "model." throughout, and the head beside it. */
static Plan *llama(Arena *arena, bool tied) {
  Plan *plan = plan_new(arena);
  add_param(arena, plan, "model.embed_tokens.weight", 5, 4);
  add_param(arena, plan, "model.layers.0.self_attn.k_proj.weight", 2, 4);
  add_param(arena, plan, "model.layers.0.mlp.down_proj.weight", 4, 6);
  add_param(arena, plan, "model.norm.weight", 4, 0);
  if (!tied) add_param(arena, plan, "lm_head.weight", 5, 4);
  return plan;
}

static const Entry llama_entries[] = {{"model.embed_tokens.weight", 5, 4, 100},
                                      {"model.layers.0.self_attn.k_proj.weight", 2, 4, 200},
                                      {"model.layers.0.mlp.down_proj.weight", 4, 6, 300},
                                      {"model.norm.weight", 4, 0, 400},
                                      {"lm_head.weight", 5, 4, 100},
                                      {"model.layers.0.self_attn.rotary_emb.inv_freq", 2, 0, 0}};

static void llamas_are_read_as_they_are(void **state) {
  Scratch *scratch = *state;
  Pretrained weights;
  Failure failure = {0};
  const char *path = write_file(scratch, "llama.safetensors", llama_entries, 6);
  const float first[] = {100, 200, 300, 400, 100};
  for (int tied = 0; tied < 2; tied++) { /* a tied head may be in the file all the same */
    const Plan *plan = llama(scratch->arena, tied != 0);
    assert_true(pretrained_open(scratch->arena, &weights, plan, path, &failure));
    for (uint32_t p = 0; p < plan->params.count; p++)
      for (uint64_t e = 0; e < param_numel(&plan->params.data[p]); e++)
        assert_near(value(&weights, plan, p, e), first[p] + (float)e, 0);
    pretrained_close(&weights);
  }
  Plan *bare = plan_new(scratch->arena); /* the model may leave "model." out */
  add_param(scratch->arena, bare, "layers.0.mlp.down_proj.weight", 4, 6);
  path = write_file(scratch, "layer.safetensors", llama_entries + 2, 1);
  assert_true(pretrained_open(scratch->arena, &weights, bare, path, &failure));
  assert_near(value(&weights, bare, 0, 23), 323, 0);
  pretrained_close(&weights);
  path = write_file(scratch, "headless.safetensors", llama_entries, 4);
  assert_false(pretrained_open(scratch->arena, &weights, llama(scratch->arena, false), path, &failure));
  assert_said(failure.text, "tensor \"lm_head.weight\" of the model is missing");
}

/* --- a rank reads what it keeps, and nothing else ---------------------------------------------------------------------- */

/* Wrapped by the linker, which passes no argument to carry it. */
static uint64_t bytes_read;
ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at) {
  bytes_read += bytes;
  return __real_pread(fd, data, bytes, at);
}

static bool sink_write(Backend *backend, int32_t buf, uint64_t first, const void *data, uint64_t bytes) {
  (void)backend, (void)buf, (void)first, (void)data, (void)bytes;
  return true;
}

static uint64_t own_bytes(const Plan *plan, const UnitRanges *ranges) {
  uint64_t bytes = 0;
  for (uint32_t u = 0; u < plan->units.count; u++)
    for (uint32_t r = 0; r < ranges[u].count; r++) bytes += ranges[u].data[r].count * sizeof(float);
  return bytes;
}

static void a_rank_reads_its_own_rows(void **state) {
  Scratch *scratch = *state;
  const Plan *plan = plan_for(scratch->arena, 4, 1, 1);
  const char *data = corpus(scratch);
  TrainOptions options = options_for(scratch, &data, "out");
  Backend sink = {.write = sink_write};
  Pretrained weights;
  Failure failure = {0};
  uint64_t all = 0;
  assert_int_equal(runtime_train(plan, &options), RUN_OK);
  assert_true(pretrained_open(scratch->arena, &weights, plan, options.save_dir, &failure));
  for (uint32_t rank = 0; rank < 4; rank++) {
    const UnitRanges *ranges = unit_ranges(scratch->arena, plan, rank);
    bytes_read = 0;
    assert_true(weights_load(plan, ranges, &sink, &weights, &failure));
    assert_int_equal(bytes_read, own_bytes(plan, ranges));
    all += bytes_read;
  }
  assert_int_equal(all, plan->param_numel * sizeof(float));
  pretrained_close(&weights);
}

static void expect_refusal(Scratch *scratch, const char *path, const char *said) {
  const Plan *plan = gpt2(scratch->arena);
  Pretrained weights;
  Failure failure = {0};
  assert_false(pretrained_open(scratch->arena, &weights, plan, path, &failure));
  assert_said(failure.text, said);
}

static void what_does_not_fit_is_named(void **state) {
  Scratch *scratch = *state;
  const Entry good[] = {{"wte.weight", 5, 2, 100},
                        {"h.0.attn.c_attn.weight", 2, 6, 200},
                        {"h.0.attn.c_attn.bias", 6, 0, 300},
                        {"h.0.attn.c_proj.weight", 2, 2, 400},
                        {"lm_head.weight", 5, 2, 100}};
  Entry entries[MOST];
  expect_refusal(scratch, write_file(scratch, "a", good, 3),
                 "tensor \"h.0.attn.c_proj.weight\" of the model is missing");
  memcpy(entries, good, sizeof good);
  entries[4].base = 7;
  expect_refusal(scratch, write_file(scratch, "b", entries, 5),
                 "tensor \"lm_head.weight\" is not a parameter of the model, whose head is tied");
  entries[4] = (Entry){"h.1.attn.c_attn.bias", 6, 0, 0};
  expect_refusal(scratch, write_file(scratch, "c", entries, 5), "tensor \"h.1.attn.c_attn.bias\" is not a parameter");
  entries[2].rows = 7;
  expect_refusal(scratch, write_file(scratch, "d", entries, 4),
                 "tensor \"h.0.attn.c_attn.bias\" has shape [7], but the model's has [6]");
  mkdir(scratch_path(scratch, "none"), 0700);
  expect_refusal(scratch, scratch_path(scratch, "none"), "neither model.safetensors nor model.safetensors.index.json");
  static const char lie[] = "{\"weight_map\":{\"wpe.weight\":\"a\"}}";
  expect_refusal(scratch, scratch_file(scratch, "lie.json", lie, sizeof lie - 1),
                 "tensor \"wpe.weight\" should be in a, but is not");
  expect_refusal(scratch, scratch_file(scratch, "up.json", "{\"weight_map\":{\"x\":\"../a\"}}", 27),
                 "not mapped to the name of a file");
  expect_refusal(scratch, scratch_file(scratch, "no.json", "[]", 2), "weight_map");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SCRATCH_TEST(prefixes_and_transposes),
      SCRATCH_TEST(several_files_with_an_index),
      SCRATCH_TEST(llamas_are_read_as_they_are),
      SCRATCH_TEST(a_rank_reads_its_own_rows),
      SCRATCH_TEST(what_does_not_fit_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
