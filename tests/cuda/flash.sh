#!/usr/bin/env bash
# Owns: attention by cuDNN in the CUDA backend, with a cuDNN that computes graphs on the CPU. Run as: flash.sh FSDPC_FAKE
# COMPARE.
source "$(dirname "$0")/lib.sh"

# Attention that cuDNN takes is cuDNN's, forward and, other than of heads of 64 on Hopper, backward; the own kernels can be asked for, and cuDNN insisted on.
sed -e 's/d = 24, heads = 3/d = 128, heads = 2/' -e 's/precision f32 reduce f32/precision bf16 reduce f32/' \
  "$fixtures/gpt-tiny.fsdp" >wide-gpt.fsdp
sed -e 's/precision f32 reduce f32/precision f16 reduce f32/' "$fixtures/llama-tiny.fsdp" \
  -e 's/d = 32, heads = 4, kv_heads = 2, head_dim = 8/d = 256, heads = 4, kv_heads = 2, head_dim = 64/' >wide-llama.fsdp
for model in wide-gpt wide-llama; do
  FAKE_COMPUTE=80 FSDPC_CUDA_ATTENTION=own train own $model.fsdp --ranks 1 --steps 2 --backend cuda
  FSDPC_CUDA_ATTENTION=own train hopper $model.fsdp --ranks 1 --steps 2 --backend cuda
  "$compare" metrics hopper.jsonl own.jsonl 1e-2
  differ hopper.weights/model.safetensors own.weights/model.safetensors || fail 'another kernel gives other bits, if it runs'
  FAKE_CUDNN=1 FSDPC_CUDA_ATTENTION=cudnn train flash $model.fsdp --ranks 1 --steps 2 --backend cuda
  "$compare" metrics flash.jsonl own.jsonl 1e-2
done
FAKE_CUDNN=1 FSDPC_CUDA_ATTENTION=fast train fast wide-llama.fsdp --ranks 1 --steps 2 --backend cuda
"$compare" metrics fast.jsonl own.jsonl 1e-2
# With fifteen rows a part's sums lie where only floats may.
sed -e 's/ctx = 16/ctx = 15/' -e 's/tokens_per_step 64/tokens_per_step 30/' wide-gpt.fsdp >odd-gpt.fsdp
FAKE_COMPUTE=80 train own odd-gpt.fsdp --ranks 1 --steps 1 --backend cuda
FAKE_CUDNN=1 FSDPC_CUDA_ATTENTION=cudnn train flash odd-gpt.fsdp --ranks 1 --steps 1 --backend cuda
"$compare" metrics flash.jsonl own.jsonl 1e-2
FAKE_CUDNN=1 FAKE_COMPUTE=80 FSDPC_CUDA_PRODUCTS=1 expect 0 run wide-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err "attention backward 4 x 2/2 x 16 x 16 x 64 bf16, causal: 1 x 2 at a time, cuDNN's engine 1"
said err 'attention by cuDNN with'
FAKE_CUDNN=1 FSDPC_CUDA_PRODUCTS=1 expect 0 run wide-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err "attention by cuDNN, backward by Hopper's kernel with"
said err 'attention forward 4'
! grep -q 'attention backward' err || fail 'that is not left to cuDNN'
expect 0 run wide-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err "backward attention by Hopper's kernel with"
# Heads of 128, and forward passes, are Hopper's kernels' only where own ones are asked for.
sed 's/d = 128, heads = 2/d = 128, heads = 1/' wide-gpt.fsdp >wider-gpt.fsdp
FAKE_COMPUTE=80 FSDPC_CUDA_ATTENTION=own train wider wider-gpt.fsdp --ranks 1 --steps 2 --backend cuda
FSDPC_CUDA_ATTENTION=own train hopper wider-gpt.fsdp --ranks 1 --steps 2 --backend cuda
"$compare" metrics hopper.jsonl wider.jsonl 1e-2
differ hopper.weights/model.safetensors wider.weights/model.safetensors || fail 'another kernel gives other bits, if it runs'
FSDPC_CUDA_ATTENTION=own expect 0 run wider-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err "attention by Hopper's kernels with"
FAKE_CUDNN=1 expect 0 run wider-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'attention by cuDNN with'
expect 0 run wider-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
! grep -q "Hopper" err || fail 'that has not run on a GPU'
# An older one leaves backward passes of 16 rows to own kernels; forward passes need no workspace then, and run.
FAKE_CUDNN=1 FAKE_COMPUTE=80 FAKE_CUDNN_VERSION=91500 FAKE_CUDNN_WORKSPACE=0 train flash odd-gpt.fsdp --ranks 1 --steps 1 --backend cuda
"$compare" metrics flash.jsonl own.jsonl 1e-2
FAKE_CUDNN=refuses expect 1 run wide-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'cuDNN: the launch failed: '
said err 'FSDPC_CUDA_ATTENTION=own uses own kernels'
FAKE_CUDNN=1 FSDPC_CUDA_ATTENTION=own expect 0 run wide-gpt.fsdp --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
! grep -q 'attention by cuDNN' err || fail 'own kernels were asked for'
FSDPC_CUDA_ATTENTION=cudnn expect 1 run wide-gpt.fsdp --ranks 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'FSDPC_CUDA_ATTENTION=cudnn, but cuDNN: missing'
FAKE_CUDNN=1 FSDPC_CUDA_ATTENTION=cudnn expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'cuDNN: it takes bf16 and f16'

# A variable that cannot be as it is set is an error, before anything runs and whatever the backend; doctor says it too.
for backend in cpu cuda; do
  FSDPC_CUDA_ATTENTION=foo expect 1 run wide-gpt.fsdp --ranks 1 --backend $backend --data "$fixtures/tokens.bin"
  said err 'environment: FSDPC_CUDA_ATTENTION is "foo", but must be auto, own, cudnn or fast; unset it to have its default'
done
FSDPC_NCCL_SUM=x expect 0 doctor
said out 'environment: FSDPC_NCCL_SUM is "x", but must be tree or nccl'
