#!/usr/bin/env bash
# Owns: the planner's own choice beside the policies people set by hand: step time and peak, over models and budgets.
#
#   [CLUSTERS='NAME ...'] tools/policies.sh [MODEL:RANKS ...]
#
# prints a Markdown table; without CLUSTERS models are planned for the clusters that their files name
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
require_tool jq
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# One name and its options a line.
policies=$(
  cat <<'TEXT'
auto|
auto, nothing offloaded|--offload none
block, full checkpointing|--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap block --checkpoint full --prefetch 1 --reshard yes
block, no checkpointing|--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap block --checkpoint none --prefetch 1 --reshard yes
size 100M, full checkpointing|--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap size:100M --checkpoint full --prefetch 1 --reshard yes
block, kept gathered, full checkpointing|--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap block --checkpoint full --prefetch 1 --reshard no
block, last block kept, full checkpointing|--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap block --checkpoint full --prefetch 1 --reshard yes
TEXT
)

# on CLUSTER: options; nothing for the model's own.
on() { [ "$1" = own ] || printf -- '--cluster models/clusters/%s.fsdp' "$1"; }

# name_of CLUSTER MODEL: for `own` the one that the model uses.
name_of() { [ "$1" = own ] && sed -n 's|.*use "clusters/\(.*\)\.fsdp".*|\1|p' "models/$2.fsdp" || echo "$1"; }

# last_kept MODEL >FILE: torchtitan's default, in which the last block stays gathered after forward.
last_kept() {
  local last
  last=$(build/fsdpc plan "models/$1.fsdp" --ranks 1 --memory 100TiB --wrap block --checkpoint none --prefetch 1 --json | jq -r '[.units[].name | select(test("[.][0-9]+$"))] | last')
  sed "s|use \"|use \"$root/models/|; s|^plan {|plan { unit last_block { $last reshard no }|" "models/$1.fsdp"
}

# plan_json FILE CLUSTER RANKS OPTION...: exit code 0 or 3 in $code.
plan_json() {
  code=0
  # shellcheck disable=SC2046 # options are words
  build/fsdpc plan "$1" $(on "$2") --ranks "$3" --json "${@:4}" >"$scratch/json" 2>"$scratch/err" || code=$?
  [ "$code" = 0 ] || [ "$code" = 3 ] || die "$(cat "$scratch/err")"
}

gib() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1073741824 }'; }

# Budgets: shares of what block units without checkpointing need beside the sharded states, at one sample a micro-batch.
budget() { awk -v peak="$1" -v states="$2" -v share="$3" 'BEGIN { printf "%.0f", states + (peak - states) * share / 100 }'; }

# The search stops where it is within a thousandth of its bound, so that less than that is no difference.
row() { # MODEL CLUSTER RANKS SHARE BYTES NAME OPTION...
  local step peak file=models/$1.fsdp name=$6
  case $name in *'last block kept'*) file=$scratch/kept.fsdp ;; esac
  plan_json "$file" "$2" "$3" --memory "${5}B" --micro-batch 1 "${@:7}"
  step=$(field "$scratch/json" step_ns) peak=$(field "$scratch/json" peak_bytes)
  printf '| %s | %s | %s | %s %% | %s |' "$1" "$3" "$(name_of "$2" "$1")" "$4" "$name"
  if [ "$code" = 3 ]; then
    printf ' does not fit | needs %s GiB of %s | |\n' "$(gib "$peak")" "$(gib "$5")"
  else
    [ "$name" = auto ] && auto=$step
    printf ' %s ms | %s GiB | %s |\n' "$(awk -v s="$step" 'BEGIN { printf "%.1f", s / 1e6 }')" "$(gib "$peak")" \
      "$(awk -v s="$step" -v a="$auto" 'BEGIN { printf "%.3f", s / a }')"
    if awk -v s="$step" -v a="$auto" 'BEGIN { exit !(s < 0.999 * a) }'; then echo "$1 $2 $4 $name" >>"$scratch/slower"; fi
  fi
}

[ $# -gt 0 ] || set -- gpt2-xl:8 llama3-8b:8 llama3-70b:64 gpt3-175b:512
echo '| model | ranks | cluster | budget | policy | step | peak | step / auto |'
echo '|---|---|---|---|---|---|---|---|'
for cluster in ${CLUSTERS:-own}; do
  for entry in "$@"; do
    model=${entry%:*} ranks=${entry#*:}
    last_kept "$model" >"$scratch/kept.fsdp"
    plan_json "models/$model.fsdp" "$cluster" "$ranks" --memory 100TiB --micro-batch 1 --offload none --strategy full_shard --gather micro_batch --reduce micro_batch --wrap block --checkpoint none --prefetch 1 --reshard yes
    peak=$(field "$scratch/json" peak_bytes) states=$(field "$scratch/json" persistent_bytes)
    for share in 100 80 60 40; do
      bytes=$(budget "$peak" "$states" "$share")
      while IFS='|' read -r name options; do
        # shellcheck disable=SC2086 # options are words
        row "$model" "$cluster" "$ranks" "$share" "$bytes" "$name" $options
      done <<<"$policies"
    done
  done
done
if [ -s "$scratch/slower" ]; then
  echo "faster than auto:" >&2
  cat "$scratch/slower" >&2
  exit 1
fi
