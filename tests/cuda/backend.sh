#!/usr/bin/env bash
# Owns: the CUDA backend on the fake runtime, from plan to saved weights: it agrees with the CPU backend, with itself in
# every way of launching, and over ranks, strategies and runs. Run as: backend.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"

# Losses and norms agree with the CPU's; graphs (the default), single launches and waiting after each give equal bits.
for model in gpt-tiny llama-tiny heads-tiny; do
  file=$fixtures/$model.fsdp
  train "$model-cpu" "$file" --ranks 1 --steps 3
  train "$model-cuda" "$file" --ranks 1 --steps 3 --backend cuda
  "$compare" metrics "$model-cuda.jsonl" "$model-cpu.jsonl" 1e-4
  FSDPC_CUDA_GRAPH=0 train "$model-eager" "$file" --ranks 1 --steps 3 --backend cuda
  FSDPC_CUDA_SYNC=1 train "$model-sync" "$file" --ranks 1 --steps 3 --backend cuda
  for other in eager sync; do
    "$compare" metrics "$model-$other.jsonl" "$model-cuda.jsonl" 0
    "$compare" weights "$model-$other.weights/model.safetensors" "$model-cuda.weights/model.safetensors"
  done
done

# A step is one graph; where it accumulates over N micro-batches, N + 2 launches. The first step has none.
launches() { # MICRO_BATCH LAUNCHES
  FAKE_LAUNCHES=launches train launches "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 3 --backend cuda --micro-batch "$1"
  [ "$(cat launches)" = "$2" ] || fail "$(cat launches) graphs were launched in two steps of micro-batches of $1"
}
launches 4 2
launches 2 8

# Several ranks on one GPU.
for ranks in 2 4; do
  train "gpt-$ranks" "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --steps 3 --backend cuda
  train "gpt-$ranks-cpu" "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --steps 3
  "$compare" metrics "gpt-$ranks.jsonl" "gpt-$ranks-cpu.jsonl" 1e-4
done

# A GPU a rank, through NCCL: the same bits as the local communicator, and with it graphs of several ranks.
for ranks in 2 4; do
  FAKE_GPUS=4 train "nccl-$ranks" "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --steps 3 --backend cuda
  "$compare" metrics "nccl-$ranks.jsonl" "gpt-$ranks.jsonl" 0
done

# Gathers go through a symmetric window; where NCCL has no memory of its own, or one rank gets no window, without: the same
# bits.
FAKE_GPUS=4 expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 3 --backend cuda --data "$fixtures/tokens.bin" \
  --strategy full_shard --metrics window.jsonl
said err 'nccl, window registered, sums along the tree'
"$compare" metrics window.jsonl gpt-2.jsonl 0
# In 2.29 a window of two ranks hangs, of four it does not; one gather a step goes without.
for version in '22900 2 !' '22900 4' '23102 2'; do
  read -r number ranks none <<<"$version"
  FAKE_GPUS=4 FAKE_NCCL_VERSION=$number expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --steps 2 --backend cuda \
    --data "$fixtures/tokens.bin" --strategy full_shard
  eval "${none:-} grep -q 'window registered' err" || fail "NCCL $number over $ranks ranks: $(grep nccl err)"
done
FAKE_GPUS=4 expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 4 --steps 2 --backend cuda --data "$fixtures/tokens.bin" \
  --strategy shard_grad_op --wrap whole
! grep -q 'window registered' err || fail 'one gather a step goes through a window'
for setting in FAKE_NCCL_MEMORY=none FAKE_NCCL_WINDOW=decline FSDPC_NCCL_WINDOWS=0; do
  export "${setting?}" FAKE_GPUS=4
  train windowless "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 3 --backend cuda --strategy full_shard
  unset "${setting%=*}" FAKE_GPUS
  "$compare" metrics windowless.jsonl gpt-2.jsonl 0
done
# Steps that rank 0 times are launched one by one on all ranks; in a run of two the first of them is the second.
for steps in 2 5; do
  FAKE_GPUS=2 train traced "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps $steps --backend cuda --trace traced.json
  FAKE_GPUS=2 train untraced "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps $steps --backend cuda
  "$compare" metrics traced.jsonl untraced.jsonl 0
done
FAKE_GPUS=4 train nccl-replicas "$fixtures/gpt-tiny.fsdp" --ranks 4 --steps 3 --backend cuda --strategy no_shard
"$compare" metrics nccl-replicas.jsonl gpt-4.jsonl 0
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 4 --cluster "$root/models/clusters/dgx-h100.fsdp" -o gpu.plan
FAKE_GPUS=4 train nccl-queues gpu.plan --steps 3 --backend cuda
"$compare" metrics nccl-queues.jsonl gpt-4.jsonl 0

# A plan never changes the arithmetic.
for choice in '--strategy full_shard' '--strategy shard_grad_op' '--strategy no_shard' '--strategy hybrid_shard:2' \
  '--wrap whole' '--checkpoint full'; do
  # shellcheck disable=SC2086
  train choice "$fixtures/gpt-tiny.fsdp" --ranks 4 --steps 3 --backend cuda $choice
  "$compare" metrics choice.jsonl gpt-4.jsonl 0
  "$compare" weights choice.weights/model.safetensors gpt-4.weights/model.safetensors
done

# Nor with gradients of 16 bits, whose partial sums are rounded wherever groups of ranks are cut; with NCCL too.
sed 's/precision f32 reduce f32/precision bf16 reduce bf16/' "$fixtures/gpt-tiny.fsdp" >half.fsdp
train half half.fsdp --ranks 4 --steps 2 --backend cuda --strategy full_shard
for strategy in hybrid_shard:2 no_shard; do
  train choice half.fsdp --ranks 4 --steps 2 --backend cuda --strategy $strategy
  "$compare" metrics choice.jsonl half.jsonl 0
  FAKE_GPUS=4 train choice half.fsdp --ranks 4 --steps 2 --backend cuda --strategy $strategy
  "$compare" metrics choice.jsonl half.jsonl 0
done

# A plan for GPUs gives every stream a queue of its own: the same bits, through events alone.
for ranks in 1 4; do
  expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --cluster "$root/models/clusters/dgx-h100.fsdp" -o gpu.plan
  expect 0 verify gpu.plan
  train queues gpu.plan --steps 3 --backend cuda
  train shared "$fixtures/gpt-tiny.fsdp" --ranks "$ranks" --steps 3 --backend cuda
  "$compare" metrics queues.jsonl shared.jsonl 0
done

# Frozen parameters stay as they were.
sed -E 's/^  loss = /  freeze "wte"\n  freeze "h.0.ln_1"\n  freeze "h.1.attn.c_attn.weight"\n&/' "$fixtures/gpt-tiny.fsdp" >frozen.fsdp
for backend in cpu cuda; do train "frozen-$backend" frozen.fsdp --ranks 2 --steps 3 --backend $backend; done
"$compare" metrics frozen-cuda.jsonl frozen-cpu.jsonl 1e-4

# bf16 with f32 master weights and gradients follows f32; accumulation over micro-batches is one graph launched again.
sed 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/gpt-tiny.fsdp" >bf16.fsdp
train bf16 bf16.fsdp --ranks 1 --steps 3 --backend cuda
"$compare" metrics bf16.jsonl gpt-tiny-cpu.jsonl 2e-2
train bf16-2 bf16.fsdp --ranks 2 --steps 3 --backend cuda
train bf16-again bf16.fsdp --ranks 1 --steps 3 --backend cuda --micro-batch 2
"$compare" metrics bf16-again.jsonl gpt-tiny-cpu.jsonl 2e-2

# What is offloaded lies in pinned memory and is there in time, in whatever order the copies' streams run: the same bits.
for cluster in '' "$root/models/clusters/dgx-h100.fsdp"; do
  for what in none parameters,gradients,optimizer,activations; do
    expect 0 plan bf16.fsdp --ranks 2 --micro-batch 1 --reduce micro_batch --offload $what ${cluster:+--cluster "$cluster"} -o "$what.plan"
    FAKE_GPUS=2 train "offload-$what" "$what.plan" --steps 3 --backend cuda
  done
  grep -q '^host arena' "$what.plan" || fail 'nothing is offloaded'
  "$compare" metrics "offload-$what.jsonl" offload-none.jsonl 0
  "$compare" weights "offload-$what.weights/model.safetensors" offload-none.weights/model.safetensors
done

# That takes long where it is much, and is said unless nothing is to be.
FAKE_GPUS=2 expect 0 run "$what.plan" --steps 1 --backend cuda --data "$fixtures/tokens.bin" --threads 1
said err 'of host memory a rank for what is offloaded'
[ "$(grep -c 'note: pinning' err)" = 1 ] || fail 'every rank says so'
FAKE_GPUS=2 expect 0 run none.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin" --threads 1
! grep -q 'pinning' err || fail 'nothing is pinned'
FAKE_GPUS=2 expect 0 run "$what.plan" --steps 1 --backend cuda --data "$fixtures/tokens.bin" --threads 1 --quiet
! grep -q 'pinning' err || fail 'a quiet run says so'

# Where a host cannot pin so much the run does not fit, and whoever started it may try a plan that offloads less.
FAKE_GPUS=2 FAKE_PINNED=65536 expect 3 run "$what.plan" --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'of pinned host memory for what is offloaded: CUDA error 2; plan with less --offload'
FAKE_GPUS=2 FAKE_PINNED=65536 expect 0 run none.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin"

# f16: gradients overflow at first, the steps are skipped, and training goes on with a smaller loss scale, as on the CPU.
sed 's/precision f32 reduce f32/precision f16 reduce f32 loss_scale { init 8e6 interval 3 }/' "$fixtures/gpt-tiny.fsdp" >f16.fsdp
train f16 f16.fsdp --ranks 2 --steps 9 --backend cuda
train f16-cpu f16.fsdp --ranks 2 --steps 9
steps() { grep -o "\"skipped\":[a-z]*" "$1"; }
[ "$(steps f16.jsonl)" = "$(steps f16-cpu.jsonl)" ] || fail 'the backends skip different steps'
steps f16.jsonl | grep -q true || fail 'nothing overflowed'
steps f16.jsonl | grep -A1 false | grep -q true || fail 'the scale did not grow until it overflowed again'

# An algorithm is chosen once a product, the same in every run and plan, and the header says which; ranks that choose otherwise
# are told of.
run_products() { FSDPC_CUDA_PRODUCTS=1 FAKE_CHOICES=choices expect 0 run "$fixtures/gpt-tiny.fsdp" --steps 2 --backend cuda --data "$fixtures/tokens.bin" "$@"; }
header() { grep -oE 'products [0-9a-f]{8}' err; }
run_products --ranks 1 --micro-batch 4
[ "$(cat choices)" = "$(grep -c '^product ' err)" ] || fail 'an algorithm was chosen more than once'
first=$(header)
said err 'algorithm 7 tile 0 splits 0'
run_products --ranks 1 --micro-batch 4 --checkpoint full
[ "$(header)" = "$first" ] || fail 'another plan has other algorithms'
FAKE_ALGORITHM=8 run_products --ranks 1 --micro-batch 4
[ "$(header)" != "$first" ] || fail 'other algorithms have the same sign'
run_products --ranks 2
! grep -q 'by different algorithms' err || fail 'ranks that agree are said to differ'
FAKE_ALGORITHM=own run_products --ranks 2
said err 'note: ranks compute the same products by different algorithms'

# The peak is the plan's.
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 1 "${pinned[@]}" --json
arena=$(grep -oE '"peak_bytes": *[0-9]+' out | grep -oE '[0-9]+$')
observed=$(sed -n 2p gpt-tiny-cuda.jsonl | grep -oE '"peak_bytes": *[0-9]+' | grep -oE '[0-9]+$')
[ "$arena" = "$observed" ] || fail "the run reached $observed bytes, the plan says $arena"

# Device memory is the arena and what the plan says lies beside it; where that is not free, the run is refused before it begins.
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 --cluster "$root/models/clusters/dgx-h100.fsdp" -o gpu.plan
said out 'beside the arena'
beside_row() { tr -s ' \n' ' ' <"$1" | grep -oE 'beside the arena [^;<]*; CUDA and NCCL take some [0-9.]+ .iB more'; } # on as many lines as it takes
row=$(beside_row out)
gpu=("$fixtures/gpt-tiny.fsdp" --ranks 2 --cluster "$root/models/clusters/dgx-h100.fsdp")
expect 0 explain "${gpu[@]}"
[ "$(beside_row out)" = "$row" ] || fail 'explain says otherwise than plan what lies beside the arena'
expect 0 draw "${gpu[@]}" --html gpu.html
[ "$(beside_row gpu.html)" = "$row" ] || fail 'the report does not say what lies beside the arena'
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 --cluster "$root/models/clusters/dgx-h100.fsdp" --json
figure() { grep -oE "\"$1\": *[0-9]+" "$2" | head -n 1 | grep -oE '[0-9]+$'; }
arena=$(figure arena_bytes out) beside=$(figure beside_bytes out)
FAKE_GPUS=2 FAKE_TAKEN=taken expect 0 run gpu.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin" --metrics memory.jsonl
own=$(figure beside_bytes memory.jsonl) pages=$((2 << 20)) taken=$(cat taken)
[ "$own" -le "$beside" ] && [ "$own" -ge $((beside - 100000)) ] || fail "the run took $own bytes beside the arena, the plan says $beside"
rounded=$(((arena + pages - 1) / pages * pages + own))
[ "$taken" -ge $((rounded - 1000)) ] && [ "$taken" -le $((rounded + 1000)) ] || fail "$taken bytes of device memory, $rounded expected"
FAKE_GPUS=2 FAKE_FREE=$((arena + beside)) expect 0 run gpu.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin"
FAKE_GPUS=2 FAKE_FREE=$((arena + beside - 1)) expect 3 run gpu.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'free, and this run takes'
FAKE_GPUS=1 FAKE_FREE=$((arena + beside)) expect 3 run gpu.plan --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'for each of the 2 ranks that share it'

# What doctor and a run say of the device.
expect 0 doctor
said out 'fake GPU, compute 9.0'
expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'fake GPU, compute 9.0, products '

# Ranks cannot share a GPU that its compute mode gives to one process.
FAKE_EXCLUSIVE=1 expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'GPU 0 is busy or unavailable; where its compute mode'

# An instruction that fails is named with its stream and layer; the other ranks end too. Those that open its rank's memory late have no other word.
sed 's/precision f32 reduce f32/precision f32 reduce bf16/' "$fixtures/gpt-tiny.fsdp" >mixed.fsdp
FAKE_LATE=1 expect 1 run mixed.fsdp --ranks 2 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'stream compute, instruction'
# So is what a library said.
FAKE_PRODUCTS=13 expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
said err 'stream compute, instruction'
said err 'cuBLASLt: the launch for a product of 64 x 72 x 24 failed with status 13; it may be of an earlier instruction: FSDPC_CUDA_SYNC=1 names it'
FSDPC_CUDA_SYNC=1 FAKE_PRODUCTS=13 expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --backend cuda --data "$fixtures/tokens.bin"
! grep -q 'an earlier instruction' err || fail 'an instruction that was waited for is said to hear of another'
