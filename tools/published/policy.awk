# Owns: columns strategy, precision, act_ckpt and offload -> what they ask for, each in the words of the plan block.

# The strategy's cell, or what the trainer cannot but do where it is empty; "?" when nothing says.
function strategy_words(    text) {
  text = words("strategy"); gsub(/×/, "x", text)
  if (!silent(text) || text ~ /full|shard|zero|ddp|fsdp/ || number("gpus") == 1) return text
  return is_titan() ? "fsdp2" : is_composer() ? "fsdp1" : "?"
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

# Ranks that share the optimizer, each with whole tensors: a group's, or all. 0: shards are even.
function owners(    text) {
  text = strategy_words()
  if (!(is_internlm() && zero_stage(text) == 1) && text !~ /zeroredundancyoptimizer|zero redundancy optimizer/) return 0
  return match(text, /groups of [0-9]+/) ? substr(text, RSTART + 10) + 0 : number("gpus")
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

# Whether parameters as the optimizer has them, and its moments, are bf16.
function has_narrow_states(    text) {
  text = precision_words()
  if (text ~ /(fp32|float32) (master|adam|optim|states?|param)|(master|adamw?|optimizer|states?)[a-z+ ]* (in )?(fp32|float32)/) return 0
  if (text ~ /bf16[a-z ,&+]* (master|states?|adamw?|optimizer)/) return 1
  if (text ~ /bf16-true|no master|bf16 (everything|throughout|only)|(everything|all|states) in bf16|bf16 [a-z, ]*optimizer states|bf16 \(?(param(eter)?s?|weights),? ?(and|&|[+]|\/)? ?grad/) return 1
  if (text ~ /(pure|full|all) bf16/ && !is_composer()) return 1
  return text ~ /^b(f16|float16)$/ && trainer() ~ /torchtune|lightning-thunder/ # their default
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

# Whether checkpointing repeats whole blocks: Hugging Face and those who call it leave torch.utils.checkpoint reentrant.
function repeats_blocks() { return words("act_ckpt") ~ /reentrant|(hf|hugging face[^ ]*) gradient/ && words("act_ckpt") !~ /no[nt]?[- ]?reentrant/ }

# By FSDP2's CPUOffloadPolicy, FSDP1's CPUOffload, or said to be of everything. DeepSpeed's optimizer on the CPU is ZeRO-Offload: it runs there, on gradients
# that are moved to it.
function offloads_states(    text) {
  text = words("offload")
  if (text ~ /cpuoffload/) return fsdp() > 0
  if (denied(text) || text ~ /activation|residual|offload-|nvme|^act[ _]/) return 0
  if (is_deepspeed()) return strategy_of(1) ~ /full_shard|shard_grad_op/ && text ~ /cpu|host|optimizer|param/
  return fsdp() == 2 && text ~ /cpu|param|^(yes|true|full)/ && text !~ /^optim/
}

function offloads_moments(    text) {
  text = words("offload")
  return !denied(text) && !offloads_states() && text ~ /offload-|optim/
}
