#!/usr/bin/env bash
# Owns: what tools/gpu-check.sh says of wrong results: of a program that computes nothing, each comparison of training finds what differs,
# and no other does. Run as: gpu_check_wrong.sh FSDPC COMPARE, which it does not run.
source "$(dirname "$0")/../cli/lib.sh"
mkdir bin build
printf '#!/bin/sh\necho "NVIDIA H200, 580.0, 1024 MiB"\n' >bin/nvidia-smi
# Every run has the same two steps, but those whose command line, with FSDPC_CUDA_GRAPH before it, $WRONG matches: these have $STEP, or, of
# plan, an empty file.
cat >build/fsdpc <<'END_OF_PROGRAM'
#!/bin/bash
said="graph=${FSDPC_CUDA_GRAPH:-1} $*" step='"loss":4.25,"grad_norm":1.5,"loss_scale":8,"skipped":true' out=/dev/null
plan=$'buf b61 "x" activations bf16 64 @ 0x0 host live i1..i4\n  i3 compute recompute gelu_fwd b1 -> b2 {count=64}'
[[ $said =~ $WRONG ]] && step=$STEP plan=''
while [ $# -gt 0 ]; do
  case $1 in
  doctor) echo '  GPU 0  a fake' ;;
  -o) echo "$plan" >"$2" ;;
  --metrics) out=$2 ;;
  esac
  shift
done
printf '{"reason":"step","step":%d,%s}\n' 1 "$step" 2 "$step" >"$out"
END_OF_PROGRAM
chmod +x bin/* build/*
export PATH=$PWD/bin:$PATH WRONG STEP

# finds WRONG STEP ROW...: training fails in these rows of the first model and of no other.
finds() {
  local row code=0
  WRONG=$1 STEP=$2
  shift 2
  "$root/tools/gpu-check.sh" --build build --table table.md --limit 100000 train >out 2>err || code=$?
  [ "$code" = $(($# > 0)) ] || { cat table.md >&2 && fail "exit code $code of \"$WRONG\""; }
  for row in "$@"; do said table.md "| gpt-tiny: $row | FAILED"; done
  [ "$(grep -c '^| gpt-tiny: .*| FAILED' table.md)" = $# ] || { cat table.md >&2 && fail "\"$WRONG\" fails elsewhere, too"; }
}
none='never matched' loss='"loss":4.75,"grad_norm":1.5,"loss_scale":8,"skipped":true' norm='"loss":4.25,"grad_norm":1.25,"loss_scale":8,"skipped":true'
kept_steps='"loss":4.25,"grad_norm":1.5,"loss_scale":8,"skipped":false'
said_rows() { grep -c '^| gpt-tiny' table.md; }

finds "$none" ''
rows=$(said_rows)
finds 'gpt-tiny.* --micro-batch 2 --backend cuda' "$loss" 'micro-batches as on the CPU'
finds 'graph=0 .* --micro-batch 2' "$norm" 'micro-batches, graph or not'
finds 'spared.plan .*--backend cuda' "$norm" 'recomputed and offloaded or not'
finds 'kept.plan .*--backend cuda' "$loss" 'recomputed and offloaded or not'
finds 'plan .*spared.fsdp' '' 'plan that recomputes and offloads'
[ "$(said_rows)" = $((rows - 2)) ] || fail 'a plan that does neither was run'
finds '/f16.fsdp .*--backend cuda' "$loss" 'f16 as on the CPU'
finds '/f16.fsdp .*--backend cuda' "$kept_steps" 'f16 skips the steps that the CPU does'
finds '/f16.fsdp' "$kept_steps" 'f16 skips the steps that the CPU does' # nothing was skipped
finds 'graph=0 .*--steps 50 ' "$norm" 'graph or not'
# What is no number agrees with nothing, not even with itself.
finds '/f16.fsdp' '"loss":null,"grad_norm":null,"loss_scale":8,"skipped":true' 'f16 as on the CPU'
