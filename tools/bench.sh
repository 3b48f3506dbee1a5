#!/usr/bin/env bash
# Owns: the benchmarks: a step's time against its matrix products alone, and how long planning takes. Builds a release,
# prints tables with ratios, writes bench.json.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
help_if_asked "$@"
cd "$root"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

require_packages "${build_packages[@]}"
build_release
quietly cmake --build build --target bench_products

divide() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# Median of step_ns without the first steps, which touch memory for the first time.
median_step() {
  grep '"step"' "$1" | grep -oE '"step_ns": *[0-9]+' | sed 's/.*: *//' | tail -n +3 | sort -n |
    awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'
}

# step_against_products MODEL RANKS BATCH STEPS ARGUMENT...: one row of the first table. In f32 and with BATCH samples
# a step, whatever the model file says.
step_against_products() {
  local model=$1 ranks=$2 batch=$3 steps=$4 products step
  shift 4
  sed -E "s/^( *)(tokens_per_step|batch) .*/\1batch $batch/; s/^( *)precision .*/\1precision f32/" "models/$model.fsdp" \
    >"$scratch/$model.fsdp"
  build/fsdpc plan "$scratch/$model.fsdp" --ranks "$ranks" --cluster models/clusters/cpu.fsdp "$@" -o "$scratch/plan" >"$scratch/summary"
  head -c 4000000 /dev/zero >"$scratch/tokens.bin"
  build/fsdpc run "$scratch/plan" --data "$scratch/tokens.bin" --steps "$steps" --metrics "$scratch/metrics" --quiet --threads 1
  step=$(median_step "$scratch/metrics")
  build/bench_products "$scratch/plan" >"$scratch/products"
  products=$(field "$scratch/products" products_ns)
  printf '%-12s %5s  %12.1f  %12.1f  %7s\n' "$model" "$ranks" "$(divide "$step" 1000000)" "$(divide "$products" 1000000)" \
    "$(divide "$step" "$products")"
  rows+=("$(printf '{"name":"step","model":"%s","ranks":%s,"step_ns":%s,"products_ns":%s,"ratio":%s}' "$model" "$ranks" \
    "$step" "$products" "$(divide "$step" "$products")")")
}

# planning MODEL ARGUMENT...: one row of the second table.
planning() {
  local model=$1 seconds code=0
  shift
  build/fsdpc plan "models/$model.fsdp" "$@" --json >"$scratch/json" 2>/dev/null || code=$?
  [ "$code" = 0 ] || [ "$code" = 3 ] || die "planning $model failed with $code"
  seconds=$(field "$scratch/json" plan_seconds)
  printf '%-16s %-40s  %8.3f s  gap %s\n' "$model" "$*" "$seconds" "$(field "$scratch/json" gap)"
  rows+=("$(printf '{"name":"plan","model":"%s","arguments":"%s","seconds":%s,"exit":%s}' "$model" "$*" "$seconds" "$code")")
}

rows=()
printf '\n%-12s %5s  %12s  %12s  %7s\n' model ranks 'step, ms' 'products, ms' ratio
step_against_products quickstart 2 32 20
step_against_products gpt2 2 4 8 --set ctx=256 --memory 8GiB
printf '\nplanning\n'
planning gpt2 --ranks 8
planning llama3-405b --ranks 1024

{
  printf '{"schema_version":1,"cores":%s,"results":[\n' "$(nproc)"
  for ((i = 0; i < ${#rows[@]}; i++)); do
    printf '%s%s\n' "${rows[$i]}" "$([ $((i + 1)) -lt ${#rows[@]} ] && echo ,)"
  done
  printf ']}\n'
} >bench.json
say "written to bench.json"
