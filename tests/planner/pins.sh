#!/usr/bin/env bash
# Owns: whatever is pinned, the bound that is printed, and that of the choice that was made, are no more than the plan takes; nor is a plan much slower
# with everything open. Random pins, clusters and budgets on the two examples that are planned fast, and on random models with clusters of their own, of
# several nodes and queues.
#   tests/planner/pins.sh FSDPC PRINT_MODEL [CASES] [SEED]
set -euo pipefail
fsdpc=$1 print_model=$2 cases=${3:-100}
RANDOM=${4:-1}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
HARDLY_SLOWER=1020 # thousandths
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT

# CHOICE...: one of them, into `picked`; no subshell, in which RANDOM would not go on
pick() { picked=${*:RANDOM % $# + 1:1}; }

# KEY JSON: the number of that name; nothing where there is none
number() { sed -n 's/.*"'"$1"'": *\([0-9][0-9]*\).*/\1/p' <<<"$2" | head -n 1; }

# What is to be planned, into `inputs`; what of it is pinned into `pins`
random_pins() {
  inputs=() pins=()
  input() { pick "${@:2}" && inputs+=("$1" "$picked"); }
  add() { pick "${@:2}" && pins+=("$1" "$picked"); }
  pick models/fsdp-figure2.fsdp models/quickstart.fsdp random random && inputs+=("$picked")
  if [ "$picked" = random ]; then
    model=$((RANDOM * 32768 + RANDOM))
    pick 500 2000 8000 && network="network { bandwidth ${picked}MB/s latency 20us }"
    pick no no yes && queue="shared_queue $picked"
    "$print_model" "$model" | sed "s|^  contention|  $network\n&|; s|device gpu {|& $queue |" >"$scratch/random.fsdp"
    inputs=("$scratch/random.fsdp")
    input --set layers=1 layers=2 layers=3
    input --ranks-per-node 2 4 8
  else
    model=
    input --cluster models/clusters/*.fsdp
  fi
  input --ranks 2 4 8 8
  add --reshard auto auto yes no
  add --gather auto auto micro_batch step
  add --reduce auto auto micro_batch step
  add --offload auto none parameters gradients optimizer activations parameters,gradients,optimizer parameters,gradients,optimizer,activations
  add --micro-batch 1 1 2 auto
  add --checkpoint auto auto auto none full
  add --wrap auto auto block whole size:1M
  add --prefetch auto auto 1 2
  add --strategy auto auto full_shard hybrid_shard:2
}

plan() { "$fsdpc" plan "${inputs[@]}" "${@:2}" --memory "$1" --json 2>/dev/null || true; }

failed() { echo "$*: ${inputs[*]} --memory $budget, pinned ${pins[*]}${model:+, model $model}" >&2; exit 1; }

# Only what would be chosen unasked can be compared: of the examples some is set in their files, and what leaves the device some clusters price at nothing.
is_open() { [[ -n $model && " ${pins[*]} " =~ ' --offload '(auto|none)' ' ]]; }

compared=0 open=0
for ((i = 0; i < cases; i++)); do
  random_pins
  roomy=$(plan 64TiB "${pins[@]}")
  persistent=$(number persistent_bytes "$roomy") peak=$(number peak_bytes "$roomy")
  [ "$peak" ] || continue
  pick 25 30 40 50 60 70 80 90 100
  budget=$((persistent + (peak - persistent) * picked / 100))B
  tight=$(plan "$budget" "${pins[@]}")
  grep -q '"fits": *true' <<<"$tight" || continue
  step=$(number step_ns "$tight")
  for bound in lower_bound_ns own_bound_ns; do
    [ "$(number "$bound" "$tight")" -le "$step" ] || failed "$bound is $(number "$bound" "$tight"), the step $step"
  done
  if is_open; then
    whole=$(plan "$budget")
    grep -q '"fits": *true' <<<"$whole" || failed 'nothing fits with everything open'
    [ "$(number step_ns "$whole")" -le $((step * HARDLY_SLOWER / 1000)) ] || failed "with everything open $(number step_ns "$whole"), the step $step"
    open=$((open + 1))
  fi
  compared=$((compared + 1))
done
echo "$compared plans of $cases cases are no faster than their bounds, and $open hardly faster than with everything open"
[ $((compared * 3)) -ge "$cases" ] || { echo 'too few of them fit' >&2; exit 1; }
