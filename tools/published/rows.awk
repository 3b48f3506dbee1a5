# Owns: published measurements (CSV, one metric a line) -> one .fsdp a run in folder `out`, and a manifest on stdout:
# id <tab> group <tab> suspect <tab> metric=value=unit;... <tab> tokens, GPUs and samples of a step <tab> 1 for eager on one GPU.
# Runs that lack what a prediction needs are named on stderr, and so is what is taken for granted where a cell is empty. Cells are read
# for their meaning, whatever their case: each column has one function below that knows its words.

# Splits a CSV line with quoted fields into f[1..]; returns their number.
function csv(line, f,    n, c, i, quoted, field) {
  n = 0; field = ""; quoted = 0
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "\"") {
      if (quoted && substr(line, i + 1, 1) == "\"") { field = field "\""; i++ } else quoted = !quoted
    } else if (c == "," && !quoted) { f[++n] = field; field = "" } else field = field c
  }
  f[++n] = field
  return n
}

function get(name) { return name in column ? f[column[name]] : "" }

# A cell in lower case, without blanks around it; crosses and ticks as letters.
function words(name,    text) {
  text = tolower(get(name))
  gsub(/×/, "x", text); gsub(/✗|✘|❌/, "no", text); gsub(/✓|✔|✅/, "yes", text)
  gsub(/^ +| +$/, "", text)
  return text
}

# A cell's number: 4096 of "4,096", "4 096", "4k", "4096 (derived)", "seq_len=4096" and "4096 tokens"; the text itself where it is none.
function number(name,    text) {
  text = words(name)
  gsub(/,|~|≈|\x27|’/, "", text); sub(/\(s\)/, "s", text); sub(/ *\(.*$/, "", text)
  while (match(text, /[0-9] [0-9][0-9][0-9]([^0-9]|$)/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
  if (text ~ /^([a-z][a-z_. -]*[=: ] *|m?bs)[0-9.]+/) sub(/^[^0-9]*/, "", text)
  if (name ~ /^(gpus|grad_accum)$/) sub(/^x */, "", text)
  if (name == "grad_accum") sub(/ *x$/, "", text)
  if (name == "gpus") sub(/[ x]+(nvidia )?([abhv][0-9]+[a-z]*([ -].*)?|rtx.*|devices?|ranks?|accelerators?|cards?)$/, "", text) # "8x H100"
  if (name == "micro_batch_per_gpu") sub(/ *[x*] *[0-9]+k?( *tok[a-z]*)?$/, "", text)
  if (name == "global_batch_tokens" && text ~ /^[0-9]+ *[x*] *[0-9]+$/) return text * substr(text, match(text, /[0-9]+$/)) # "64 x 2048"
  sub(/[ -]*(tok(en)?s?|gpus?|heads?|layers?|blocks?|seqs?|sequences|samples|((micro|accumulation)[- ]?)?(steps?|batch(es)?))?([- ]*(per |\/ ?|a )(gpu|device|rank|node|sample|seq(uence)?))?$/, "", text)
  if (name == "gpus" && text ~ /^[0-9]+ *(nodes?)? *[x*] *[0-9]+$/) return text * substr(text, match(text, /[0-9]+$/)) # "4x8"
  if (name == "gpus") sub(/ *x$/, "", text)
  if (text ~ /^[0-9.]+ ?ki?$/) return text * 1024
  if (name == "global_batch_tokens" && text ~ /^[0-9.]+ ?m(i|illion)?$/) return text * 1048576
  return text ~ /^[0-9.]+(e[0-9]+)?$/ ? text + 0 : text
}

# In samples, where the cell counts tokens too.
function micro_batch() { return words("micro_batch_per_gpu") ~ /tok/ && words("micro_batch_per_gpu") !~ /[x*] *[0-9]/ ? number("micro_batch_per_gpu") / number("seq_len") : number("micro_batch_per_gpu") }

# In tokens, where the cell counts sequences too; 0 where it says nothing.
function global_batch(    tokens) {
  tokens = number("global_batch_tokens")
  if (tokens !~ /^[0-9]/) return 0
  return words("global_batch_tokens") ~ /seq|sampl/ ? tokens * number("seq_len") : tokens
}

# "none", "no (eager)", "off", "n/a", "w/o AC", "compile=False": a cell that says there is nothing of the kind.
function denied(text) {
  gsub(/^-+([a-z_]+[.])?/, "", text); sub(/^(ac|gc|ckpt|activation_checkpoint)[.]/, "", text) # of a command line
  sub(/^(ac|gc|((activation|gradient)[_ ])?(checkpoint(ing)?|checkpoints)|ckpt|recompute|(torch[._ ])?compile|(cpu[_ ])?offload(_[a-z]+)?|mode|enabled?)[ =:]+/, "", text)
  return text ~ /^(none|no|n|not|off|false|disabled|without|w\/?o|uncompiled|n\/a|gpu only|on gpu|0)([^a-z0-9].*)?$|^$/
}

# A text without what it denies: "no autocast", "mixed_precision: no", "without fused kernels", "AdamW (fused=False)", "unfused Adam".
function affirmed(text) {
  gsub(/(^|[^a-z])(no|not|non|without|w\/o|instead of)[- ]+((a|an|any|the|by|using|uses|yet) )*(fused|foreach|autocast|amp|tf32|mixed[-_ ]precision|liger|apex)[^;,.]*/, " ", text)
  gsub(/(^|[^a-z])unfused[^;,.]*/, " ", text)
  gsub(/(fused|foreach|autocast|amp|tf32|mixed[-_ ]?precision|liger)[a-z_]*[ =:]+(is |was )?(no|not|off|false|none|disabled|0)([^a-z0-9]|$)/, " ", text)
  return text
}

# Notes, in lower case.
function claims() { return affirmed(tolower(get("notes"))) }

# A cell that leaves open what it is asked.
function silent(text) { return text ~ /^(|-|n\/a.*|default)$|not stated|unknown|[?]/ }

# The number at the start of a text such as "2nd", "fourth" or "other"; 0 where none is.
function ordinal(text) {
  if (text ~ /^[0-9]/) return text + 0
  if (text ~ /^(other|second)/) return 2
  return text ~ /^third/ ? 3 : text ~ /^fourth/ ? 4 : text ~ /^eighth/ ? 8 : 0
}

# --- which run it is ------------------------------------------------------------------------------------

# Why a run is no evidence of accuracy, or "". Reasons stand in docs/cost-model.md.
function suspect_reason(id, source, notes,    device) {
  if (id in listed) return listed[id]
  if (source ~ /gist/) return "trainer without published precision"
  if (notes ~ /cudaMalloc retries/) return "allocator-bound as published"
  if (notes ~ /power limited/) return "the board's power limit is not stated"
  device = cluster_of(get("gpu"), get("gpu_mem_gib"), source)
  if (get("gpu") ~ /PCI|NVL([^i]|$)/ || (device !~ /[ah][18]00|h200/ && !(device ~ /workstation/ && is_native()))) return "device is not calibrated"
  if (notes ~ /vocab not stated/) return "vocabulary and link unknown"
  if (notes ~ /contradicts itself about precision/) return "its source contradicts itself about precision"
  if (notes ~ /precision, links/) return "precision and links are not stated"
  if (notes ~ /rate from MFU/) return "a rate from a rounded MFU whose definition is not stated"
  if (notes ~ /checkpointing not stated/ || silent(words("act_ckpt"))) return "checkpointing is not stated"
  if (words("compile") ~ /not stated|unknown|[?]/) return "whether it was compiled is not stated"
  if (notes ~ /number of GPUs not/) return "the number of GPUs is not clear"
  if (notes ~ /median of micro-steps/) return "a median of micro-steps, most without an update"
  if (notes ~ /tokenized as it trains/) return "text is fetched and tokenized while it trains"
  if (notes ~ /steps 2 and 3/) return "the first steps of a cold device"
  if (words("compile") ~ /xla|jax|jit|graph|thunder|nvfuser/ && words("compile") !~ /torch.compile|inductor/) return "compiled by other means than torch.compile"
  if (trainer() ~ /maxtext|levanter|easylm|paxml|t5x|(^|[^a-z])(jax|xla)([^a-z]|$)/) return "compiled by other means than torch.compile"
  if (gpus > 1 && device !~ /workstation/ && words("intra_node_link") ~ /pci|(no|without) nvlink|bridge/) return "links within the node are not the cluster file\x27s"
  if (contradicts_batch()) return "its batch is not what its micro-batches make"
  if (published && abs(made / published - 1) > 0.05) return sprintf("its columns make %.3g parameters", made)
  if (claims() ~ /autocast/ || is_cast_at_kernels()) return "autocast keeps its casts of weights, which is not modelled"
  if (is_early_composer()) return "kernels under autocast are assumed"
  if (attention_of(notes) == "unfused") return "kernels of unfused attention are assumed"
  if (words("model_family") ~ /gemma[- ]?2([^0-9.b]|$)/) return "Gemma 2 caps its scores, which no fused kernel did, and its logits"
  if (notes ~ /(batch|length)[a-z ,]* not stated/) return "batch or length is not stated"
  if (tolower(notes) ~ /(^|[^a-z])(muon|shampoo|soap|galore|lomo|adam-?mini)([^a-z]|$)/) return "its optimizer is not modelled"
  if (strategy_words() ~ /zero ?(\+\+|pp)|qwz|qgz|hpz|(^|[^a-z])mics/) return "its narrow or hierarchical communication is not modelled"
  if (zero_stage(strategy_words()) == 1 && strategy_words() ~ /groups/ && !owners()) return "even shards over groups of ranks, which no strategy says"
  return ""
}

# The PyTorch team measures on H100 of 96 GB held to 500 W where it says which board; taken so where it does not.
function cluster_of(gpu, memory, source) {
  gpu = board_of(toupper(gpu))
  if (memory == "" && match(gpu, /[0-9]+ ?G|[- (](16|32|40|80|94|96)([^0-9]|$)/)) memory = substr(gpu, RSTART) # "A100-SXM4-40GB", "A100-40"
  memory = memory ~ /[0-9]/ ? gib(memory) : ""
  if (gpu ~ /H800/) return "hgx-h800"
  if (gpu ~ /H100/) return memory + 0 > 90 || (memory == "" && source ~ /github.com\/pytorch\//) ? "h100-96-500w" : "dgx-h100"
  if (gpu ~ /(^|[^G])H200/) return "dgx-h200"
  if (gpu ~ /B200/) return "hgx-b200"
  if (gpu ~ /A800/ && (memory == "" || memory + 0 > 60)) return "hgx-a800"
  if (gpu ~ /A[18]00/) return memory + 0 > 0 && memory + 0 < 60 ? "dgx-a100-40" : "dgx-a100-80"
  if (gpu ~ /V100/) return memory + 0 > 0 && memory + 0 < 20 ? "aws-p3" : "v100-box"
  if (gpu ~ /4090/) return "workstation-pcie"
  if (gpu ~ /PRO ?6000/) return "workstation-pro6000"
  return ""
}

# Of "80", "80GB", "HBM3 80" and "81920 MiB".
function gib(text) {
  sub(/^[^0-9]*/, "", text)
  return text + 0 > 1000 ? text / 1024 : text + 0
}

# What the large clouds' machines hold.
function board_of(gpu) {
  if (gpu ~ /^P5E?N?\./) return gpu ~ /^P5\./ ? "H100 80G" : "H200"
  if (gpu ~ /^P4DE?\.|^A2-/) return gpu ~ /^P4DE|ULTRA/ ? "A100 80G" : "A100 40G"
  if (gpu ~ /^P3(DN)?\./) return gpu ~ /DN/ ? "V100 32G" : "V100 16G"
  if (gpu ~ /^A3-/) return gpu ~ /ULTRA/ ? "H200" : "H100 80G"
  return gpu
}

# NVIDIA's containers are months ahead of releases: cuBLAS of the newest CUDA, and attention by cuDNN.
function in_container(notes) { return notes ~ /container|nvcr|NGC|pjnl/ }

# Months since year 0 of the first "2025-03", "202503" or "Mar 2025" in a text; of a year by itself, its middle; 0 where none is.
function month_of(text,    word) {
  if (match(text, /202[2-9][-_\/]?[01][0-9]/)) {
    word = substr(text, RSTART, RLENGTH)
    return substr(word, 1, 4) * 12 + substr(word, length(word) - 1)
  }
  if (match(text, /(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* 202[2-9]/)) {
    word = substr(text, RSTART, RLENGTH)
    return substr(word, length(word) - 3) * 12 + (index("JanFebMarAprMayJunJulAugSepOctNovDec", substr(word, 1, 3)) + 2) / 3
  }
  return match(text, /202[2-9]/) ? substr(text, RSTART, 4) * 12 + 6 : 0
}

# The version of PyTorch that notes name, or "".
function torch_version(notes) {
  if (!match(notes, /[Tt]orch *(==|v)? *[12]\.[0-9]+/)) return ""
  notes = substr(notes, RSTART, RLENGTH); sub(/^[^0-9]*/, "", notes)
  return notes
}

# When a run was made: by its notes, its address, the number of its thread, or its PyTorch; 0 where nothing says.
function month(    source, when, name, thread, i, n, known) {
  source = get("source"); when = month_of(get("notes"))
  if (!when) when = month_of(source)
  if (!when && get("notes") ~ /torchtitan v0\.[1-9]/) when = month_of("2025-07") # versions were numbered so since
  if (!when && source ~ /torchtitan\/.*performance.md/) when = month_of(get("gpu") ~ /A100/ ? "2024-06" : "2024-12") # its tables were replaced then
  if (when) return when
  if (!match(source, /[a-z]+\/(pull|issues)\/[0-9]+/)) return month_of(releases[torch_version(get("notes"))])
  name = thread = substr(source, RSTART, RLENGTH); sub(/\/.*/, "", name); sub(/.*\//, "", thread)
  n = split(threads[name], known, " ")
  for (i = 1; i < n && thread + 0 >= known[i] + 0; i += 2) when = month_of(known[i + 1])
  return when
}

# Libraries before CUDA 12.4 (PyTorch 2.5, October 2024): the executors that carry a year.
function is_old(notes,    when) {
  if (in_container(notes)) return 0
  if (torch_version(notes)) return torch_version(notes) ~ /^1/ || substr(torch_version(notes), 3) + 0 < 5
  when = month()
  return when && when < 2024 * 12 + 10
}

# In lower case, since "TorchTitan" and "Meta Lingua" are names too.
function trainer() { return tolower(get("source") " " get("notes")) }

function is_titan() { return trainer() ~ /torchtitan/ }

# torchtitan since April 2025: it compiles the loss, shards embedding and head by themselves, and lets go of the last block too.
function is_new_titan() { return is_titan() && month() >= 2025 * 12 + 4 }

# Lightning's models: one product for q, k and v, the loss of logits as they are, every block resharded.
function is_litgpt() { return trainer() ~ /litgpt|lit-gpt|lightning-thunder/ }

function is_deepspeed() { return strategy_words() " " trainer() ~ /deepspeed|github.com\/[a-z]*\/gpt-neox/ }

# The strategy's cell, or what the trainer cannot but do where it is empty; "?" when nothing says.
function strategy_words(    text) {
  text = words("strategy"); gsub(/×/, "x", text)
  if (!silent(text) || text ~ /full|shard|zero|ddp|fsdp/ || number("gpus") == 1) return text
  return is_titan() ? "fsdp2" : is_composer() ? "fsdp1" : "?"
}

# Deals the optimizer's whole tensors to ranks, and broadcasts them (_partition_param_list and broadcast_params of its optimizer).
function is_internlm() { return trainer() ~ /internlm\/|internevo/ }

# Megatron's own and what is built on it: norms of one kernel, weights' gradients added up by their products (gradient_accumulation_fusion).
function is_megatron() { return strategy_words() " " trainer() ~ /megatron|flagscale|mcore/ || (trainer() ~ /(^|[^a-z-])nemo([ \/;,.0-9]|$)/ && trainer() !~ /automodel/) }

# Models of Hugging Face's library, whose loss was of two copies of the logits in f32, one a token shorter, up to its release 4.49 of
# February 2025 (pull request 35646 of transformers); not GPT-2, which leaves logits as they are.
function shifts_logits() {
  if (!month() || month() >= 2025 * 12 + 3 || words("model_family") ~ /gpt-?2/ || trainer() ~ /prime-rl|automodel|litgpt/) return 0
  return trainer() ~ /hugging ?face|transformers|run_clm|(^|[^a-z])trl([^a-z]|$)|llama-?factory|axolotl|xtuner|stanford_alpaca/
}

function is_lingua() { return trainer() ~ /lingua/ }

function is_kempner() { return trainer() ~ /kempnerforge/ }

# Composer: LLM Foundry, and the tables that went before it.
function is_composer() { return trainer() ~ /llm[- ]?foundry|mosaicml/ }

# Composer before 0.16.4 left parameters in f32 where MP was DEFAULT, and cast them under autocast.
function is_early_composer() { return get("source") ~ /mosaicml\/examples/ && words("precision") ~ /amp/ }

# --- columns --------------------------------------------------------------------------------------------

# Kernels of its own: said of how it was compiled, or known of the trainer where nothing was.
function is_native(    text) {
  text = words("compile")
  return text ~ /c\+\+|c ?\/ ?cuda|cuda c([^a-z]|$)/ || (denied(text) && trainer() ~ /\/llm\.c|llmq/ && trainer() !~ /pytorch|factory|hugging ?face|deepspeed/)
}

# Whatever is not denied is a way to compile: "yes", "torch.compile", "per block".
function is_compiled(    text) {
  text = words("compile")
  return !is_native() && !(text ~ /eager/ && text !~ /compile/) && text !~ /^eager/ && !denied(text)
}

# 1 or 2, 0 where it is no FSDP. Without a number: FSDP1 by its names for strategies, by the trainer, or before July 2024.
function fsdp(    text) {
  text = strategy_words()
  if (text ~ /fsdp[- ]?(v?2|[(]v2)([^0-9x]|$)|fully_shard|per-parameter/) return 2
  if (text ~ /fsdp[- ]?(v?1|[(]v1)([^0-9x]|$)|full_shard|grad_op|hybrid_shard|fullysharded/) return 1
  if (text !~ /fsdp|hsdp|(full(y)?|hybrid) shard|(dp|parallel)_shard|reshard/) return 0
  if (is_titan()) return 2
  return is_litgpt() || is_composer() || trainer() ~ /fms-fsdp|maximizing-training/ || (month() && month() < 2024 * 12 + 7) ? 1 : 2
}

function executor_of(    old) {
  if (is_native()) return "native"
  if (is_early_composer()) return "pytorch-fsdp1-autocast"
  if (is_composer()) return "pytorch-fsdp1-" (words("precision") ~ /pure/ ? 2022 : 2023) # what its tables call PURE ran before PyTorch 2.1
  if (compute_dtype() == "f16" && autocasts()) return "pytorch-fsdp1-autocast"
  if (fsdp() == 1) return is_compiled() ? "pytorch-fsdp1-compiled" : "pytorch-fsdp1-eager"
  return (is_compiled() ? "pytorch-fsdp2-compiled" : "pytorch-fsdp2-eager") (is_old(get("notes")) ? "-2024" : "")
}

# DeepSpeed's: 3 of "zero3", "ZeRO stage 3", "ZeRO-DP O3", "zero_stage: 3", "stage 3" and "ZeRO++", which is built on it; 0 where none is named.
function zero_stage(text) {
  sub(/zero[-_ ]*dp[-_ ]*o?|ds[-_]z(ero)?/, "zero", text)
  if (match(text, /(zero|stage)[-_ ]*i+([^a-z]|$)/)) { text = substr(text, RSTART + 4, RLENGTH - 4); return gsub(/i/, "", text) }
  if (text ~ /distributed optimizer|dist[-_ ]?opt/) return 1 # Megatron's
  if (match(text, /(zero|stage)[-_ =:]*(stage)?[-_ =:]*[0123]([^0-9]|$)/)) {
    text = substr(text, RSTART, RLENGTH)
    gsub(/[^0-9]/, "", text)
    return text + 0
  }
  return text ~ /zero ?[+][+]/ ? 3 : 0
}

# The number in a text's first part that a pattern matches; 0 where none does.
function found(text, pattern) {
  if (!match(text, pattern)) return 0
  text = substr(text, RSTART, RLENGTH); sub(/^[^0-9]*/, "", text)
  return text + 0
}

# Ranks that share parameters under HSDP: "shard 8, replicate 16", "2x8" (a device mesh has replicas first), "4 shards", "2 replicas";
# without a number a node's. 0 when that is no split of the ranks.
function width_of(text, per_node,    gpus, width, copies) {
  gpus = number("gpus"); width = found(text, "[0-9]+[- ]?way[- ](fully )?shard")
  if (!width) width = found(text, "shard(s|ed|ing)?([ _](over|across|degree|size|group))?[ =:(]*[0-9]+([^0-9x-]|$)")
  if (!width) width = found(text, "hsdp[-_ ]?[0-9]+$")
  if (!width) width = found(text, "[0-9]+[- ]?shard")
  copies = found(text, "replica(te|tes|s|tion)?(_degree)?[ =:(]*[0-9]+")
  if (!copies) copies = found(text, "[0-9]+[- ]?(way )?replica")
  if (match(text, /[0-9]+ *(x|[*]|, *) *[0-9]+ *([])]|$)/) || match(text, /[0-9]+ *[x*] *[0-9]+/)) { copies = found(text, "[0-9]+ *[x*,]"); width = found(text, "[x*,] *[0-9]+") }
  if (!width) width = copies ? gpus / copies : per_node
  return width < 1 || gpus % width || (copies && copies * width != gpus) ? 0 : width
}

# Ranks down to which FSDP2 reshards after forward, or 0.
function reshard_of(    width) {
  width = fsdp() == 2 ? found(strategy_words(), "reshard[a-z_]*( to)?( groups of)?[ =:]*[0-9]+") : 0
  return width > 1 ? width : 0
}

# "" when nothing is recognised.
function strategy_of(per_node,    text, kept) {
  text = strategy_words()
  kept = zero_stage(text) == 2 || text ~ /grad[-_ ]op|reshard(_after_forward)?[ =:]*(false|no|never|0)|(no|not|without|w\/o) reshard/
  if (text ~ /hybrid|hsdp/ || found(text, "replicate(_degree)?[ =:]*[0-9]+") > 1) return "hybrid_shard:" width_of(text, per_node) (kept ? "\n  reshard no" : "")
  if (zero_stage(text) == 1 && !owners() && text ~ /ddp/) return "shard_optim"
  if (text ~ /no.?shard|ddp|distributeddataparallel|replicated|(zero|stage)[-_ ]?0/ || denied(text)) return "no_shard"
  if (text ~ /single|^(1|one) (gpu|device)/ && text !~ /fsdp|zero|shard/) return "no_shard"
  if (text ~ /shard(ed)?[- ]weights/) return "full_shard"
  if (zero_stage(text) == 1 || owners()) return owners() ? "no_shard" : "shard_optim"
  if (kept || (is_lingua() && text ~ /fsdp|shard|zero/)) return "shard_grad_op" # its full_shard keeps blocks too (build_fsdp_grouping_plan)
  if (text ~ /fsdp|full(y)?[-_ ]?shard|(dp|parallel)_shard|reshard_after/ || zero_stage(text) == 3) return "full_shard"
  return text ~ /^(dp|data[- ]parallel(ism)?)( only|[ =:(]*[0-9]+[)]?)?$/ ? "no_shard" : ""
}

# Ranks that share the optimizer, each with whole tensors: a group's, or all. 0: shards are even.
function owners(    text) {
  text = strategy_words()
  if (!(is_internlm() && zero_stage(text) == 1) && text !~ /zeroredundancyoptimizer|zero redundancy optimizer/) return 0
  return match(text, /groups of [0-9]+/) ? substr(text, RSTART + 10) + 0 : number("gpus")
}

# The precision cell; "no fp32 master" says nothing of f32.
function precision_words(    text) {
  text = words("precision")
  gsub(/bfloat16/, "bf16", text)
  gsub(/no (fp32|float32) /, "no ", text)
  return affirmed(text)
}

# Of products.
function compute_dtype(    text) {
  text = precision_words()
  if (text ~ /bf16|bfloat16/) return "bf16"
  return text ~ /fp16|float16|(^|[^b])f16|half|(^|[^0-9f])16-/ ? "f16" : text ~ /^(fp32|float32|tf32)/ ? "f32" : "bf16"
}

# Whether f16 is cast to as each kernel runs. DeepSpeed casts the whole model, and so does whoever names parameters or gradients of it.
function autocasts(    text) {
  text = precision_words()
  if (is_deepspeed() || text ~ /pure|true|(fp16|float16|half) (param|weight|grad|everything)/) return 0
  return text ~ /amp|autocast|mixed|(fp32|float32) param/
}

# Whether bf16 is cast to as each kernel runs: said so, or mixed by a trainer or strategy that has no other means.
function is_cast_at_kernels(    text) {
  text = precision_words()
  if (is_native() || is_composer() || is_deepspeed() || is_megatron() || compute_dtype() != "bf16") return 0
  return text ~ /autocast/ || (text ~ /amp|mixed|lightning|(fp32|float32) (param|weight)/ && (strategy_of(1) == "no_shard" || (is_litgpt() && text ~ /amp|bf16-mixed/)))
}

# dtype of products, and of gradients as they are reduced.
function precision_of(    text, dtype) {
  text = precision_words(); dtype = compute_dtype()
  if (dtype == "f16" && !autocasts()) return "f16 reduce " (text ~ /(fp32|float32) (grad|reduc)|reduc[-a-z]*[ =:]*(in )?(fp32|float32)/ ? "f32" : "f16")
  if (dtype != "bf16") return dtype " reduce f32"
  if (is_native() && text ~ /bf16 (weights|master)/) return "bf16 reduce bf16" # llmq's model dtype is that of gradients too (its README)
  if (text ~ /(fp32|float32) (grad[a-z]* )?reduc|reduc[-a-z]*[ =:]*(in )?(fp32|float32)/) return "bf16 reduce f32"
  if (text ~ /bf(16|loat16) (grad[a-z]* )?reduc|reduc[-a-z]*[ =:]*(in )?bf(16|loat16)/) return "bf16 reduce bf16"
  if (text ~ /bf(16|loat16) (param(eter)?s?|weights?)?[ ,&+\/]*(and )?grad|grad[a-z]* (in )?bf(16|loat16)/) return "bf16 reduce bf16"
  if (text ~ /pure|reduce(, | and |\/)(buffer )?b(uffer)?|params? and reduce bf16|param\/reduce/) return "bf16 reduce bf16"
  return "bf16 reduce " (has_narrow_states() && text !~ /fp32|float32/ ? "bf16" : "f32") # PyTorch reduces in the dtype of gradients unless told
}

# Whether parameters as the optimizer has them, and its moments, are bf16.
function has_narrow_states(    text) {
  text = precision_words()
  if (text ~ /(fp32|float32) (master|adam|optim|states?|param)|(master|adamw?|optimizer|states?)[a-z+ ]* (in )?(fp32|float32)/) return 0
  if (text ~ /bf16[a-z ,&+]* (master|states?|adamw?|optimizer)/) return 1
  if (text ~ /bf16-true|no master|bf16 (everything|throughout|only)|(everything|all|states) in bf16|bf16 [a-z, ]*optimizer states|bf16 \(?(param(eter)?s?|weights),? ?(and|&|[+]|\/)? ?grad/) return 1
  if (text ~ /(pure|full|all) bf16/ && !is_composer()) return 1
  return text ~ /^b(f16|float16)$/ && trainer() ~ /torchtune|lightning-thunder/ # their default
}

# 3 for "selective, every 3rd block", "selective layer 3", "AC 3" or "1/3"; 0 where nothing of the kind is said.
function every_nth(act) {
  if (act ~ /recompute-/) return 0
  if (match(act, /every [0-9a-z]+/) && ordinal(substr(act, RSTART + 6))) return ordinal(substr(act, RSTART + 6))
  if (match(act, /1\/[0-9]+/)) return substr(act, RSTART + 2) + 0
  if (act ~ /half|alternat|other (block|layer)/) return 2
  if (act ~ /^[0-9]+(nd|rd|th) (block|layer)|^ac[ =:]*[0-9]+$/) return found(act, "[0-9]+")
  if (act !~ /selective|(^|[^a-z])sac[ ,=:]/ || act ~ /op(s|erat|[^t]|$)/) return 0
  if (match(act, /(layers?|blocks?|option|selective|s?ac|,)[ (=]*[0-9]+/)) {
    act = substr(act, RSTART, RLENGTH)
    sub(/^[^0-9]*/, "", act)
    return act + 0
  }
  return act ~ /layer|block/ ? 2 : 0 # torchtitan's default
}

# 8 of "8 of 32 blocks", "last 8 layers", "25 %" of 32; 0 where nothing of the kind is said.
function some_blocks(act,    part) {
  if (act ~ /recompute-|ratio|^full/) return 0
  if (match(act, /[0-9]+ ?(of|\/) ?[0-9]+/)) return found(act, "[0-9]+") / found(substr(act, RSTART), "[/f] ?[0-9]+") * number("layers")
  if (match(act, /[0-9.]+ ?%/)) return int(substr(act, RSTART) / 100 * number("layers") + 0.5)
  part = found(act, "(first|last) [0-9]+ (block|layer)")
  return part ? part : found(act, "^[0-9]+ (blocks|layers)")
}

# full, none, operators, modules (a block's, each by itself), blocks (every_nth says how many), parts (llmq's flags), or "" where nothing
# is recognised.
function checkpointing_of(act) {
  if (denied(act)) return "none"
  if (act ~ /recompute-/) return act ~ /recompute-block/ ? "full" : "parts"
  if (act ~ /(each|every|per) (sub)?module|modules (apart|by themselves)/) return "modules"
  if (every_nth(act) > 1 || some_blocks(act)) return some_blocks(act) == number("layers") ? "full" : "blocks"
  if (every_nth(act) == 1) return "full"
  if (act ~ /core.?att|(mlp|ffn|feed.?forward|attention|attn|norms?)( only|s)?$|partial|budget/) return ""
  if (act ~ /selective|op[- ]level|operator|(^|[^a-z])(sac|ops?)([^a-z]|$)/) return "operators"
  if (act ~ /[0-9]/ && act !~ /full|^1$/) return ""
  return act ~ /full|yes|true|(^|[^a-z])on([^a-z]|$)|enabled|all|every|each|block|layer|checkpoint|recompute|^ac|^1$/ ? "full" : ""
}

# By FSDP2's CPUOffloadPolicy, or said to be of everything. DeepSpeed's optimizer on the CPU is ZeRO-Offload: it runs there, on gradients
# that are moved to it.
function offloads_states(    text) {
  text = words("offload")
  if (text ~ /cpuoffloadpolicy/) return fsdp() == 2
  if (denied(text) || text ~ /activation|residual|offload-|nvme|^act[ _]/) return 0
  if (is_deepspeed()) return strategy_of(1) ~ /full_shard|shard_grad_op/ && text ~ /cpu|host|optimizer|param/
  return fsdp() == 2 && text ~ /cpu|param|^(yes|true|full)/ && text !~ /^optim/
}

function offloads_moments(    text) {
  text = words("offload")
  return !denied(text) && !offloads_states() && text ~ /offload-|optim/
}

# The class of kernels that notes name, or "".
function attention_of(notes) {
  if (notes ~ /[Ff]lash[- ]?[Aa]ttention-? ?3|FA3|cuDNN attention|attention (by|through|via) cuDNN/) return "cudnn"
  if (is_kempner() || in_container(notes)) return "cudnn" # the former leaves the choice to PyTorch of 2026
  if (notes ~ /unfused (attention|kernels)|eager attention|math attention/) return "unfused"
  if (is_early_composer() || notes ~ /[Ff]lash[- ]?[Aa]tt(ention|n)-? ?1/) return "flash1"
  return notes ~ /[Ff]lash[- ]?[Aa]tt(ention|n)/ && notes !~ /[Ff]lash[- ]?[Aa]tt(ention|n)-? ?2/ && month() && month() < 2023 * 12 + 7 ? "flash1" : "" # before the second
}

# By kernels of one pass: PyTorch's own since 2.9 (its pull request 153666), which torchtitan calls; not torchtitan's Triton norm of 2024.
function fuses_norms(said) {
  if (said ~ /transformer engine|apex|xtuner/ || is_megatron()) return 1
  return is_titan() ? month() >= 2025 * 12 + 9 : (said ~ /fused[^;]*norms?([^a-z]|$)/)
}

# Norms, rotary positions and gates each by one kernel.
function fuses_layers(said) { return said ~ /liger/ || (fuses_norms(said) && said ~ /fused[^;]*(swiglu|gat(es|ing)|mlp)/) }

# Products of the head and the loss by parts, so that logits never are all there at once: parts as Liger makes them, or 0.
function head_chunks(said) {
  if (said ~ /liger/ && tolower(get("notes")) !~ /liger[^;]*(without|no) [^;]*(cross|loss)/) return int(v / d + 1)
  if (said ~ /fused[- ]linear[- ](cross|ce|loss)|cut[- ](cross|ce)|linear[- ]cross[- ]entropy|fused (lm[- ])?head|(loss|logits)[^;]* in the (lm[- ])?head/) return int(v / d + 1)
  return 0
}

# An optimizer of one kernel: what notes say; else DeepSpeed's and Apex's own, or what a trainer tells PyTorch (torchtitan since its pull
# request 881 of February 2025).
function fuses_update(said) {
  if (said ~ /foreach|(pytorch|torch.optim)[^;,]*adam/) return said ~ /fused ?adam|adam[a-z ]*\(?,? ?fused/
  if (said ~ /fused ?(adam|optimizer)|apex|adam[a-z ]*\(?,? ?fused/ || is_megatron()) return 1
  if (is_titan()) return !month() || month() >= 2025 * 12 + 3
  return trainer() ~ /torchtune/ || is_litgpt() || is_kempner() || is_lingua() || (is_deepspeed() && said !~ /xtuner/)
}

# Whether checkpointing repeats whole blocks: Hugging Face and those who call it leave torch.utils.checkpoint reentrant.
function repeats_blocks() { return words("act_ckpt") ~ /reentrant|(hf|hugging face[^ ]*) gradient/ && words("act_ckpt") !~ /no[nt]?[- ]?reentrant/ }

# Trainers that tell FSDP2 to reduce gradients in the last micro-batch only (set_requires_gradient_sync); it reduces in each of itself.
function holds_back() { return is_kempner() || is_lingua() || trainer() ~ /nemo|automodel|accelerate|lightning|litgpt|axolotl|\/trl|hugging ?face[^a-z]*(s )?trainer|\/transformers\/|megatron/ }

# Whether gradients are reduced each micro-batch: those that are kept sharded (ZeRO-2 and -3) have no room of their own to add up in, and no device holds
# a sum of them all that is larger than its memory.
function reduces_each(    memory, sum) {
  if (strategy_words() ~ /sharded gradients|(each|every) micro/) return 1
  if (strategy_of(1) !~ /full_shard|shard_grad_op|hybrid/) return 0
  if (is_deepspeed() || (zero_stage(strategy_words()) >= 2 && !fsdp()) || (accumulation > 1 && fsdp() == 2 && !holds_back())) return 1
  memory = gib(get("gpu_mem_gib")); if (memory <= 0) memory = 80
  sum = (precision_of() ~ /f32$/ ? 4 : 2) * (published ? published : made)
  return accumulation > 1 && sum > memory * 2 ^ 30
}

# Options of the executor block, from what the row says about precision, loss, optimizer and offload.
function executor_options(    text, notes, said, act) {
  text = ""; notes = get("notes"); said = claims(); act = words("act_ckpt")
  if (has_narrow_states()) text = text " states bf16"
  if (head_chunks(said)) text = text " loss fused loss_chunks " head_chunks(said)
  else if (said ~ /fused[^;]*cross[- ]entropy/) text = text " loss " (shifts_logits() ? "shifted_fused" : "fused")
  else if (notes ~ /chunked (cross-entropy|CE|loss)|activation checkpointing \(cumul|optimizer[- _]in[- _](backward|bwd)/) text = text " loss chunked"
  else if (compiles_loss()) text = text " loss joint"
  else if (is_litgpt() || notes ~ /logits as they are/) text = text " loss narrow"
  else if (shifts_logits() && !is_compiled()) text = text " loss shifted"
  else if (is_titan() && !is_old(notes)) text = text " loss eager" # compiled or not: the copy in f32 is the loss's own
  else if (strategy_of(1) == "no_shard" && number("gpus") == 1 && is_compiled()) text = text " loss upcast"
  else if (is_kempner()) text = text " loss compiled" # its loss leaves logits in bf16, compiled or not
  else if (compiles_blocks() && !is_titan()) text = text " loss eager"
  if (checkpointing_of(act) ~ /^(operators|modules)$/) text = text " selective " checkpointing_of(act)
  if (attention_of(notes) != "") text = text " attention " attention_of(notes)
  if (match(notes, /lmhead-chunks=[0-9]+/)) text = text " loss_chunks " substr(notes, RSTART + 14, RLENGTH - 14)
  if (is_litgpt()) text = text " packed yes"
  if (fuses_layers(said)) text = text " fused_layers yes"
  else if (fuses_norms(said)) text = text " fused_norms yes"
  if (is_megatron() && strategy_of(1) !~ /full_shard|shard_grad_op|hybrid/) text = text " fused_sums yes"
  if (repeats_blocks()) text = text " reentrant yes"
  if (notes ~ /expandable[_ ]segments/ || (is_titan() && fsdp() == 2 && !is_old(notes))) text = text " expandable_segments yes"
  if (fuses_update(said)) text = text " update fused"
  if (notes ~ /optimizer[- _]in[- _](backward|bwd)/) text = text " update_in_backward yes"
  if (reduces_each()) text = text " reduce micro_batch"
  if (owners()) text = text " owners " owners()
  return text offload_options(words("offload"), act)
}

function offload_options(text, act,    moved) {
  if (denied(text) || offloads_states()) return ""
  if (offloads_moments()) {
    if (text ~ /opt-m|optim/) moved = moved " m"
    if (text ~ /opt-v|optim/) moved = moved " v"
    if (text ~ /master|optim/) moved = moved " master"
  }
  if (text ~ /residual/ || (text ~ /activation|^act[ _]/ && checkpointing_of(act) == "full")) moved = moved " residual" # all that checkpointing keeps
  return moved == "" ? "" : " offload" moved
}

# Block by block: the loss is not among them.
function compiles_blocks() { return is_compiled() && words("compile") ~ /(per|each|every|by|single)[- ](transformer ?)?(block|layer)|regional|(blocks|layers)( only|$)/ }

# By itself or with the model.
function compiles_loss() {
  return is_compiled() && (is_new_titan() || is_lingua() || trainer() ~ /loss (is )?compiled|compiled (loss|with its loss)/)
}

function optimizer_of(notes) {
  return notes ~ /SGD/ ? "sgd" : notes ~ /(^|[^a-zA-Z])Lion([^a-z]|$)/ ? "lion" : notes ~ /Adafactor/ ? "adafactor" : "adamw"
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
    return "offload \"" get("offload") "\": only optimizer states and residuals can be, and all states by FSDP2\x27s CPUOffloadPolicy"
  return ""
}

# --- what is written ------------------------------------------------------------------------------------

function gpt_model(tied) {
  return "use \"families/gpt2.fsdp\"\n" \
    "module wide_mlp(x, d, ffn) { return linear(gelu(linear(x, ffn) as up), d) as down }\n" \
    "module wide_block(x, d, heads, ffn) {\n" \
    "  x = x + attn(layernorm(x) as ln_1, d, heads) as attn\n" \
    "  return x + wide_mlp(layernorm(x) as ln_2, d, ffn) as mlp\n}\n" \
    "model run {\n  input tokens: int[batch, " s "]\n  input targets: int[batch, " s "]\n" \
    "  x = embedding(tokens, " v ", " d ") as wte + positions(" s ", " d ") as wpe\n" \
    "  x = repeat " layers " wide_block(x, " d ", " heads ", " ffn ") as layers\n" \
    "  x = layernorm(x) as norm\n" \
    "  loss = cross_entropy(linear(x, " v ", " (tied ? "weight = wte" : "bias = false") ") as head, targets)\n}\n"
}

# Families that normalise queries and keys before their positions.
function norms_heads(family) { return family ~ /qwen[- ]?3([^0-9.]|$)|olmo[- ]?2|gemma[- ]?3/ }

function llama_model(tied, biased,    qn) {
  biased = biased ? "true" : "false"; qn = norms_heads(words("model_family")) ? "rmsnorm" : ""
  return "use \"families/llama.fsdp\"\n" \
    "module qkv_attention(x, d, heads, kv_heads) {\n" \
    "  q = rope(" qn "(linear(x, " heads * head ", bias = " biased ") as q_proj), heads, theta = 500000)\n" \
    "  k = rope(" qn "(linear(x, " kv * head ", bias = " biased ") as k_proj), kv_heads, theta = 500000)\n" \
    "  v = linear(x, " kv * head ", bias = " biased ") as v_proj\n" \
    "  return linear(attention(q, k, v, heads, causal, kv_heads = kv_heads), d, bias = false) as o_proj\n}\n" \
    "module run_block(x, d, heads, kv_heads, ffn) {\n" \
    "  x = x + qkv_attention(rmsnorm(x) as input_norm, d, heads, kv_heads) as self_attn\n" \
    "  return x + swiglu(rmsnorm(x) as post_norm, d, ffn) as mlp\n}\n" \
    "model run {\n  input tokens: int[batch, " s "]\n  input targets: int[batch, " s "]\n" \
    "  x = embedding(tokens, " v ", " d ") as wte\n" \
    "  x = repeat " layers " run_block(x, " d ", " heads ", " kv ", " ffn ") as layers\n" \
    "  x = rmsnorm(x) as norm\n" \
    "  loss = cross_entropy(linear(x, " v ", " (tied ? "weight = wte" : "bias = false") ") as head, targets)\n}\n"
}

function abs(x) { return x < 0 ? -x : x }

function min(x, y) { return x < y ? x : y }

# A number of parameters: 6738415616, "6.74e9", "~1.4B", "760M"; 0 where none is said.
function parameters_of(text) {
  text = toupper(text); sub(/[(].*/, "", text); gsub(/[~≈, \x27]/, "", text)
  if (text !~ /[0-9][BMK]/ && text + 0 < 1e5) return 0
  return text * (text ~ /[0-9]B/ ? 1e9 : text ~ /[0-9]M/ ? 1e6 : text ~ /[0-9]K/ ? 1e3 : 1)
}

# Parameters of a model whose head shares the embedding's weight.
function parameters(gpt, biased,    block) {
  block = gpt ? 4 * d * d + 2 * d * ffn + 9 * d + ffn : 2 * d * head * heads + 2 * d * head * kv + 3 * d * ffn + 2 * d
  if (biased) block += head * heads + 2 * head * kv
  return layers * block + v * d + (gpt ? s * d + 2 * d : d)
}

function gpt_names() { return "mpt|mosaicgpt|gpt|pythia|bloom|falcon|(^|[^a-z])opt([^a-z]|$)" }

function llama_names() { return "llama|mistral|qwen|internlm|smollm|olmo|granite|kempner|lingua|vicuna|gemma|(^|[^a-z])yi([^a-z]|$)" }

# How far the parameters are from the published number, with and without a shared head.
function nearest(published, gpt, biased,    base) {
  head = d / heads; base = parameters(gpt, biased)
  return min(abs(base - published), abs(base + v * d - published)) / published
}

# Whether sharing the head with the embedding brings the parameters nearer to the published number.
function is_tied(published, gpt, biased,    base) {
  if (!published) return gpt || words("model_family") ~ /llama.?3[.]2.*(1|3)b|gemma|smollm|qwen.*[^0-9](0[.][56]|1[.][578]|3|4)b/
  base = parameters(gpt, biased)
  return abs(base - published) <= abs(base + v * d - published)
}

function distance(published, biased,    base) {
  base = parameters(0, biased)
  return min(abs(base - published), abs(base + v * d - published)) / published
}

# The width of a family's heads where it is not d_model / heads, or 0. Gemma's 27B have heads of 128.
function known_head(family) {
  if (family ~ /qwen[- ]?3([^0-9.]|$)|mistral[- ]?nemo/) return 128
  return family ~ /gemma/ ? (family ~ /27 ?b/ ? 128 : 256) : 0
}

# Numbers in a head: the family's, else d_model / heads, unless the published parameters are those of heads of another width.
function head_of(published, biased,    plain, i) {
  head = known_head(words("model_family"))
  if (head && (!published || distance(published, biased) < 0.05)) return head
  head = plain = d / heads
  if (!published || distance(published, biased) < 0.05) return plain
  split("64 96 128 192 256", widths, " ")
  for (i = 1; i in widths; i++) {
    head = widths[i] + 0
    if (distance(published, biased) < 0.01) return head
  }
  return plain
}

# Where the cell is empty: what makes the published parameters, else the family's.
function kv_heads_of(family, published,    known, i, least, biased) {
  if (family ~ gpt_names()) return heads
  biased = family ~ /qwen[- ]?(1|2)/; known = heads
  if (family ~ /llama[- ]?v?3|mistral|qwen[- ]?3|llama.*70 ?b/) known = heads % 8 ? heads : 8
  head = known_head(family) ? known_head(family) : d / heads
  if (family ~ /qwen[- ]?2/) known = d <= 2048 ? 2 : d <= 3584 ? 4 : 8
  kv = known; least = published ? distance(published, biased) : 0
  for (i = heads; published && least > 0.005 && i >= 1; i--) {
    if (heads % (kv = i)) continue
    if (distance(published, biased) < least) { least = distance(published, biased); known = i }
  }
  return known
}

# "400G", "400GbE", "4x HDR" and "NDR400" name a link's Gb/s.
function spelt_rate(text,    before, rest) {
  if (text !~ /[0-9] *[GT]/ && text ~ /[0-9]/ && match(text, /[EHNX]DR/)) {
    before = substr(text, 1, RSTART - 1); rest = substr(text, RSTART + 3); sub(/^[ -]*[0-9]+/, "", rest)
    return before infiniband[substr(text, RSTART, 1)] " Gb/s" rest
  }
  while (match(text, /[0-9] ?G(bE|E|[^A-Za-z]|$)/)) text = substr(text, 1, RSTART) " Gb/s " substr(text, RSTART + RLENGTH)
  return text
}

# GB/s a node from "1600 Gb/s per node", "400 Gb/s per GPU", "8x 400 Gb/s", "HDR 200 Gb/s x8", "3.2 Tbps" or "200 GB/s"; 0: nothing said.
function network_of(text,    rate, bytes, count) {
  gsub(/EFA ?v[0-9]/, "", text); gsub(/×/, "x", text); sub(/[Gg]bps/, "Gb/s", text)
  while (match(text, /[0-9],[0-9][0-9][0-9]([^0-9]|$)/)) text = substr(text, 1, RSTART) substr(text, RSTART + 2)
  text = spelt_rate(text)
  if (!match(text, /[0-9.]+ *[GT](b|bit|B)/)) return 0
  rate = substr(text, RSTART, RLENGTH)
  bytes = rate ~ /B$/ ? 1 : 8
  count = match(substr(text, 1, RSTART - 1), /[0-9]+ *x/) ? substr(text, RSTART, RLENGTH) + 0 : 0
  if (match(text, /[a-z] *x *[0-9]+/)) { count = substr(text, RSTART, RLENGTH); sub(/^[^0-9]*/, "", count) }
  rate = (rate + 0) * (rate ~ /T/ ? 1000 : 1) / bytes
  if (count) return rate * count
  if (text ~ /per (GPU|device|NIC|adapter|link)|\/ ?GPU/) return rate * per_node
  return rate
}

# Spread evenly where the cell counts them: only their number matters.
function recomputed_blocks(act,    text, i, nth, count) {
  nth = every_nth(act); count = some_blocks(act)
  for (i = 0; i < layers; i++)
    if (nth > 1 ? i % nth == 0 : int((i + 1) * count / layers) > int(i * count / layers)) text = text "  recompute layers." i "\n"
  return text
}

function checkpointing(act,    text) {
  text = "  checkpoint " (checkpointing_of(act) == "full" ? "full" : "none") "\n"
  if (act ~ /recompute-ffn/) text = text "  recompute layers.*.mlp\n"
  if (act ~ /recompute-swiglu/) text = text "  recompute layers.*.mlp.silu layers.*.mlp.mul\n"
  if (act ~ /recompute-norm/) text = text "  recompute layers.*.input_norm layers.*.post_norm\n"
  if (checkpointing_of(act) == "blocks") text = text recomputed_blocks(act)
  return text
}

# What is gathered apart from the blocks, and when it is let go; models of this file call it wte, norm and head. A loss needs a head that
# is a unit of its own at once, so it stays unless the trainer says otherwise.
function units(tied,    text, wrap, apart) {
  wrap = words("wrap"); apart = wrap ~ /embed|wte/ && wrap ~ /output|head/
  if (fsdp() != 2) return ""
  # It tells fully_shard(model) to reshard as well (kempnerforge/distributed/parallel.py).
  if (is_kempner()) return "  reshard yes\n  unit root { wte norm " (tied ? "" : "head ") "reshard yes }\n"
  text = strategy_of(1) == "full_shard" && (is_litgpt() || is_new_titan() || apart) ? "  reshard yes\n" : ""
  if (tied) return text
  if (is_new_titan() || wrap ~ /embed|wte/) text = text "  unit embedding { wte }\n"
  if (is_new_titan()) return text "  unit head { norm head reshard no }\n"
  return text (wrap ~ /output|head/ ? "  unit head { head }\n" : "")
}

# One unit for all of the model, where what is wrapped is said to be that.
function is_whole() { return words("wrap") ~ /^(the )?(whole|entire) model|^root( only)?$|^none/ && fsdp() }

function plan_block(tied,    text) {
  text = "plan {\n  strategy " strategy_of(per_node) "\n  wrap " (strategy_of(1) ~ /shard_grad|full|hybrid/ && is_whole() ? "whole" : "block") "\n"
  text = text (reshard_of() ? "  reshard " reshard_of() "\n" : units(tied)) "  micro_batch " mb "\n"
  text = text checkpointing(words("act_ckpt"))
  if (offloads_states()) text = text "  offload parameters gradients optimizer\n"
  return text "  executor " executor_of() " {" executor_options() " }\n}\n"
}

# Where the cell is empty.
function vocabulary_of(family) {
  if (family ~ /character/) return 256
  if (family ~ /llama[- ]?v?3/) return 128256
  if (family ~ /llama|mistral|vicuna/) return 32000
  if (family ~ /pythia|neox/) return 50432
  if (family ~ /gemma/) return 256000
  if (family ~ /qwen/) return 151936
  if (family ~ /falcon/) return 65024
  if (family ~ /mpt|mosaicgpt/) return 50368
  if (family ~ /gpt/) return 50257
  return family ~ /vocab not stated/ ? 256 : 0
}

# Reads the row's figures into variables of this file; returns why it cannot, or "".
function read_figures(    why, known, exact) {
  why = refusal()
  if (why != "") return why
  d = number("d_model"); heads = number("heads"); kv = number("kv_heads"); ffn = number("ffn_dim"); s = number("seq_len")
  layers = number("layers"); gpus = number("gpus"); per_node = number("gpus_per_node"); mb = micro_batch()
  v = number("vocab"); known = vocabulary_of(words("model_family") " " tolower(get("notes")))
  if (v !~ /^[0-9]/ || (words("vocab") ~ /[0-9] ?k/ && abs(v / (known + 1) - 1) < 0.06)) v = known
  if (!v) return "column vocab is \"" get("vocab") "\", a number is needed"
  if (kv !~ /^[0-9]/) kv = kv_heads_of(words("model_family"), parameters_of(get("params")))
  if (per_node !~ /^[0-9]/ || per_node + 0 > gpus) per_node = gpus < 8 ? gpus : 8
  if (gpus % per_node) return "gpus " gpus " are no whole nodes of " per_node
  if (strategy_of(per_node) ~ /:0/ || (reshard_of() && gpus % reshard_of())) return "strategy \"" get("strategy") "\" is no split of " gpus " GPUs"
  if (heads % kv) return "heads " heads " are no multiple of kv_heads " kv
  accumulation = number("grad_accum")
  if (accumulation !~ /^[0-9]/) {
    exact = accumulation = global_batch() ? global_batch() / (gpus * mb * s) : 1
    if (words("global_batch_tokens") ~ /[0-9] ?[km]/) accumulation = int(exact + 0.5) # a rounded number
    if (accumulation && abs(exact / accumulation - 1) > 0.06) accumulation = exact
  }
  if (accumulation < 1 || accumulation != int(accumulation)) return "global_batch_tokens " get("global_batch_tokens") " is no multiple of gpus x micro-batch x seq_len"
  return ""
}

# By more than rounding.
function contradicts_batch(    said) {
  said = global_batch() / (gpus * mb * s)
  return global_batch() && number("grad_accum") ~ /^[0-9]/ && abs(said / accumulation - 1) > 0.06
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

function write_run(id,    family, biased, tied, path, cluster, network, link) {
  cluster = cluster_of(get("gpu"), get("gpu_mem_gib"), get("source"))
  family = words("model_family"); published = parameters_of(get("params"))
  biased = family ~ /qwen[- ]?(1|2)/
  gpt = family ~ gpt_names() || (published && family !~ llama_names() && nearest(published, 1, 0) < nearest(published, 0, biased))
  head = gpt ? d / heads : head_of(published, biased)
  tied = is_tied(published, gpt, biased)
  made = parameters(gpt, biased) + (tied ? 0 : v * d)
  if (get("params") ~ /^[~ ]*[0-9]([.][0-9])? ?[BM]/) made = published # a rounded one
  path = out "/" id ".fsdp"
  printf "%s", (gpt ? gpt_model(tied) : llama_model(tied, biased)) > path
  printf "train { optimizer %s { lr 1e-4 }  batch %d  precision %s }\n", optimizer_of(get("notes")), gpus * mb * accumulation, precision_of() > path
  network = network_of(get("inter_node_link"))
  link = gpus > per_node && network ? "  network { bandwidth " network "GB/s }\n" : ""
  printf "cluster {\n  use \"clusters/%s.fsdp\"\n  node { devices %d }\n  nodes %d\n%s}\n", cluster, per_node, gpus / per_node, link > path
  printf "%s", plan_block(tied) > path
  close(path)
}

# A run's name: lines of one id that differ in any column of the run are several runs.
function run_of(id,    said, i, first, name) {
  said = ""; first = id
  split("layers d_model heads ffn_dim seq_len gpu gpu_mem_gib gpus micro_batch_per_gpu grad_accum precision strategy act_ckpt offload compile", name, " ")
  for (i = 1; i in name; i++) said = said get(name[i]) SUBSEP
  for (i = 2; id in told && told[id] != said; i++) id = first "_" i
  told[id] = said
  return id
}

function plain(text) { gsub(/[;=\t]/, " ", text); return text }

BEGIN {
  listed["llmf-h100-003"] = listed["llmf-a100-80-003"] = "75.6 of 79.1 GiB: allocator retries"
  listed["mexp-a100-01"] = "78.9 of 79.1 GiB: allocator retries"
  listed["llmf-a100-80-043"] = listed["llmf-a100-80-044"] = "slower than its 2048-token neighbour"
  listed["llmf-a100-40-041"] = "a fifth slower than on half and on twice as many GPUs"
  listed["xt-8b-16g"] = "its source left it out later"
  listed["lpu-a100-18"] = "slower than on the board of 40 GB"
  listed["llmf-h100-050"] = "dips between its neighbours"
  infiniband["E"] = 100; infiniband["H"] = 200; infiniband["N"] = 400; infiniband["X"] = 800 # Gb/s of four lanes
  # When versions of PyTorch were released.
  n = split("2.0 2023-03 2.1 2023-10 2.2 2024-01 2.3 2024-04 2.4 2024-07 2.5 2024-10 2.6 2025-01 2.7 2025-04 2.8 2025-08 2.9 2025-10", known, " ")
  for (i = 1; i < n; i += 2) releases[known[i]] = known[i + 1]
  # When threads of a repository were opened: the first number of a month, and the month.
  threads["torchtitan"] = "1 2024-02 165 2024-03 355 2024-05 432 2024-06 481 2024-07 533 2024-08 624 2024-10 800 2025-01 929 2025-03 1033 2025-04 " \
    "1361 2025-07 1690 2025-09 2461 2026-02 4514 2026-09"
  threads["thunder"] = "1 2024-03 474 2024-05 940 2024-08 1156 2024-09 1261 2024-10 1506 2024-12 1968 2025-04"
  threads["torchtune"] = "1 2023-12 524 2024-03 785 2024-04 987 2024-05 1390 2024-08 1517 2024-09 2003 2024-11 2402 2025-02 2546 2025-04"
}
NR == 1 { sub(/^\357\273\277/, "") } # a byte order mark
{ sub(/\r$/, "") }
NR == 1 {
  n = csv($0, f)
  for (i = 1; i <= n; i++) { title = tolower(f[i]); gsub(/^ +| +$/, "", title); gsub(/[ -]+/, "_", title); column[title] = i }
  if ("id" in column && "metric" in column && "value" in column) next
  print "error: the first line names no columns id, metric and value" > "/dev/stderr"
  broken = 1; exit 1
}
/^[ ,]*$/ { next }
{
  csv($0, f)
  id = get("id"); same = "." get("metric")
  if (substr(id, length(id) - length(same) + 1) == same) id = substr(id, 1, length(id) - length(same))
  else sub(/\.(tokens|samples|step|iter|peak|max|mfu|oom|tflops|steady|speed|memory|reserved|active|alloc)[a-z_0-9]*$/, "", id)
  gsub(/[^A-Za-z0-9._-]/, "_", id) # it names files
  id = run_of(id)
  if (!(id in why)) {
    order[++count] = id
    why[id] = read_figures()
    if (why[id] != "") { printf "skipped: %s: %s\n", id, why[id] > "/dev/stderr"; next }
    write_run(id)
    name_assumptions(id)
    parts = split(id, part, "-")
    group[id] = part[1] (parts > 1 ? "-" part[2] : "")
    if (id ~ /^llmf-a100/) group[id] = group[id] "-" part[3]
    reason[id] = suspect_reason(id, get("source"), get("notes"))
    tokens[id] = gpus * mb * accumulation * s; devices[id] = gpus; samples[id] = gpus * mb * accumulation
    single[id] = gpus == 1 && !is_compiled() && !is_native() # a wider target
  }
  metrics[id] = metrics[id] ";" plain(get("metric")) "=" plain(get("value")) "=" plain(get("unit"))
}
END {
  if (broken) exit 1
  for (i = 1; i <= count; i++) {
    id = order[i]
    if (why[id] == "") printf "%s\t%s\t%s\t%s\t%g\t%d\t%g\t%d\n", id, group[id], reason[id] == "" ? "-" : reason[id], substr(metrics[id], 2), tokens[id], devices[id], samples[id], single[id]
  }
}
