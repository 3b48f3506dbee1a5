#!/usr/bin/env bash
# Owns: tests of `plan --executor` and of exporting its policies.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Planning for PyTorch: the policy it writes predicts what was planned, plans to itself, and is exported.
model=$root/models/llama3.2-1b.fsdp
fsdp2=(--executor pytorch-fsdp2-compiled --ranks 8)
expect 0 plan "$model" "${fsdp2[@]}" --json -o policy.fsdp
step() { sed -n 's/.*"step_ns": \([0-9]*\).*/\1/p' out; }
said out '"runners_up": ['
planned=$(step)
expect 0 predict policy.fsdp --ranks 8
expect 0 plan policy.fsdp --ranks 8 --json
[ "$(step)" = "$planned" ] || fail "planned $planned, the written policy takes $(step)"
said out '"candidates": 1,'
expect 0 export policy.fsdp --ranks 8 --to torch -o policy.py
grep -q '"model.layers.0"' policy.py || fail 'the exported policy names no block'
if command -v python3 >/dev/null; then python3 -c 'import ast; ast.parse(open("policy.py").read())' || fail 'policy.py is no Python'; fi
block=(--strategy full_shard --wrap block --reshard yes --prefetch 1 --checkpoint full)
expect 0 export "$model" "${fsdp2[@]}" "${block[@]}" --to transformers
said out '"activation_checkpointing": true'
expect 0 export "$model" "${fsdp2[@]}" "${block[@]}" --micro-batch 16 --memory 2TB --to accelerate
said out 'fsdp_reshard_after_forward: true'
expect 1 export "$model" "${fsdp2[@]}" --prefetch 2 --to accelerate
said err 'gathering more than one unit ahead'
expect 0 export "$model" "${fsdp2[@]}" --prefetch 2 --to accelerate --lossy
expect 64 export "$model" --ranks 8 --to torch
expect 3 plan "$model" "${fsdp2[@]}" --memory 4GiB
said err 'would fit: memory'
expect 64 plan "$model" "${fsdp2[@]}" --dump units
expect 64 predict "$model" --precision bf17
expect 0 plan "$model" "${fsdp2[@]}" --micro-batch 1 --max ctx
said out 'does not'
