/* Owns: `fsdpc export --to torch|transformers|accelerate`: the policy planned for an FSDP2 executor as what PyTorch and the
 * trainers around it read. What a target cannot say is listed, and refused without --lossy. */
#include "cli/cli.h"
#include "cli/executor.h"
#include "planner/plan/plan_text.h"

#include <jansson.h>

typedef struct Policy {
  Arena *arena;
  const Graph *graph;
  const ExecutorPlan *plan;
  const char *from; /* the plan of our own runtime that it was carried over from, fit for any comment; NULL: none */
  bool *again; /* by block in order: checkpointed */
  VEC(const char *) blocks;
  VEC(const char *) frozen; /* modules and parameters */
  VEC(const char *) losses; /* what the target cannot say */
} Policy;

/* --- what was decided ----------------------------------------------------------------------------------- */

static void lose(Policy *p, const char *what) {
  vec_push(p->arena, &p->losses, what);
}

static uint32_t again_count(const Policy *p) {
  uint32_t count = 0;
  for (uint32_t b = 0; b < p->blocks.count; b++) count += p->again[b];
  return count;
}

/* By torchtitan's policy, which checkpointing of all there is goes before. */
static bool by_operator(const Policy *p) {
  return p->plan->settings.executor.selective == SELECTIVE_OPERATORS && p->plan->settings.checkpoint != CHECKPOINT_FULL;
}

/* Modules that a rule checkpoints whole; a rule of anything less is none that PyTorch can be told. */
static void find_checkpoints(Policy *p) {
  const PlanSettings *s = &p->plan->settings;
  p->again = ARENA_ARRAY(p->arena, bool, p->blocks.count);
  for (uint32_t b = 0; b < p->blocks.count; b++)
    p->again[b] = s->checkpoint == CHECKPOINT_FULL || (s->executor.selective == SELECTIVE_BLOCKS && b % 2 == 0);
  for (uint32_t r = 0; r < s->checkpoints.count; r++) {
    const CheckpointRule *rule = &s->checkpoints.data[r];
    bool hit = false;
    for (uint32_t b = 0; b < p->blocks.count; b++) {
      if (!path_matches(rule->pattern, p->blocks.data[b])) continue;
      hit = true;
      p->again[b] = rule->recompute;
    }
    if (!hit) lose(p, arena_printf(p->arena, "checkpointing \"%s\", which is no block", rule->pattern));
    else if (by_operator(p)) lose(p, arena_printf(p->arena, "\"%s\" apart: all blocks are checkpointed by operator", rule->pattern));
  }
  if (s->executor.selective == SELECTIVE_MODULES) lose(p, "checkpointing of a block's modules, each by itself: none (--checkpoint none or full)");
}

static void find_blocks(Policy *p) {
  for (uint32_t m = 0; m < p->graph->modules.count; m++)
    if (graph_is_block(p->graph, m)) vec_push(p->arena, &p->blocks, p->graph->modules.data[m].name);
}

static bool compiled(const Policy *p) {
  ExecutorId id = p->plan->settings.executor.id;
  return id == EXECUTOR_FSDP2_COMPILED || id == EXECUTOR_FSDP2_COMPILED_2024;
}

static bool reduces_each(const Policy *p) {
  return p->plan->world.accumulation > 1 && p->plan->settings.reduce == CADENCE_MICRO_BATCH;
}

/* What parameters, gradients and moments are kept in. */
static DType state_dtype(const Policy *p) {
  StatesDType told = p->plan->settings.executor.states;
  return told == STATES_RECIPE ? p->graph->recipe.master : told == STATES_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

static bool offloads(const Policy *p) {
  return p->plan->settings.offload > 0;
}

/* Whether all parameters of this path are frozen, and there are any. */
static bool is_frozen(const Graph *graph, const char *path) {
  bool any = false;
  for (uint32_t i = 0; i < graph->params.count; i++) {
    if (!path_matches(path, graph->params.data[i].name)) continue;
    if (!graph->params.data[i].frozen) return false;
    any = true;
  }
  return any;
}

/* Modules of which nothing learns, and else single parameters: few names for many. */
static void find_frozen(Policy *p) {
  for (uint32_t i = 0; i < p->graph->params.count; i++) {
    const GraphParam *param = &p->graph->params.data[i];
    uint32_t last = p->frozen.count;
    if (!param->frozen || (last && path_matches(p->frozen.data[last - 1], param->name))) continue;
    const char *path = param->name;
    for (const char *dot = strchr(param->name, '.'); dot; dot = strchr(dot + 1, '.')) {
      const char *module = arena_strndup(p->arena, param->name, (size_t)(dot - param->name));
      if (!is_frozen(p->graph, module)) continue;
      path = module;
      break;
    }
    vec_push(p->arena, &p->frozen, path);
  }
}

/* All units but the root alike: 0 kept, 1 released; else -1. */
static int32_t common_reshard(const Policy *p) {
  int32_t reshard = p->plan->units.count > 1 ? p->plan->units.data[1].reshard : 1;
  for (uint32_t u = 1; u < p->plan->units.count; u++)
    if (p->plan->units.data[u].reshard != reshard) return -1;
  return reshard <= 1 ? reshard : -1;
}

/* --- torch: a module to import --------------------------------------------------------------------------- */

static const char *torch_dtype(DType type) {
  return type == DTYPE_BF16 ? "torch.bfloat16" : type == DTYPE_F16 ? "torch.float16" : "torch.float32";
}

static void write_names(Text *out, const char *const *names, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) text_printf(out, "%s\"%s\"", i ? ", " : "", names[i]);
}

static void write_list(Text *out, const char *name, const char *const *names, uint32_t count) {
  text_printf(out, "%s = [", name);
  write_names(out, names, count);
  text_printf(out, "]\n");
}

static void write_constants(Text *out, const Policy *p) {
  const ExecutorWorld *w = &p->plan->world;
  const Recipe *recipe = &p->graph->recipe;
  text_printf(out, "REPLICAS, SHARD = %u, %u\n", w->ranks / w->shard, w->shard);
  text_printf(out, "MICRO_BATCH, ACCUMULATION = %lld, %lld  # samples of a rank, micro-batches of a step\n", (long long)w->micro_batch,
              (long long)w->accumulation);
  text_printf(out, "REDUCE_EACH_MICRO_BATCH = %s\n", reduces_each(p) || w->accumulation == 1 ? "True" : "False");
  text_printf(out, "PREFETCH = %lld  # units gathered ahead\n", (long long)p->plan->settings.prefetch);
  text_printf(out, "COMPILE = %s  # each module of UNITS; without any the model\n", compiled(p) ? "True" : "False");
  text_printf(out, "PARAM_DTYPE, REDUCE_DTYPE = %s, %s%s\n", torch_dtype(recipe->compute), torch_dtype(recipe->reduce),
              recipe->compute == DTYPE_F16 ? "  # scale the loss, with torch.amp.GradScaler" : "");
  text_printf(out, "STATE_DTYPE = %s  # of shards, their gradients and moments\n", torch_dtype(state_dtype(p)));
  text_printf(out, "OFFLOAD = %s  # shards, their gradients and moments in host memory; the optimizer runs there\n", offloads(p) ? "True" : "False");
  write_list(out, "FROZEN", p->frozen.data, p->frozen.count);
  text_printf(out, "UNITS = [  # modules gathered together, reshard_after_forward\n");
  for (uint32_t u = 1, b = 0; u < p->plan->units.count; b += p->plan->units.data[u++].blocks) {
    const PlannedUnit *unit = &p->plan->units.data[u];
    text_printf(out, "    ([");
    if (unit->blocks) write_names(out, p->blocks.data + b, unit->blocks);
    else write_names(out, unit->modules.data, unit->modules.count);
    text_printf(out, unit->reshard > 1 ? "], %d),\n" : unit->reshard ? "], True),\n" : "], False),\n", unit->reshard);
  }
  int32_t root = p->plan->units.data[0].reshard;
  text_printf(out, root > 1 ? "]\nROOT_RESHARD = %d" : root ? "]\nROOT_RESHARD = True" : "]\nROOT_RESHARD = False", root);
  text_printf(out, "  # what is in no unit; PyTorch before 2.8 keeps it gathered whatever this says\n");
  text_printf(out, "SELECTIVE = %s  # every second product and attention are kept, the rest runs again\n",
              by_operator(p) ? "True" : "False");
  text_printf(out, "CHECKPOINTED = [");
  const char *separator = "";
  for (uint32_t b = 0; b < p->blocks.count; b++) {
    if (!p->again[b] && !by_operator(p)) continue;
    text_printf(out, "%s\"%s\"", separator, p->blocks.data[b]);
    separator = ", ";
  }
  text_printf(out, "]\n");
}

static const char torch_code[] =
    "\n"
    "_KEPT = {\n"
    "    torch.ops.aten._scaled_dot_product_flash_attention.default,\n"
    "    torch.ops.aten._scaled_dot_product_efficient_attention.default,\n"
    "    torch.ops.aten._scaled_dot_product_cudnn_attention.default,\n"
    "}\n"
    "_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}\n"
    "\n"
    "\n"
    "def _selective_contexts():\n"
    "    products = {False: 0, True: 0}  # forward and recompute count alike\n"
    "\n"
    "    def policy(ctx, op, *args, **kwargs):\n"
    "        products[ctx.is_recompute] += op in _PRODUCTS\n"
    "        odd = products[ctx.is_recompute] % 2 == 1\n"
    "        kept = op in _KEPT or (op in _PRODUCTS and odd)\n"
    "        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE\n"
    "\n"
    "    return create_selective_checkpoint_contexts(policy)\n"
    "\n"
    "\n"
    "def _full_name(model, name):\n"
    "    \"\"\"Hugging Face models with a head hold the rest under a prefix that weights may be published without: transformer.h.0 for h.0.\"\"\"\n"
    "    prefix = getattr(model, \"base_model_prefix\", \"\")\n"
    "    return f\"{prefix}.{name}\" if prefix and not hasattr(model, name.partition(\".\")[0]) else name\n"
    "\n"
    "\n"
    "def _checkpoint(model, name):\n"
    "    parent, _, child = name.rpartition(\".\")\n"
    "    options = {\"context_fn\": _selective_contexts} if SELECTIVE else {}\n"
    "    wrapped = checkpoint_wrapper(model.get_submodule(name), checkpoint_impl=CheckpointImpl.NO_REENTRANT, **options)\n"
    "    setattr(model.get_submodule(parent), child, wrapped)\n"
    "\n"
    "\n"
    "def _prepare_parameters(model):\n"
    "    frozen = [_full_name(model, name) + \".\" for name in FROZEN]\n"
    "    for name, parameter in model.named_parameters():\n"
    "        parameter.data = parameter.data.to(STATE_DTYPE)\n"
    "        if (name + \".\").startswith(tuple(frozen)):\n"
    "            parameter.requires_grad_(False)\n"
    "\n"
    "\n"
    "def apply(model, device_type=\"cuda\"):\n"
    "    \"\"\"Freezes, checkpoints, compiles and shards the model in place; make the optimizer of what requires_grad afterwards.\"\"\"\n"
    "    _prepare_parameters(model)\n"
    "    mesh = init_device_mesh(device_type, (REPLICAS, SHARD), mesh_dim_names=(\"replicate\", \"shard\"))\n"
    "    if REPLICAS == 1:\n"
    "        mesh = mesh[\"shard\"]\n"
    "    options = {\"mesh\": mesh, \"mp_policy\": MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE)}\n"
    "    if OFFLOAD:\n"
    "        options[\"offload_policy\"] = CPUOffloadPolicy(pin_memory=device_type != \"cpu\")\n"
    "    if hasattr(getattr(model, \"config\", None), \"use_cache\"):\n"
    "        model.config.use_cache = False  # of keys and values: what runs again would add to it once more\n"
    "    for name in CHECKPOINTED:\n"
    "        _checkpoint(model, _full_name(model, name))\n"
    "    units = []\n"
    "    for names, reshard in UNITS:\n"
    "        modules = [model.get_submodule(_full_name(model, name)) for name in names]\n"
    "        if COMPILE:\n"
    "            for module in modules:\n"
    "                module.compile()\n"
    "        fully_shard(modules if len(modules) > 1 else modules[0], reshard_after_forward=reshard, **options)\n"
    "        units.append(modules[0])\n"
    "    if COMPILE and not UNITS:\n"
    "        model.compile()\n"
    "    fully_shard(model, reshard_after_forward=ROOT_RESHARD, **options)\n"
    "    for i, unit in enumerate(units):\n"
    "        if PREFETCH > 1:\n"
    "            unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + PREFETCH])\n"
    "            unit.set_modules_to_backward_prefetch(units[max(0, i - PREFETCH) : i][::-1])\n"
    "    return model\n"
    "\n"
    "\n"
    "def before_backward(model, last):\n"
    "    \"\"\"Call before each micro-batch's forward; last: of the step.\"\"\"\n"
    "    model.set_requires_gradient_sync(REDUCE_EACH_MICRO_BATCH or last)\n"
    "    model.set_is_last_backward(last)\n";

/* A path, or a name, as a comment of YAML or Python can hold it. */
static const char *comment_of(Arena *arena, const char *path) {
  char *text = arena_strdup(arena, text_utf8(arena, path));
  for (char *c = text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '"' || *c == '\\') *c = '?';
  return text;
}

static void write_torch(Text *out, Policy *p) {
  const ExecutorPrediction *predicted = &p->plan->prediction;
  char time[32], active[32], reserved[32];
  text_printf(out,
              "\"\"\"FSDP2 for %s as planned for %s on %u rank%s of %s%s%s.\n\n"
              "Predicted: %s a step, %s active, %s reserved. After init_process_group():\n\n"
              "    model = apply(model)\n"
              "    for i in range(ACCUMULATION):\n"
              "        before_backward(model, last=i == ACCUMULATION - 1)\n"
              "        (loss_of(model, next(samples)) / ACCUMULATION).backward()\n\"\"\"\n\n"
              "import torch\n"
              "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper\n"
              "from torch.distributed.device_mesh import init_device_mesh\n"
              "from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard\n"
              "from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts\n\n",
              p->graph->name, executor_name(p->plan->settings.executor.id), p->plan->world.ranks, text_plural(p->plan->world.ranks), comment_of(p->arena, p->graph->cluster.name),
              p->from ? ", by what it can be told of " : "", p->from ? p->from : "", text_time(time, predicted->step_ns), text_bytes(active, (uint64_t)predicted->active_bytes),
              text_bytes(reserved, (uint64_t)predicted->reserved_bytes));
  write_constants(out, p);
  text_printf(out, "%s", torch_code);
}

/* --- transformers and accelerate ------------------------------------------------------------------------- */

/* What both can say: one unit a block, all of them resharded or none, all blocks checkpointed or none. */
static void lose_units(Policy *p) {
  const PlanSettings *s = &p->plan->settings;
  uint32_t largest = 0, again = again_count(p);
  bool apart = p->plan->units.data[0].reshard != 0;
  if (p->plan->units.data[0].blocks) lose(p, "all of the model as one unit: every block becomes one (--wrap block)");
  for (uint32_t u = 1; u < p->plan->units.count; u++) {
    uint32_t blocks = p->plan->units.data[u].blocks;
    if (blocks > largest) largest = blocks;
    apart |= !blocks;
  }
  if (apart) lose(p, "units outside of blocks, or a root that is resharded: all of it is the root, and kept (--to torch)");
  if (largest > 1) lose(p, arena_printf(p->arena, "units of up to %u blocks: every block becomes one (--wrap block)", largest));
  if (common_reshard(p) < 0) lose(p, "resharding that differs by unit, or to groups: all become resharded (--reshard yes or no)");
  if (by_operator(p))
    lose(p, "checkpointing by operator: none (--checkpoint none or full)");
  else if (again && again < p->blocks.count)
    lose(p, arena_printf(p->arena, "checkpointing of %u of %u blocks: all (--checkpoint none or full)", again, p->blocks.count));
  if (s->prefetch > 1) lose(p, "gathering more than one unit ahead (--prefetch 1)");
}

/* Both make one dtype of gathering, reducing and computing, over shards that they raise to f32; what learns is the script's. */
static void lose_dtypes(Policy *p) {
  const Recipe *recipe = &p->graph->recipe;
  if (recipe->compute != recipe->reduce) {
    const char *compute = dtype_name(recipe->compute);
    lose(p, arena_printf(p->arena, "gradients reduced in %s: they are in %s (--precision %s:%s)", dtype_name(recipe->reduce), compute,
                         compute, compute));
  }
  if (state_dtype(p) != DTYPE_F32) lose(p, "parameters kept without f32 masters: they are raised to f32 (--precision bf16)");
  if (p->frozen.count)
    lose(p, arena_printf(p->arena, "frozen parameters, \"%s\" and others: the script must freeze them (--to torch)", p->frozen.data[0]));
}

static void write_transformers(Text *out, Policy *p) {
  const ExecutorWorld *w = &p->plan->world;
  lose_units(p);
  lose_dtypes(p);
  if (w->shard < w->ranks) lose(p, "replicas: the Trainer's fsdp_config has none (--strategy full_shard)");
  json_t *config = json_pack("{s:i, s:b, s:b, s:s, s:b}", "version", 2, "reshard_after_forward", common_reshard(p) != 0, "cpu_offload", offloads(p),
                             "auto_wrap_policy", "TRANSFORMER_BASED_WRAP", "activation_checkpointing", again_count(p) > 0);
  json_t *object = json_pack("{s:b, s:o, s:I, s:I, s:b, s:b, s:b}", "fsdp", 1, "fsdp_config", config, "per_device_train_batch_size",
                             (json_int_t)w->micro_batch, "gradient_accumulation_steps", (json_int_t)w->accumulation, "bf16",
                             p->graph->recipe.compute == DTYPE_BF16, "fp16", p->graph->recipe.compute == DTYPE_F16, "torch_compile",
                             compiled(p));
  if (reduces_each(p))
    json_object_set_new(object, "accelerator_config", json_pack("{s:{s:b}}", "gradient_accumulation_kwargs", "sync_each_batch", 1));
  char *text = json_dumps(object, JSON_INDENT(2));
  text_printf(out, "%s\n", text ? text : "");
  free(text);
  json_decref(object);
}

static void write_accelerate(Text *out, Policy *p) {
  const ExecutorWorld *w = &p->plan->world;
  DType compute = p->graph->recipe.compute;
  lose_units(p);
  lose_dtypes(p);
  bool replicas = w->shard < w->ranks, whole = replicas && w->shard == 1;
  if (whole) lose(p, "replicas without shards, which accelerate refuses: all ranks share (--strategy full_shard)");
  if (reduces_each(p)) lose(p, "reducing each micro-batch: pass GradientAccumulationPlugin(sync_each_batch=True) to Accelerator");
  if (p->from) text_printf(out, "# By what FSDP2 can be told of %s.\n", p->from);
  text_printf(out, "# Micro-batches of %lld sample%s, %lld accumulated: the script says so.\n", (long long)w->micro_batch, text_plural((uint64_t)w->micro_batch),
              (long long)w->accumulation);
  text_printf(out, "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n");
  if (compiled(p)) text_printf(out, "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n");
  text_printf(out,
              "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_reshard_after_forward: %s\n"
              "  fsdp_activation_checkpointing: %s\n  fsdp_offload_params: %s\n  fsdp_cpu_ram_efficient_loading: true\n"
              "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
              common_reshard(p) ? "true" : "false", again_count(p) ? "true" : "false", offloads(p) ? "true" : "false");
  text_printf(out, "mixed_precision: %s\nnum_machines: %u\nnum_processes: %u\n",
              compute == DTYPE_BF16 ? "bf16" : compute == DTYPE_F16 ? "fp16" : "'no'", w->ranks / w->ranks_per_node, w->ranks);
  if (replicas && !whole)
    text_printf(out, "parallelism_config:\n  parallelism_config_dp_replicate_size: %u\n  parallelism_config_dp_shard_size: %u\n",
                w->ranks / w->shard, w->shard);
  text_printf(out, "rdzv_backend: static\nsame_network: true\n");
}

/* --- the command ------------------------------------------------------------------------------------------ */

static int refuse_losses(const Policy *p, const char *target) {
  cli_error("--to %s cannot say all of this policy", target);
  for (uint32_t i = 0; i < p->losses.count; i++) fprintf(stderr, "note: %s\n", p->losses.data[i]);
  fprintf(stderr, "help: plan with the options in parentheses, or pass --lossy; --to torch says the most\n");
  return EXIT_INVALID;
}

static int write_policy(Cli *cli, const Graph *graph, const ExecutorPlan *plan, const char *from, ExportTarget target) {
  static const char *const names[] = {[EXPORT_TORCH] = "torch", [EXPORT_TRANSFORMERS] = "transformers", [EXPORT_ACCELERATE] = "accelerate"};
  static void (*const writers[])(Text *, Policy *) = {
      [EXPORT_TORCH] = write_torch, [EXPORT_TRANSFORMERS] = write_transformers, [EXPORT_ACCELERATE] = write_accelerate};
  Policy policy = {.arena = cli->arena, .graph = graph, .plan = plan, .from = from ? comment_of(cli->arena, from) : NULL};
  Text out = {.arena = cli->arena};
  const char *path = option_text(&cli->options, OPTION_OUTPUT, NULL);
  find_blocks(&policy);
  find_checkpoints(&policy);
  find_frozen(&policy);
  bool gathers = plan->units.count > 1 && (plan->world.shard > 1 || plan->settings.offload > 0);
  if (gathers && plan->settings.prefetch == 0) lose(&policy, "gathering no unit ahead: PyTorch gathers one (--prefetch 1)");
  if (state_dtype(&policy) == DTYPE_BF16 && graph->recipe.rounding == ROUNDING_STOCHASTIC)
    lose(&policy, "stochastic rounding of updates: torch.optim rounds to nearest (in train: precision bf16 master bf16 rounding nearest)");
  writers[target](&out, &policy);
  if (policy.losses.count && !option_given(&cli->options, OPTION_LOSSY)) return refuse_losses(&policy, names[target]);
  for (uint32_t i = 0; i < policy.losses.count; i++) fprintf(stderr, "warning: --to %s cannot say: %s\n", names[target], policy.losses.data[i]);
  if (!path) return fwrite(out.data, 1, out.length, stdout), EXIT_OK;
  return cli_write_file(cli, path, out.data, out.length) ? EXIT_OK : EXIT_INVALID;
}

/* Of FSDP2's two the one that exported policies make by themselves, where nobody said who trains. */
static void default_executor(const Cli *cli, const char *path, PlanSettings *settings) {
  if (settings->executor.id != EXECUTOR_NATIVE || option_given(&cli->options, OPTION_EXECUTOR)) return;
  settings->executor.id = EXECUTOR_FSDP2_COMPILED;
  fprintf(stderr, "note: %s names no executor: planned for pytorch-fsdp2-compiled, which compiles; --executor pytorch-fsdp2-eager does not\n",
          path);
}

/* The device holds what the plan's own budget does not. */
static void warn_budget(const Cli *cli, const char *path, const Plan *from, const ExecutorPlan *plan) {
  char reserved[32], budget[32], enough[32];
  uint64_t bytes = from->summary.budget_bytes;
  if (plan->prediction.reserved_bytes <= (double)bytes || option_given(&cli->options, OPTION_MEMORY)) return;
  fprintf(stderr, "warning: this reserves %s of the device, and %s was planned for %s\nhelp: --memory %s, and options that leave decisions to the "
          "search, such as --checkpoint auto\n", text_bytes(reserved, (uint64_t)plan->prediction.reserved_bytes), path, text_bytes(budget, bytes),
          text_bytes_enough(enough, bytes));
}

int export_policy(Cli *cli, const char *path, ExportTarget target) {
  Graph *graph;
  PlannerOptions options;
  ExecutorPlan plan;
  const Plan *from = NULL;
  int code = plan_is_plan_file(path) ? carry_plan(cli, path, &graph, &options, &from) : compile_settings(cli, path, &graph, &options);
  if (code != EXIT_OK) return code;
  default_executor(cli, graph->path, &options.settings);
  ExecutorId id = options.settings.executor.id;
  if (!executor_is_fsdp2(id))
    return usage_error("pass --executor pytorch-fsdp2-compiled or pytorch-fsdp2-eager", "a policy is exported for FSDP2, not for %s",
                       executor_name(id));
  bool good = plan_executor_watched(cli, graph, &options, &plan);
  if (!cli_print_diags(cli) || !good) return EXIT_INVALID;
  executor_note_assumed(graph, &plan.settings, &plan.world);
  if (!plan.fits) return executor_print_infeasible(&plan), EXIT_NO_FIT;
  if (from) warn_budget(cli, path, from, &plan);
  return write_policy(cli, graph, &plan, from ? path : NULL, target);
}
