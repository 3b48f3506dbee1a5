# Owns: published measurements (CSV, one metric a line) -> one .fsdp a run in folder `out`, and a manifest on stdout:
# id <tab> group <tab> suspect <tab> metric=value;... Runs that lack what a prediction needs are named on stderr.

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

function get(name) { return f[column[name]] }

# Why a run is no evidence of accuracy, or "". Reasons stand in docs/cost-model.md.
function suspect_reason(id, source, notes) {
  if (id in listed) return listed[id]
  if (source ~ /gist/) return "trainer without published precision"
  if (notes ~ /cudaMalloc retries/) return "allocator-bound as published"
  if (get("precision") ~ /fp8|FP8|float8/) return "fp8 is not calibrated"
  if (cluster_of(get("gpu"), get("gpu_mem_gib"), source) !~ /a100|h100|h200/) return "device is not calibrated"
  if (notes ~ /vocab not stated/) return "vocabulary and link unknown"
  return ""
}

# The PyTorch team measures on H100 of 96 GB held to 500 W where it says which board; taken so where it does not.
function cluster_of(gpu, memory, source) {
  if (gpu ~ /H100/) return memory > 90 || (memory == "" && source ~ /github.com\/pytorch\//) ? "h100-96-500w" : "dgx-h100"
  if (gpu ~ /H200/) return "dgx-h200"
  if (gpu ~ /B200/) return "hgx-b200"
  if (gpu ~ /A100|A800/) return memory > 0 && memory < 60 ? "dgx-a100-40" : "dgx-a100-80"
  if (gpu ~ /V100/) return memory > 0 && memory < 20 ? "aws-p3" : "v100-box"
  if (gpu ~ /4090/) return "workstation-pcie"
  return ""
}

function executor_of(strategy, compile, precision, source, notes,    year) {
  if (compile ~ /C\+\+/) return "native"
  if (source ~ /llm-foundry/) return "pytorch-fsdp1-2023"
  if (precision ~ /fp16/) return "pytorch-fsdp1-autocast"
  if (strategy ~ /FSDP1/) return compile ~ /^yes/ ? "pytorch-fsdp1-compiled" : "pytorch-fsdp1-eager"
  year = notes ~ /2024/ ? "-2024" : ""
  return (compile ~ /^yes/ ? "pytorch-fsdp2-compiled" : "pytorch-fsdp2-eager") year
}

function strategy_of(strategy, per_node) {
  if (strategy ~ /^none/) return "no_shard"
  if (strategy ~ /sharded weights/) return "full_shard"
  if (strategy ~ /ZeRO-1/) return "shard_optim"
  if (strategy ~ /ZeRO-2|GRAD_OP/) return "shard_grad_op"
  if (strategy ~ /HYBRID|HSDP/) return "hybrid_shard:" per_node
  if (strategy ~ /NO_SHARD|DDP/) return "no_shard"
  return "full_shard"
}

# Options of the executor block, from what the row says about precision, loss, optimizer and offload.
function executor_options(    text) {
  text = ""
  if (get("precision") ~ /bf16 master|bf16 params, grads|BF16 states|bf16 states/) text = text " states bf16"
  if (get("notes") ~ /chunked cross-entropy|activation checkpointing \(cumul|optimizer in backward/) text = text " loss chunked"
  else if (get("strategy") ~ /^none/ && get("compile") ~ /^yes/) text = text " loss upcast"
  if (get("act_ckpt") ~ /^selective/) text = text " selective " (get("act_ckpt") ~ /layer|every|block/ ? "blocks" : "operators")
  # PyTorch 2.11 and later choose cuDNN on Hopper; this trainer leaves the choice to it and was measured in 2026.
  if (get("source") ~ /KempnerForge/) text = text " attention cudnn"
  if (match(get("notes"), /lmhead-chunks=[0-9]+/)) text = text " loss_chunks " substr(get("notes"), RSTART + 14, RLENGTH - 14)
  if (get("source") ~ /torchtune/) text = text " update fused"
  if (get("notes") ~ /optimizer in backward/) text = text " update_in_backward yes"
  if (get("offload") ~ /offload-|optimizer to CPU/) {
    text = text " offload"
    if (get("offload") ~ /opt-m|optimizer/) text = text " m"
    if (get("offload") ~ /opt-v|optimizer/) text = text " v"
    if (get("offload") ~ /master|optimizer/) text = text " master"
    if (get("offload") ~ /residual/) text = text " residual"
  }
  return text
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

function network_of(text,    rate) { # GB/s a node from "1600 Gb/s ..." or "3200 Gbps"
  if (!match(text, /[0-9.]+ *Gb/)) return 0
  rate = substr(text, RSTART, RLENGTH) + 0
  return rate / 8
}

function plan_block(    act, text) {
  act = get("act_ckpt")
  text = "plan {\n  strategy " strategy_of(get("strategy"), per_node) "\n  wrap block\n  micro_batch " mb "\n"
  text = text "  checkpoint " (act ~ /^full/ ? "full" : "none") "\n"
  if (act ~ /recompute-ffn/) text = text "  recompute layers.*.mlp\n"
  if (act ~ /recompute-swiglu/) text = text "  recompute layers.*.mlp.silu layers.*.mlp.mul\n"
  if (act ~ /recompute-norm/) text = text "  recompute layers.*.input_norm layers.*.post_norm\n"
  text = text "  executor " executor_of(get("strategy"), get("compile"), get("precision"), get("source"), get("notes"))
  return text " {" executor_options() " }\n}\n"
}

function write_run(id,    gpt, biased, tied, path, cluster, network, many, link) {
  d = get("d_model"); heads = get("heads"); kv = get("kv_heads"); ffn = get("ffn_dim"); v = get("vocab"); s = get("seq_len")
  layers = get("layers"); gpus = get("gpus"); per_node = get("gpus_per_node"); mb = get("micro_batch_per_gpu")
  cluster = cluster_of(get("gpu"), get("gpu_mem_gib"), get("source"))
  if (v == "") v = 256
  if (kv == "") kv = heads
  if (per_node == "" || per_node + 0 > gpus + 0) per_node = gpus < 8 ? gpus : 8
  if (cluster == "" || layers == "" || d == "" || heads == "" || ffn == "" || s == "" || gpus == "" || mb == "") return 0
  accumulation = get("grad_accum")
  if (accumulation == "") accumulation = get("global_batch_tokens") > 0 ? get("global_batch_tokens") / (gpus * mb * s) : 1
  gpt = get("model_family") ~ /MPT|GPT|gpt/; biased = get("model_family") ~ /Qwen2/
  tied = is_tied(get("params"), gpt, biased)
  path = out "/" id ".fsdp"
  printf "%s", (gpt ? gpt_model(tied) : llama_model(tied, biased)) > path
  printf "train { optimizer adamw { lr 1e-4 }  batch %d  precision %s reduce f32 }\n", gpus * mb * accumulation, get("precision") ~ /fp16/ ? "f16" : "bf16" > path
  many = gpus + 0 > per_node + 0
  network = network_of(get("inter_node_link"))
  link = many && network ? "  network { bandwidth " network "GB/s }\n" : ""
  printf "cluster {\n  use \"clusters/%s.fsdp\"\n  node { devices %d }\n  nodes %d\n%s}\n", cluster, per_node, gpus / per_node, link > path
  printf "%s", plan_block() > path
  close(path)
  return 1
}

BEGIN {
  listed["llmf-h100-003"] = "75.6 of 79.1 GiB: allocator retries"
  listed["llmf-a100-80-003"] = "75.6 of 79.1 GiB: allocator retries"
  listed["llmf-a100-80-044"] = "slower than its 2048-token neighbour"
  listed["llmf-h100-050"] = "dips between its neighbours"
  listed["tune-l32-3b-1"] = "eager torchtune saves less than the table"
}
{ sub(/\r$/, "") }
NR == 1 { n = csv($0, f); for (i = 1; i <= n; i++) column[f[i]] = i; next }
{
  csv($0, f)
  id = get("id"); sub(/\.[a-z_0-9]+$/, "", id)
  if (!(id in known)) {
    order[++count] = id
    known[id] = write_run(id)
    if (!known[id]) printf "skipped: %s lacks a figure or its device has no cluster file\n", id > "/dev/stderr"
    parts = split(id, part, "-")
    group[id] = part[1] (parts > 1 ? "-" part[2] : "")
    if (id ~ /^llmf-a100/) group[id] = group[id] "-" part[3]
    reason[id] = suspect_reason(id, get("source"), get("notes"))
    tokens[id] = gpus * mb * accumulation * s; devices[id] = gpus; samples[id] = gpus * mb * accumulation
    single[id] = gpus == 1 && get("compile") !~ /^yes|C\+\+/ # eager on one GPU: a wider target
  }
  metrics[id] = metrics[id] ";" get("metric") "=" get("value")
}
END {
  for (i = 1; i <= count; i++) {
    id = order[i]
    if (known[id]) printf "%s\t%s\t%s\t%s\t%g\t%d\t%g\t%d\n", id, group[id], reason[id] == "" ? "-" : reason[id], substr(metrics[id], 2), tokens[id], devices[id], samples[id], single[id]
  }
}
