/* Owns: one broken plan per verifier rule, each rejected by that rule before any other; no wait of the good
 * plan can go. */
#include "planner/plan/verify.h"
#include "tests/plan/build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static void print_violations(const VerifyResult *result) {
  for (uint32_t i = 0; i < result->violations.count; i++) {
    const Violation *v = &result->violations.data[i];
    printf("  %s: i%d: %s\n", verify_rule_name(v->rule), v->instr, v->text);
  }
}

static void test_good(void **state) {
  (void)state;
  Arena *arena = arena_new();
  VerifyResult result;
  bool good = plan_verify(arena, good_plan(arena), &result);
  print_violations(&result);
  assert_true(good);
  assert_int_equal(result.total, 0);
  arena_free(arena);
}

static void test_every_wait_is_needed(void **state) {
  (void)state;
  int deleted = 0;
  for (int32_t i = 0; i < GOOD_INSTRS; i++) {
    for (uint32_t w = 0;; w++) {
      Arena *arena = arena_new();
      Plan *plan = good_plan(arena);
      VerifyResult result;
      bool more = w < plan->instrs.data[i].wait_count;
      if (more) {
        drop_wait(plan, i, w);
        deleted++;
        if (plan_verify(arena, plan, &result)) fail_msg("wait %u of i%d can go", w, i);
        VerifyRule rule = result.violations.data[0].rule;
        assert_true(rule == VERIFY_NO_EVENT_PATH || rule == VERIFY_GATHER_BEFORE_USE || rule == VERIFY_REUSE);
      }
      arena_free(arena);
      if (!more) break;
    }
  }
  assert_int_equal(deleted, 15);
}

/* --- broken plans ------------------------------------------------------------------------------------ */

typedef struct Breakage {
  VerifyRule rule;
  const char *what;
  void (*apply)(Plan *plan);
} Breakage;

#define BREAK(name) static void name(Plan *plan)

static PlanBuf *buf(Plan *plan, const char *name) {
  return &plan->bufs.data[find_buf(plan, name)];
}
static int64_t *int_of(Plan *plan, int32_t instr, int k) {
  return &plan->ints.data[plan->instrs.data[instr].ints + (uint32_t)k];
}

BREAK(frozen_with_moments) { plan->units.data[1].grad_buf = PLAN_NONE; }
BREAK(ranks) { plan->world.replicas = 3; }
BREAK(no_ranks) { plan->world.ranks = plan->world.shard = 0; }
BREAK(queue) { plan->queue[STREAM_GATHER] = 99; }
BREAK(segment_gap) { plan->segments.data[1].first++; }
BREAK(segment_short) { plan->segments.data[2].end--; }
BREAK(segment_never) { plan->segments.data[0].count = 0; }
BREAK(micro_count) { plan->segments.data[1].count = 3; }
BREAK(no_instrs) { plan->instrs.count = 0; }
BREAK(unknown_op) { plan->instrs.data[3].op = (InstrOp)999; }
BREAK(operand_range) { plan->instrs.data[3].operands = UINT32_MAX; }
BREAK(wait_range) { plan->instrs.data[3].wait_count = UINT32_MAX; }
BREAK(event_range) { plan->waits.data[0] = 1000; }
BREAK(many_events) { plan->event_count = UINT32_MAX; }
BREAK(buf_range) { operand_of(plan, AT_LINEAR, 0)->buf = 4000; }
BREAK(buf_bytes) { buf(plan, "x0")->bytes += 2; }
BREAK(buf_life) { buf(plan, "x0")->last = 4000; }
BREAK(buf_unit) { buf(plan, "x0")->unit = 77; }
BREAK(shard_small) { plan->params.data[0].offset = 128; }
BREAK(param_overlap) { plan->params.data[2].offset = 64; }
BREAK(param_unaligned) { plan->params.data[2].offset += 1; }
BREAK(param_dim) { plan->params.data[0].dim[0] = INT64_MAX; }
BREAK(unit_nameless) { plan->units.data[0].name = 0; }
BREAK(unit_numel) { plan->units.data[0].numel--; }
BREAK(unit_params) { plan->units.data[1].param_count = 1; }
BREAK(unit_buf) { plan->units.data[1].m_buf = plan->units.data[0].m_buf; }
BREAK(master_dtype) { plan->recipe.master = DTYPE_BF16; } /* parameters lie in f32 */
BREAK(rate_negative) { plan->recipe.lr = -1; }
BREAK(eps_zero) { plan->recipe.eps = 0; }
BREAK(eps_rounded_to_zero) { plan->recipe.eps = 1e-60; }
BREAK(momentum_large) { plan->recipe.momentum = 7; }
BREAK(beta_of_one) { plan->recipe.beta2 = 1; }
BREAK(beta2_decay_positive) { plan->recipe.beta2_decay = 0.8; }
BREAK(no_steps) { plan->recipe.steps = 0; }
BREAK(init_negative) { plan->params.data[0].init = (Init){INIT_NORMAL, -5}; }
BREAK(master_wider) { plan->recipe.master = DTYPE_F64; }
BREAK(rounding_of_f32) { plan->recipe.rounding = ROUNDING_STOCHASTIC; }
BREAK(spare_cast) { plan->recipe.compute = DTYPE_F32; }
BREAK(string) { plan->instrs.data[0].name = 1u << 30; }
BREAK(wrong_stream) { plan->instrs.data[AT_LINEAR].stream = STREAM_GATHER; }
BREAK(times) { plan->instrs.data[AT_LINEAR].ns = UINT64_MAX / 2; }
BREAK(loss_missing) { plan->loss_buf = PLAN_NONE; }

BREAK(operand_missing) { *operand_of(plan, AT_LINEAR, 0) = B_NONE; }
BREAK(operand_dtype) { operand_of(plan, AT_EMBED, 0)->buf = find_buf(plan, "x1"); }
BREAK(operand_outside) { operand_of(plan, AT_LINEAR, 1)->offset = 1000; }
BREAK(operand_huge) { operand_of(plan, AT_LINEAR, 1)->offset = INT64_MAX; }
BREAK(operand_rows) { *int_of(plan, AT_LINEAR_DW, 0) = 4; }
BREAK(operand_ld) { operand_of(plan, AT_LINEAR, 0)->ld = 63; }
BREAK(operand_ld_behind) { operand_of(plan, AT_LINEAR, 0)->ld = 65; }
BREAK(operand_add) { operand_of(plan, AT_LINEAR, 3)->add = true; }
BREAK(operand_alias) {
  operand_of(plan, AT_HEAD_DX, 2)->buf = find_buf(plan, "logits");
  operand_of(plan, AT_HEAD_DX, 2)->ld = 0;
  *int_of(plan, AT_HEAD_DX, 2) = 32;
}
BREAK(gather_dtype) { operand_of(plan, AT_GATHER0, 0)->buf = find_buf(plan, "wte.param"); }

BREAK(attribute_ids) { plan->inputs.data[0].vocab++; }
BREAK(attribute_zero) { *int_of(plan, AT_LINEAR, 1) = 0; }
BREAK(attribute_huge) { *int_of(plan, AT_LINEAR, 1) = INT64_MAX; }
BREAK(attribute_unit) { *int_of(plan, AT_GATHER0, 0) = 9; }
BREAK(attribute_other_unit) { *int_of(plan, AT_GATHER0, 0) = 2; }
BREAK(attribute_shard) { *int_of(plan, AT_GATHER0, 1) = 512; }
BREAK(attribute_input) { *int_of(plan, AT_TOKENS, 1) = 2; }
BREAK(segment_begins_twice) { plan->segments.data[0].count = 2; }
BREAK(other_optimizer) { plan->recipe.optimizer = OPTIMIZER_LION; }
BREAK(other_clip) { plan->recipe.clip += 0.5; }
BREAK(other_reduce) { plan->recipe.reduce = DTYPE_F16; }
BREAK(other_samples) { plan->recipe.samples_per_step = 1000003; }
BREAK(other_ignore) { *int_of(plan, AT_COUNT, 1) += 1; }
BREAK(other_targets) { *int_of(plan, AT_COUNT, 0) = 0; }
BREAK(results_swapped) {
  const int32_t loss = plan->loss_buf;
  plan->loss_buf = plan->count_buf, plan->count_buf = loss;
}
BREAK(attribute_nan) { plan->reals.data[plan->instrs.data[AT_CLIP].reals] = NAN; }
BREAK(attribute_state) {
  operand_of(plan, AT_ADAMW, 3)->buf = find_buf(plan, "wte.v");
  operand_of(plan, AT_ADAMW, 4)->buf = find_buf(plan, "wte.m");
}

/* A host arena appears, and the buffer lies in it. */
static void move_to_host(Plan *plan, const char *name) {
  buf(plan, name)->host = true;
  buf(plan, name)->offset = 0;
  plan->host_bytes = (buf(plan, name)->bytes + 255) / 256 * 256;
}
BREAK(computes_on_the_host) { move_to_host(plan, "x1"); }
BREAK(fetches_from_the_device) {
  PlanInstr *instr = &plan->instrs.data[AT_LINEAR];
  instr->op = INSTR_FETCH;
  instr->stream = STREAM_COPY_IN;
}

BREAK(misaligned) { buf(plan, "scale")->offset += 4; }
BREAK(outside) { buf(plan, "dx0")->offset = plan->arena_bytes; }
BREAK(budget) { plan->summary.budget_bytes--; }
BREAK(overlap) { buf(plan, "x1")->offset = buf(plan, "x0")->offset; }
BREAK(overlap_persistent) { buf(plan, "dx0")->offset = buf(plan, "wte.m")->offset; }
BREAK(overlap_among_persistent) { buf(plan, "wte.v")->offset = buf(plan, "wte.m")->offset; }
BREAK(too_early) {
  buf(plan, "x0")->last = AT_LINEAR;
  restate_memory(plan);
}
BREAK(two_segments) {
  buf(plan, "dx0")->last = AT_LOSS_SUM;
  restate_memory(plan);
}
BREAK(gather_late) { drop_wait(plan, AT_HEAD, 0); }
BREAK(gather_missing) {
  *operand_of(plan, AT_LINEAR, 1) = B(find_buf(plan, "fc.full.2"));
  *operand_of(plan, AT_LINEAR, 2) = B_AT(find_buf(plan, "fc.full.2"), 4096);
  buf(plan, "fc.full.2")->first = AT_LINEAR;
  buf(plan, "fc.full")->last = AT_GATHER1;
  restate_memory(plan);
}
/* The bias comes first then, in whole in the first rank's shard. */
BREAK(shard_as_whole) {
  PlanParam *param = &plan->params.data[plan->units.data[1].first_param];
  param[0].offset = 64, param[1].offset = 0;
  operand_of(plan, AT_LINEAR, 1)->offset = operand_of(plan, AT_LINEAR_DW, 2)->offset = operand_of(plan, AT_LINEAR_DX, 1)->offset = 64;
  operand_of(plan, AT_LINEAR_DW, 3)->offset = 0;
  *operand_of(plan, AT_LINEAR, 2) = B(find_buf(plan, "fc.cast"));
}
/* Half of the weight and half of the one that follows. */
BREAK(operand_between) { operand_of(plan, AT_LINEAR, 1)->offset = 64; }
/* Gathered parameters are as large as their gradient. */
BREAK(operand_written) { operand_of(plan, AT_LINEAR_DW, 2)->buf = find_buf(plan, "fc.full.2"); }
/* The bias is as long as a row of the weight. */
BREAK(operand_of_another) { operand_of(plan, AT_LINEAR, 2)->offset = 0; }
BREAK(moment_as_weight) { *operand_of(plan, AT_LINEAR, 2) = B(find_buf(plan, "fc.m")); }
BREAK(names_twice) {
  PlanParam *param = &plan->params.data[plan->units.data[1].first_param];
  param[0].name = param[1].name;
}
BREAK(name_reserved) {
  const StrId name = buf(plan, "wte.gradfull")->name;
  memcpy(plan->strings.data + name, "__metadata__", sizeof "__metadata__"); /* as long */
  plan->params.data[0].name = name;
}
BREAK(unwritten) {
  operand_of(plan, AT_LINEAR, 0)->buf = find_buf(plan, "dx1");
  buf(plan, "dx1")->first = AT_LINEAR;
  restate_memory(plan);
}
BREAK(half_written) {
  *int_of(plan, AT_EMBED, 0) = 4;
  plan->bufs.data[find_buf(plan, "tokens")].class = BUF_WORKSPACE; /* of which some may be used */
  plan->bufs.data[find_buf(plan, "x0")].class = BUF_WORKSPACE;
}
BREAK(no_zero) { drop_instr(plan, AT_ZERO_GRAD); }
BREAK(no_bias_gradient) { *operand_of(plan, AT_LINEAR_DW, 3) = B_NONE; }
BREAK(no_path) { drop_wait(plan, AT_EMBED, 0); }
BREAK(no_path_back) { drop_wait(plan, AT_REDUCE2, 0); }
BREAK(reuse) { drop_wait(plan, AT_GATHER2, 0); }
BREAK(reuse_gradient) { drop_wait(plan, AT_EMBED_DW, 0); }
BREAK(never) { plan->instrs.data[AT_TOKENS].record = PLAN_NONE; }
BREAK(never_here) { plan->waits.data[plan->instrs.data[AT_EMBED].waits] = plan->instrs.data[AT_COUNT].record; }
BREAK(cycle) { plan->waits.data[plan->instrs.data[AT_EMBED].waits] = plan->instrs.data[AT_EMBED_DW].record; }
BREAK(cycle_self) { plan->waits.data[plan->instrs.data[AT_EMBED].waits] = plan->instrs.data[AT_EMBED].record; }
BREAK(recorded_twice) { plan->instrs.data[AT_HEAD].record = plan->instrs.data[AT_EMBED].record; }
BREAK(collective_stream) { plan->instrs.data[AT_GATHER1].stream = STREAM_REDUCE; }
BREAK(collective_compute) { plan->instrs.data[AT_LOSS_SUM].stream = STREAM_COMPUTE; }
BREAK(no_reduce) { drop_instr(plan, AT_REDUCE0); }
BREAK(no_update) { drop_instr(plan, AT_ADAMW + 1); }
BREAK(no_norm) { drop_instr(plan, AT_SQUARES); }
BREAK(reduce_overwrites) { operand_of(plan, AT_REDUCE1, 1)->add = false; }
/* Forward has no such operation. */
BREAK(again_of_nothing) { plan->instrs.data[AT_LINEAR_DX].phase = PHASE_RECOMPUTE; }
BREAK(update_twice) { plan->segments.data[2].count = 2; }
static void become(PlanInstr *instr, const PlanInstr *other) {
  instr->op = other->op, instr->stream = other->stream, instr->operands = other->operands, instr->ints = other->ints;
}
/* The table's gradient comes of dx1, and once more without adding. */
BREAK(second_contribution) {
  become(&plan->instrs.data[AT_LINEAR_DX], &plan->instrs.data[AT_EMBED_DW]);
  *operand_of(plan, AT_EMBED_DW, 1) = B(find_buf(plan, "dx1"));
  buf(plan, "dx1")->last = AT_EMBED_DW;
  buf(plan, "wte.gradfull")->first = AT_LINEAR_DX;
  buf(plan, "wte.gradfull")->offset = plan->arena_bytes; /* nothing else is there */
  plan->arena_bytes += buf(plan, "wte.gradfull")->bytes;
  plan->summary.budget_bytes = plan->arena_bytes;
  restate_memory(plan);
}
/* The loss is summed again in place of the norm. */
BREAK(norm_of_one_shard) { become(&plan->instrs.data[AT_NORM_SUM], &plan->instrs.data[AT_LOSS_SUM]); }
/* The loss is cleared twice, or the norm is, in place of a sum over ranks. */
BREAK(targets_of_one_rank) { become(&plan->instrs.data[AT_COUNT_SUM], &plan->instrs.data[AT_ZERO_LOSS]); }
BREAK(loss_of_one_rank) {
  become(&plan->instrs.data[AT_LOSS_SUM], &plan->instrs.data[AT_ZERO_ACC]);
  buf(plan, "acc")->first--;
  restate_memory(plan);
}
/* At the end of every micro-batch. */
BREAK(loss_summed_twice) {
  plan->segments.data[1].end++;
  plan->segments.data[2].first++;
}
BREAK(persistent_sum) { plan->persistent_bytes++; }
BREAK(max_live) { plan->max_live_bytes--; }
BREAK(arena_long) {
  plan->arena_bytes += 4096;
  plan->summary.budget_bytes += 4096;
}

/* The same reduce again, at the end of the micro-batch. */
BREAK(reduce_twice) {
  PlanInstr *last = &plan->instrs.data[AT_REDUCE0], *again = &plan->instrs.data[AT_LOSS_SUM];
  plan->segments.data[1].end++;
  plan->segments.data[2].first++;
  again->op = last->op, again->operands = last->operands, again->ints = last->ints;
  buf(plan, "wte.gradfull")->last++;
  restate_memory(plan);
}

/* Nothing may contribute after the reduction. */
BREAK(late_contribution) {
  PlanInstr dw = plan->instrs.data[AT_HEAD_DW];
  memmove(&plan->instrs.data[AT_HEAD_DW], &plan->instrs.data[AT_HEAD_DW + 1], 2 * sizeof dw);
  plan->instrs.data[AT_REDUCE2] = dw; /* now dx, reduce, dw */
  drop_wait(plan, AT_REDUCE2 - 1, 0);
  buf(plan, "head.gradfull")->first = AT_HEAD_DX;
  buf(plan, "dx1")->first = AT_HEAD_DW;
  restate_memory(plan);
}

#define CASE(rule, f)                                                                                        \
  { VERIFY_##rule, #f, f }
static const Breakage breakages[] = {
    CASE(STRUCTURE, ranks),
    CASE(STRUCTURE, frozen_with_moments),
    CASE(STRUCTURE, no_ranks),
    CASE(STRUCTURE, queue),
    CASE(STRUCTURE, segment_gap),
    CASE(STRUCTURE, segment_short),
    CASE(STRUCTURE, segment_never),
    CASE(STRUCTURE, micro_count),
    CASE(STRUCTURE, no_instrs),
    CASE(STRUCTURE, unknown_op),
    CASE(STRUCTURE, operand_range),
    CASE(STRUCTURE, wait_range),
    CASE(STRUCTURE, event_range),
    CASE(STRUCTURE, many_events),
    CASE(STRUCTURE, buf_range),
    CASE(STRUCTURE, buf_bytes),
    CASE(STRUCTURE, buf_life),
    CASE(STRUCTURE, buf_unit),
    CASE(STRUCTURE, shard_small),
    CASE(STRUCTURE, param_overlap),
    CASE(STRUCTURE, param_unaligned),
    CASE(STRUCTURE, param_dim),
    CASE(STRUCTURE, names_twice),
    CASE(STRUCTURE, name_reserved),
    CASE(STRUCTURE, unit_nameless),
    CASE(STRUCTURE, unit_numel),
    CASE(STRUCTURE, unit_params),
    CASE(STRUCTURE, unit_buf),
    CASE(STRUCTURE, master_dtype),
    CASE(STRUCTURE, rate_negative),
    CASE(STRUCTURE, eps_zero),
    CASE(STRUCTURE, eps_rounded_to_zero),
    CASE(STRUCTURE, momentum_large),
    CASE(STRUCTURE, beta_of_one),
    CASE(STRUCTURE, beta2_decay_positive),
    CASE(STRUCTURE, no_steps),
    CASE(STRUCTURE, init_negative),
    CASE(STRUCTURE, master_wider),
    CASE(STRUCTURE, rounding_of_f32),
    CASE(STRUCTURE, spare_cast),
    CASE(STRUCTURE, string),
    CASE(STRUCTURE, wrong_stream),
    CASE(STRUCTURE, times),
    CASE(STRUCTURE, loss_missing),
    CASE(OPERAND, operand_missing),
    CASE(OPERAND, operand_dtype),
    CASE(OPERAND, operand_outside),
    CASE(OPERAND, operand_huge),
    CASE(OPERAND, operand_rows),
    CASE(OPERAND, operand_ld),
    CASE(OPERAND, operand_ld_behind),
    CASE(OPERAND, operand_add),
    CASE(OPERAND, operand_alias),
    CASE(OPERAND, operand_between), CASE(OPERAND, operand_written),
    CASE(OPERAND, operand_of_another),
    CASE(OPERAND, moment_as_weight),
    CASE(OPERAND, gather_dtype),
    CASE(STRUCTURE, segment_begins_twice),
    CASE(ATTRIBUTE, other_optimizer),
    CASE(ATTRIBUTE, other_clip),
    CASE(ATTRIBUTE, other_reduce),
    CASE(ATTRIBUTE, other_samples),
    CASE(ATTRIBUTE, other_ignore),
    CASE(ATTRIBUTE, other_targets),
    CASE(ATTRIBUTE, results_swapped),
    CASE(ATTRIBUTE, attribute_ids),
    CASE(ATTRIBUTE, attribute_zero),
    CASE(ATTRIBUTE, attribute_huge),
    CASE(ATTRIBUTE, attribute_unit),
    CASE(ATTRIBUTE, attribute_other_unit),
    CASE(ATTRIBUTE, attribute_shard),
    CASE(ATTRIBUTE, attribute_input),
    CASE(ATTRIBUTE, attribute_nan),
    CASE(ATTRIBUTE, attribute_state),
    CASE(MISALIGNED, misaligned),
    CASE(OUT_OF_ARENA, outside),
    CASE(OVER_BUDGET, budget),
    CASE(OVERLAP, overlap),
    CASE(OVERLAP, overlap_persistent),
    CASE(OVERLAP, overlap_among_persistent),
    CASE(LIVENESS, too_early),
    CASE(LIVENESS, two_segments),
    CASE(GATHER_BEFORE_USE, gather_late),
    CASE(GATHER_BEFORE_USE, gather_missing),
    CASE(GATHER_BEFORE_USE, shard_as_whole),
    CASE(READ_BEFORE_WRITE, unwritten),
    CASE(READ_BEFORE_WRITE, half_written),
    CASE(READ_BEFORE_WRITE, no_zero),
    CASE(READ_BEFORE_WRITE, no_bias_gradient),
    CASE(NO_EVENT_PATH, no_path),
    CASE(NO_EVENT_PATH, no_path_back),
    CASE(REUSE, reuse),
    CASE(REUSE, reuse_gradient),
    CASE(NEVER_RECORDED, never),
    CASE(NEVER_RECORDED, never_here),
    CASE(WAIT_CYCLE, cycle),
    CASE(WAIT_CYCLE, cycle_self),
    CASE(WAIT_CYCLE, recorded_twice),
    CASE(COLLECTIVE_ORDER, collective_stream),
    CASE(COLLECTIVE_ORDER, collective_compute),
    CASE(GRADIENT, no_reduce),
    CASE(RECOMPUTE, again_of_nothing),
    CASE(GRADIENT, no_update),
    CASE(GRADIENT, no_norm),
    CASE(GRADIENT, reduce_overwrites),
    CASE(GRADIENT, second_contribution),
    CASE(GRADIENT, update_twice),
    CASE(GRADIENT, reduce_twice),
    CASE(SUMS, norm_of_one_shard),
    CASE(SUMS, targets_of_one_rank),
    CASE(SUMS, loss_of_one_rank),
    CASE(SUMS, loss_summed_twice),
    CASE(OFFLOAD, computes_on_the_host),
    CASE(OFFLOAD, fetches_from_the_device),
    CASE(SUMMARY, persistent_sum),
    CASE(SUMMARY, max_live),
    CASE(SUMMARY, arena_long),
    CASE(READ_BEFORE_WRITE, late_contribution),
};

static void test_broken(void **state) {
  (void)state;
  uint32_t seen = 0;
  for (size_t i = 0; i < sizeof breakages / sizeof breakages[0]; i++) {
    const Breakage *breakage = &breakages[i];
    Arena *arena = arena_new();
    Plan *plan = good_plan(arena);
    breakage->apply(plan);
    VerifyResult result;
    if (plan_verify(arena, plan, &result)) fail_msg("%s passed", breakage->what);
    if (result.violations.data[0].rule != breakage->rule) {
      print_violations(&result);
      fail_msg("%s: expected %s", breakage->what, verify_rule_name(breakage->rule));
    }
    if (getenv("SHOW")) {
      printf("%s\n", breakage->what);
      print_violations(&result);
    }
    seen |= 1u << breakage->rule;
    arena_free(arena);
  }
  assert_int_equal(seen, (1u << VERIFY_RULE_COUNT) - 1); /* a rule without a broken plan is not tested */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_every_wait_is_needed),
                                     cmocka_unit_test(test_broken)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
