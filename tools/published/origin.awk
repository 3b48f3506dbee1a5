# Owns: who measured a run, by source and notes, and when: what trainers do by themselves, and did since, hangs on both.

BEGIN {
  # When versions of PyTorch were released.
  n = split("2.0 2023-03 2.1 2023-10 2.2 2024-01 2.3 2024-04 2.4 2024-07 2.5 2024-10 2.6 2025-01 2.7 2025-04 2.8 2025-08 2.9 2025-10", known, " ")
  for (i = 1; i < n; i += 2) releases[known[i]] = known[i + 1]
  # When threads of a repository were opened: the first number of a month, and the month.
  threads["torchtitan"] = "1 2024-02 165 2024-03 355 2024-05 432 2024-06 481 2024-07 533 2024-08 624 2024-10 800 2025-01 929 2025-03 1033 2025-04 " \
    "1361 2025-07 1690 2025-09 2461 2026-02 4514 2026-09"
  threads["thunder"] = "1 2024-03 474 2024-05 940 2024-08 1156 2024-09 1261 2024-10 1506 2024-12 1968 2025-04"
  threads["torchtune"] = "1 2023-12 524 2024-03 785 2024-04 987 2024-05 1390 2024-08 1517 2024-09 2003 2024-11 2402 2025-02 2546 2025-04"
}

# In lower case, since "TorchTitan" and "Meta Lingua" are names too.
function trainer() { return tolower(get("source") " " get("notes")) }

function is_titan() { return trainer() ~ /torchtitan/ }

# torchtitan since April 2025: it compiles the loss, shards embedding and head by themselves, and lets go of the last block too.
function is_new_titan() { return is_titan() && month() >= 2025 * 12 + 4 }

# Lightning's models: one product for q, k and v, the loss of logits as they are, every block resharded.
function is_litgpt() { return trainer() ~ /litgpt|lit-gpt|lightning-thunder/ }

function is_deepspeed() { return strategy_words() " " trainer() ~ /deepspeed|github.com\/[a-z]*\/gpt-neox/ }

# Deals the optimizer's whole tensors to ranks, and broadcasts them (_partition_param_list and broadcast_params of its optimizer).
function is_internlm() { return trainer() ~ /internlm\/|internevo/ }

# Megatron's own and what is built on it: norms of one kernel, weights' gradients added up by their products (gradient_accumulation_fusion).
function is_megatron() { return strategy_words() " " trainer() ~ /megatron|flagscale|mcore/ || (trainer() ~ /(^|[^a-z-])nemo([ \/;,.0-9]|$)/ && trainer() !~ /automodel/) }

function is_lingua() { return trainer() ~ /lingua/ }

function is_kempner() { return trainer() ~ /kempnerforge/ }

# Composer: LLM Foundry, the tables that went before it, and who names it.
function is_composer() { return trainer() ~ /llm[- ]?foundry|mosaicml|(^|[^a-z])composer([^a-z]|$)/ }

# Composer before 0.16.4 left parameters in f32 where MP was DEFAULT, and cast them under autocast.
function is_early_composer() {
  return words("precision") ~ /amp/ && (get("source") ~ /mosaicml\/examples/ ||
    trainer() ~ /composer *(==|v)? *0[.]([0-9]|1[0-5])([^0-9]|$)|composer *(==|v)? *0[.]16([.][0-3])?([^0-9.]|$)/)
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
