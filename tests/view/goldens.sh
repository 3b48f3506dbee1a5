#!/usr/bin/env bash
# Owns: goldens of what is said and drawn about plans. Plans are files here, so that a change of the planner or of the cost
# model changes nothing; cases that plan leave costs out.
#
# usage: goldens.sh [--update] FSDPC      --update rewrites the goldens
set -euo pipefail
update=0
if [ "${1-}" = --update ]; then update=1 && shift; fi
fsdpc=$(realpath "$1")
cd "$(dirname "$0")"
export NO_COLOR=1 COLUMNS=100
failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The format of plans may change: then they are planned anew, and the goldens' differences say what else did.
if [ "$update" = 1 ] && ! "$fsdpc" verify figure2.plan >/dev/null 2>&1; then
  (cd ../.. && "$fsdpc" plan models/fsdp-figure2.fsdp -o tests/view/figure2.plan >/dev/null &&
    "$fsdpc" plan models/fsdp-figure2.fsdp --reshard no --micro-batch 4 -o tests/view/figure2-kept.plan >/dev/null)
fi

# golden NAME ARGUMENT...: what fsdpc prints, or writes to OUT, is goldens/NAME.
golden() {
  local name=$1 code=0
  shift
  rm -f "$scratch/out"
  "$fsdpc" "${@/OUT/$scratch/out}" >"$scratch/said" 2>&1 </dev/null || code=$?
  { [ -e "$scratch/out" ] && cat "$scratch/out" || cat "$scratch/said"; [ "$code" = 0 ] || echo "exit $code"; } >"$scratch/now"
  if [[ $name == *.csv ]]; then cut -d, -f1-11 "$scratch/now" >"$scratch/cut" && mv "$scratch/cut" "$scratch/now"; fi
  if [ "$update" = 1 ]; then
    cp "$scratch/now" "goldens/$name"
  elif ! diff -u "goldens/$name" "$scratch/now"; then
    echo "FAILED $name: fsdpc $*" >&2
    failed=1
  fi
}

golden explain.txt explain figure2.plan
golden explain-narrow.txt explain figure2.plan --no-costs
golden explain-why-unit.txt explain figure2.plan --why unit0
golden explain-why-param.txt explain figure2.plan --why layer3.weight
golden explain-why-layer.txt explain figure2.plan --why layer3 --no-costs
golden explain-why-unknown.txt explain figure2.plan --why unit9
golden explain-file.txt explain ../fixtures/gpt-tiny.fsdp --ranks 2 --no-costs --wrap block --checkpoint none --prefetch 1 --strategy full_shard --micro-batch 2
golden diff.txt diff figure2.plan figure2-kept.plan
golden diff-same.txt diff figure2.plan figure2.plan --detailed-exitcode
golden diff-exitcode.txt diff figure2.plan figure2-kept.plan --no-costs --detailed-exitcode
golden diff.json diff figure2.plan figure2-kept.plan --json
golden units.dot draw figure2.plan --dot OUT
golden timeline.svg draw figure2.plan --timeline OUT
golden trace.json draw figure2.plan --trace OUT
golden against-json.txt plan ../../models/fsdp-figure2.fsdp --against figure2.plan --json

# What a sweep asked for and which of it is possible; figures would change with the planner.
golden tune.csv tune ../fixtures/gpt-tiny.fsdp --ranks 1,2,3 --memory 64MiB,10KiB --micro-batch 1 --wrap block --checkpoint none --strategy full_shard,shard_grad_op --csv OUT
exit "$failed"
