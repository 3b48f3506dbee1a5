/* Owns: executor_model.h's units: what is gathered together. Blocks by rule or by size, and what lies outside of them: the root, but for
 * what rules take from one side of the blocks. */
#include "planner/executor/executor_model.h"

/* --- what lies outside of blocks -------------------------------------------------------------------------------------------- */

static unsigned side_of(const Model *m, int32_t op) {
  if (m->part_of[op] > (int32_t)m->block_count) return SIDE_AFTER;
  return m->part_of[op] == 0 && op < m->first_block_op ? SIDE_BEFORE : SIDE_ELSE;
}

void units_find_outside(Arena *arena, Model *m) {
  for (uint32_t p = 0; p < m->graph->params.count; p++) {
    const GraphParam *param = &m->graph->params.data[p];
    const char *dot = strrchr(param->name, '.');
    int32_t first = m->part_of[param->first_op], last = m->part_of[param->last_op];
    uint64_t numel = 0;
    if (first == last && model_is_block(m, first) && model_gathers_blocks(m)) continue;
    shape_numel(&param->shape, 1, &numel);
    Outside out = {.module = dot ? arena_strndup(arena, param->name, (size_t)(dot - param->name)) : param->name,
                   .sides = side_of(m, param->first_op) | side_of(m, param->last_op),
                   .numel = (double)numel,
                   .gradient_numel = m->graded[p] ? (double)numel : 0};
    vec_push(arena, &m->outside, out);
  }
}

/* --- rules ------------------------------------------------------------------------------------------------------------------- */

/* The first that names this path, or -1. */
static int32_t rule_of(const Model *m, const char *path) {
  for (uint32_t r = 0; r < m->settings->units.count; r++)
    for (uint32_t i = 0; i < m->settings->units.data[r].patterns.count; i++)
      if (path_matches(m->settings->units.data[r].patterns.data[i], path)) return (int32_t)r;
  return -1;
}

/* The block that a module lies in, 0: none. */
static uint32_t block_around(const Model *m, const char *module) {
  for (uint32_t p = 1; p <= m->block_count; p++) {
    size_t length = strlen(m->parts[p].name);
    if (!strncmp(m->parts[p].name, module, length) && module[length] == '.') return p;
  }
  return 0;
}

int32_t units_rule_outside(const Model *m, const Outside *out) {
  int32_t rule = rule_of(m, out->module);
  uint32_t block = rule < 0 || !model_gathers_blocks(m) ? 0 : block_around(m, out->module);
  return block && rule_of(m, m->parts[block].name) == rule ? -1 : rule;
}

/* What a rule names. */
typedef struct Named {
  uint32_t runs;    /* of neighbouring blocks */
  uint32_t outside; /* parameters */
  unsigned sides;
  double numel, gradient_numel; /* outside */
} Named;

/* [rules + 1], the last for what no rule names. */
static Named *find_named(Arena *arena, const Model *m, const int32_t *rules) {
  uint32_t count = m->settings->units.count;
  Named *named = ARENA_ARRAY(arena, Named, count + 1);
  for (uint32_t p = 1; p <= m->block_count && model_gathers_blocks(m); p++)
    if (rules[p] >= 0) named[rules[p]].runs += rules[p - 1] != rules[p];
  for (uint32_t i = 0; i < m->outside.count; i++) {
    const Outside *out = &m->outside.data[i];
    int32_t rule = units_rule_outside(m, out);
    Named *to = &named[rule >= 0 ? (uint32_t)rule : count];
    to->outside++;
    to->sides |= out->sides;
    to->numel += out->numel;
    to->gradient_numel += out->gradient_numel;
  }
  return named;
}

/* All that lies outside: the root, by its name. */
static bool is_root(const Model *m, const Named *named) {
  return named->outside && named->outside == m->outside.count;
}

static bool is_side(const Model *m, const Named *named, unsigned side) {
  return named->sides == side && !is_root(m, named);
}

/* The rule that names this side, or -1. */
static int32_t side_rule(const Model *m, const Named *named, unsigned side) {
  for (uint32_t r = 0; r < m->settings->units.count; r++)
    if (is_side(m, &named[r], side)) return (int32_t)r;
  return -1;
}

static const char *outside_text(Arena *arena, const Model *m) {
  Text text = {.arena = arena};
  for (uint32_t i = 0; i < m->outside.count; i++) {
    const char *module = m->outside.data[i].module;
    if (!i || strcmp(m->outside.data[i - 1].module, module)) text_printf(&text, "%s%s", i ? " " : "", module);
  }
  return text.data ? text.data : "";
}

static bool is_block_named(const Model *m, const char *pattern) {
  for (uint32_t p = 1; p <= m->block_count; p++)
    if (path_matches(pattern, m->parts[p].name)) return true;
  return false;
}

static bool is_outside_named(const Model *m, const char *pattern) {
  for (uint32_t i = 0; i < m->outside.count; i++)
    if (path_matches(pattern, m->outside.data[i].module)) return true;
  return false;
}

/* What else a rule names would be left out. */
static bool names_only(const Model *m, const UnitRule *rule, bool (*is_named)(const Model *, const char *pattern)) {
  for (uint32_t i = 0; i < rule->patterns.count; i++)
    if (!is_named(m, rule->patterns.data[i])) return false;
  return true;
}

/* Why a rule is no unit, or NULL. A unit by hand must hold neighbours, and nothing smaller than a block; outside of blocks one side of them
 * or everything. */
static const char *fault_of(const Model *m, const Named *named, uint32_t r) {
  const Named *own = &named[r];
  const UnitRule *rule = &m->settings->units.data[r];
  if (own->runs > 1) return "blocks that are not neighbours";
  if (own->runs && own->sides) return "blocks and what lies outside of them";
  if (own->runs) return names_only(m, rule, is_block_named) ? NULL : "blocks and parts of blocks, or what lies outside of them";
  if (!model_gathers_blocks(m) && is_root(m, own) && !m->profile->flat_units) return NULL;
  if (!model_gathers_blocks(m)) return m->block_count ? "part of what wrap whole gathers at once" : "modules of a model without blocks";
  if (!own->sides) return "no whole block";
  if (!names_only(m, rule, is_outside_named)) return "single parameters beside modules";
  if (m->profile->flat_units) return "what lies outside of all blocks";
  if (is_root(m, own)) return NULL;
  if (own->sides != SIDE_BEFORE && own->sides != SIDE_AFTER) return "what is used on both sides of the blocks, or between them";
  return side_rule(m, named, own->sides) == (int32_t)r ? NULL : "more of a side of the blocks that has a unit";
}

static void help_unit(Arena *arena, Diag *diag, const Model *m) {
  const char *executor = executor_name(m->settings->executor.id), *block = m->block_count ? m->parts[1].name : "";
  if (m->settings->executor.id == EXECUTOR_NATIVE)
    diag_help(diag, "'fsdpc plan' plans any unit for this runtime; predictions are of whole blocks: leave the unit out");
  else if (!model_gathers_blocks(m))
    diag_help(diag, "%s gathers such a model as a whole: leave the unit out", executor);
  else if (m->profile->flat_units || !m->outside.count)
    diag_help(diag, "%s gathers neighbouring blocks together, and what lies outside of all blocks as its root; list blocks such as \"%s\"",
              executor, block);
  else
    diag_help(diag, "%s gathers together neighbouring blocks such as \"%s\", or modules before the blocks, or after; what both sides share "
              "stays in the root, which a unit of \"%s\" names", executor, block, outside_text(arena, m));
}

static bool check_rules(Arena *arena, DiagSink *sink, const Model *m, const Named *named) {
  uint32_t errors = sink->errors;
  for (uint32_t r = 0; r < m->settings->units.count; r++) {
    const UnitRule *rule = &m->settings->units.data[r];
    const char *fault = fault_of(m, named, r);
    if (fault) help_unit(arena, diag_error(sink, rule->span, "unit \"%s\" holds %s", rule->name, fault), m);
  }
  return sink->errors == errors;
}

/* --- units ------------------------------------------------------------------------------------------------------------------- */

static int32_t reshard_of(const Model *m, int32_t rule, bool last) {
  if (rule >= 0 && m->settings->units.data[rule].reshard != SETTING_AUTO) return m->settings->units.data[rule].reshard;
  if (m->settings->strategy == STRATEGY_SHARD_GRAD_OP) return 0;
  if (m->settings->reshard != SETTING_AUTO) return m->settings->reshard;
  return last && m->profile->keep_last ? 0 : 1;
}

/* Stays gathered unless its rule says otherwise. Where it is all there is, m->outside may be of the same model with units of blocks. */
static ExecutorUnit root_unit(const Model *m, const Named *named, bool entry_apart) {
  uint32_t count = m->settings->units.count, r = 0;
  while (r < count && !is_root(m, &named[r])) r++;
  int32_t reshard = r < count ? m->settings->units.data[r].reshard : SETTING_AUTO;
  return (ExecutorUnit){.end = entry_apart ? 0 : model_gathers_blocks(m) ? 1 : m->part_count - 1,
                        .rule = r < count ? (int32_t)r : -1,
                        .numel = model_gathers_blocks(m) ? named[r].numel : m->numel,
                        .gradient_numel = model_gathers_blocks(m) ? named[r].gradient_numel : m->gradient_numel,
                        .reshard = reshard == SETTING_AUTO ? 0 : reshard};
}

static void add_side(ExecutorUnits *s, const Named *named, int32_t rule, uint32_t part) {
  if (rule < 0) return;
  s->data[s->count++] = (ExecutorUnit){
      .first = part, .end = part + 1, .rule = rule, .numel = named[rule].numel, .gradient_numel = named[rule].gradient_numel};
}

static void add_blocks(const Model *m, const int32_t *rules, ExecutorUnits *s) {
  double least = m->settings->wrap == WRAP_SIZE ? (double)m->settings->wrap_numel : 0;
  for (uint32_t p = 1; p <= m->block_count && model_gathers_blocks(m); p++) {
    ExecutorUnit *unit = &s->data[s->count - 1];
    bool joins = p > 1 && rules[p] == rules[p - 1] && (rules[p] >= 0 || unit->numel < least);
    if (!joins) s->data[s->count++] = (ExecutorUnit){.first = p, .rule = rules[p]};
    unit = &s->data[s->count - 1];
    unit->end = p + 1;
    unit->numel += m->parts[p].numel;
    unit->gradient_numel += m->parts[p].gradient_numel;
  }
}

bool units_find(Arena *arena, DiagSink *sink, const Model *m, ExecutorUnits *s) {
  int32_t *rules = ARENA_ARRAY(arena, int32_t, m->part_count);
  rules[0] = -1;
  for (uint32_t p = 1; p <= m->block_count; p++) rules[p] = rule_of(m, m->parts[p].name);
  const Named *named = find_named(arena, m, rules);
  if (!check_rules(arena, sink, m, named)) return false;
  int32_t before = side_rule(m, named, SIDE_BEFORE);
  s->data = ARENA_ARRAY(arena, ExecutorUnit, m->part_count + 1);
  s->data[0] = root_unit(m, named, before >= 0);
  s->count = 1;
  add_side(s, named, before, 0);
  add_blocks(m, rules, s);
  add_side(s, named, side_rule(m, named, SIDE_AFTER), m->part_count - 1);
  for (uint32_t u = 1; u < s->count; u++) s->data[u].reshard = reshard_of(m, s->data[u].rule, u + 1 == s->count);
  return true;
}
