/* Owns: what plans of one micro-batch have in common, made once: its costed program, its items, its units. */
#include "planner/search/search.h"

/* Unasked only over a host link to memory of a known size: on CPUs the host's memory is the device's. */
static bool offers_host(const Search *s) {
  const Device *device = &s->cluster->device;
  return device->kind != DEVICE_CPU && device->host_link > 0 && device->host_memory > 0;
}

bool search_may_offload(const Search *s, const PlanSettings *settings) {
  return settings->offload == SETTING_AUTO && offers_host(s) && s->graph->recipe.optimizer != OPTIMIZER_ADAFACTOR;
}

bool search_kept_is_open(const Search *s, const Outer *outer) {
  return s->settings->strategy != STRATEGY_SHARD_GRAD_OP && s->settings->reshard == SETTING_AUTO && outer_gathers(outer) && !outer->gather_once;
}

bool search_movable(const Search *s) {
  if (s->grounded) return false;
  return s->settings->offload == SETTING_AUTO ? offers_host(s) : (s->settings->offload & OFFLOAD_ACTIVATIONS) != 0;
}

static void prepare_items(const Search *s, Prepared *prepared) {
  uint32_t ops = prepared->program->ops.count;
  Arena *scratch = arena_new();
  Pin *pins = ARENA_ARRAY(scratch, Pin, ops);
  prepared->recompute = ARENA_ARRAY(s->arena, bool, ops);
  prepared->away = ARENA_ARRAY(s->arena, bool, ops);
  checkpoint_pin(prepared->program, s->settings, pins, prepared->recompute, prepared->away);
  Items again = {0};
  items_list(s->arena, prepared->program, pins, search_movable(s), prepared->recompute, &prepared->items, &again);
  prepared->ranks = items_rank_operators(s->arena, &prepared->items);
  prepared->slices = slices_of_operators(s->arena, prepared->program, &prepared->items, &again, s->cluster->device.kind != DEVICE_CPU);
  arena_free(scratch);
}

const Prepared *search_prepare(Search *s, int64_t micro_batch) {
  for (uint32_t i = 0; i < s->prepared.count; i++)
    if (s->prepared.data[i].program->batch == micro_batch && s->prepared.data[i].checkpoint == s->settings->checkpoint &&
        s->prepared.data[i].movable == search_movable(s))
      return &s->prepared.data[i];
  Prepared prepared = {.checkpoint = s->settings->checkpoint, .movable = search_movable(s), .program = program_build(s->arena, s->sink, s->graph, s->specs, s->settings, micro_batch, NULL)};
  if (!prepared.program) return NULL;
  figures_of_program(prepared.program, s->cluster);
  prepare_items(s, &prepared);
  vec_push(s->arena, &s->prepared, prepared);
  return &s->prepared.data[s->prepared.count - 1];
}

const Program *search_program(Search *s, int64_t micro_batch) {
  const Prepared *prepared = search_prepare(s, micro_batch);
  return prepared ? prepared->program : NULL;
}

const UnitSet *search_units(Search *s, const Program *program, Grouping grouping) {
  for (uint32_t i = 0; i < s->grouped.count; i++) {
    const Grouped *known = &s->grouped.data[i];
    if (known->program == program && known->grouping.wrap == grouping.wrap && known->grouping.numel == grouping.numel) return known->units;
  }
  const UnitSet *units = units_choose(s->arena, s->sink, program, s->settings, grouping.wrap, grouping.numel);
  if (units) vec_push(s->arena, &s->grouped, ((Grouped){program, grouping, units}));
  return units;
}

void search_tell(const Search *s) {
  if (s->progress) s->progress(s->watcher, &s->stage);
}

PlanWorld search_world(const Search *s, const Outer *outer) {
  PlanWorld world = {.ranks = s->ranks, .shard = outer->shard, .replicas = s->ranks / outer->shard, .ranks_per_node = s->ranks_per_node};
  world.micro_batch = (uint64_t)outer->micro_batch;
  world.accumulation = s->samples ? s->samples / (s->ranks * world.micro_batch) : 1;
  return world;
}
