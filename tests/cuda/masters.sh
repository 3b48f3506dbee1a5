#!/usr/bin/env bash
# Owns: parameters without f32 master weights in the CUDA backend on the fake runtime. Run as: masters.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

# Without f32 master weights: every optimizer follows the CPU's, stochastic rounding included, with equal bits wherever
# shards begin and end; rounding to nearest is another course; a run goes on from a checkpoint of the CPU's.
for optimizer in 'adamw { lr 1e-3 }' 'lion { lr 1e-3 betas 0.9 0.99 decay 0.1 }' 'sgd { lr 1e-2 momentum 0.9 }' 'adafactor { lr 1e-2 }'; do
  sed -E -e "s/optimizer adamw \\{[^}]*\\}/optimizer $optimizer/" -e 's/precision f32 reduce f32/precision bf16 master bf16/' \
    "$fixtures/gpt-tiny.fsdp" >alone.fsdp
  for backend in cpu cuda; do train "alone-$backend" alone.fsdp --ranks 2 --steps 2 --backend $backend --strategy full_shard; done
  "$compare" metrics alone-cuda.jsonl alone-cpu.jsonl 1e-2
  train alone-again alone.fsdp --ranks 2 --steps 2 --backend cuda --strategy no_shard
  "$compare" metrics alone-again.jsonl alone-cuda.jsonl 0
  "$compare" weights alone-again.weights/model.safetensors alone-cuda.weights/model.safetensors
done
train alone-4 alone.fsdp --ranks 4 --steps 2 --backend cuda --strategy full_shard
FAKE_GPUS=4 train alone-nccl alone.fsdp --ranks 4 --steps 2 --backend cuda --strategy full_shard
"$compare" metrics alone-nccl.jsonl alone-4.jsonl 0
sed 's/master bf16/& rounding nearest/' alone.fsdp >nearest.fsdp
train nearest nearest.fsdp --ranks 2 --steps 2 --backend cuda
! "$compare" weights nearest.weights/model.safetensors alone-cuda.weights/model.safetensors 2>/dev/null || fail 'rounding changes nothing'
train alone-cpu alone.fsdp --ranks 2 --steps 2
expect 0 run alone.fsdp --ranks 2 --steps 3 --backend cuda --data "$fixtures/tokens.bin" --save alone-cpu.weights --resume auto --threads 1 --quiet

# What is frozen has no master either, in the backend's own memory as in checkpoints.
sed -E 's/precision f32 reduce f32/precision bf16/; s/^  loss = /  freeze "wte"\n  freeze "h.0"\n&/' "$fixtures/gpt-tiny.fsdp" >frozen.fsdp
for backend in cpu cuda; do train "frozen-$backend" frozen.fsdp --ranks 2 --steps 3 --backend $backend; done
"$compare" metrics frozen-cuda.jsonl frozen-cpu.jsonl 1e-2
expect 0 run frozen.fsdp --ranks 2 --steps 4 --backend cuda --data "$fixtures/tokens.bin" --save frozen-cpu.weights --resume auto --threads 1 --quiet
