/* Owns: the helpers of machine.h. */
#include "machine.h"

#include "runtime/backends.h"
#include "runtime/floats.h"

Model *compile_model(Arena *arena, const char *path, const char *const *sets, uint32_t count) {
  Model *model = ARENA_NEW(arena, Model);
  model->sources.arena = model->sink.arena = arena;
  model->sink.sources = &model->sources;
  FrontendOptions options = {.sets = sets, .set_count = count};
  model->graph = frontend_compile(arena, &model->sources, &model->sink, path, &options);
  if (!model->graph) diag_print(&model->sink, stderr, false);
  assert_non_null(model->graph);
  return model;
}

void machine_open(Arena *arena, Machine *machine, const Plan *plan, Feed *feed) {
  Failure failure = {0};
  *machine = (Machine){.plan = plan};
  assert_true(shared_open(arena, &machine->memory, 1, plan->arena_bytes, &failure));
  const SharedMemory *memory = &machine->memory;
  machine->env = (RankEnv){.ranks = 1, .local_ranks = 1,
                           .arenas = memory->arenas,
                           .lanes = memory->lanes,
                           .status = &memory->statuses[0],
                           .control = memory->control};
  RankSetup setup = {.plan = plan,
                     .kind = backend_find("cpu", &failure),
                     .env = &machine->env,
                     .feed = feed,
                     .gemm = "builtin",
                     .threads = 2};
  if (!rank_open(arena, &machine->rank, &setup, &failure)) fail_msg("%s", failure.text);
}

void machine_close(Machine *machine) {
  rank_close(&machine->rank);
  shared_close(&machine->memory);
}

int32_t param_buffer(const Plan *plan, const PlanParam *param) { return plan->units.data[param->unit].param_buf; }

void machine_shake(Machine *machine, double vectors, double matrices) {
  const Plan *plan = machine->plan;
  for (uint32_t p = 0; p < plan->params.count; p++) {
    const PlanParam *param = &plan->params.data[p];
    for (uint64_t i = 0; i < param_numel(param); i++) {
      float value = (float)(random_normal(7, p, i) * (param->rank == 1 ? vectors : matrices)) + (param->init.kind == INIT_ONES);
      assert_true(floats_write(machine->rank.backend, plan, param_buffer(plan, param), param->offset + i, &value, 1));
    }
  }
}
