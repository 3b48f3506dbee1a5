#!/usr/bin/env bash
# Owns: what runs forward only in the CUDA backend on the fake runtime: evaluation between steps, generating.
# Run as: forward.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

# Evaluation in between drops nothing out, says what the CPU says, and leaves training as it is, graphs included.
sed 's/gelu(linear(x, 4\*d) as c_fc)/dropout(gelu(linear(x, 4*d) as c_fc), 0.1)/; s/ as mlp$/& * 0.5/' "$fixtures/gpt-tiny.fsdp" >dropout.fsdp
train quiet dropout.fsdp --ranks 2 --steps 6 --backend cuda
for backend in cpu cuda; do
  train "eval-$backend" dropout.fsdp --ranks 2 --steps 6 --backend $backend --eval "$fixtures/tokens.bin" --eval-every 2 --eval-batches 4
  grep '"eval"' "eval-$backend.jsonl" >"eval-$backend"
done
"$compare" metrics eval-cuda.jsonl quiet.jsonl 0
paste -d' ' <(grep -oE '"loss":[^,]*' eval-cuda | cut -d: -f2) <(grep -oE '"loss":[^,]*' eval-cpu | cut -d: -f2) |
  awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4) bad = 1; n++ } END { exit !(n == 3 && !bad) }' ||
  fail "evaluations differ: $(cat eval-cuda eval-cpu)"

# What was trained generates the same text on both, with caches of keys and values, positions learned or rotary.
for model in gpt-tiny llama-tiny heads-tiny; do
  sed 's/vocab = 67/vocab = 256/' "$fixtures/$model.fsdp" >bytes.fsdp
  train bytes bytes.fsdp --ranks 1 --steps 2 --backend cuda
  for backend in cpu cuda; do
    expect 0 generate bytes.fsdp --weights bytes.weights --prompt 'fsdp and' --tokens 20 --seed 7 --gemm builtin --backend $backend
    mv out "text-$backend"
  done
  cmp text-cpu text-cuda || fail "$model: the backends generate different texts"
done
