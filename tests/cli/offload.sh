#!/usr/bin/env bash
# Owns: what lies in host memory: bits are those of a run without, in every precision and with gradients that add up; a
# checkpoint does not know where anything lay; what cannot be offloaded is refused with the reason.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")
all=parameters,gradients,optimizer,activations

# model PRECISION: the GPT of the fixtures.
model() {
  sed "s/precision f32 reduce f32/precision $1 reduce f32/; s/peak f32 100GFLOPS/peak f32 100GFLOPS $1 100GFLOPS/" "$fixtures/gpt-tiny.fsdp"
}
model bf16 >bf16.fsdp
model f16 >f16.fsdp
cp "$fixtures/gpt-tiny.fsdp" f32.fsdp

# The same micro-batches, so that sums are the same.
for precision in f32 bf16 f16; do
  for where in "1 full_shard" "2 full_shard" "4 hybrid_shard:2" "2 no_shard"; do
    read -r ranks strategy <<<"$where"
    options=(--ranks "$ranks" --strategy "$strategy" --micro-batch 1 --reduce micro_batch --gemm builtin)
    train here $precision.fsdp "${options[@]}" --offload none
    for what in optimizer gradients parameters $all; do
      train away $precision.fsdp "${options[@]}" --offload $what --eval "$fixtures/tokens.bin" --eval-every 10
      "$compare" metrics away.jsonl here.jsonl 0 >out || fail "$precision, $where, $what"
      "$compare" weights away.weights/model.safetensors here.weights/model.safetensors >out || fail "$precision, $where, $what"
    done
  done
done

# Stopped with everything away, gone on with nothing away and on other ranks, and the other way round.
train whole bf16.fsdp --ranks 2 --gemm builtin
train half bf16.fsdp --ranks 2 --steps 10 --offload $all --gemm builtin
train half bf16.fsdp --ranks 2 --resume auto --gemm builtin
"$compare" weights half.weights/model.safetensors whole.weights/model.safetensors
train other bf16.fsdp --ranks 2 --steps 10 --gemm builtin
train other bf16.fsdp --ranks 2 --resume auto --offload $all --gemm builtin
"$compare" weights other.weights/model.safetensors whole.weights/model.safetensors
train fewer bf16.fsdp --ranks 2 --steps 10 --offload $all --gemm builtin
train fewer bf16.fsdp --ranks 1 --resume auto --gemm builtin

# Less memory is enough when state is away, and the plan says where it lies.
expect 3 plan f32.fsdp --ranks 1 --memory 300KiB --checkpoint full
expect 0 plan f32.fsdp --ranks 1 --memory 300KiB --checkpoint full --offload $all
said out 'host memory'
said out 'optimizer'

# Refused.
sed 's/optimizer adamw {.*/optimizer adafactor { lr 1e-3 }/' f32.fsdp >adafactor.fsdp
expect 1 plan adafactor.fsdp --offload optimizer
said err 'cannot be offloaded with adafactor'
expect 64 plan f32.fsdp --offload optimiser
said err 'did you mean optimizer?'
sed 's/host_memory 220GB/host_memory 1GB/' "$root/models/clusters/dgx-a100-80.fsdp" >small.fsdp
expect 3 plan "$root/models/gpt2-xl.fsdp" --cluster small.fsdp --ranks 2 --offload parameters,gradients,optimizer --memory 10GiB
said err "of a rank's host memory, and the cluster states 954 MiB"
expect 3 plan "$root/models/gpt2-xl.fsdp" --cluster small.fsdp --ranks 2 --memory 9GiB
said err 'no plan found within the budget of 9.00 GiB'
