/* Owns: which parameters form an FSDP unit. Units by hand come first; the wrap policy groups the rest in execution order.
 *
 *   block  one unit for each outermost repeat iteration; what lies before, between and after them forms units too
 *   size   a unit is closed once it holds at least that many elements
 *   whole  one unit
 * A tied weight belongs to the place of its first use. A group that holds frozen and trainable parameters becomes two
 * units, so that a unit learns as a whole or not at all. */
#include "base/checked.h"
#include "planner/program/decisions.h"

/* Parameters by the op that first uses them, then by number. */
static int32_t *execution_order(Arena *arena, const Graph *graph) {
  uint32_t *place = ARENA_ARRAY(arena, uint32_t, (size_t)graph->ops.count + 1); /* by op: where its next one goes */
  int32_t *order = ARENA_ARRAY(arena, int32_t, graph->params.count);
  for (uint32_t p = 0; p < graph->params.count; p++) place[graph->params.data[p].first_op + 1]++;
  for (uint32_t i = 0; i < graph->ops.count; i++) place[i + 1] += place[i];
  for (uint32_t p = 0; p < graph->params.count; p++) order[place[graph->params.data[p].first_op]++] = (int32_t)p;
  return order;
}

static uint64_t param_numel(const Graph *graph, int32_t param) {
  uint64_t numel = 0;
  shape_numel(&graph->params.data[param].shape, 1, &numel);
  return numel;
}

static int32_t new_unit(Arena *arena, UnitSet *set, const char *name) {
  Unit *unit = vec_add(arena, &set->units);
  unit->name = name;
  unit->reshard = SETTING_AUTO;
  return (int32_t)set->units.count - 1;
}

static void assign(Arena *arena, UnitSet *set, int32_t unit, int32_t param) {
  set->unit_of[param] = unit;
  vec_push(arena, &set->units.data[unit].params, param);
}

static bool assign_by_hand(Arena *arena, DiagSink *sink, const Graph *graph, const PlanSettings *settings,
                           const int32_t *order, UnitSet *set) {
  uint32_t errors = sink->errors;
  for (uint32_t u = 0; u < settings->units.count; u++) {
    const UnitRule *rule = &settings->units.data[u];
    int32_t unit = new_unit(arena, set, rule->name);
    set->units.data[unit].reshard = rule->reshard;
    for (uint32_t p = 0; p < rule->patterns.count; p++) {
      bool matched = false;
      for (uint32_t i = 0; i < graph->params.count; i++) {
        int32_t param = order[i];
        if (!path_matches(rule->patterns.data[p], graph->params.data[param].name)) continue;
        matched = true;
        if (set->unit_of[param] < 0) assign(arena, set, unit, param);
      }
      if (matched) continue;
      Diag *diag = diag_error(sink, rule->span, "pattern \"%s\" of unit \"%s\" matches no parameter",
                              rule->patterns.data[p], rule->name);
      diag_help(diag, "patterns are paths of modules or parameters, such as \"h.0\" or \"h.*.mlp\"; "
                      "`fsdpc plan FILE --dump=graph` lists them");
    }
    if (sink->errors == errors && !set->units.data[unit].params.count)
      diag_error(sink, rule->span, "unit \"%s\" is empty: earlier units took all its parameters", rule->name);
  }
  return sink->errors == errors;
}

/* "wte", "wte+wpe", "wte+3": the layers a unit holds. */
static const char *layers_name(Arena *arena, const Graph *graph, const Unit *unit) {
  uint32_t layers = 0;
  const char *first = NULL, *second = NULL;
  size_t last_length = 0;
  const char *last = NULL;
  for (uint32_t i = 0; i < unit->params.count; i++) {
    const char *name = graph->params.data[unit->params.data[i]].name, *dot = strrchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : strlen(name);
    if (last && length == last_length && !strncmp(name, last, length)) continue;
    last = name;
    last_length = length;
    layers++;
    if (layers == 1) first = arena_strndup(arena, name, length);
    if (layers == 2) second = arena_strndup(arena, name, length);
  }
  if (layers == 1) return first;
  return layers == 2 ? arena_printf(arena, "%s+%s", first, second) : arena_printf(arena, "%s+%u", first, layers - 1);
}

static void wrap_blocks(Arena *arena, const Program *program, const int32_t *order, UnitSet *set) {
  const Graph *graph = program->graph;
  int32_t current = PLAN_NONE, current_block = PLAN_NONE - 1;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    int32_t param = order[i], block = program->block[graph->params.data[param].first_op];
    if (set->unit_of[param] >= 0) continue;
    if (block != current_block) {
      current = new_unit(arena, set, block >= 0 ? graph->modules.data[block].name : NULL);
      current_block = block;
    }
    assign(arena, set, current, param);
  }
}

static void wrap_size(Arena *arena, const Graph *graph, const int32_t *order, uint64_t numel, UnitSet *set) {
  int32_t current = PLAN_NONE;
  uint64_t held = 0;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    int32_t param = order[i];
    if (set->unit_of[param] >= 0) continue;
    bool same_op = i > 0 && graph->params.data[order[i - 1]].first_op == graph->params.data[param].first_op;
    if (current < 0 || (held >= numel && !same_op)) {
      current = new_unit(arena, set, NULL);
      held = 0;
    }
    assign(arena, set, current, param);
    held += param_numel(graph, param);
  }
}

static uint32_t count_frozen(const Graph *graph, const Unit *unit) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < unit->params.count; i++) count += graph->params.data[unit->params.data[i]].frozen;
  return count;
}

static bool is_named_by_hand(const PlanSettings *settings, const char *name) {
  for (uint32_t u = 0; u < settings->units.count; u++)
    if (!strcmp(settings->units.data[u].name, name)) return true;
  return false;
}

/* The name, or "head (2)" where a unit by hand has taken it: views find units by their names. */
static const char *free_name(Arena *arena, const PlanSettings *settings, const char *name) {
  const char *free = name;
  for (unsigned n = 2; is_named_by_hand(settings, free); n++) free = arena_printf(arena, "%s (%u)", name, n);
  return free;
}

/* What of the group is frozen, or what is not, as a unit of its own. */
static Unit *take_part(Arena *arena, const Graph *graph, const Unit *from, bool frozen, UnitSet *set) {
  int32_t unit = new_unit(arena, set, from->name);
  for (uint32_t i = 0; i < from->params.count; i++)
    if (graph->params.data[from->params.data[i]].frozen == frozen) assign(arena, set, unit, from->params.data[i]);
  Unit *part = &set->units.data[unit];
  part->reshard = from->reshard;
  part->frozen = frozen;
  for (uint32_t i = 0; i < part->params.count; i++) part->elements += round_up(param_numel(graph, part->params.data[i]), PLAN_ALIGN_ELEMENTS);
  if (!part->name) part->name = layers_name(arena, graph, part);
  return part;
}

static const UnitSet *split_frozen(Arena *arena, const Graph *graph, const PlanSettings *settings, const UnitSet *groups) {
  UnitSet *set = ARENA_NEW(arena, UnitSet);
  set->unit_of = groups->unit_of;
  for (uint32_t u = 0; u < groups->units.count; u++) {
    const Unit *group = &groups->units.data[u];
    uint32_t frozen = count_frozen(graph, group);
    bool learns = frozen < group->params.count, by_hand = u < settings->units.count;
    if (learns) {
      Unit *part = take_part(arena, graph, group, false, set);
      if (!by_hand) part->name = free_name(arena, settings, part->name);
    }
    if (frozen) {
      Unit *part = take_part(arena, graph, group, true, set);
      if (learns) part->name = arena_printf(arena, "%s (frozen)", part->name);
      if (learns || !by_hand) part->name = free_name(arena, settings, part->name);
    }
  }
  return set;
}

const UnitSet *units_choose(Arena *arena, DiagSink *sink, const Program *program, const PlanSettings *settings,
                            WrapKind wrap, uint64_t wrap_numel) {
  const Graph *graph = program->graph;
  UnitSet *set = ARENA_NEW(arena, UnitSet);
  set->unit_of = ARENA_ARRAY(arena, int32_t, graph->params.count);
  for (uint32_t i = 0; i < graph->params.count; i++) set->unit_of[i] = PLAN_NONE;
  const int32_t *order = execution_order(arena, graph);
  if (!assign_by_hand(arena, sink, graph, settings, order, set)) return NULL;
  if (wrap == WRAP_SIZE)
    wrap_size(arena, graph, order, wrap_numel, set);
  else if (wrap == WRAP_WHOLE)
    wrap_size(arena, graph, order, UINT64_MAX, set);
  else
    wrap_blocks(arena, program, order, set);
  for (uint32_t u = settings->units.count; u < set->units.count && wrap == WRAP_WHOLE; u++) set->units.data[u].name = graph->name;
  return split_frozen(arena, graph, settings, set);
}

bool units_equal(const UnitSet *a, const UnitSet *b, const Graph *graph) {
  return a->units.count == b->units.count && !memcmp(a->unit_of, b->unit_of, graph->params.count * sizeof *a->unit_of);
}

void units_print(Text *out, const Program *program, const UnitSet *units) {
  for (uint32_t u = 0; u < units->units.count; u++) {
    const Unit *unit = &units->units.data[u];
    uint64_t numel = 0;
    for (uint32_t i = 0; i < unit->params.count; i++) numel += param_numel(program->graph, unit->params.data[i]);
    text_printf(out, "unit u%u \"%s\" numel %llu:", u, unit->name, (unsigned long long)numel);
    for (uint32_t i = 0; i < unit->params.count; i++)
      text_printf(out, " %s", program->graph->params.data[unit->params.data[i]].name);
    text_printf(out, "\n");
  }
}
