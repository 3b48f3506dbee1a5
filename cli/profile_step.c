/* Owns: profile_step.h. Kernels are timed where they will run: in steps of a plan, by its backend, with what the instructions
 * before left in the caches and the other ranks at work beside. Each model is a block of GPT-2's kind and one of Llama's, so
 * that every common kernel occurs; sizes differ in every length that times depend on. */
#include "cli/profile.h"

#include "frontend/graph.h"
#include "planner/planner.h"
#include "runtime/backends.h"
#include "runtime/launch/launch.h"
#include "runtime/runtime.h"
#include "runtime/files/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Of each model: steps that warm up, steps that count. A model is run in PROFILE_ROUNDS, far apart in time: other
 * processes rarely disturb all. */
enum { WARM_UP = 1, MEASURED = 3, QUIET = 1 /* of the measured steps, in order of time */ };

/* Samples: of one rank. Heads have head_dim dimensions. */
typedef struct Sizes {
  int d, head_dim, ctx, samples, vocab;
} Sizes;

static const Sizes sizes_of[PROFILE_MODELS] = {
#ifdef FSDPC_PROFILE_BRIEF
    {32, 16, 32, 4, 256}, {96, 32, 32, 4, 512}, {160, 32, 16, 2, 2048}, {128, 64, 128, 1, 512}, {192, 32, 64, 2, 256}};
#else
    {128, 32, 128, 16, 256}, {384, 64, 128, 8, 512}, {640, 64, 64, 2, 8192}, {512, 128, 512, 1, 2048}, {768, 64, 256, 2, 1024}};
#endif

/* Whole tensors are gathered before and reduced after the pass: nothing communicates beside the kernels. */
static const char model_text[] =
    "module gpt(x, d, heads) {\n"
    "  q, k, v = split(linear(layernorm(x) as ln_1, 3*d) as c_attn, 3)\n"
    "  x = x + linear(attention(q, k, v, heads, causal), d) as c_proj\n"
    "  return x + linear(gelu(linear(layernorm(x) as ln_2, 4*d) as c_fc), d) as c_out\n"
    "}\n"
    "module llama(x, d, heads) {\n"
    "  y = rmsnorm(x) as norm_1\n"
    "  q = rope(linear(y, d, bias = false) as q_proj, heads)\n"
    "  k = rope(linear(y, d, bias = false) as k_proj, heads)\n"
    "  v = silu(linear(y, d, bias = false) as v_proj)\n" /* read twice: an instruction of its own, as is the product */
    "  x = x + linear(v * attention(q, k, v, heads, causal), d, bias = false) as o_proj\n"
    "  y = rmsnorm(x) as norm_2\n"
    "  gate = silu(linear(y, 3*d, bias = false) as gate_proj)\n"
    "  return x + linear(gate * linear(y, 3*d, bias = false) as up_proj, d, bias = false) as down_proj\n"
    "}\n"
    "model profile {\n"
    "  let d = %d, heads = %d, ctx = %d, vocab = %d\n"
    "  input tokens: int[batch, ctx]\n"
    "  input targets: int[batch, ctx]\n"
    "  x = embedding(tokens, vocab, d) as wte + positions(ctx, d) as wpe\n"
    "  x = llama(gpt(x, d, heads) as h_0, d, heads) as h_1\n"
    "  loss = cross_entropy(linear(layernorm(x) as ln_f, vocab, weight = wte) as lm_head, targets)\n"
    "}\n"
    "train { optimizer adamw { lr 1e-4 } batch %d steps 1 precision f32 clip 1.0 seed 1 }\n"
    "cluster {\n"
    "  device cpu { memory 8GiB bandwidth 10GB/s peak f32 100GFLOPS launch 1us shared_queue yes }\n"
    "  node { devices %u bandwidth 1GB/s latency 10us }\n"
    "}\n"
    "plan { strategy %s wrap whole checkpoint none offload none micro_batch %d }\n";

static const char *plan_model(Arena *arena, const Sizes *s, uint32_t ranks, const Plan **plan) {
  static const char path[] = "profile.fsdp"; /* only a name: the text is here */
  const char *text = arena_printf(arena, model_text, s->d, s->d / s->head_dim, s->ctx, s->vocab, s->samples * (int)ranks, ranks,
                                  ranks > 1 ? "full_shard" : "no_shard", s->samples);
  SourceSet sources = {.arena = arena};
  DiagSink sink = {.arena = arena, .sources = &sources};
  SourceFile file = {path, text, strlen(text)};
  FrontendOptions options = {0};
  vec_push(arena, &sources.overlays, file);
  const Graph *graph = frontend_compile(arena, &sources, &sink, path, &options);
  if (!graph) return "the model to measure with does not compile";
  PlannerOptions choices = {.ranks = ranks, .settings = graph->plan};
  PlannerResult result;
  planner_plan(arena, &sink, graph, &choices, 0, NULL, &result);
  *plan = result.plan;
  return result.plan && result.fits ? NULL : "the model to measure with does not fit into memory";
}

/* --- a rank ---------------------------------------------------------------------------------------------- */

typedef struct Job {
  const Plan *plan;
  const BackendKind *kind;
  uint32_t threads;
  double *ns; /* shared: rank 0's times of instructions, and behind them the gap */
} Job;

static void fill(Feed *feed, const StepState *state, int32_t input, int32_t *out, uint64_t count) {
  (void)feed, (void)state, (void)input;
  for (uint64_t i = 0; i < count; i++) out[i] = (int32_t)(i * 7 % 251); /* below every vocabulary */
}

static uint64_t count(Feed *feed, const StepState *state, int32_t input, int64_t ignore) {
  (void)feed, (void)state, (void)input, (void)ignore;
  return 1;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Median over neighbours on the compute queue of which the latter waits for nothing else. */
static double median_gap(Arena *arena, const Plan *plan, const InstrTime *times) {
  double *gaps = ARENA_ARRAY(arena, double, plan->instrs.count);
  size_t found = 0;
  int32_t before = PLAN_NONE;
  for (int32_t i = 0; i < (int32_t)plan->instrs.count; i++) {
    const PlanInstr *instr = &plan->instrs.data[i];
    if (instr->stream != STREAM_COMPUTE) continue;
    if (before != PLAN_NONE && instr->wait_count == 0) gaps[found++] = (double)times[i].start_ns - (double)times[before].end_ns;
    before = i;
  }
  qsort(gaps, found, sizeof *gaps, ascending);
  return found > 0 ? fmax(0, gaps[found / 2]) : 0;
}

static bool run_steps(Arena *arena, const Job *job, const RankMachine *machine) {
  const Plan *plan = job->plan;
  Backend *backend = machine->backend;
  InstrTime *times = ARENA_ARRAY(arena, InstrTime, plan->instrs.count);
  double *all = ARENA_ARRAY(arena, double, plan->instrs.count * MEASURED), gaps[MEASURED];
  StepState state = {.lr = 1e-4};
  for (state.step = 1; state.step <= WARM_UP + MEASURED; state.step++) {
    for (int32_t s = 0; s < (int32_t)plan->segments.count; s++)
      for (state.repetition = 0; state.repetition < plan->segments.data[s].count; state.repetition++)
        if (!backend->run_segment(backend, s, &state, times)) return false;
    if (state.step <= WARM_UP) continue;
    uint64_t at = state.step - WARM_UP - 1;
    for (uint32_t i = 0; i < plan->instrs.count; i++)
      all[i * MEASURED + at] = (double)(times[i].end_ns - times[i].start_ns);
    gaps[at] = median_gap(arena, plan, times);
  }
  if (machine->comm->rank != 0) return true;
  for (uint32_t i = 0; i < plan->instrs.count; i++) {
    qsort(&all[i * MEASURED], MEASURED, sizeof *all, ascending);
    job->ns[i] = fmin(job->ns[i], all[i * MEASURED + QUIET]);
  }
  qsort(gaps, MEASURED, sizeof *gaps, ascending);
  job->ns[plan->instrs.count] = fmin(job->ns[plan->instrs.count], gaps[QUIET]);
  return true;
}

static int rank_main(void *user, const RankEnv *env) {
  const Job *job = user;
  Arena *arena = arena_new();
  Failure failure = {0};
  RankMachine machine;
  Feed feed = {fill, count};
  RankSetup setup = {.plan = job->plan, .kind = job->kind, .env = env, .feed = &feed, .threads = job->threads};
  bool ok = rank_open(arena, &machine, &setup, &failure) &&
            weights_init(job->plan, machine.ranges, machine.backend, machine.kernels, &machine.context, &failure) &&
            run_steps(arena, job, &machine);
  if (!ok) control_fail(env->control, env->rank, &failure);
  rank_close(&machine);
  arena_free(arena);
  return ok ? RUN_OK : RUN_INVALID;
}

/* --- all of them ----------------------------------------------------------------------------------------- */

bool profile_launch(const LaunchJob *job, Failure *failure) {
  failure->code = launch_run(job);
  return failure->code == RUN_OK;
}

static bool run_model(Job *job, uint32_t ranks, Failure *failure) {
  LaunchJob launch = {.ranks = ranks, .arena_bytes = job->kind->shared_bytes(job->plan), .rank_main = rank_main, .user = job};
  return profile_launch(&launch, failure);
}

static bool open_step(Arena *arena, const Sizes *sizes, uint32_t ranks, ProfileStep *step, Failure *failure) {
  const char *why = plan_model(arena, sizes, ranks, &step->plan);
  if (why) return fail(failure, RUN_INVALID, "%s", why);
  size_t count = step->plan->instrs.count + 1u;
  step->ns = mmap(NULL, count * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (step->ns == MAP_FAILED) return fail(failure, RUN_INVALID, "not enough memory");
  for (size_t i = 0; i < count; i++) step->ns[i] = INFINITY;
  return true;
}

bool profile_steps(Arena *arena, uint32_t ranks, uint32_t threads, ProfileStep steps[PROFILE_MODELS], Failure *failure) {
  Job job = {.kind = backend_find(NULL, failure), .threads = threads};
  for (int m = 0; m < PROFILE_MODELS; m++)
    if (!open_step(arena, &sizes_of[m], ranks, &steps[m], failure)) return false;
  for (int i = 0; i < PROFILE_ROUNDS * PROFILE_MODELS; i++) {
    job.plan = steps[i % PROFILE_MODELS].plan, job.ns = steps[i % PROFILE_MODELS].ns;
    if (!run_model(&job, ranks, failure)) return false;
  }
  for (int m = 0; m < PROFILE_MODELS; m++) steps[m].gap_ns = steps[m].ns[steps[m].plan->instrs.count];
  return true;
}
