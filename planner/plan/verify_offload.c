/* Owns: rule offload. A buffer of the host arena is only fetched from and stored to, whole; a device buffer is the image of
 * at most one of them. Of a persistent one, an image is used only while it is the latest version, and what an instruction changes
 * in an image is stored back in the same segment. */
#include "planner/plan/check.h"

typedef struct Image {
  uint32_t version; /* of the host buffer, when it was fetched or stored */
  int32_t changed;  /* list position + 1 of what changed the image since, 0: nothing */
} Image;

typedef struct Offload {
  Check *check;
  Image *images;     /* by device buffer */
  uint32_t *version; /* by host buffer: grows with every store */
  bool scaled;       /* updates may be skipped, and then leave what they would write as it was */
} Offload;

#define WRONG(...) violate(check, VERIFY_OFFLOAD, i, buf, __VA_ARGS__)

static void check_host_operand(Check *check, int32_t i, int k) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  int32_t buf = plan_operand(check->plan, instr, k)->buf;
  if (buf == PLAN_NONE) return;
  bool host = is_transfer(instr->op) && k == (instr->op == INSTR_FETCH ? 0 : 1);
  if (check_buf(check, buf)->host != host)
    WRONG("operand %s of %s is b%d \"%s\", which lies %s", check->specs[instr->op].operands[k].name,
          check->specs[instr->op].name, buf, check_buf_name(check, buf), host ? "on the device" : "in the host arena");
}

static void check_whole_copy(Check *check, int32_t i) {
  const PlanInstr *instr = &check->plan->instrs.data[i];
  const PlanOperand *from = plan_operand(check->plan, instr, 0), *to = plan_operand(check->plan, instr, 1);
  const PlanBuf *a = check_buf(check, from->buf), *b = check_buf(check, to->buf);
  uint64_t n = (uint64_t)plan_int(check->plan, instr, 0);
  int32_t buf = to->buf;
  if (a->dtype != b->dtype || a->numel != n || b->numel != n || from->offset || to->offset || from->ld || to->ld)
    WRONG("%s of %llu elements does not copy b%d of %llu %s whole to b%d of %llu %s", check->specs[instr->op].name,
          (unsigned long long)n, from->buf, (unsigned long long)a->numel, dtype_name(a->dtype), to->buf,
          (unsigned long long)b->numel, dtype_name(b->dtype));
}

/* Which buffer of a transfer lies where. */
static void sides(const Check *check, const PlanInstr *instr, int32_t *host, int32_t *device) {
  bool fetch = instr->op == INSTR_FETCH;
  *host = plan_operand(check->plan, instr, fetch ? 0 : 1)->buf;
  *device = plan_operand(check->plan, instr, fetch ? 1 : 0)->buf;
}

/* Without a shard group, fetching is gathering. */
static bool is_gathered_from(const Check *check, int32_t buf, int32_t host) {
  const PlanBuf *b = check_buf(check, buf);
  if (b->class != BUF_GATHERED || b->unit == PLAN_NONE) return true;
  return host == check->plan->units.data[b->unit].param_buf || host == check->plan->units.data[b->unit].cast_buf;
}

static void note_image(Check *check, int32_t i) {
  int32_t host, buf;
  sides(check, &check->plan->instrs.data[i], &host, &buf);
  if (check_buf(check, buf)->unit != check_buf(check, host)->unit || !is_gathered_from(check, buf, host))
    WRONG("b%d \"%s\" and b%d \"%s\" do not hold the same of one unit", buf, check_buf_name(check, buf), host,
          check_buf_name(check, host));
  if (check->image[buf] != PLAN_NONE && check->image[buf] != host)
    WRONG("b%d \"%s\" is copied from or to b%d and b%d: it can be the image of one", buf, check_buf_name(check, buf),
          check->image[buf], host);
  check->image[buf] = host;
}

static void transfer(Offload *o, int32_t i) {
  const PlanInstr *instr = &o->check->plan->instrs.data[i];
  int32_t host, device;
  sides(o->check, instr, &host, &device);
  if (instr->op == INSTR_STORE) o->version[host]++;
  o->images[device] = (Image){o->version[host], 0};
}

static void use(Offload *o, int32_t i, int k) {
  Check *check = o->check;
  const PlanInstr *instr = &check->plan->instrs.data[i];
  int32_t buf = plan_operand(check->plan, instr, k)->buf, host = buf == PLAN_NONE ? PLAN_NONE : check->image[buf];
  /* What persists on the device too, such as a sum over micro-batches, has a life of its own. */
  if (host == PLAN_NONE || !check_buf(check, host)->persistent || check_buf(check, buf)->persistent) return;
  const OperandSpec *spec = &check->specs[instr->op].operands[k];
  bool overwrites = operand_overwrites(spec, plan_operand(check->plan, instr, k)) && !(o->scaled && is_update(instr->op));
  if (!overwrites && !o->images[buf].changed && o->images[buf].version != o->version[host])
    WRONG("%s uses b%d \"%s\", which is not the latest b%d \"%s\"", check->specs[instr->op].name, buf, check_buf_name(check, buf),
          host, check_buf_name(check, host));
  if (spec->mode != MODE_READ) o->images[buf].changed = i + 1;
}

static void end_segment(Offload *o) {
  Check *check = o->check;
  for (int32_t buf = 0; buf < (int32_t)check->plan->bufs.count; buf++) {
    int32_t i = o->images[buf].changed - 1;
    if (i < 0) continue;
    WRONG("b%d \"%s\" is changed, but never stored to b%d \"%s\"", buf, check_buf_name(check, buf), check->image[buf],
          check_buf_name(check, check->image[buf]));
    o->images[buf].changed = 0;
  }
}
#undef WRONG

static void follow(Offload *o) {
  const Plan *plan = o->check->plan;
  for (uint32_t s = 0; s < plan->segments.count; s++) {
    const PlanSegment *segment = &plan->segments.data[s];
    for (int32_t i = segment->first; i < segment->end; i++) {
      InstrOp op = plan->instrs.data[i].op;
      for (int k = 0; !is_transfer(op) && k < o->check->specs[op].operand_count; k++) use(o, i, k);
      if (is_transfer(op)) transfer(o, i);
    }
    end_segment(o);
  }
}

static bool has_host_buffers(const Plan *plan) {
  for (uint32_t b = 0; b < plan->bufs.count; b++)
    if (plan->bufs.data[b].host) return true;
  return false;
}

void check_offload(Check *check) {
  const Plan *plan = check->plan;
  const bool offloads = has_host_buffers(plan); /* else only transfers can be wrong */
  uint32_t before = check->result->total;
  bool scaled = false;
  check->image = ARENA_ARRAY(check->arena, int32_t, plan->bufs.count);
  for (uint32_t b = 0; b < plan->bufs.count; b++) check->image[b] = PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    scaled |= instr->op == INSTR_CLIP_SCALED;
    if (!offloads && !is_transfer(instr->op)) continue;
    for (int k = 0; k < check->specs[instr->op].operand_count; k++) check_host_operand(check, i, k);
    if (!is_transfer(instr->op) || check->result->total != before) continue;
    check_whole_copy(check, i);
    note_image(check, i);
  }
  if (check->result->total != before || plan->host_bytes == 0) return;
  Arena *scratch = arena_new();
  Offload offload = {check, ARENA_ARRAY(scratch, Image, plan->bufs.count), ARENA_ARRAY(scratch, uint32_t, plan->bufs.count),
                     scaled};
  follow(&offload);
  arena_free(scratch);
}
