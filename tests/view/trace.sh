#!/usr/bin/env bash
# Owns: traces of plans of many shapes pass the checker.
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
checked grad-op tests/fixtures/llama-tiny.fsdp --ranks 4 --strategy shard_grad_op
checked recompute tests/fixtures/gpt-tiny.fsdp --ranks 2 --checkpoint full --prefetch 0
checked gpt2 models/gpt2.fsdp --ranks 8 --memory 16GiB
checked folded models/llama3-8b.fsdp --ranks 8
