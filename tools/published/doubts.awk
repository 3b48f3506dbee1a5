# Owns: why a run cannot be predicted, why it is no evidence of accuracy, and what is taken for granted where a cell is empty.

BEGIN {
  listed["llmf-h100-003"] = listed["llmf-a100-80-003"] = "75.6 of 79.1 GiB: allocator retries"
  listed["mexp-a100-01"] = "78.9 of 79.1 GiB: allocator retries"
  listed["llmf-a100-80-043"] = listed["llmf-a100-80-044"] = "slower than its 2048-token neighbour"
  listed["llmf-a100-40-041"] = "a fifth slower than on half and on twice as many GPUs"
  listed["xt-8b-16g"] = "its source left it out later"
  listed["lpu-a100-18"] = "slower than on the board of 40 GB"
  listed["llmf-h100-050"] = "dips between its neighbours"
  # What notes say of a run, and what that makes of it.
  remarks = split( \
    "cudaMalloc retries=allocator-bound as published;" \
    "power limited=the board's power limit is not stated;" \
    "contradicts itself about precision=its source contradicts itself about precision;" \
    "precision, links=precision and links are not stated;" \
    "rate from MFU=a rate from a rounded MFU whose definition is not stated;" \
    "number of GPUs not=the number of GPUs is not clear;" \
    "median of micro-steps=a median of micro-steps, most without an update;" \
    "tokenized as it trains=text is fetched and tokenized while it trains;" \
    "steps 2 and 3=the first steps of a cold device;" \
    "[Dd]eterministic:? ?([Tt]rue|algorithms|kernels)=its kernels are PyTorch\x27s deterministic ones;" \
    "(batch|length)[a-z ,]* not stated=batch or length is not stated", remark, ";")
}

# Why no prediction can be made, naming the column; "" when one can.
function refusal(    strategy, precision) {
  strategy = strategy_words(); precision = get("precision")
  gsub(/(tp|pp|cp|ep|sp|(tensor|pipeline|context|expert|sequence)[- ]parallel(ism)?)[ =:]*1([^0-9]|$)/, "", strategy) # nothing beside FSDP
  split("layers d_model heads ffn_dim seq_len gpus micro_batch_per_gpu", needed, " ")
  for (i = 1; i in needed; i++)
    if ((needed[i] ~ /^micro/ ? micro_batch() : number(needed[i])) !~ /^[0-9]+$/ || number(needed[i]) < 1) return "column " needed[i] " is \"" get(needed[i]) "\", a number is needed"
  if (cluster_of(get("gpu"), get("gpu_mem_gib"), get("source")) == "") return "gpu \"" get("gpu") "\" has no cluster file"
  if (number("d_model") % number("heads")) return "d_model " get("d_model") " is no multiple of heads " get("heads")
  if (strategy ~ /(^|[^a-z])(tp|pp|cp|ep|sp)([ =:0-9+_-]|$)|(tensor|sequence|context|expert).?parallel|pipeline|ulysses|ring attention/)
    return "strategy \"" get("strategy") "\" is more than FSDP"
  if (precision " " get("notes") ~ /LoRA/ || words("precision") " " words("model_family") ~ /lora|moe|mixtral/)
    return "adapters and experts are not described by these columns"
  if (precision " " get("notes") ~ /(8|4)-?bit|int[48]|nf4|bnb/) return "precision \"" precision "\": states or weights of 8 bits or less are not modelled"
  if (compute_dtype() == "f32" && precision_words() ~ /tf32/) return "precision \"" precision "\": products in TF32 are not calibrated"
  if (precision ~ /[Ff][Pp][48]|[Ff]loat8|e4m3/) return "precision \"" precision "\": products of 8 bits are not calibrated"
  if (precision_words() !~ /^$|bf|b?float16|fp16|f16|half|16-|fp32|tf32|float32|f32|mixed|amp|autocast|not stated|unknown|[?]/) return "precision \"" precision "\" is not known"
  if (words("model_family") ~ /(^|[^a-z])(t5|bert|roberta|vit|flux|dit|unet|resnet|whisper|clip|mamba|rwkv|moe|grok|dbrx|gpt-oss)([^a-z]|$)|deepseek.?v[23]|llama.?4|-a[0-9.]+b/)
    return "model_family \"" get("model_family") "\" is no dense decoder"
  if (words("offload") ~ /nvme/ || !(denied(words("offload")) || offloads_states() || words("offload") ~ /optim|^act[ _]|activation|residual|offload-|param|gradients|cpu|^(yes|true|full)/))
    return "offload \"" get("offload") "\" is not known"
  if (strategy_of(1) == "") return "strategy \"" get("strategy") "\" is not known"
  if (checkpointing_of(words("act_ckpt")) == "") return "act_ckpt \"" get("act_ckpt") "\" is not known"
  if (!denied(words("offload")) && words("offload") ~ /param|gradients|cpuoffload|^(yes|true|cpu|full)/ && words("offload") !~ /activation/ && !offloads_states())
    return "offload \"" get("offload") "\": only optimizer states and residuals can be, and all states by FSDP\x27s CPU offload"
  return ""
}

# By more than rounding.
function contradicts_batch(    said) {
  said = global_batch() / (gpus * mb * s)
  return global_batch() && number("grad_accum") ~ /^[0-9]/ && abs(said / accumulation - 1) > 0.06
}

# Why a run is no evidence of accuracy, or "". Reasons stand in docs/cost-model.md.
function suspect_reason(id, source, notes,    device, i, pair) {
  if (id in listed) return listed[id]
  if (source ~ /gist/) return "trainer without published precision"
  for (i = 1; i <= remarks; i++)
    if (split(remark[i], pair, "=") && notes ~ pair[1]) return pair[2]
  device = cluster_of(get("gpu"), get("gpu_mem_gib"), source)
  if (get("gpu") ~ /PCI|NVL([^i]|$)/ || (device !~ /[ah][18]00|h200/ && !(device ~ /workstation/ && is_native()))) return "device is not calibrated"
  if (notes ~ /vocab not stated/) return "vocabulary and link unknown"
  if (notes ~ /checkpointing not stated/ || silent(words("act_ckpt"))) return "checkpointing is not stated"
  if (words("compile") ~ /not stated|unknown|[?]/) return "whether it was compiled is not stated"
  if (words("compile") ~ /xla|jax|jit|graph|thunder|nvfuser/ && words("compile") !~ /torch.compile|inductor/) return "compiled by other means than torch.compile"
  if (trainer() ~ /maxtext|levanter|easylm|paxml|t5x|(^|[^a-z])(jax|xla)([^a-z]|$)/) return "compiled by other means than torch.compile"
  if (gpus > 1 && device !~ /workstation/ && words("intra_node_link") ~ /pci|(no|without) nvlink|bridge/) return "links within the node are not the cluster file\x27s"
  if (contradicts_batch()) return "its batch is not what its micro-batches make"
  if (published && abs(made / published - 1) > 0.05) return sprintf("its columns make %.3g parameters", made)
  if (claims() ~ /autocast/ || is_cast_at_kernels()) return "autocast keeps its casts of weights, which is not modelled"
  if (words("offload") ~ /offload_wrapper|save_on_cpu/) return "its activations are copied to the host while all else waits"
  if (is_early_composer()) return "kernels under autocast are assumed"
  if (attention_of(notes) == "unfused") return "kernels of unfused attention are assumed"
  if (words("model_family") ~ /gemma[- ]?2([^0-9.b]|$)/) return "Gemma 2 caps its scores, which no fused kernel did, and its logits"
  if (tolower(notes) ~ /(^|[^a-z])(muon|shampoo|soap|galore|lomo|adam-?mini)([^a-z]|$)/) return "its optimizer is not modelled"
  if (strategy_words() ~ /zero ?(\+\+|pp)|qwz|qgz|hpz|(^|[^a-z])mics/) return "its narrow or hierarchical communication is not modelled"
  if (zero_stage(strategy_words()) == 1 && strategy_words() ~ /groups/ && !owners()) return "even shards over groups of ranks, which no strategy says"
  return ""
}

function assume(id, what) { printf "assumed: %s: %s\n", id, what > "/dev/stderr" }

# What no cell says.
function name_assumptions(id) {
  if (silent(words("precision"))) assume(id, "precision is bf16 beside f32 masters")
  if (silent(words("strategy")) && gpus > 1) assume(id, "strategy is the trainer\x27s, " strategy_words())
  if (silent(words("compile"))) assume(id, "compile is " (is_compiled() ? "yes" : is_native() ? "its own" : "no"))
  if (!global_batch() && number("grad_accum") !~ /^[0-9]/) assume(id, "a step is one micro-batch a rank")
  if (number("kv_heads") !~ /^[0-9]/ && !gpt) assume(id, "kv_heads is " kv)
  if (number("vocab") !~ /^[0-9]/ || words("vocab") ~ /[0-9] ?k/) assume(id, "vocab is " v)
  if (!published && !(words("model_family") ~ gpt_names() || words("model_family") ~ llama_names())) assume(id, "the model is a Llama")
  if (get("gpu_mem_gib") !~ /[0-9]/ && get("gpu") !~ /[0-9] ?G|[- (](16|32|40|80|94|96)([^0-9]|$)/ && get("gpu") ~ /[AHV]100/)
    assume(id, "the board is that of " cluster_of(get("gpu"), get("gpu_mem_gib"), get("source")))
  if (number("gpus_per_node") !~ /^[0-9]/ && gpus > 4) assume(id, "gpus_per_node is " per_node)
  if (gpus <= per_node) return
  if (!network_of(get("inter_node_link"))) assume(id, "the link between nodes is the cluster file\x27s")
  else if (per_node > 1 && network_of(get("inter_node_link")) <= 50 && get("inter_node_link") !~ /per |[0-9] *x|x *[0-9]|GB|total/)
    assume(id, "inter_node_link is of a node")
}
