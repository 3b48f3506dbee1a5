#!/usr/bin/env bash
# Owns: a model of each architecture that `fsdpc import` knows beside GPT-2 is the one that transformers has: losses and gradient
# norms over steps of SGD, the likeliest continuation, and its tensors as exported, against tests/fixtures/imported.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")

# The recipe of make_imported.py; a rate this large shows in losses whether each gradient is right.
recipe='train { optimizer sgd { lr 0.1 momentum 0 decay 0 }  batch 4  steps 5  precision f32 reduce f32 }
cluster { device cpu { memory 1GiB bandwidth 10GB/s peak f32 100GFLOPS } node { devices 4 bandwidth 5GB/s } }'

for folder in "$fixtures"/imported/*/; do
  name=$(basename "$folder")
  expect 0 import "$folder" -o "$name.fsdp"
  { sed '/^train/,$d' "$name.fsdp" && echo "$recipe"; } >"$name.here.fsdp"
  for ranks in 1 2; do
    train "$name-$ranks" "$name.here.fsdp" --ranks "$ranks" --init "$folder"
    "$compare" reference "$name-$ranks.jsonl" "$folder/expected.json" 1e-5
  done
  expect 0 generate "$name.here.fsdp" --weights "$folder" --prompt 012 --tokens $(($(wc -c <"$folder/greedy.txt") - 3)) --temperature 0 --gemm builtin
  cmp out "$folder/greedy.txt" || fail "$name goes on otherwise"
  expect 0 export "$name.fsdp" "$name.hf" --to safetensors --weights "$folder"
  "$compare" weights "$name.hf/model.safetensors" "$folder/model.safetensors"
done
