#!/usr/bin/env bash
# Owns: the planner's own choice beside the policies people set by hand: step time and peak, over models and budgets.
#
#   tools/policies.sh [MODEL:RANKS ...]     prints a Markdown table
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
[ -x build/fsdpc ] || build_release >&2
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
TEXT
)

# plan_json MODEL RANKS OPTION...: exit code 0 or 3 in $code.
plan_json() {
  code=0
  build/fsdpc plan "models/$1.fsdp" --ranks "$2" --json "${@:3}" >"$scratch/json" 2>"$scratch/err" || code=$?
  [ "$code" = 0 ] || [ "$code" = 3 ] || die "$(cat "$scratch/err")"
}

gib() { awk -v b="$1" 'BEGIN { printf "%.1f", b / 1073741824 }'; }

# Budgets: shares of what block units without checkpointing need beside the sharded states, at one sample a micro-batch.
budget() { awk -v peak="$1" -v states="$2" -v share="$3" 'BEGIN { printf "%.0f", states + (peak - states) * share / 100 }'; }

# The search stops where it is within a thousandth of its bound, so that less than that is no difference.
row() { # MODEL RANKS SHARE BYTES NAME OPTION...
  plan_json "$1" "$2" --memory "${4}B" --micro-batch 1 "${@:6}"
  local step peak
  step=$(field "$scratch/json" step_ns) peak=$(field "$scratch/json" peak_bytes)
  if [ "$code" = 3 ]; then
    printf '| %s | %s | %s %% | %s | does not fit | needs %s GiB of %s | |\n' "$1" "$2" "$3" "$5" "$(gib "$peak")" "$(gib "$4")"
  else
    [ "$5" = auto ] && auto=$step
    printf '| %s | %s | %s %% | %s | %.1f ms | %s GiB | %s |\n' "$1" "$2" "$3" "$5" "$(awk -v s="$step" 'BEGIN { print s / 1e6 }')" \
      "$(gib "$peak")" "$(awk -v s="$step" -v a="$auto" 'BEGIN { printf "%.3f", s / a }')"
    if awk -v s="$step" -v a="$auto" 'BEGIN { exit !(s < 0.999 * a) }'; then echo "$1 $3 $5" >>"$scratch/slower"; fi
  fi
}

[ $# -gt 0 ] || set -- gpt2-xl:8 llama3-8b:8 llama3-70b:64 gpt3-175b:512
echo '| model | ranks | budget | policy | step | peak | step / auto |'
echo '|---|---|---|---|---|---|---|'
for entry in "$@"; do
  model=${entry%:*} ranks=${entry#*:}
  plan_json "$model" "$ranks" --memory 100TiB --micro-batch 1 --offload none --strategy full_shard --gather micro_batch --reduce micro_batch --wrap block --checkpoint none --prefetch 1 --reshard yes
  peak=$(field "$scratch/json" peak_bytes) states=$(field "$scratch/json" persistent_bytes)
  for share in 100 80 60 40; do
    bytes=$(budget "$peak" "$states" "$share")
    while IFS='|' read -r name options; do
      # shellcheck disable=SC2086 # options are words
      row "$model" "$ranks" "$share" "$bytes" "$name" $options
    done <<<"$policies"
  done
done
if [ -s "$scratch/slower" ]; then
  echo "faster than auto:" >&2
  cat "$scratch/slower" >&2
  exit 1
fi
