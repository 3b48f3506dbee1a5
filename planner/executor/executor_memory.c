/* Owns: executor_model.h's peaks: live bytes at the end of forward, in each block's backward and in the optimizer, and what the
 * executor's allocator reserves for them. */
#include "planner/executor/executor_model.h"

#include <math.h>

/* By class where the bytes are largest; the sum is the active peak. */
typedef struct Peaks {
  ExecutorBytes forward, backward, update;
  double transient; /* of backward: does not reuse what forward held */
} Peaks;

static double total(const ExecutorBytes *bytes) {
  return bytes->parameters + bytes->gradients + bytes->optimizer + bytes->gathered + bytes->activations + bytes->workspace;
}

/* DistributedDataParallel copies gradients into buckets of its own. */
static bool reduces_in_buckets(const Model *m, const Sharding *s) {
  return m->settings->executor.id != EXECUTOR_NATIVE && s->strategy == STRATEGY_NO_SHARD && s->world->ranks > 1 && !s->owners;
}

/* Of a gradient that is kept. */
static double kept_gradient(const Model *m, const Sharding *s) {
  return sharding_copies(m, s) ? m->wire : m->state;
}

/* Persistent bytes of one rank without gradients, and its gradient shard. */
static ExecutorBytes states(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  bool copies = sharding_copies(m, s);
  double share = s->strategy == STRATEGY_SHARD_OPTIM ? 1 : s->shard, local = m->state * s->updated;
  ExecutorBytes bytes = {.parameters = (copies ? m->gathered : m->state) / share * m->numel,
                         .gradients = kept_gradient(m, s) / share * m->gradient_numel,
                         .optimizer = copies ? local : 0,
                         .workspace = m->profile->workspace_bytes};
  if (s->offloads) return (ExecutorBytes){.workspace = m->profile->workspace_bytes};
  if (reduces_in_buckets(m, s)) bytes.workspace += m->state * m->gradient_numel;
  if (executor->offload & TRAINER_OFFLOADS_MASTER) *(copies ? &bytes.optimizer : &bytes.parameters) -= local;
  if (m->moments > 0 && !(executor->offload & TRAINER_OFFLOADS_M)) bytes.optimizer += local;
  if (m->moments > 1 && !(executor->offload & TRAINER_OFFLOADS_V)) bytes.optimizer += local;
  return bytes;
}

/* Gathered at once while this unit computes, `own` times itself: what is fetched ahead, of its larger neighbour's size; itself, in FSDP2's
 * forward in the buffer that it came in as well; beside them the shards that come from the host. */
static double window_bytes(const Model *m, const Sharding *s, uint32_t u, double own) {
  double fetched = s->offloads ? m->state / s->shard : 0;
  double before = u > 1 ? s->units[u - 1].numel : 0, after = u + 1 < s->unit_count ? s->units[u + 1].numel : 0;
  double numel = own * s->units[u].numel + s->prefetch * fmax(before, after);
  return s->gathers && u ? (m->gathered + fetched) * numel : 0;
}

/* By units up to `last`, in forward. */
static double gathered_bytes(const Model *m, const Sharding *s, uint32_t last) {
  return fmax(s->whole_bytes[last], window_bytes(m, s, last, m->profile->live_units - 1)) + s->partly_bytes[last];
}

/* The same in backward. */
static double gathered_again_bytes(const Model *m, const Sharding *s, uint32_t last) {
  double units = m->profile->back_units > 0 ? m->profile->back_units : m->profile->live_units;
  return fmax(s->whole_bytes[last], window_bytes(m, s, last, units - 1)) + s->partly_bytes[last];
}

/* Once it is let go in backward. */
static double gathered_ahead_bytes(const Model *m, const Sharding *s, uint32_t u) {
  return fmax(s->whole_bytes[u - 1], window_bytes(m, s, u, 0)) + s->partly_bytes[u - 1];
}

static double root_bytes(const Model *m, const Sharding *s) {
  return s->gathers || m->state > 2 ? m->gathered * s->units[0].numel : 0;
}

/* A head that is not the root's to keep: as forward ends PyTorch lets go of everything but what is kept for backward. */
static bool lets_go(const Sharding *s) {
  return s->gathers && (s->exit_apart || s->units[0].reshard != 0);
}

/* While the loss is computed. */
static double loss_gathered_bytes(const Model *m, const Sharding *s) {
  uint32_t last = s->unit_count - 1, groups = (uint32_t)s->units[0].reshard;
  bool frees = !m->profile->flat_units && s->units[last].reshard; /* FSDP1's blocks wait for other streams, and are active until then */
  if (!lets_go(s) && !frees) return gathered_bytes(m, s, last) + root_bytes(m, s);
  double root = !lets_go(s) || groups == 0 ? 1 : groups > 1 && groups < s->shard ? 1.0 / groups : 0; /* its share that is kept */
  return s->whole_bytes[last] + s->partly_bytes[last] + root * root_bytes(m, s);
}

/* Values computed again and gradients of activations (6 d + 4 f) in the worst block's backward. */
static double working_bytes(const Model *m) {
  double most = 0;
  for (uint32_t p = 1; p <= m->block_count; p++) {
    const Part *part = &m->parts[p];
    if (part->backs) most = fmax(most, fmax(0, part->whole - part->saved) + 3 * part->width + 2 * part->widest);
  }
  return most;
}

void model_sum_memory(Model *m) {
  for (uint32_t p = 0; p < m->part_count; p++) m->saved += m->parts[p].saved;
  m->saved_here = m->saved;
  if (m->settings->executor.offload & TRAINER_OFFLOADS_RESIDUAL)
    for (uint32_t p = 1; p <= m->block_count; p++) m->saved_here -= m->parts[p].width;
  m->working = working_bytes(m);
}

/* As the head's backward begins: the logits and their gradient, which a loss may hold in one. */
static double logits_bytes(const Model *m) {
  return fmin(model_loss(m).held, 2 * m->element) * m->logits;
}

/* Of the unit after this one, whose reduction may not be over. */
static double sent_bytes(const Model *m, const Sharding *s, uint32_t u) {
  return u + 1 < s->unit_count ? m->wire * s->units[u + 1].gradient_numel : 0;
}

/* What the allocator sees of a unit's gradients and of what is sent of them, and of the root's, in one pass; not all of it at once. */
static double unreduced_unit_bytes(const Model *m, const Sharding *s, uint32_t u) {
  double own = (m->gathered + m->wire) * (u ? s->units[u].gradient_numel : 0);
  if (!s->scatters && !s->offloads) return 0;
  if (!s->reduce_each) return own; /* gradients are where they accumulate */
  return own + sent_bytes(m, s, u) + (m->gathered + m->wire) * s->units[0].gradient_numel;
}

/* Gradients that earlier micro-batches left; negative: none, they appear as backward goes. */
static double old_gradients(const Model *m, const Sharding *s, const ExecutorBytes *all) {
  if ((s->scatters || s->offloads) && !s->reduce_each) return model_sum_bytes(m) * m->gradient_numel;
  return s->world->accumulation > 1 ? all->gradients : -1;
}

/* The only gradient of the root that is there before the blocks'. */
static double head_numel(const Model *m, const Sharding *s) {
  const GraphOp *head = m->head >= 0 && !s->exit_apart ? &m->graph->ops.data[m->head] : NULL;
  if (!head || head->weight < 0 || !m->graded[head->weight]) return 0;
  const Shape *shape = &m->graph->params.data[head->weight].shape;
  return (double)shape_rows(shape, 1) * (double)shape_cols(shape);
}

/* The largest moment of a backward pass so far. */
typedef struct Backward {
  const Model *m;
  const Sharding *s;
  const ExecutorBytes *all;
  double old;      /* as old_gradients() */
  double produced; /* elements whose gradients this pass has left behind */
  ExecutorBytes most;
} Backward;

static void consider(Backward *b, double unreduced, double activations, double gathered) {
  const Model *m = b->m;
  ExecutorBytes now = *b->all;
  bool gone = b->s->offloads || m->settings->executor.update_in_backward;
  double left = gone ? 0 : kept_gradient(m, b->s) * b->produced / (b->s->scatters ? b->s->shard : 1);
  now.gradients = unreduced + (b->old >= 0 ? b->old : left);
  now.activations = activations;
  now.gathered = gathered;
  if (total(&now) > total(&b->most)) b->most = now;
}

/* Beside what is kept: in a block's backward its working set, in the head's the logits. */
static double beside_bytes(const Model *m, uint32_t part, double working) {
  if (model_is_block(m, (int32_t)part)) return working;
  return part ? logits_bytes(m) : 0;
}

/* As a block's backward begins everything of it is still kept; as its unit's ends its gradients are there, what is sent of them, and
 * what is still sent of the one before. */
static void consider_unit(Backward *b, uint32_t u, double *saved, double working) {
  const Sharding *s = b->s;
  const Model *m = b->m;
  bool at_once = s->reduce_each && (s->scatters || s->offloads);
  double head = m->gathered * head_numel(m, s), sent = sent_bytes(m, s, u);
  double root = root_bytes(m, s), gathered = root + gathered_again_bytes(m, s, u);
  double own = m->gathered * s->units[u].gradient_numel, copied = m->wire * s->units[u].gradient_numel;
  for (uint32_t p = s->units[u].end; p-- > s->units[u].first && m->parts[p].backs;) {
    consider(b, at_once ? head + sent : unreduced_unit_bytes(m, s, u), *saved + beside_bytes(m, p, working), gathered);
    *saved -= m->parts[p].saved;
    b->produced += model_is_block(m, (int32_t)p) ? m->parts[p].gradient_numel : s->units[u].gradient_numel;
  }
  if (!at_once) return;
  bool frees_first = m->profile->frees_first;
  consider(b, head + sent + own + (frees_first ? 0 : copied), *saved, gathered);
  if (frees_first) consider(b, head + own + copied, *saved, root + gathered_ahead_bytes(m, s, u));
}

/* Blocks that the root gathers with everything else: their gradients stay whole until its end, which counts them itself. */
static void consider_root_blocks(Backward *b, double *saved, double working) {
  const Sharding *s = b->s;
  const Model *m = b->m;
  bool apart = s->scatters || s->offloads;
  double numel = head_numel(m, s);
  for (uint32_t p = s->units[0].end; p-- > 1 && m->parts[p].backs;) {
    b->produced = apart ? 0 : numel;
    consider(b, apart ? m->gathered * numel : 0, *saved + beside_bytes(m, p, working), root_bytes(m, s));
    *saved -= m->parts[p].saved;
    numel += m->parts[p].gradient_numel;
  }
  b->produced = 0;
}

/* Kept by what the root computes. */
static double root_saved(const Model *m, const Sharding *s) {
  return (s->entry_apart ? 0 : m->parts[0].saved) + (s->exit_apart ? 0 : m->parts[m->part_count - 1].saved);
}

/* Backward from the last unit to the lowest that a gradient passes through, if any does: saved bytes fall, gradients grow, kept units
 * go. The root's gradients leave last; one that was let go is back before the head's backward. */
static ExecutorBytes backward_peak(const Model *m, const Sharding *s, const ExecutorBytes *all, double saved) {
  Backward b = {.m = m, .s = s, .all = all, .old = old_gradients(m, s, all)};
  double working = m->working, root = s->units[0].gradient_numel;
  if (lets_go(s) && !s->exit_apart) consider(&b, 0, saved + logits_bytes(m), root_bytes(m, s) + gathered_again_bytes(m, s, s->unit_count - 1));
  for (uint32_t u = s->unit_count; u-- > 1;) consider_unit(&b, u, &saved, working);
  if (s->unit_count == 1) consider_root_blocks(&b, &saved, working);
  bool apart = s->scatters || s->offloads, frees_first = apart && m->profile->frees_first;
  double sent = frees_first ? 0 : sent_bytes(m, s, 0);
  b.produced += apart ? 0 : root;
  consider(&b, apart ? (m->gathered + m->wire) * root + sent : 0, root_saved(m, s), frees_first ? 0 : root_bytes(m, s));
  return b.most;
}

/* Of backward's units: the most that does not reuse what forward held. */
static double transient_bytes(const Model *m, const Sharding *s) {
  double window = 0, unreduced = unreduced_unit_bytes(m, s, 0);
  for (uint32_t u = 1; u < s->unit_count; u++) {
    window = fmax(window, window_bytes(m, s, u, m->profile->live_units - 1));
    unreduced = fmax(unreduced, unreduced_unit_bytes(m, s, u));
  }
  return m->working + window + unreduced;
}

/* At the end of forward, beside what is gathered. */
static ExecutorBytes forward_bytes(const Model *m, const Sharding *s, const ExecutorBytes *all) {
  ExecutorBytes bytes = *all;
  bytes.gradients = fmax(0, old_gradients(m, s, all));
  bytes.activations = m->saved_here + model_loss(m).held * m->logits;
  return bytes;
}

double reserved_floor_bytes(const Model *m, const Sharding *s) {
  ExecutorBytes all = states(m, s), forward = forward_bytes(m, s, &all);
  return total(&forward);
}

static Peaks peaks(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  ExecutorBytes all = states(m, s);
  Peaks out = {.forward = forward_bytes(m, s, &all), .update = all};
  out.forward.gathered = loss_gathered_bytes(m, s);
  out.backward = backward_peak(m, s, &all, m->saved_here);
  out.transient = transient_bytes(m, s);
  if (executor->update_in_backward) out.update.gradients = 0; /* each is used and gone as it appears */
  if (!executor->update_in_backward && !s->offloads)
    out.update.optimizer += executor_update_held(model_update(m), m->state) * s->updated;
  return out;
}

/* Parameters, gradients and moments of a rank. */
static double host_bytes(const Model *m, const Sharding *s) {
  return s->offloads ? m->state * (m->numel + m->gradient_numel + m->moments * m->updated_numel) / s->shard : 0;
}

/* Of all gradients that a rank keeps, where forward ended without any. */
static double new_gradient_bytes(const Model *m, const Sharding *s, const Peaks *peak) {
  if (peak->forward.gradients > 0 || s->offloads || m->settings->executor.update_in_backward) return 0;
  return kept_gradient(m, s) * m->gradient_numel / (s->scatters ? s->shard : 1);
}

/* Temporaries of all of a flat unit's shard at once: segments that activations left are too small for them. */
static double flat_temporary_bytes(const Model *m, const Sharding *s) {
  bool flat = m->profile->flat_units && s->scatters && !s->offloads && model_update(m) == UPDATE_FOREACH;
  return flat && !m->settings->executor.update_in_backward ? executor_update_held(UPDATE_FOREACH, m->state) * s->updated : 0;
}

/* Reserved beside what forward reserves: segments are of one stream, and unless they can grow of about one size. Reduced gradients are the
 * reductions' stream's. */
static double slack_bytes(const Model *m, const Sharding *s, const Peaks *peak) {
  double gradients = new_gradient_bytes(m, s, peak);
  if (m->settings->executor.expandable_segments) return s->scatters ? gradients : 0;
  return m->profile->reserved_factor * peak->transient + gradients + flat_temporary_bytes(m, s);
}

/* The phases share large segments only where these can be split, the logits'. When the rest does not find its place beside them, the
 * allocator gives back what is free, which waits for the device, and asks for every unit again. */
double retried_bytes(const Model *m, const Sharding *s) {
  const Device *device = &m->cluster->device;
  if (m->profile->retry_ns <= 0 || m->settings->executor.expandable_segments || !device->allocator_bytes || !s->gathers) return 0;
  Peaks peak = peaks(m, s);
  double needed = total(&peak.forward) - model_loss(m).held * m->logits + m->profile->retry_factor * peak.transient, numel = 0;
  if (needed + m->profile->retry_room < (double)device->allocator_bytes) return 0;
  for (uint32_t u = 0; u < s->unit_count; u++) numel += s->units[u].numel;
  return m->gathered * numel;
}

static double capacity_bytes(const Device *device) {
  return (double)(device->allocator_bytes ? device->allocator_bytes : device->memory_bytes);
}

double executor_unretried_bytes(const Device *device) { return 0.95 * capacity_bytes(device); }

void predict_memory(const Model *m, const Sharding *s, ExecutorPrediction *out) {
  Peaks peak = peaks(m, s);
  const Device *device = &m->cluster->device;
  ExecutorBytes own = states(m, s);
  double forward = total(&peak.forward), backward = total(&peak.backward), update = total(&peak.update);
  out->states_bytes = own.parameters + own.optimizer;
  out->saved_bytes = m->saved;
  out->active_bytes = fmax(forward, fmax(backward, update));
  out->peak_at = forward >= out->active_bytes ? "end of forward" : backward >= out->active_bytes ? "backward" : "optimizer";
  out->peak = forward >= out->active_bytes ? peak.forward : backward >= out->active_bytes ? peak.backward : peak.update;
  out->reserved_bytes = out->active_bytes;
  if (m->profile->reserved_factor > 0) out->reserved_bytes = fmax(out->active_bytes, forward + slack_bytes(m, s, &peak));
  out->capacity_bytes = capacity_bytes(device);
  out->limit_bytes = m->settings->memory_bytes ? (double)m->settings->memory_bytes : out->capacity_bytes;
  out->host_bytes = host_bytes(m, s);
  out->host_fits = !device->host_memory || out->host_bytes <= (double)device->host_memory;
  /* What allocator slack there is yields before the device is full: only live bytes must fit, and a little beside them. Not so before
   * a budget, which nothing but the plan heeds. */
  double least = m->settings->memory_bytes ? out->reserved_bytes : fmin(out->reserved_bytes, 1.02 * out->active_bytes);
  out->fits = out->host_fits && least <= out->limit_bytes;
  out->crowded = m->profile->reserved_factor > 0 && out->reserved_bytes > executor_unretried_bytes(device); /* where there is an allocator */
  if (out->fits && !m->settings->memory_bytes) out->reserved_bytes = fmin(out->reserved_bytes, out->capacity_bytes);
}
