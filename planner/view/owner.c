/* Owns: see owner.h. */
#include "planner/view/owner.h"

#include "planner/view/facts.h"

enum { SEVERAL = -2 };

/* Module paths -> the one unit that holds all parameters below, or SEVERAL. */
typedef struct Paths {
  struct PathSlot {
    const char *path;
    size_t length;
    int32_t unit;
  } *slots;
  uint32_t mask;
} Paths;

static struct PathSlot *find_path(const Paths *paths, const char *path, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)path[i]) * 16777619u;
  for (;; hash++) {
    struct PathSlot *slot = &paths->slots[hash & paths->mask];
    if (!slot->path || (slot->length == length && !memcmp(slot->path, path, length))) return slot;
  }
}

static size_t parent_length(const char *path, size_t length) {
  while (length && path[length - 1] != '.') length--;
  return length ? length - 1 : 0;
}

static Paths find_paths(Arena *arena, const Plan *plan) {
  size_t parts = 1;
  for (uint32_t p = 0; p < plan->params.count; p++)
    for (const char *c = plan_str(plan, plan->params.data[p].name); *c; c++) parts += *c == '.';
  uint32_t size = 16;
  while (size < 2 * parts) size *= 2;
  Paths paths = {ARENA_ARRAY(arena, struct PathSlot, size), size - 1};
  for (uint32_t p = 0; p < plan->params.count; p++) {
    const PlanParam *param = &plan->params.data[p];
    const char *name = plan_str(plan, param->name);
    for (size_t length = parent_length(name, strlen(name)); length; length = parent_length(name, length)) {
      struct PathSlot *slot = find_path(&paths, name, length);
      int32_t unit = slot->path && slot->unit != param->unit ? SEVERAL : param->unit;
      *slot = (struct PathSlot){name, length, unit};
    }
  }
  return paths;
}

static int32_t by_operands(const Plan *plan, const PlanInstr *instr, const InstrSpec *spec) {
  int k = instr_unit_index(spec);
  if (k >= 0) {
    int64_t unit = plan_int(plan, instr, k);
    return unit >= 0 && unit < (int64_t)plan->units.count ? (int32_t)unit : PLAN_NONE;
  }
  for (int o = 0; o < spec->operand_count; o++) {
    int32_t buf = plan_operand(plan, instr, o)->buf;
    if (buf != PLAN_NONE && plan->bufs.data[buf].unit != PLAN_NONE) return plan->bufs.data[buf].unit;
  }
  return PLAN_NONE;
}

static int32_t by_name(const Paths *paths, const char *name) {
  for (size_t length = strlen(name); length; length = parent_length(name, length)) {
    const struct PathSlot *slot = find_path(paths, name, length);
    if (slot->path) return slot->unit == SEVERAL ? PLAN_NONE : slot->unit;
  }
  return PLAN_NONE;
}

int32_t *owners_of(Arena *arena, const Plan *plan, const InstrSpec *specs) {
  Paths paths = find_paths(arena, plan);
  int32_t *owners = ARENA_ARRAY(arena, int32_t, plan->instrs.count), before = PLAN_NONE;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    bool inside = instr->phase != PHASE_BEGIN && instr->phase != PHASE_UPDATE;
    owners[i] = by_operands(plan, instr, &specs[instr->op]);
    if (instr->stream != STREAM_COMPUTE || !inside) continue;
    if (owners[i] == PLAN_NONE) owners[i] = by_name(&paths, plan_str(plan, instr->name));
    if (owners[i] == PLAN_NONE) owners[i] = before;
    before = owners[i];
  }
  return owners;
}
