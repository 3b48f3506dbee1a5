#!/usr/bin/env bash
# Owns: losses, gradient norms and every gradient of a 2-layer GPT and a 2-layer llama, also with norms of each head, against tests/fixtures,
# which JAX computed in float64. Tolerances: 1e-5 relative over 20 AdamW steps; gradients as in compare.c.
source "$(dirname "$0")/lib.sh"

for model in gpt-tiny llama-tiny heads-tiny; do
  init=$fixtures/$model.init.safetensors
  # One step of plain SGD with rate 1 turns weights into gradients.
  sed -E 's/optimizer adamw \{[^}]*\}/optimizer sgd { lr 1 momentum 0 decay 0 }/; s/clip 1\.0/clip 0/; s/steps 20/steps 1/' \
    "$fixtures/$model.fsdp" >"$model-sgd.fsdp"
  for ranks in 1 2; do
    train "$model-$ranks" "$fixtures/$model.fsdp" --ranks "$ranks" --init "$init"
    "$compare" reference "$model-$ranks.jsonl" "$fixtures/$model.expected.json" 1e-5
    train "$model-sgd-$ranks" "$model-sgd.fsdp" --ranks "$ranks" --init "$init"
    "$compare" gradient "$init" "$model-sgd-$ranks.weights/model.safetensors" "$fixtures/$model.grad.safetensors" 1e-5
  done
done
