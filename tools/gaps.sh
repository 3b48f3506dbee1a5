#!/usr/bin/env bash
# Owns: how far plans are from the planner's lower bound: shipped models but for examples on every cluster that can hold them, at shares of
# what block units without checkpointing need beside the sharded states, one sample a micro-batch. Also what addresses cost:
# how much longer the plan's step is than the best that was estimated without them. MICRO_BATCH: of the plans (default: 1).
#
#   [OFFLOAD=none] [MICRO_BATCH=auto] [MODELS='NAME:RANKS ...'] [CLUSTERS='NAME ...'] tools/gaps.sh [SHARE ...]
#
# prints a Markdown table, then medians and worst (default: auto, all models, nine of the clusters, and 80 60 40)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
require_tool jq
[ $# -gt 0 ] || set -- 80 60 40
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

models=${MODELS:-gpt2:8 gpt2-medium:8 gpt2-large:8 gpt2-xl:8 qwen3-0.6b:8 llama3.2-1b:8 llama3-8b:16 qwen3-8b:16 llama3-70b:64 gpt3-175b:512 llama3-405b:1024}
clusters=${CLUSTERS:-dgx-a100-40 dgx-a100-80 dgx-h100 dgx-h200 hgx-b200 aws-p4d aws-p5 gcp-a3-mega ethernet-a100}

plan() { build/fsdpc plan "models/$1.fsdp" --cluster "models/clusters/$2.fsdp" --ranks "$3" --json "${@:4}" 2>/dev/null; }

echo '| model | ranks | cluster | share | budget | placing | gap | as chosen | bound by |'
echo '|---|---|---|---|---|---|---|---|---|'
for cluster in $clusters; do
  for entry in $models; do
    model=${entry%:*} ranks=${entry#*:}
    plan "$model" "$cluster" "$ranks" --micro-batch 1 --offload none --strategy full_shard --gather micro_batch --reduce micro_batch --wrap block --checkpoint none --prefetch 1 --reshard yes --memory 64TiB >"$scratch/none" || continue
    for share in "$@"; do
      bytes=$(jq -r --argjson share "$share" '.persistent_bytes + (.peak_bytes - .persistent_bytes) * $share / 100 | floor' "$scratch/none")
      plan "$model" "$cluster" "$ranks" --micro-batch "${MICRO_BATCH:-1}" --offload "${OFFLOAD:-auto}" --memory "${bytes}B" >"$scratch/auto" || true
      jq -r --arg m "$model" --arg r "$ranks" --arg c "$cluster" --arg s "$share" --argjson b "$bytes" \
        'if .fits then "| \($m) | \($r) | \($c) | \($s) % | \($b / 1073741824 * 10 | round / 10) GiB | \([.step_ns / (.unplaced_step_ns // .step_ns) - 1, 0] | max * 10000 | round / 100) % | \(.gap * 10000 | round / 100) % | \((.step_ns / .own_bound_ns - 1) * 10000 | round / 100) % | \(.bound_by) |"
         else "| \($m) | \($r) | \($c) | \($s) % | \($b / 1073741824 * 10 | round / 10) GiB | | does not fit | | |" end' "$scratch/auto"
    done
  done
done | tee "$scratch/table"
summary() { # COLUMN of the table, what it says
  awk -F'|' -v column="$1" '$8 ~ /[0-9] %/ { sub(/ %/, "", $column); print $column + 0 }' "$scratch/table" | sort -n |
    awk -v what="$2" '{ a[NR] = $1 } END { printf "%s: median %s %%, worst %s %% of %d plans\n", what, a[int((NR + 1) / 2)], a[NR], NR }'
}
echo
summary 8 gap
summary 9 'gap as chosen'
summary 7 placing
