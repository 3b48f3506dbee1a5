# Owns: the .fsdp of a run: model, training, cluster and plan.

# Multi-query and grouped heads (GPT-BigCode, Falcon) have products for q, k and v of their own, which hold what one for all does.
function gpt_model(tied,    attention) {
  attention = "attn(layernorm(x) as ln_1, d, heads) as attn"
  if (kv != heads) attention = "few_heads(layernorm(x) as ln_1, d, heads) as attn"
  return "use \"families/gpt2.fsdp\"\n" \
    (kv == heads ? "" : "module few_heads(x, d, heads) {\n" \
    "  q = linear(x, d) as q_proj\n  k = linear(x, " kv * head ") as k_proj\n  v = linear(x, " kv * head ") as v_proj\n" \
    "  return linear(attention(q, k, v, heads, causal, kv_heads = " kv "), d) as o_proj\n}\n") \
    "module wide_mlp(x, d, ffn) { return linear(gelu(linear(x, ffn) as up), d) as down }\n" \
    "module wide_block(x, d, heads, ffn) {\n" \
    "  x = x + " attention "\n" \
    "  return x + wide_mlp(layernorm(x) as ln_2, d, ffn) as mlp\n}\n" \
    "model run {\n  input tokens: int[batch, " s "]\n  input targets: int[batch, " s "]\n" \
    "  x = embedding(tokens, " v ", " d ") as wte + positions(" s ", " d ") as wpe\n" \
    "  x = repeat " layers " wide_block(x, " d ", " heads ", " ffn ") as layers\n" \
    "  x = layernorm(x) as norm\n" \
    "  loss = cross_entropy(linear(x, " v ", " (tied ? "weight = wte" : "bias = false") ") as head, targets)\n}\n"
}

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

# One unit for all of the model, where what is wrapped is said to be that.
function is_whole() { return words("wrap") ~ /^(the )?(whole|entire) model|^root( only)?$|^none/ && fsdp() }

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

function plan_block(tied,    text) {
  text = "plan {\n  strategy " strategy_of(per_node) "\n  wrap " (strategy_of(1) ~ /shard_grad|full|hybrid/ && is_whole() ? "whole" : "block") "\n"
  text = text (reshard_of() ? "  reshard " reshard_of() "\n" : units(tied)) "  micro_batch " mb "\n"
  text = text checkpointing(words("act_ckpt"))
  if (offloads_states()) text = text "  offload parameters gradients optimizer\n"
  return text "  executor " executor_of() " {" executor_options() " }\n}\n"
}

function write_run(id,    family, biased, tied, path, cluster, network, link) {
  cluster = cluster_of(get("gpu"), get("gpu_mem_gib"), get("source"))
  family = words("model_family"); published = parameters_of(get("params"))
  biased = adds_biases(family)
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
