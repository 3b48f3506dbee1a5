/* Owns: summary.h. */
#include "planner/summary.h"

static const char *strategy_text(const Plan *plan, const Decisions *decisions) {
  if (plan->world.shard == 1) return "no_shard";
  if (plan->world.replicas > 1) return "hybrid_shard";
  if (decisions->gather_once && decisions->reduce_once) return "shard_optim";
  for (uint32_t u = 0; u < plan->units.count; u++)
    if (plan->units.data[u].reshard) return "full_shard";
  return "shard_grad_op";
}

/* A size that takes everything is the whole, under the name that people have for it. */
static const char *wrap_text(Arena *arena, const Found *found, const PlanSettings *settings) {
  const char *by_hand = settings->units.count ? "units by hand, then " : "";
  if (settings->wrap == WRAP_AUTO && found->grouping.wrap == WRAP_SIZE && found->units->units.count == 1) return "whole";
  uint64_t numel = found->grouping.numel ? found->grouping.numel : 1; /* gives the same units, and is what --wrap takes */
  if (found->grouping.wrap == WRAP_SIZE) return arena_printf(arena, "%ssize:%llu", by_hand, (unsigned long long)numel);
  return arena_printf(arena, "%s%s", by_hand, found->grouping.wrap == WRAP_WHOLE ? "whole" : "block");
}

static const char *checkpoint_text(Arena *arena, const Plan *plan, const PlanSettings *settings) {
  uint32_t again = 0, forward = 0;
  const PlanSegment *micro = plan_first_micro(plan);
  for (int32_t i = micro->first; i < micro->end; i++) {
    again += plan->instrs.data[i].phase == PHASE_RECOMPUTE;
    forward += plan->instrs.data[i].phase == PHASE_FORWARD && plan->instrs.data[i].stream == STREAM_COMPUTE;
  }
  if (!again) return "none";
  if (settings->checkpoint == CHECKPOINT_FULL && !settings->checkpoints.count) return "full";
  return arena_printf(arena, "%u of %u operators run again", again, forward);
}

/* A gather; they are listed in the order of their uses. */
typedef struct Ahead {
  int32_t next; /* compute that follows it */
  int32_t use;  /* compute that reads it first */
} Ahead;

typedef VEC(Ahead) Gathers;

static Gathers list_gathers(Arena *arena, const Plan *plan, const InstrSpec *specs, const PlanSegment *segment) {
  Gathers out = {0};
  int32_t *waiting = ARENA_ARRAY(arena, int32_t, plan->bufs.count); /* by buffer: the gather into it, and one more */
  uint32_t opened = 0; /* those that compute follows */
  for (int32_t i = segment->first; i < segment->end; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->op == INSTR_ALLGATHER) {
      vec_push(arena, &out, ((Ahead){i, PLAN_NONE}));
      waiting[plan_operand(plan, instr, 1)->buf] = (int32_t)out.count;
    }
    if (instr->stream != STREAM_COMPUTE) continue;
    while (opened < out.count) out.data[opened++].next = i;
    for (int k = 0; k < specs[instr->op].operand_count; k++) {
      int32_t b = plan_operand(plan, instr, k)->buf;
      if (b < 0 || !waiting[b]) continue;
      out.data[waiting[b] - 1].use = i;
      waiting[b] = 0;
    }
  }
  return out;
}

/* Uses that a gather is issued ahead of its own, at most: as Decisions.prefetch counts them, so that no gather begins before the one so many
 * uses earlier computes. */
static uint32_t prefetch_depth(const Plan *plan, const InstrSpec *specs) {
  uint32_t most = 0;
  Arena *scratch = arena_new();
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const Gathers gathers = list_gathers(scratch, plan, specs, &plan->segments.data[s]);
    for (uint32_t i = 0; i < gathers.count; i++) {
      uint32_t ahead = 0;
      while (ahead <= i && gathers.data[i - ahead].use > gathers.data[i].next) ahead++;
      if (ahead > most) most = ahead;
    }
  }
  arena_free(scratch);
  return most;
}

static int32_t turn_instr(const Plan *plan) {
  for (uint32_t i = 0; i < plan->instrs.count; i++)
    if (plan->instrs.data[i].phase == PHASE_BACKWARD && plan->instrs.data[i].stream == STREAM_COMPUTE) return (int32_t)i;
  return (int32_t)plan->instrs.count;
}

static uint64_t kept_bytes(const Plan *plan) {
  int32_t turn = turn_instr(plan);
  uint64_t bytes = 0;
  for (uint32_t b = 0; b < plan->bufs.count; b++) {
    const PlanBuf *buf = &plan->bufs.data[b];
    if (!buf->host && buf->class == BUF_ACTIVATION && buf->first < turn && buf->last > turn) bytes += buf->bytes;
  }
  return bytes;
}

static double model_flops(const Plan *plan) {
  double flops = 0;
  const PlanSegment *micro = plan_first_micro(plan);
  for (int32_t i = micro->first; i < micro->end; i++)
    if (plan->instrs.data[i].phase != PHASE_RECOMPUTE) flops += (double)plan->instrs.data[i].flops;
  return flops / (double)plan->world.micro_batch;
}

static void add_words(Text *text, const char *words) { text_printf(text, "%s%s", text->length ? "; " : "", words); }

static const char *cadence_words(bool once) { return once ? "once a step" : "each micro-batch"; }

static void add_offload(Text *text, Arena *arena, uint32_t offload) {
  Text away = {.arena = arena};
  for (int i = 0; i < OFFLOAD_KINDS; i++)
    if (offload & 1u << i) text_printf(&away, "%s%s", away.length ? ", " : "", offload_names()[i]);
  add_words(text, offload ? arena_printf(arena, "%s in host memory", away.data) : "all state on the device");
}

const char *summary_bound_of(Arena *arena, const Search *search, const Found *found) {
  const Outer *own = &found->outer, *other = found->bound_of;
  Text text = {.arena = arena};
  if (!other) return NULL;
  if (other->micro_batch != own->micro_batch) add_words(&text, arena_printf(arena, "micro-batch %lld", (long long)other->micro_batch));
  if (other->shard != own->shard) add_words(&text, arena_printf(arena, "sharded over %u of %u", other->shard, search->ranks));
  if (other->gather_once != own->gather_once) add_words(&text, arena_printf(arena, "gathered %s", cadence_words(other->gather_once)));
  if (other->reduce_once != own->reduce_once) add_words(&text, arena_printf(arena, "reduced %s", cadence_words(other->reduce_once)));
  if (other->offload != own->offload) add_offload(&text, arena, other->offload);
  return text.data;
}

void summary_fill(Arena *arena, const Search *search, const Found *found) {
  Plan *plan = found->plan;
  PlanSummary *summary = &plan->summary;
  summary->strategy = plan_intern(arena, plan, strategy_text(plan, &found->decisions));
  summary->wrap = plan_intern(arena, plan, wrap_text(arena, found, search->settings));
  summary->checkpoint = plan_intern(arena, plan, checkpoint_text(arena, plan, search->settings));
  summary->prefetch = prefetch_depth(plan, search->specs);
  summary->budget_bytes = search->budget;
  summary->step_ns = found->sim.step_ns;
  summary->lower_bound_ns = found->bound.ns;
  summary->bound_by = plan_intern(arena, plan, found->bound.by);
  summary->kept_bytes = kept_bytes(plan);
  summary->model_flops_per_sample = model_flops(plan);
  summary->peak_flops = search->cluster->device.peak[plan->recipe.compute];
  summary->launch_ns = (uint64_t)search->cluster->device.launch_ns;
  summary->device = search->cluster->device.kind == DEVICE_GPU ? PLAN_DEVICE_GPU : PLAN_DEVICE_CPU;
  summary->device_bytes = summary->device == PLAN_DEVICE_GPU ? search->cluster->device.allocator_bytes : 0;
}
