# Owns: published measurements (CSV, one metric a line) -> one .fsdp a run in folder `out`, and a manifest on stdout:
# id <tab> group <tab> suspect <tab> metric=value=unit;... <tab> tokens, GPUs and samples of a step <tab> 1 for eager on one GPU.
# Runs that lack what a prediction needs are named on stderr, and so is what is taken for granted where a cell is empty.
# The files beside it each read some of the columns, every function the words of one. They come in this order, since each tells awk of
# its tables before the lines of the CSV are read: cells, origin, boards, policy, executor, models, doubts, write, this one.

# In samples, where the cell counts tokens too.
function micro_batch() { return words("micro_batch_per_gpu") ~ /tok/ && words("micro_batch_per_gpu") !~ /[x*] *[0-9]/ ? number("micro_batch_per_gpu") / number("seq_len") : number("micro_batch_per_gpu") }

# In tokens, where the cell counts sequences too; 0 where it says nothing.
function global_batch(    tokens) {
  tokens = number("global_batch_tokens")
  if (tokens !~ /^[0-9]/) return 0
  return words("global_batch_tokens") ~ /seq|sampl/ ? tokens * number("seq_len") : tokens
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

# A run's name: lines of one id that differ in any column of the run are several runs.
function run_of(id,    said, i, first, name) {
  said = ""; first = id
  split("layers d_model heads ffn_dim seq_len gpu gpu_mem_gib gpus micro_batch_per_gpu grad_accum precision strategy act_ckpt offload compile", name, " ")
  for (i = 1; i in name; i++) said = said get(name[i]) SUBSEP
  for (i = 2; id in told && told[id] != said; i++) id = first "_" i
  told[id] = said
  return id
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
