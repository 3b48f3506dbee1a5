#!/usr/bin/env bash
# Owns: traces of plans of many shapes pass the checker; a run's trace holds prediction and measurement in one layout.
#
# usage: trace.sh FSDPC CHECK_TRACE
set -euo pipefail
fsdpc=$(realpath "$1") checker=$(realpath "$2")
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# checked NAME FILE OPTION...
checked() {
  local name=$1
  shift
  "$fsdpc" plan "$@" -o "$scratch/$name.plan" >/dev/null
  "$fsdpc" draw "$scratch/$name.plan" --trace "$scratch/$name.json"
  printf '%s: ' "$name"
  "$checker" "$scratch/$name.plan" "$scratch/$name.json"
}

checked figure2 models/fsdp-figure2.fsdp
checked one-rank tests/fixtures/gpt-tiny.fsdp --ranks 1
checked two-ranks tests/fixtures/gpt-tiny.fsdp --ranks 2 --micro-batch 1
checked sharded tests/fixtures/gpt-tiny.fsdp --ranks 2 --micro-batch 1 --strategy full_shard --wrap block --reshard yes
checked grad-op tests/fixtures/llama-tiny.fsdp --ranks 4 --strategy shard_grad_op
checked recompute tests/fixtures/gpt-tiny.fsdp --ranks 2 --checkpoint full --prefetch 0
checked gpt2 models/gpt2.fsdp --ranks 8 --memory 16GiB
checked folded models/llama3-8b.fsdp --ranks 8

# One file, two processes: the same lanes, slices, flows and arguments, whether predicted (0) or measured (1).
for name in one-rank sharded; do
  "$fsdpc" run "$scratch/$name.plan" --data tests/fixtures/tokens.bin --steps 3 --quiet --trace "$scratch/run.json" 2>"$scratch/err" || { cat "$scratch/err" >&2 && exit 1; }
  printf '%s, as run: ' "$name"
  "$checker" "$scratch/$name.plan" "$scratch/run.json"
  "$checker" "$scratch/$name.plan" "$scratch/run.json" 1 measured
  "$fsdpc" explain "$scratch/$name.plan" --measured "$scratch/run.json" | grep -q '^  step .* [0-9]' || { echo "FAILED: explain --measured" >&2 && exit 1; }
done
if "$fsdpc" run "$scratch/one-rank.plan" --data tests/fixtures/tokens.bin --steps 3 --trace "$scratch/no/run.json" >"$scratch/out" 2>"$scratch/err"; then
  echo "FAILED: a trace that cannot be written" >&2 && exit 1
fi
grep -q 'cannot write .*No such file' "$scratch/err"
! grep -q loss "$scratch/out" "$scratch/err" || { echo "FAILED: it trained before it said so" >&2 && exit 1; }
refused() {
  if "$fsdpc" explain "$@" >/dev/null 2>"$scratch/err"; then echo "FAILED: accepted: $*" >&2 && exit 1; fi
}
refused "$scratch/one-rank.plan" --measured "$scratch/run.json"
grep -q 'another plan' "$scratch/err"
refused "$scratch/sharded.plan" --measured "$scratch/sharded.json"
grep -q 'no measured step' "$scratch/err"
