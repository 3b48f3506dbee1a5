# Owns: published measurements (CSV, one metric a line) -> one .fsdp a run in folder `out`, and a manifest on stdout:
# id <tab> group <tab> suspect <tab> metric=value;... <tab> tokens, GPUs and samples of a step <tab> 1 for eager on one GPU.
# Runs that lack what a prediction needs are named on stderr.

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

# Why a run is no evidence of accuracy, or "". Reasons stand in docs/cost-model.md.
function suspect_reason(id, source, notes,    device) {
  if (id in listed) return listed[id]
  if (source ~ /gist/) return "trainer without published precision"
  if (notes ~ /cudaMalloc retries/) return "allocator-bound as published"
  if (notes ~ /power limited/) return "the board's power limit is not stated"
  device = cluster_of(get("gpu"), get("gpu_mem_gib"), source)
  if (device !~ /a100|h100|h200/ && !(device ~ /workstation/ && get("compile") ~ /C\+\+/)) return "device is not calibrated"
  if (notes ~ /vocab not stated/) return "vocabulary and link unknown"
  if (notes ~ /precision, links/) return "precision and links are not stated"
  if (notes ~ /rate from MFU/) return "a rate from a rounded MFU whose definition is not stated"
  if (notes ~ /checkpointing not stated/) return "checkpointing is not stated"
  if (notes ~ /number of GPUs not/) return "the number of GPUs is not clear"
  if (notes ~ /median of micro-steps/) return "a median of micro-steps, most without an update"
  if (notes ~ /tokenized as it trains/) return "text is fetched and tokenized while it trains"
  if (notes ~ /steps 2 and 3/) return "the first steps of a cold device"
  if (notes ~ /autocast/) return "autocast keeps its casts of weights, which is not modelled"
  return ""
}

# The PyTorch team measures on H100 of 96 GB held to 500 W where it says which board; taken so where it does not.
function cluster_of(gpu, memory, source) {
  if (gpu ~ /H100/) return memory + 0 > 90 || (memory == "" && source ~ /github.com\/pytorch\//) ? "h100-96-500w" : "dgx-h100"
  if (gpu ~ /H200/) return "dgx-h200"
  if (gpu ~ /B200/) return "hgx-b200"
  if (gpu ~ /A100|A800/) return memory + 0 > 0 && memory + 0 < 60 ? "dgx-a100-40" : "dgx-a100-80"
  if (gpu ~ /V100/) return memory + 0 > 0 && memory + 0 < 20 ? "aws-p3" : "v100-box"
  if (gpu ~ /4090/) return "workstation-pcie"
  if (gpu ~ /PRO 6000/) return "workstation-pro6000"
  return ""
}

# NVIDIA's containers are months ahead of releases: cuBLAS of the newest CUDA, and attention by cuDNN.
function in_container(notes) { return notes ~ /container/ }

# Libraries before CUDA 12.4 (PyTorch 2.5, October 2024): the executors that carry a year.
function is_old(notes,    version) {
  if (in_container(notes)) return 0
  if (match(notes, /torch 2\.[0-9]+/)) return substr(notes, RSTART + 8, RLENGTH - 8) + 0 < 5
  return notes ~ /2024/ && notes !~ /(Oct|Nov|Dec)[a-z]* 2024|2024[-\/]1[012]/
}

# Months since year 0 of the first "2025-03" or "Mar 2025" in a text, or of a year since 2026 by itself; 0 where none is.
function month_of(text,    word) {
  if (match(text, /20[12][0-9]-[01][0-9]/)) return substr(text, RSTART, 4) * 12 + substr(text, RSTART + 5, 2)
  if (match(text, /(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* 20[0-9][0-9]/)) {
    word = substr(text, RSTART, RLENGTH)
    return substr(word, length(word) - 3) * 12 + (index("JanFebMarAprMayJunJulAugSepOctNovDec", substr(word, 1, 3)) + 2) / 3
  }
  return match(text, /202[6-9]/) ? substr(text, RSTART, 4) * 12 : 0
}

function is_titan() { return get("source") " " get("notes") ~ /torchtitan/ }

# torchtitan since April 2025: it compiles the loss, shards embedding and head by themselves, and lets go of the last block too.
function is_new_titan() { return is_titan() && month_of(get("notes")) >= 2025 * 12 + 4 }

# Lightning's models: one product for q, k and v, the loss of logits as they are, every block resharded.
function is_litgpt() { return get("source") " " get("notes") ~ /litgpt|lit-gpt|lightning-thunder/ }

function executor_of(strategy, compile, precision, source, notes) {
  if (compile ~ /C\+\+/) return "native"
  if (source ~ /llm-foundry/) return "pytorch-fsdp1-" (precision ~ /PURE/ ? 2022 : 2023) # what its tables call PURE ran before PyTorch 2.1
  if (precision ~ /fp16/) return "pytorch-fsdp1-autocast"
  if (strategy ~ /FSDP1/) return compile ~ /^yes/ ? "pytorch-fsdp1-compiled" : "pytorch-fsdp1-eager"
  return (compile ~ /^yes/ ? "pytorch-fsdp2-compiled" : "pytorch-fsdp2-eager") (is_old(notes) ? "-2024" : "")
}

# "HSDP (shard 8, replicate 16)" says its width; without a number a group is a node. "" when nothing is recognised.
function strategy_of(strategy, per_node,    width) {
  if (strategy ~ /^none|NO_SHARD|DDP/) return "no_shard"
  if (strategy ~ /sharded weights/) return "full_shard"
  if (strategy ~ /ZeRO-?1/) return "shard_optim"
  if (strategy ~ /HYBRID|HSDP|[Hh]ybrid/) {
    width = match(strategy, /shard[ =:]*[0-9]+/) ? substr(strategy, RSTART, RLENGTH) : per_node
    gsub(/[^0-9]/, "", width)
    return "hybrid_shard:" width (strategy ~ /ZERO2|ZeRO-?2/ ? "\n  reshard no" : "")
  }
  if (strategy ~ /ZeRO-?2|GRAD_OP/) return "shard_grad_op"
  return strategy ~ /FSDP|FULL_SHARD|ZeRO-?3/ ? "full_shard" : ""
}

# dtype of products, and of gradients as they are reduced.
function precision_of(text) {
  if (text ~ /fp16|float16/ && text !~ /bf16|bfloat16/) return "f16 reduce f32"
  if (text ~ /^ *(fp32|float32|tf32)/ && text !~ /bf16|bfloat16/) return "f32 reduce f32"
  if (get("compile") ~ /C\+\+/ && text ~ /bf16 master/) return "bf16 reduce bf16" # llmq's model dtype is that of gradients too (its README)
  if (text ~ /bf16 params, grads/ && text !~ /fp32/) return "bf16 reduce bf16" # PyTorch reduces in the dtype of gradients where no policy says otherwise
  return "bf16 reduce " (text ~ /PURE|reduce bf16|bf16 reduce/ ? "bf16" : "f32")
}

# Options of the executor block, from what the row says about precision, loss, optimizer and offload.
function executor_options(    text) {
  text = ""
  if (get("precision") ~ /bf16 master|bf16 params, grads|BF16 states|bf16 states/) text = text " states bf16"
  if (get("notes") ~ /chunked cross-entropy|activation checkpointing \(cumul|optimizer in backward/) text = text " loss chunked"
  else if (compiles_loss()) text = text " loss joint"
  else if (is_litgpt()) text = text " loss narrow"
  else if (is_titan() && !is_old(get("notes"))) text = text " loss eager" # compiled or not: the copy in f32 is the loss's own
  else if (get("strategy") ~ /^none/ && get("compile") ~ /^yes/) text = text " loss upcast"
  else if (get("source") ~ /KempnerForge/) text = text " loss compiled" # its loss leaves logits in bf16, compiled or not
  if (get("act_ckpt") ~ /^selective/ && !every_nth(get("act_ckpt"))) text = text " selective " (get("act_ckpt") ~ /layer|block/ ? "blocks" : "operators")
  # PyTorch 2.11 and later choose cuDNN on Hopper; this trainer leaves the choice to it and was measured in 2026.
  if (get("source") ~ /KempnerForge/ || in_container(get("notes"))) text = text " attention cudnn"
  if (match(get("notes"), /lmhead-chunks=[0-9]+/)) text = text " loss_chunks " substr(get("notes"), RSTART + 14, RLENGTH - 14)
  if (is_litgpt()) text = text " packed yes"
  if (get("notes") ~ /expandable segments/ || (is_titan() && get("strategy") ~ /FSDP2/ && !is_old(get("notes")))) text = text " expandable_segments yes"
  if (get("source") ~ /torchtune/ || get("notes") ~ /fused (AdamW|optimizer)/ || is_litgpt() || is_new_titan()) text = text " update fused"
  if (get("notes") ~ /optimizer in backward/) text = text " update_in_backward yes"
  if (get("strategy") ~ /sharded gradients/) text = text " reduce micro_batch" # they have no room of their own to add up in
  if (get("offload") ~ /activation/ && get("act_ckpt") ~ /^(full|yes|true)/) text = text " offload residual" # all that checkpointing keeps
  if (get("offload") ~ /offload-|optimizer to CPU/) {
    text = text " offload"
    if (get("offload") ~ /opt-m|optimizer/) text = text " m"
    if (get("offload") ~ /opt-v|optimizer/) text = text " v"
    if (get("offload") ~ /master|optimizer/) text = text " master"
    if (get("offload") ~ /residual/) text = text " residual"
  }
  return text
}

# By itself or with the model.
function compiles_loss() {
  return get("compile") ~ /^yes/ && (is_new_titan() || get("source") " " get("notes") ~ /lingua|loss (is )?compiled|compiled with its loss/)
}

function optimizer_of(notes) {
  return notes ~ /SGD/ ? "sgd" : notes ~ /Lion/ ? "lion" : notes ~ /Adafactor/ ? "adafactor" : "adamw"
}

function offloads_states() { return get("offload") ~ /CPUOffloadPolicy/ && get("strategy") ~ /FSDP/ && get("strategy") !~ /FSDP1/ }

# 3 for "selective, every 3rd block"; 0 where nothing of the kind is said.
function every_nth(act) {
  return match(act, /every [0-9]+/) ? substr(act, RSTART + 6, RLENGTH - 6) + 0 : 0
}

# Why no prediction can be made, naming the column; "" when one can.
function refusal(    act) {
  act = get("act_ckpt")
  split("layers d_model heads ffn_dim seq_len gpus micro_batch_per_gpu", needed, " ")
  for (i = 1; i in needed; i++)
    if (get(needed[i]) !~ /^[0-9]+(\.0*)?$/ || get(needed[i]) + 0 < 1) return "column " needed[i] " is \"" get(needed[i]) "\", a number is needed"
  if (cluster_of(get("gpu"), get("gpu_mem_gib"), get("source")) == "") return "gpu \"" get("gpu") "\" has no cluster file"
  if (get("d_model") % get("heads")) return "d_model " get("d_model") " is no multiple of heads " get("heads")
  if (get("strategy") ~ /(^|[^A-Za-z])(TP|PP|CP|EP|SP)[ =:0-9+]|(^|[^A-Za-z])(TP|PP|CP|EP|SP)$|[Tt]ensor.?[Pp]arallel|[Pp]ipeline/) return "strategy \"" get("strategy") "\" is more than FSDP"
  if (get("precision") " " get("notes") ~ /LoRA/ || get("model_family") ~ /LoRA|MoE|Mixtral/) return "adapters and experts are not described by these columns"
  if (get("precision") " " get("notes") ~ /(8|4)-bit/) return "precision \"" get("precision") "\": states or weights of 8 bits or less are not modelled"
  if (get("precision") ~ /fp8|FP8|float8|e4m3|fp4/) return "precision \"" get("precision") "\": products of 8 bits are not calibrated"
  if (strategy_of(get("strategy"), 1) == "") return "strategy \"" get("strategy") "\" is not known"
  if (act !~ /^(full|yes|true|none|no|false|selective|every|recompute)|^$/) return "act_ckpt \"" act "\" is not known"
  if (get("offload") ~ /param|gradients|CPUOffload|^(yes|true)/ && !offloads_states()) return "offload \"" get("offload") "\": only optimizer states and residuals can be, and all states by FSDP2\x27s CPUOffloadPolicy"
  return ""
}

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

function llama_model(tied, biased) {
  biased = biased ? "true" : "false"
  return "use \"families/llama.fsdp\"\n" \
    "module qkv_attention(x, d, heads, kv_heads) {\n  let width = d/heads*kv_heads\n" \
    "  q = rope(linear(x, d, bias = " biased ") as q_proj, heads, theta = 500000)\n" \
    "  k = rope(linear(x, width, bias = " biased ") as k_proj, kv_heads, theta = 500000)\n" \
    "  v = linear(x, width, bias = " biased ") as v_proj\n" \
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

# Whether sharing the head with the embedding brings the parameters nearer to the published number.
function is_tied(params, gpt, biased,    block, base) {
  block = gpt ? 4 * d * d + 2 * d * ffn + 9 * d + ffn : 2 * d * d + 2 * d * d / heads * kv + 3 * d * ffn + 2 * d
  if (biased) block += d + 2 * d / heads * kv
  base = layers * block + v * d + (gpt ? s * d + 2 * d : d)
  return abs(base - params) <= abs(base + v * d - params)
}

# GB/s a node from "1600 Gb/s per node", "400 Gb/s per GPU", "8x 400 Gb/s", "3.2 Tbps" or "200 GB/s"; 0: nothing said.
function network_of(text,    rate, bytes) {
  if (!match(text, /[0-9.]+ *[GT](b|bit|B)/)) return 0
  rate = substr(text, RSTART, RLENGTH)
  bytes = rate ~ /B$/ ? 1 : 8
  rate = (rate + 0) * (rate ~ /T/ ? 1000 : 1) / bytes
  if (match(text, /[0-9]+ *x/)) return rate * (substr(text, RSTART, RLENGTH) + 0)
  return text ~ /per GPU|per device|\/GPU/ ? rate * per_node : rate
}

function checkpointing(act,    text, nth, i) {
  nth = every_nth(act)
  text = "  checkpoint " (act ~ /^(full|yes|true)|recompute-block/ && !nth ? "full" : "none") "\n"
  if (act ~ /recompute-ffn/) text = text "  recompute layers.*.mlp\n"
  if (act ~ /recompute-swiglu/) text = text "  recompute layers.*.mlp.silu layers.*.mlp.mul\n"
  if (act ~ /recompute-norm/) text = text "  recompute layers.*.input_norm layers.*.post_norm\n"
  for (i = 0; nth && i < layers; i += nth) text = text "  recompute layers." i "\n"
  return text
}

# What is gathered apart from the blocks, and when it is let go; models of this file call it wte, norm and head. A loss needs a head that
# is a unit of its own at once, so it stays unless the trainer says otherwise.
function units(tied,    text, wrap) {
  wrap = get("wrap")
  if (get("strategy") !~ /^FSDP2/) return ""
  # It tells fully_shard(model) to reshard as well (kempnerforge/distributed/parallel.py).
  if (get("source") ~ /KempnerForge/) return "  reshard yes\n  unit root { wte norm " (tied ? "" : "head ") "reshard yes }\n"
  text = get("strategy") ~ /^FSDP2 full/ && (is_litgpt() || is_new_titan() || wrap ~ /tok_embeddings, output/) ? "  reshard yes\n" : ""
  if (tied) return text
  if (is_new_titan() || wrap ~ /tok_embeddings|wte|embed/) text = text "  unit embedding { wte }\n"
  if (is_new_titan()) return text "  unit head { norm head reshard no }\n"
  return text (wrap ~ /output|head/ ? "  unit head { head }\n" : "")
}

function plan_block(tied,    text) {
  text = "plan {\n  strategy " strategy_of(get("strategy"), per_node) "\n  wrap block\n" units(tied) "  micro_batch " mb "\n"
  text = text checkpointing(get("act_ckpt"))
  if (offloads_states()) text = text "  offload parameters gradients optimizer\n"
  text = text "  executor " executor_of(get("strategy"), get("compile"), get("precision"), get("source"), get("notes"))
  return text " {" executor_options() " }\n}\n"
}

# Reads the row's figures into variables of this file; returns why it cannot, or "".
function read_figures(    why) {
  why = refusal()
  if (why != "") return why
  d = get("d_model") + 0; heads = get("heads") + 0; kv = get("kv_heads"); ffn = get("ffn_dim") + 0; v = get("vocab"); s = get("seq_len") + 0
  layers = get("layers") + 0; gpus = get("gpus") + 0; per_node = get("gpus_per_node"); mb = get("micro_batch_per_gpu") + 0
  if (v == "") v = 256
  if (kv == "") kv = heads
  if (per_node == "" || per_node + 0 > gpus) per_node = gpus < 8 ? gpus : 8
  per_node += 0 # as text "64" is less than "8"
  if (gpus % per_node) return "gpus " gpus " are no whole nodes of " per_node
  if (heads % kv) return "heads " heads " are no multiple of kv_heads " kv
  accumulation = get("grad_accum")
  if (accumulation == "") accumulation = get("global_batch_tokens") > 0 ? get("global_batch_tokens") / (gpus * mb * s) : 1
  if (accumulation < 1 || accumulation != int(accumulation)) return "global_batch_tokens " get("global_batch_tokens") " is no multiple of gpus x micro-batch x seq_len"
  return ""
}

function write_run(id,    gpt, biased, tied, path, cluster, network, link) {
  cluster = cluster_of(get("gpu"), get("gpu_mem_gib"), get("source"))
  gpt = get("model_family") ~ /MPT|GPT|gpt|OPT/; biased = get("model_family") ~ /Qwen2/
  tied = is_tied(get("params"), gpt, biased)
  path = out "/" id ".fsdp"
  printf "%s", (gpt ? gpt_model(tied) : llama_model(tied, biased)) > path
  printf "train { optimizer %s { lr 1e-4 }  batch %d  precision %s }\n", optimizer_of(get("notes")), gpus * mb * accumulation, precision_of(get("precision")) > path
  network = network_of(get("inter_node_link"))
  link = gpus > per_node && network ? "  network { bandwidth " network "GB/s }\n" : ""
  printf "cluster {\n  use \"clusters/%s.fsdp\"\n  node { devices %d }\n  nodes %d\n%s}\n", cluster, per_node, gpus / per_node, link > path
  printf "%s", plan_block(tied) > path
  close(path)
}

BEGIN {
  listed["llmf-h100-003"] = listed["llmf-a100-80-003"] = "75.6 of 79.1 GiB: allocator retries"
  listed["llmf-a100-80-043"] = listed["llmf-a100-80-044"] = "slower than its 2048-token neighbour"
  listed["llmf-a100-40-041"] = "a fifth slower than on half and on twice as many GPUs"
  listed["llmf-h100-050"] = "dips between its neighbours"
}
NR == 1 { sub(/^\357\273\277/, "") } # a byte order mark
{ sub(/\r$/, "") }
NR == 1 {
  n = csv($0, f)
  for (i = 1; i <= n; i++) column[f[i]] = i
  if ("id" in column && "metric" in column && "value" in column) next
  print "error: the first line names no columns id, metric and value" > "/dev/stderr"
  broken = 1; exit 1
}
/^[ ,]*$/ { next }
{
  csv($0, f)
  id = get("id"); sub(/\.[a-z_0-9]+$/, "", id)
  gsub(/[^A-Za-z0-9._-]/, "_", id) # it names files
  if (!(id in why)) {
    order[++count] = id
    why[id] = read_figures()
    if (why[id] != "") { printf "skipped: %s: %s\n", id, why[id] > "/dev/stderr"; next }
    write_run(id)
    parts = split(id, part, "-")
    group[id] = part[1] (parts > 1 ? "-" part[2] : "")
    if (id ~ /^llmf-a100/) group[id] = group[id] "-" part[3]
    reason[id] = suspect_reason(id, get("source"), get("notes"))
    tokens[id] = gpus * mb * accumulation * s; devices[id] = gpus; samples[id] = gpus * mb * accumulation
    single[id] = gpus == 1 && get("compile") !~ /^yes|C\+\+/ # a wider target
  }
  metrics[id] = metrics[id] ";" get("metric") "=" get("value")
}
END {
  if (broken) exit 1
  for (i = 1; i <= count; i++) {
    id = order[i]
    if (why[id] == "") printf "%s\t%s\t%s\t%s\t%g\t%d\t%g\t%d\n", id, group[id], reason[id] == "" ? "-" : reason[id], substr(metrics[id], 2), tokens[id], devices[id], samples[id], single[id]
  }
}
