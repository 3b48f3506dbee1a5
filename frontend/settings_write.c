/* Owns: PlanSettings -> the plan block that states them. */
#include "frontend/settings.h"

static void write_reshard(Text *out, int32_t reshard) {
  if (reshard == SETTING_AUTO) return;
  text_printf(out, reshard > 1 ? "reshard %d" : reshard ? "reshard yes" : "reshard no", reshard);
}

static bool is_key(const char *word) {
  const KeyTable *plan = settings_table("plan");
  for (size_t k = 0; k < plan->count; k++)
    if (!strcmp(plan->keys[k].name, word)) return true;
  return false;
}

/* A word of the lexer's (lexer.l), which is not read as the next setting. */
static bool is_plain(const char *name) {
  static const char chars[] = "_*ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.:-";
  const size_t length = strlen(name);
  return length && strspn(name, chars) == length && !strchr("0123456789.:-", *name) && !strchr(".:-", name[length - 1]) && !is_key(name);
}

static void write_name(Text *out, const char *name) { text_printf(out, is_plain(name) ? " %s" : " \"%s\"", name); }

static void write_unit(Text *out, const UnitRule *rule) {
  text_printf(out, "  unit");
  write_name(out, rule->name);
  text_printf(out, " {");
  for (uint32_t i = 0; i < rule->patterns.count; i++) write_name(out, rule->patterns.data[i]);
  if (rule->reshard != SETTING_AUTO) text_printf(out, " ");
  write_reshard(out, rule->reshard);
  text_printf(out, " }\n");
}

static void write_told(Text *out, const ExecutorSettings *e) {
  if (e->states) text_printf(out, " states %s", settings_states[e->states]);
  if (e->attention) text_printf(out, " attention %s", settings_attention[e->attention]);
  if (e->loss) text_printf(out, " loss %s", settings_loss[e->loss]);
  if (e->loss_chunks) text_printf(out, " loss_chunks %lld", (long long)e->loss_chunks);
  if (e->reduce) text_printf(out, " reduce %s", settings_reduce[e->reduce]);
  if (e->selective) text_printf(out, " selective %s", settings_selective[e->selective]);
  if (e->update) text_printf(out, " update %s", settings_update[e->update]);
  if (e->update_in_backward) text_printf(out, " update_in_backward yes");
  if (e->packed) text_printf(out, " packed yes");
  if (e->reentrant) text_printf(out, " reentrant yes");
  if (e->fused_norms) text_printf(out, " fused_norms yes");
  if (e->fused_layers) text_printf(out, " fused_layers yes");
  if (e->fused_sums) text_printf(out, " fused_sums yes");
  if (e->expandable_segments) text_printf(out, " expandable_segments yes");
  if (e->owners) text_printf(out, " owners %lld", (long long)e->owners);
  if (e->offload) text_printf(out, " offload");
  for (int i = 0; settings_trainer_offload[i]; i++)
    if (e->offload & (1u << i)) text_printf(out, " %s", settings_trainer_offload[i]);
}

static void write_executor(Text *out, const ExecutorSettings *e) {
  Text told = {.arena = out->arena};
  write_told(&told, e);
  text_printf(out, "  executor %s", executor_name(e->id));
  text_printf(out, told.length ? " {%s }\n" : "\n", told.data);
}

static void write_checkpoints(Text *out, const PlanSettings *s) {
  text_printf(out, "  checkpoint %s\n", settings_checkpoint[s->checkpoint]);
  for (uint32_t i = 0; i < s->checkpoints.count; i++) {
    const CheckpointRule *rule = &s->checkpoints.data[i];
    bool joins = i > 0 && rule[-1].recompute == rule->recompute && rule[-1].host == rule->host;
    if (!joins) text_printf(out, "%s  %s", i ? "\n" : "", rule->host ? "host" : rule->recompute ? "recompute" : "save");
    write_name(out, rule->pattern);
  }
  if (s->checkpoints.count) text_printf(out, "\n");
}

static void write_offload(Text *out, int32_t offload) {
  if (offload == SETTING_AUTO) return;
  text_printf(out, "  offload%s", offload ? "" : " none");
  for (int i = 0; i < OFFLOAD_KINDS; i++)
    if (offload & 1 << i) text_printf(out, " %s", settings_offload[i]);
  text_printf(out, "\n");
}

void settings_write_plan(Text *out, const PlanSettings *s) {
  text_printf(out, "plan {\n");
  if (s->memory_bytes) text_printf(out, "  memory %lluB\n", (unsigned long long)s->memory_bytes);
  text_printf(out, "  strategy %s", settings_strategy[s->strategy]);
  if (s->strategy == STRATEGY_HYBRID_SHARD) text_printf(out, ":%lld", (long long)s->shard);
  text_printf(out, "\n  wrap %s", settings_wrap[s->wrap]);
  if (s->wrap == WRAP_SIZE) text_printf(out, " %llu", (unsigned long long)s->wrap_numel);
  text_printf(out, "\n");
  for (uint32_t u = 0; u < s->units.count; u++) write_unit(out, &s->units.data[u]);
  if (s->reshard != SETTING_AUTO) {
    text_printf(out, "  ");
    write_reshard(out, s->reshard);
    text_printf(out, "\n");
  }
  write_checkpoints(out, s);
  if (s->gather) text_printf(out, "  gather %s\n", settings_cadence[s->gather]);
  if (s->reduce) text_printf(out, "  reduce %s\n", settings_cadence[s->reduce]);
  write_offload(out, s->offload);
  if (s->prefetch != SETTING_AUTO) text_printf(out, "  prefetch %lld\n", (long long)s->prefetch);
  if (s->micro_batch != SETTING_AUTO) text_printf(out, "  micro_batch %lld\n", (long long)s->micro_batch);
  write_executor(out, &s->executor);
  text_printf(out, "}\n");
}
