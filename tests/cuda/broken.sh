#!/usr/bin/env bash
# Owns: a step that does not end, or ends badly, on a device: what is said, by which rank, that all ranks end, and that a checkpoint from
# before goes on with the bits of a run that nothing happened to. Run as: broken.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"
run=(run "$fixtures/gpt-tiny.fsdp" "${pinned[@]}" --data "$fixtures/tokens.bin" --backend cuda --steps 5 --threads 1)

# The first step is launched one by one, the third is a graph.
for finished in 0 2; do
  for ranks in 1 2; do
    FAKE_GPUS=2 FAKE_STUCK=$finished FSDPC_CUDA_TIMEOUT=1 expect 4 "${run[@]}" --ranks $ranks
    said err ": the GPU has not finished step $((finished + 1)) after 1 s; is another rank stuck?"
    FAKE_GPUS=2 FAKE_FAULT=$finished expect 1 "${run[@]}" --ranks $ranks
    said err ": the GPU failed in step $((finished + 1)): CUDA error 700; FSDPC_CUDA_SYNC=1 names the instruction"
  done
  # NCCL is asked while time, of which there is more here, is not up.
  FAKE_GPUS=2 FAKE_STUCK=$finished FAKE_NCCL_LOST=1 expect 4 "${run[@]}" --ranks 2
  said err 'rank 1: a collective failed: NCCL: refused by the fake'
  ! grep 'fake nccl' err || fail 'communicators are closed in another way than NCCL wants'
  # What it has to say is no cause, where another rank says one a little later.
  FAKE_GPUS=2 FAKE_STUCK=$finished FAKE_NCCL_LOST=1 FSDPC_CUDA_TIMEOUT=1 expect 4 "${run[@]}" --ranks 2
  said err 'rank 0: the GPU has not finished step'
done

# Steps that the plan says are long may take three times as long as it says.
expect 0 plan "$fixtures/gpt-tiny.fsdp" "${pinned[@]}" --ranks 1 -o long.plan
sed -i -E 's/step_ns [0-9]+/step_ns 1000000000/' long.plan
FAKE_STUCK=0 FSDPC_CUDA_TIMEOUT=1 expect 4 run long.plan --data "$fixtures/tokens.bin" --backend cuda --steps 1 --threads 1
said err ': the GPU has not finished step 1 after 3 s'

# Who watches from outside names no instruction of a GPU that has been handed them all.
FAKE_STUCK=2 expect 4 "${run[@]}" --ranks 1 --timeout 1
said err 'no rank has got on for 1 s: rank 0 is stuck in step 3'
! grep -q 'instruction' err || fail 'an instruction is said to run that may have ended'

# Between steps, too, it is the GPU's fault and no peer's.
FAKE_FAULT=1 expect 1 "${run[@]}" --ranks 1 --eval "$fixtures/tokens.bin" --eval-every 1
said err ': the GPU failed in step 1: CUDA error 700; FSDPC_CUDA_SYNC=1 names the instruction, while evaluating after step 1'

# A rank that fails for another reason does not wait, when it closes, for those that the failure ends: rank 0's disk is full.
for metrics in /dev/full fine.jsonl; do
  code=1
  [ $metrics = /dev/full ] || code=0
  FAKE_GPUS=2 FAKE_NCCL_MET=met expect $code "${run[@]}" --ranks 2 --metrics $metrics
  [ -e met ] && met=yes || met=no
  [ "$metrics $met" = '/dev/full no' ] || [ "$metrics $met" = 'fine.jsonl yes' ] || fail "$metrics: ranks met at the end: $met"
done

# Nor does one that fails while it opens, of which they do not know yet: the second GPU has 400 bytes less than a rank takes (one or the
# other, which differ by some parameters' ranges), and so not what rank 1 takes last, a communicator's scratch memory or cuDNN's workspace.
sed -e 's/d = 24, heads = 3/d = 64, heads = 1/' -e 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/gpt-tiny.fsdp" >flash.fsdp
for model in "$fixtures/gpt-tiny.fsdp" flash.fsdp; do
  opens=(run "$model" "${pinned[@]}" --data "$fixtures/tokens.bin" --backend cuda --steps 1 --threads 1 --ranks 2 --timeout 20)
  FAKE_CUDNN=1 FAKE_GPUS=2 FAKE_TAKEN=taken expect 0 "${opens[@]}"
  FAKE_CUDNN=1 FAKE_GPUS=2 FAKE_CROWDED=$(($(cat taken) - 400)) expect 3 "${opens[@]}"
  cat err >>refusals
done
for what in 'scratch memory of collectives' "the workspace of attention"; do
  grep -q "cuda: $what.*: CUDA error 2; plan with a smaller --memory, or use an emptier GPU" refusals || fail "$what: $(cat refusals)"
done

# What kernels and NCCL need for themselves they take when they are first used.
FAKE_LAUNCH=2 expect 3 "${run[@]}" --ranks 1
said err 'CUDA error 2; kernels are loaded beside what is planned: plan with a smaller --memory, or use an emptier GPU'
FAKE_LAUNCH=98 expect 1 "${run[@]}" --ranks 1
said err 'CUDA error 98; it may be of an earlier instruction: FSDPC_CUDA_SYNC=1 names it'
FAKE_GPUS=2 FAKE_NCCL_SHORT=1 expect 3 "${run[@]}" --ranks 2
said err 'NCCL: refused by the fake (Failed to CUDA calloc 10485760 bytes); its buffers lie beside what is planned: plan with a smaller --memory'

# State in host memory, as on the device, is read for a checkpoint, and filled from one.
sed 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/gpt-tiny.fsdp" >bf16.fsdp
for what in none parameters,gradients,optimizer,activations; do
  expect 0 plan bf16.fsdp --ranks 2 --micro-batch 1 --reduce micro_batch --offload $what --cluster "$root/models/clusters/dgx-h100.fsdp" -o bf16.plan
  FAKE_GPUS=2 train whole bf16.plan --steps 4 --backend cuda
  rm -rf broken.weights
  FAKE_GPUS=2 FAKE_FAULT=3 expect 1 run bf16.plan --steps 4 --backend cuda --data "$fixtures/tokens.bin" --threads 1 --save broken.weights --save-every 1
  said err 'the GPU failed in step 4'
  FAKE_GPUS=2 train broken bf16.plan --steps 4 --backend cuda --resume auto
  grep -q '"step":4,' broken.jsonl && ! grep -q '"step":1,' broken.jsonl || fail 'the run began anew'
  "$compare" weights broken.weights/model.safetensors whole.weights/model.safetensors
done
grep -q '^host arena' bf16.plan || fail 'nothing is offloaded'
