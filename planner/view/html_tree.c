/* Owns: the wrap tree: the model's modules with their parameters, each marked with the unit it travels in. Siblings that
 * are alike but for their number are shown once, with a count. */
#include "planner/view/html.h"
#include "planner/view/svg.h"

typedef struct Tree {
  const Report *r;
  const Plan *plan;
  const char **names; /* of parameters, in the model's order of names */
  int32_t *params;
  uint32_t count;
} Tree;

static size_t part_length(const char *name, size_t from) {
  return strcspn(name + from, ".");
}

/* Parameters [first, end) share the path up to `from`; where the first one's next part ends. */
static uint32_t child_end(const Tree *t, uint32_t first, uint32_t end, size_t from) {
  size_t length = part_length(t->names[first], from);
  uint32_t i = first + 1;
  while (i < end && part_length(t->names[i], from) == length && !strncmp(t->names[i] + from, t->names[first] + from, length)) i++;
  return i;
}

static bool is_number(const char *text, size_t length) {
  return length && strspn(text, "0123456789") >= length;
}

static bool same_units(const Tree *t, uint32_t a, uint32_t b) {
  return units_alike(t->plan, t->plan->params.data[t->params[a]].unit, t->plan->params.data[t->params[b]].unit);
}

static bool same_shape(const PlanParam *x, const PlanParam *y) {
  return x->rank == y->rank && !memcmp(x->dim, y->dim, sizeof x->dim);
}

/* Two numbered children with the same things inside. */
static bool children_alike(const Tree *t, uint32_t a, uint32_t a_end, uint32_t b, uint32_t b_end, size_t from) {
  if (a_end - a != b_end - b) return false;
  for (uint32_t k = 0; k < a_end - a; k++) {
    const char *x = t->names[a + k] + from, *y = t->names[b + k] + from;
    x += strcspn(x, "."), y += strcspn(y, ".");
    if (strcmp(x, y) || !same_units(t, a + k, b + k) ||
        !same_shape(&t->plan->params.data[t->params[a + k]], &t->plan->params.data[t->params[b + k]]))
      return false;
  }
  return true;
}

static void badge(const Tree *t, int32_t unit) {
  text_printf(t->r->out, " <span class=\"unit h%d\" data-unit=\"%d\">", unit_hue(t->r->f->plan, unit), unit);
  svg_escaped(t->r->out, plan_str(t->plan, t->plan->units.data[unit].name));
  text_printf(t->r->out, "</span>");
}

static void leaf(const Tree *t, uint32_t i, size_t from) {
  const PlanParam *param = &t->plan->params.data[t->params[i]];
  char bytes[32];
  text_printf(t->r->out, "<li>");
  svg_escaped(t->r->out, t->names[i] + from);
  text_printf(t->r->out, " <small>[");
  for (int32_t d = 0; d < param->rank; d++) text_printf(t->r->out, "%s%lld", d ? ", " : "", (long long)param->dim[d]);
  text_printf(t->r->out, "] %s</small>", text_bytes(bytes, tensor_numel(param) * dtype_bytes(t->plan->recipe.compute)));
  badge(t, param->unit);
  text_printf(t->r->out, "</li>\n");
}

static void summary(const Tree *t, uint32_t first, uint32_t end, uint32_t repeat, const char *name) {
  uint64_t numel = 0;
  char total[32];
  int32_t unit = t->plan->params.data[t->params[first]].unit;
  bool one = true;
  for (uint32_t i = first; i < end; i++) {
    numel += tensor_numel(&t->plan->params.data[t->params[i]]);
    one &= t->plan->params.data[t->params[i]].unit == unit;
  }
  text_printf(t->r->out, "<summary>");
  svg_escaped(t->r->out, name);
  if (repeat > 1) text_printf(t->r->out, " &times; %u", repeat);
  text_printf(t->r->out, " <small>%s elements%s</small>", text_count(total, (double)numel), repeat > 1 ? " each" : "");
  if (one && repeat == 1) badge(t, unit);
  text_printf(t->r->out, "</summary>\n");
}

static void level(const Tree *t, uint32_t first, uint32_t end, size_t from, int depth);

/* Children [first, next) that are alike: shown by the first. Returns where they end. */
static uint32_t child(const Tree *t, uint32_t first, uint32_t end, size_t from, int depth) {
  Arena *arena = t->r->f->arena;
  uint32_t own_end = child_end(t, first, end, from), next = own_end, repeat = 1;
  size_t length = part_length(t->names[first], from);
  if (!t->names[first][from + length]) return leaf(t, first, from), first + 1;
  const char *name = arena_strndup(arena, t->names[first] + from, length), *last = name;
  while (next < end && is_number(name, length)) {
    uint32_t after = child_end(t, next, end, from);
    if (!children_alike(t, first, own_end, next, after, from)) break;
    last = arena_strndup(arena, t->names[next] + from, part_length(t->names[next], from));
    next = after;
    repeat++;
  }
  text_printf(t->r->out, "<li><details%s>", depth < 1 ? " open" : "");
  summary(t, first, own_end, repeat, range_name(arena, name, last));
  text_printf(t->r->out, "<ul>\n");
  level(t, first, own_end, from + length + 1, depth + 1);
  text_printf(t->r->out, "</ul></details></li>\n");
  return next;
}

static void level(const Tree *t, uint32_t first, uint32_t end, size_t from, int depth) {
  while (first < end) first = child(t, first, end, from, depth);
}

/* Where `name` belongs: behind the last parameter that shares the longest path with it, so that modules stay together even
 * where units are not contiguous. */
static uint32_t place(const Tree *t, const char *name) {
  size_t best = 0;
  uint32_t at = t->count;
  for (uint32_t i = t->count; i-- > 0;) {
    size_t common = 0;
    for (size_t k = 0; name[k] && name[k] == t->names[i][k]; k++)
      if (name[k] == '.') common = k + 1;
    if (common > best) best = common, at = i + 1;
  }
  return at;
}

static bool shares_module(const char *a, const char *b) {
  const char *dot = strrchr(a, '.');
  return dot && !strncmp(a, b, (size_t)(dot - a) + 1);
}

void html_tree(const Report *r) {
  Tree t = {.r = r, .plan = r->f->plan};
  uint32_t count = t.plan->params.count;
  t.names = ARENA_ARRAY(r->f->arena, const char *, count);
  t.params = ARENA_ARRAY(r->f->arena, int32_t, count);
  for (uint32_t p = 0; p < count; p++) {
    const char *name = plan_str(t.plan, t.plan->params.data[p].name);
    /* Usually the next one is the neighbour of the last, and the search is not needed. */
    uint32_t at = !t.count || shares_module(name, t.names[t.count - 1]) ? t.count : place(&t, name);
    memmove(&t.names[at + 1], &t.names[at], (t.count - at) * sizeof *t.names);
    memmove(&t.params[at + 1], &t.params[at], (t.count - at) * sizeof *t.params);
    t.names[at] = name;
    t.params[at] = (int32_t)p;
    t.count++;
  }
  text_printf(r->out, "<ul class=\"tree\">\n");
  level(&t, 0, t.count, 0, 0);
  text_printf(r->out, "</ul>\n");
}
