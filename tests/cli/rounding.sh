#!/usr/bin/env bash
# Owns: training without f32 master weights (`master bf16`): four bytes a parameter less, the same bits under every plan and
# after a resume, and stochastic rounding that learns where rounding to nearest stands still.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")

# with_master FIXTURE WORDS >FILE
with_master() { sed "s/precision f32 reduce f32/precision $2/" "$fixtures/$1.fsdp"; }
field() { grep -o "\"$2\":[^,}]*" "$1"; }
number() { sed -n "s/^memory.* $2 \([0-9]*\).*/\1/p" "$1"; }

# Parameters lie in bf16 once; what is saved is exactly the f32 master: four bytes an element of every shard.
for ranks in 1 2; do
  with_master gpt-tiny bf16 >kept.fsdp
  with_master gpt-tiny 'bf16 master bf16' >none.fsdp
  for which in kept none; do expect 0 plan $which.fsdp --ranks $ranks --wrap block --strategy full_shard -o $which.plan; done
  grep -qx 'master bf16 rounding stochastic' none.plan || fail 'the plan does not say how weights are kept'
  ! grep -q '^master' kept.plan || fail 'a plan with f32 master weights says otherwise'
  ! grep -qE '^buf .*\.cast"' none.plan || fail 'there is a copy of what needs none'
  grep -E '^buf .*"[^"]*\.param"' none.plan >bufs && ! grep -vE ' bf16 ' bufs || fail 'a parameter is not bf16'
  grep -E '^buf .*"[^"]*\.(m|v)"' none.plan >bufs && ! grep -vE ' f32 ' bufs || fail 'a moment is not f32'
  elements=$(sed -n 's/^unit.* shard \([0-9]*\).*/\1/p' none.plan | awk "{ sum += \$1 } END { print sum }")
  [ $(($(number kept.plan persistent) - $(number none.plan persistent))) = $((4 * elements)) ] ||
    fail "not four bytes a parameter are saved with $ranks ranks"
  expect 0 verify none.plan
  # What the planner counts is what it lays out: the smallest peak that it names is enough, to the byte.
  expect 3 plan none.fsdp --ranks $ranks --memory 1KiB --json
  least=$(field out smallest_peak_bytes | tr -dc 0-9)
  expect 0 plan none.fsdp --ranks $ranks --memory "${least}B" -o least.plan
  expect 0 verify least.plan
done
sed '/^master/d' none.plan >other.plan
expect 1 verify other.plan
said out "is not in the recipe's master dtype"

# Every plan gives the same bits: units, shards, replicas, recompute, offload, threads; and so does the plan as a file.
for model in gpt-tiny llama-tiny; do
  with_master $model 'bf16 master bf16' >none.fsdp
  train none none.fsdp --ranks 4
  same() { # ARGUMENT...
    train other none.fsdp --ranks 4 "$@"
    "$compare" metrics other.jsonl none.jsonl 0
    "$compare" weights other.weights/model.safetensors none.weights/model.safetensors
  }
  same --strategy hybrid_shard:2 --wrap block
  same --strategy no_shard --wrap whole
  same --strategy shard_grad_op --checkpoint full --prefetch 2
  same --offload parameters,gradients,optimizer
  [ "$(field none.jsonl planned_peak_bytes)" = "$(tail -1 none.jsonl | field /dev/stdin peak_bytes | sed 's/"/"planned_/')" ] ||
    fail "$model: the peak is not the plan's"
  train f32 "$fixtures/$model.fsdp" --ranks 4
  "$compare" metrics none.jsonl f32.jsonl 3e-2
done
expect 0 plan none.fsdp --ranks 4 --wrap size:10K -o none.plan
train file none.plan
"$compare" metrics file.jsonl none.jsonl 0
expect 0 run none.fsdp --ranks 4 --data "$fixtures/tokens.bin" --metrics threads.jsonl --threads 3 --quiet
"$compare" metrics threads.jsonl none.jsonl 0

# Stopped and resumed: the same bits on as many ranks, whatever the plan; on others, the same within rounding.
train part none.fsdp --ranks 4 --steps 7
train resumed none.fsdp --ranks 4 --strategy hybrid_shard:2 --wrap block --resume part.weights
"$compare" weights resumed.weights/model.safetensors none.weights/model.safetensors
for ranks in 1 2; do
  rm -rf fewer.weights
  cp part.jsonl fewer.jsonl
  train fewer none.fsdp --ranks $ranks --resume part.weights
  "$compare" metrics fewer.jsonl none.jsonl 1e-2
done
# A checkpoint is the same file either way: masters can be given up, or made, when a run goes on.
with_master llama-tiny bf16 >kept.fsdp
cp part.jsonl kept.jsonl
train kept kept.fsdp --ranks 4 --resume part.weights
"$compare" metrics kept.jsonl f32.jsonl 3e-2

# Every optimizer rounds what it updates.
for optimizer in 'sgd { lr 0.1 momentum 0.9 }' 'lion { lr 1e-3 decay 0.1 }' 'adafactor { lr 1e-2 decay 0.1 }'; do
  sed -E "s/optimizer adamw \{[^}]*\}/optimizer $optimizer/" "$fixtures/gpt-tiny.fsdp" >f32.fsdp
  sed 's/precision f32 reduce f32/precision bf16 master bf16/' f32.fsdp >none.fsdp
  train f32 f32.fsdp --ranks 2
  train none none.fsdp --ranks 2
  "$compare" metrics none.jsonl f32.jsonl 3e-2
  train other none.fsdp --ranks 2 --strategy no_shard --wrap block
  "$compare" metrics other.jsonl none.jsonl 0
  "$compare" weights other.weights/model.safetensors none.weights/model.safetensors
done

# Updates far below half a step of bf16: to nearest, most of them are lost; rounded stochastically, the loss falls as in f32.
fall() { # WORDS: by how much the loss of the last ten of 200 steps lies below the first
  sed "s/precision f32 reduce f32/precision $1/; s/lr 3e-3 cosine min_lr 3e-4 warmup 4/lr 2e-5 constant/; s/steps 20/steps 200/" \
    "$fixtures/gpt-tiny.fsdp" >slow.fsdp
  expect 0 run slow.fsdp --ranks 1 --data "$fixtures/tokens.bin" --metrics slow.jsonl --threads 1 --quiet
  grep '"reason":"step"' slow.jsonl | field /dev/stdin loss | cut -d: -f2 |
    awk '{ loss[NR] = $1 } END { for (i = NR - 9; i <= NR; i++) last += loss[i] / 10; printf "%.6f\n", loss[1] - last }'
}
full=$(fall 'f32') stochastic=$(fall 'bf16 master bf16') nearest=$(fall 'bf16 master bf16 rounding nearest')
awk -v f="$full" -v s="$stochastic" -v n="$nearest" 'BEGIN { exit !(f > 0.005 && s > 0.9 * f && s < 1.1 * f && n < 0.3 * f) }' ||
  fail "the loss falls by $full in f32, by $stochastic rounded stochastically, by $nearest to nearest"

# Evaluation and sampling need no master either; a forward plan holds parameters in bf16 once.
with_master gpt-tiny 'bf16 master bf16' >none.fsdp
train eval none.fsdp --ranks 2 --eval "$fixtures/tokens.bin"
train none none.fsdp --ranks 2
"$compare" metrics eval.jsonl none.jsonl 0
expect 0 generate none.fsdp --weights none.weights --prompt '!' --tokens 4 --temperature 0 --gemm builtin

# What is not supported is said where it stands.
with_master gpt-tiny 'f16 master f16' >f16.fsdp
expect 1 check f16.fsdp
said err 'parameters are kept in f32, or in bf16 with precision bf16'
