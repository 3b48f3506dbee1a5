/* Owns: executor_model.h's peaks: live bytes at the end of forward, in each block's backward and in the optimizer, and what the
 * executor's allocator reserves for them. */
#include "planner/executor_model.h"

#include <math.h>

/* By class where the bytes are largest; the sum is the active peak. */
typedef struct Peaks {
  ExecutorBytes forward, backward, update;
  double transient; /* of backward: does not reuse what forward held */
} Peaks;

double executor_bytes_total(const ExecutorBytes *bytes) {
  return bytes->parameters + bytes->gradients + bytes->optimizer + bytes->gathered + bytes->activations + bytes->workspace;
}

/* Persistent bytes of one rank without gradients, and its gradient shard. */
static ExecutorBytes states(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  bool whole = s->strategy == STRATEGY_SHARD_OPTIM;
  double kept = m->state / (whole ? 1 : s->shard), local = m->state * m->updated_numel / s->shard;
  ExecutorBytes bytes = {.parameters = kept * m->numel, .gradients = kept * m->gradient_numel, .workspace = m->profile->workspace_bytes};
  if (s->offloads) return (ExecutorBytes){.workspace = m->profile->workspace_bytes};
  if (executor->offload & TRAINER_OFFLOADS_MASTER) bytes.parameters -= local;
  if (!(executor->offload & TRAINER_OFFLOADS_M)) bytes.optimizer += local;
  if (!(executor->offload & TRAINER_OFFLOADS_V)) bytes.optimizer += local;
  return bytes;
}

/* Gathered at once while units come and go: one more for each that is fetched further ahead; beside it the shards that come from the
 * host. */
static double window_bytes(const Model *m, const Sharding *s) {
  double live = fmax(1, m->profile->live_units + (double)s->prefetch - 1), fetched = s->offloads ? m->state / s->shard : 0;
  return s->gathers ? live * (m->gathered + fetched) * s->biggest : 0;
}

/* By units up to `last`. */
static double gathered_bytes(const Model *m, const Sharding *s, uint32_t last) {
  return fmax(s->whole_bytes[last], window_bytes(m, s)) + s->partly_bytes[last];
}

static double root_bytes(const Model *m, const Sharding *s) {
  return s->gathers || m->state > 2 ? m->gathered * m->parts[0].numel : 0;
}

static double saved_bytes(const Model *m) {
  double bytes = 0;
  for (uint32_t p = 0; p < m->part_count; p++) bytes += m->parts[p].saved;
  return bytes;
}

/* Values computed again and gradients of activations (6 d + 4 f) in the worst block's backward. */
static double working_bytes(const Model *m) {
  double most = 0;
  for (uint32_t p = 1; p < m->part_count; p++) {
    const Part *part = &m->parts[p];
    if (part->backs) most = fmax(most, fmax(0, part->whole - part->saved) + 3 * part->width + 2 * part->widest);
  }
  return most;
}

/* A unit's gradients beside what is sent of them; the root's wait for the end where they are reduced at once. */
static double unreduced_unit_bytes(const Model *m, const Sharding *s) {
  double biggest = s->biggest_gradient;
  if (!s->scatters && !s->offloads) return 0;
  if (!s->reduce_each) return (m->gathered + m->wire) * biggest; /* gradients are where they accumulate */
  return (m->gathered + 2 * m->wire) * biggest + (m->gathered + m->wire) * m->parts[0].gradient_numel;
}

/* Gradients that earlier micro-batches left; negative: none, they appear as backward goes. */
static double old_gradients(const Model *m, const Sharding *s, const ExecutorBytes *all) {
  if ((s->scatters || s->offloads) && !s->reduce_each) return (m->profile->accumulates ? m->wire : m->state) * m->gradient_numel;
  return s->world->accumulation > 1 ? all->gradients : -1;
}

/* Backward of what lies outside of all blocks alone. */
static ExecutorBytes root_peak(const Model *m, const Sharding *s, const ExecutorBytes *all, double unreduced, double old) {
  ExecutorBytes bytes = *all;
  bool whole = !s->scatters && !m->settings->executor.update_in_backward;
  bytes.gradients = unreduced + (old >= 0 ? old : whole ? m->state * m->parts[0].gradient_numel : 0);
  bytes.activations = m->parts[0].saved;
  bytes.gathered = root_bytes(m, s);
  return bytes;
}

/* Backward from the last block to the lowest that a gradient passes through, if any does: saved bytes fall, gradients grow, kept units
 * go. */
static ExecutorBytes backward_peak(const Model *m, const Sharding *s, const ExecutorBytes *all, double saved) {
  double old = old_gradients(m, s, all), working = working_bytes(m), unreduced = unreduced_unit_bytes(m, s);
  double freed = 0, produced = 0, each = m->state;
  ExecutorBytes most = root_peak(m, s, all, unreduced, old);
  for (uint32_t u = s->unit_count; u-- > 1;) {
    for (uint32_t p = s->units[u].end; p-- > s->units[u].first && m->parts[p].backs;) {
      ExecutorBytes now = *all;
      double grown = s->offloads ? 0 : s->scatters ? produced / s->shard : produced;
      now.gradients = unreduced + (old >= 0 ? old : m->settings->executor.update_in_backward ? 0 : each * grown);
      now.activations = saved - freed + working;
      now.gathered = gathered_bytes(m, s, u) + root_bytes(m, s);
      if (executor_bytes_total(&now) > executor_bytes_total(&most)) most = now;
      freed += m->parts[p].saved;
      produced += m->parts[p].gradient_numel;
    }
  }
  return most;
}

static Peaks peaks(const Model *m, const Sharding *s) {
  const ExecutorSettings *executor = &m->settings->executor;
  ExecutorBytes all = states(m, s);
  double saved = saved_bytes(m);
  if (executor->offload & TRAINER_OFFLOADS_RESIDUAL)
    for (uint32_t p = 1; p < m->part_count; p++) saved -= m->parts[p].width;
  Peaks out = {.forward = all, .update = all};
  out.forward.gradients = fmax(0, old_gradients(m, s, &all));
  out.forward.activations = saved + model_loss(m).held * m->logits;
  out.forward.gathered = gathered_bytes(m, s, s->unit_count - 1) + root_bytes(m, s);
  out.backward = backward_peak(m, s, &all, saved);
  out.transient = working_bytes(m) + window_bytes(m, s) + unreduced_unit_bytes(m, s);
  if (!executor->update_in_backward && !s->offloads)
    out.update.optimizer += executor_update_held(model_update(m), m->state) * m->updated_numel / s->shard;
  return out;
}

/* Parameters, gradients and two moments of a rank. */
static double host_bytes(const Model *m, const Sharding *s) {
  return s->offloads ? m->state * (m->numel + m->gradient_numel + 2 * m->updated_numel) / s->shard : 0;
}

void predict_memory(const Model *m, const Sharding *s, ExecutorPrediction *out) {
  Peaks peak = peaks(m, s);
  const Device *device = &m->cluster->device;
  ExecutorBytes own = states(m, s);
  double forward = executor_bytes_total(&peak.forward), backward = executor_bytes_total(&peak.backward),
         update = executor_bytes_total(&peak.update);
  out->states_bytes = own.parameters + own.optimizer;
  out->saved_bytes = saved_bytes(m);
  out->active_bytes = fmax(forward, fmax(backward, update));
  out->peak_at = forward >= out->active_bytes ? "end of forward" : backward >= out->active_bytes ? "backward" : "optimizer";
  out->peak = forward >= out->active_bytes ? peak.forward : backward >= out->active_bytes ? peak.backward : peak.update;
  out->reserved_bytes = out->active_bytes;
  if (m->profile->reserved_factor > 1)
    out->reserved_bytes = fmax(out->active_bytes, forward + m->profile->reserved_factor * peak.transient);
  out->capacity_bytes = device->allocator_bytes ? (double)device->allocator_bytes : (double)device->memory_bytes;
  /* What allocator slack there is yields before the device is full: only live bytes must fit, and a little beside them. */
  out->host_bytes = host_bytes(m, s);
  out->host_fits = !device->host_memory || out->host_bytes <= (double)device->host_memory;
  out->fits = out->host_fits && fmin(out->reserved_bytes, 1.02 * out->active_bytes) <= out->capacity_bytes;
}
