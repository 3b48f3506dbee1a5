#!/usr/bin/env bash
# Owns: the optimizers besides AdamW, and frozen heads, in the CUDA backend on the fake runtime.
# Run as: optimizers.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

# Lion, Adafactor, and a classifier whose weight is frozen, as on the CPU; Adafactor also wherever shards begin and end.
sed -E 's/optimizer adamw \{[^}]*\}/optimizer adafactor { lr 1e-2 decay 0.1 }/' "$fixtures/gpt-tiny.fsdp" >adafactor.fsdp
sed -E 's/optimizer adamw \{[^}]*\}/optimizer lion { lr 1e-3 betas 0.9 0.99 decay 0.1 }/' "$fixtures/gpt-tiny.fsdp" >lion.fsdp
sed -E 's/(loss = .*)/freeze "lm_head"\n  \1/' "$fixtures/llama-tiny.fsdp" >frozen-head.fsdp
for model in lion adafactor frozen-head; do
  for backend in cpu cuda; do train "$model-$backend" $model.fsdp --ranks 2 --steps 3 --backend $backend; done
  "$compare" metrics "$model-cuda.jsonl" "$model-cpu.jsonl" 1e-4
done

sed 's/precision f32 reduce f32/precision bf16 reduce bf16/' adafactor.fsdp >adafactor-half.fsdp
for backend in cpu cuda; do train "half-$backend" adafactor-half.fsdp --ranks 2 --steps 3 --backend $backend; done
"$compare" metrics half-cuda.jsonl half-cpu.jsonl 2e-2

train shards-2 adafactor.fsdp --ranks 2 --steps 3 --backend cuda --strategy full_shard
"$compare" metrics shards-2.jsonl adafactor-cuda.jsonl 0
train shards-4 adafactor.fsdp --ranks 4 --steps 3 --backend cuda --strategy full_shard
train replicas-4 adafactor.fsdp --ranks 4 --steps 3 --backend cuda --strategy no_shard
FAKE_GPUS=4 train nccl-4 adafactor.fsdp --ranks 4 --steps 3 --backend cuda --strategy full_shard
for other in replicas-4 nccl-4; do "$compare" metrics $other.jsonl shards-4.jsonl 0; done
