# Owns: column compile, and what notes and the trainer say of kernels, loss and optimizer -> the executor and its options.

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

# Block by block: the loss is not among them.
function compiles_blocks() { return is_compiled() && words("compile") ~ /(per|each|every|by|single)[- ](transformer ?)?(block|layer)|regional|(blocks|layers)( only|$)/ }

# By itself or with the model.
function compiles_loss() {
  return is_compiled() && (is_new_titan() || is_lingua() || trainer() ~ /loss (is )?compiled|compiled (loss|with its loss)/)
}

# Whether bf16 is cast to as each kernel runs: said so, or mixed by a trainer or strategy that has no other means.
function is_cast_at_kernels(    text) {
  text = precision_words()
  if (is_native() || is_composer() || is_deepspeed() || is_megatron() || compute_dtype() != "bf16") return 0
  return text ~ /autocast/ || (text ~ /amp|mixed|lightning|(fp32|float32) (param|weight)/ && (strategy_of(1) == "no_shard" || (is_litgpt() && text ~ /amp|bf16-mixed/)))
}

function executor_of(    old) {
  if (is_native()) return "native"
  if (is_early_composer()) return "pytorch-fsdp1-autocast"
  if (is_composer()) return "pytorch-fsdp1-" (words("precision") ~ /pure/ ? 2022 : 2023) # what its tables call PURE ran before PyTorch 2.1
  if (compute_dtype() == "f16" && autocasts()) return "pytorch-fsdp1-autocast"
  if (fsdp() == 1) return is_compiled() ? "pytorch-fsdp1-compiled" : "pytorch-fsdp1-eager"
  return (is_compiled() ? "pytorch-fsdp2-compiled" : "pytorch-fsdp2-eager") (is_old(get("notes")) ? "-2024" : "")
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

# Models of Hugging Face's library, whose loss was of logits and their copy a token shorter up to its release 4.49 of February 2025 (pull
# request 35646 of transformers).
function shifts_logits() {
  if (!month() || month() >= 2025 * 12 + 3 || trainer() ~ /prime-rl|automodel|litgpt/) return 0
  if (!upcasts_logits() && (autocasts() || is_cast_at_kernels())) return 0 # autocast takes the loss in f32 by itself
  return trainer() ~ /hugging ?face|transformers|run_clm|(^|[^a-z])trl([^a-z]|$)|llama-?factory|axolotl|xtuner|stanford_alpaca/
}

# To f32 first; not its GPT-2, nor GPT-BigCode, which was made of that (modeling_gpt2.py, modeling_gpt_bigcode.py), nor where notes deny it.
function upcasts_logits() { return words("model_family") !~ /gpt[- _]?(2|bigcode)/ && tolower(get("notes")) !~ /(not|never|without|no) upcast/ }

# An optimizer of one kernel: what notes say; else DeepSpeed's and Apex's own, or what a trainer tells PyTorch (torchtitan since its pull
# request 881 of February 2025).
function fuses_update(said) {
  if (said ~ /foreach|(pytorch|torch.optim)[^;,]*adam/) return said ~ /fused ?adam|adam[a-z ]*\(?,? ?fused/
  if (said ~ /fused ?(adam|optimizer)|apex|adam[a-z ]*\(?,? ?fused/ || is_megatron()) return 1
  if (is_titan()) return !month() || month() >= 2025 * 12 + 3
  return trainer() ~ /torchtune/ || is_litgpt() || is_kempner() || is_lingua() || (is_deepspeed() && said !~ /xtuner/)
}

function optimizer_of(notes) {
  return notes ~ /SGD/ ? "sgd" : notes ~ /(^|[^a-zA-Z])Lion([^a-z]|$)/ ? "lion" : notes ~ /Adafactor/ ? "adafactor" : "adamw"
}

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
  else if (said ~ /fused[^;]*cross[- ]entropy/) text = text " loss " (shifts_logits() ? "shifted" (upcasts_logits() ? "" : "_narrow") "_fused" : "fused")
  else if (notes ~ /chunked (cross-entropy|CE|loss)|activation checkpointing \(cumul|optimizer[- _]in[- _](backward|bwd)/) text = text " loss chunked"
  else if (compiles_loss()) text = text " loss joint"
  else if (is_litgpt() || notes ~ /logits as they are/) text = text " loss narrow"
  else if (shifts_logits() && !is_compiled()) text = text " loss shifted" (upcasts_logits() ? "" : "_narrow")
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
