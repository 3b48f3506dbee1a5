#!/usr/bin/env bash
# Owns: elements of 16 bits from the language to saved weights: training follows f32, memory is the plan's, plans and ranks
# agree to the bit, f16 skips overflowing steps everywhere alike, and all commands that use weights work.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")

# with_precision FIXTURE WORDS >FILE
with_precision() { sed "s/precision f32 reduce f32/precision $2/" "$fixtures/$1.fsdp"; }
field() { grep -o "\"$2\":[^,}]*" "$1"; }

# Training follows f32, in less memory, and reaches what the plan says to the byte.
for model in gpt-tiny llama-tiny; do
  train "$model-f32" "$fixtures/$model.fsdp" --ranks 2
  full=$(field "$model-f32.jsonl" planned_peak_bytes)
  for type in bf16 f16; do
    with_precision "$model" "$type" >"$model-$type.fsdp"
    train "$model-$type" "$model-$type.fsdp" --ranks 2
    "$compare" metrics "$model-$type.jsonl" "$model-f32.jsonl" 3e-2
    [ "$(field "$model-$type.jsonl" planned_peak_bytes)" = "$(tail -1 "$model-$type.jsonl" | field /dev/stdin peak_bytes | sed 's/"/"planned_/')" ] ||
      fail "$model in $type: the peak is not the plan's"
    [ "$(field "$model-$type.jsonl" planned_peak_bytes | tr -dc 0-9)" -lt "$(tr -dc 0-9 <<<"$full")" ] ||
      fail "$model in $type takes no less memory than f32"
  done
done

# Gathered parameters and activations have two bytes, gradients what `reduce` says, master weights and moments four.
expect 0 plan gpt-tiny-bf16.fsdp --ranks 2 -o bf16.plan
grep -E '^buf .*(\.full|c_fc|\.cast)"' bf16.plan >bufs && ! grep -vE ' bf16 ' bufs || fail 'an activation or gathered parameter is not bf16'
grep -E '^buf .*"u[0-9]+\.(param|m|v|grad|gradfull)"' bf16.plan >bufs && ! grep -vE ' f32 ' bufs || fail 'state is not f32'
with_precision gpt-tiny 'bf16 reduce bf16' >reduce.fsdp
expect 0 plan reduce.fsdp --ranks 2 -o reduce.plan
grep -E '^buf .*"u[0-9]+\.(grad|gradfull)"' reduce.plan >bufs && ! grep -vE ' bf16 ' bufs || fail 'gradients are not bf16'

# Also with gradients of 16 bits, and f32 with them; hybrid groups of ranks keep the bits of one group.
for words in 'bf16 reduce bf16' 'f32 reduce bf16' 'f16 reduce f16'; do
  with_precision gpt-tiny "$words" >reduce.fsdp
  train reduce reduce.fsdp --ranks 4
  "$compare" metrics reduce.jsonl gpt-tiny-f32.jsonl 3e-2
  for strategy in hybrid_shard:2 no_shard; do
    train groups reduce.fsdp --ranks 4 --strategy $strategy
    "$compare" metrics groups.jsonl reduce.jsonl 0
    "$compare" weights groups.weights/model.safetensors reduce.weights/model.safetensors
  done
done

# Adafactor updates the copy in 16 bits too, from gradients of 16 bits, the same in groups of ranks; what overflowed moves
# neither its moments nor the weights.
adafactor() { sed -E 's/optimizer adamw \{[^}]*\}/optimizer adafactor { lr 1e-2 decay 0.1 }/' "$1"; }
adafactor "$fixtures/gpt-tiny.fsdp" >adafactor-f32.fsdp
train adafactor-f32 adafactor-f32.fsdp --ranks 2
for words in bf16 'bf16 reduce bf16' 'f16 loss_scale { init 1e3 }' 'f32 reduce bf16'; do
  with_precision gpt-tiny "$words" >words.fsdp
  adafactor words.fsdp >adafactor.fsdp
  train adafactor adafactor.fsdp --ranks 4
  "$compare" metrics adafactor.jsonl adafactor-f32.jsonl 3e-2
  train groups adafactor.fsdp --ranks 4 --strategy hybrid_shard:2
  "$compare" metrics groups.jsonl adafactor.jsonl 0
  "$compare" weights groups.weights/model.safetensors adafactor.weights/model.safetensors
done
with_precision gpt-tiny 'f16 loss_scale { init 1e9 backoff 0.25 interval 4 }' >words.fsdp
adafactor words.fsdp >adafactor.fsdp
train adafactor adafactor.fsdp --ranks 2
field adafactor.jsonl skipped >skipped-adafactor
grep -q true skipped-adafactor && grep -q false skipped-adafactor || fail 'Adafactor skips all steps or none'
train all adafactor.fsdp --ranks 2 --strategy no_shard
"$compare" metrics all.jsonl adafactor.jsonl 0
with_precision gpt-tiny 'f16 loss_scale { init 1e15 backoff 0.9 }' >words.fsdp
adafactor words.fsdp >adafactor.fsdp
train never adafactor.fsdp --ranks 2 --steps 3
train begin adafactor.fsdp --ranks 1 --steps 1
"$compare" weights never.weights/model.safetensors begin.weights/model.safetensors

# Threads do not change a bit.
expect 0 run gpt-tiny-bf16.fsdp --ranks 2 --data "$fixtures/tokens.bin" --metrics threads.jsonl --threads 3 --quiet
"$compare" metrics threads.jsonl gpt-tiny-bf16.jsonl 0

# A loss scale that overflows: every rank skips the same steps, whether it holds a shard or everything; then training goes
# on, and the scale grows again.
with_precision gpt-tiny 'f16 loss_scale { init 1e9 growth 4 backoff 0.25 interval 4 }' >over.fsdp
for ranks in 1 2; do
  train "over-$ranks" over.fsdp --ranks $ranks
  field "over-$ranks.jsonl" skipped >"skipped-$ranks"
  grep -q true "skipped-$ranks" || fail 'nothing overflowed'
  grep -q false "skipped-$ranks" || fail 'training never went on'
  field "over-$ranks.jsonl" loss_scale | cut -d: -f2 | sort -g | uniq | wc -l >values
  [ "$(cat values)" -gt 2 ] || fail 'the loss scale stays'
done
cmp -s skipped-1 skipped-2 || fail 'one and two ranks skip different steps'
train over-all over.fsdp --ranks 2 --strategy no_shard
"$compare" metrics over-all.jsonl over-2.jsonl 0
"$compare" weights over-all.weights/model.safetensors over-2.weights/model.safetensors
cmp -s skipped-2 <(field over-all.jsonl skipped) || fail 'ranks that hold everything skip other steps'

# A plan that scales the loss but not what it divides by, or the other way round, is refused.
expect 0 plan over.fsdp --ranks 2 -o over.plan
plain=$(sed -n 's/^buf \(b[0-9]*\) "count".*/\1/p' over.plan) scaled=$(sed -n 's/^buf \(b[0-9]*\) "scaled_count".*/\1/p' over.plan)
sed "/cross_entropy /s/ $scaled / $plain /" over.plan >unscaled.plan
expect 1 verify unscaled.plan
said out 'this loss is not scaled'

# Nor does one pass whose norm is of one rank's shard; here the loss is summed twice instead.
sum=$(sed -n 's/.* allreduce_sum \(-> b[0-9]* {n=1}\).*"loss"/\1/p' over.plan)
sed "s/ allreduce_exact -> b[0-9]*/ allreduce_sum $sum/" over.plan >unsummed.plan
expect 1 verify unsummed.plan
said out 'reads a sum before it was taken over the shard group'

# What was skipped left the weights alone: a run of overflows only ends with the weights that it began with.
with_precision gpt-tiny 'f16 loss_scale { init 1e15 backoff 0.9 }' >never.fsdp
train never never.fsdp --ranks 2 --steps 3
! field never.jsonl skipped | grep -q false || fail 'a step went through'
expect 0 run never.fsdp --ranks 2 --steps 3 --data "$fixtures/tokens.bin"
said out '3 steps were skipped, as gradients overflowed the range of f16'
expect 0 run gpt-tiny-f16.fsdp --ranks 2 --steps 3 --data "$fixtures/tokens.bin"
! grep skipped out || fail 'steps are said to be skipped that were not'
train begin never.fsdp --ranks 1 --steps 1
"$compare" weights never.weights/model.safetensors begin.weights/model.safetensors

# The scaler goes on from a checkpoint as if the run had never stopped, in the middle of skipped steps too.
for stop in 2 9; do
  rm -rf "half.weights"
  expect 0 run over.fsdp --ranks 2 --data "$fixtures/tokens.bin" --save half.weights --save-every $stop --metrics half.jsonl --threads 1 --quiet
  rm -rf resumed.weights
  cp -r "half.weights" resumed.weights
  find resumed.weights -maxdepth 1 -name 'step-*' ! -name "step-*$(printf %02d $stop)" -exec rm -r {} +
  train resumed over.fsdp --ranks 2 --resume resumed.weights
  tail -n 1 over-2.jsonl | field /dev/stdin loss >one
  tail -n 1 resumed.jsonl | field /dev/stdin loss >two
  cmp -s one two || fail "after step $stop the run goes on differently"
  "$compare" weights resumed.weights/model.safetensors over-2.weights/model.safetensors
  diff <(field over-2.jsonl loss_scale | tail -n 5) <(field resumed.jsonl loss_scale | tail -n 5) || fail 'the loss scale differs'
done

# Other settings of it are gone on with, but not silently.
with_precision gpt-tiny 'f16 loss_scale { init 1e8 growth 2 backoff 0.5 interval 8 }' >changed.fsdp
train changed changed.fsdp --ranks 2 --resume half.weights --steps 21
{
  echo 'init is 100000000, and was 1000000000'
  echo 'growth is 2, and was 4'
  echo 'backoff is 0.5, and was 0.25'
  echo 'interval is 8, and was 4'
} | sed 's/.*/note: loss_scale & at the checkpoint/' | diff - err || fail 'not each change of the loss scale, and nothing else, is said'

# Evaluation, sampling and export of what was trained in bf16.
train eval gpt-tiny-bf16.fsdp --ranks 2 --eval "$fixtures/tokens.bin"
train eval-f32 "$fixtures/gpt-tiny.fsdp" --ranks 2 --eval "$fixtures/tokens.bin"
grep '"eval"' eval.jsonl >a && grep '"eval"' eval-f32.jsonl >b
awk -F'"loss":' 'NR == FNR {want = $2 + 0; next} {got = $2 + 0; exit !(got > want * 0.98 && got < want * 1.02)}' b a ||
  fail 'the held-out loss in bf16 is not that of f32'
"$compare" metrics eval.jsonl gpt-tiny-bf16.jsonl 0
expect 0 export gpt-tiny-bf16.fsdp half --to safetensors --weights gpt-tiny-bf16.weights --dtype bf16
expect 0 generate gpt-tiny-bf16.fsdp --weights gpt-tiny-bf16.weights --prompt '!' --tokens 4 --temperature 0 --gemm builtin

# What no kernel of 16 bits can do is said before the first step.
with_precision gpt-tiny bf16 | sed 's/d = 24, heads = 3/d = 264, heads = 1/' >wide.fsdp
expect 1 run wide.fsdp --ranks 1 --data "$fixtures/tokens.bin" --quiet
said err 'heads of 264 dimensions'
sed 's/d = 24, heads = 3/d = 264, heads = 1/' "$fixtures/gpt-tiny.fsdp" >wide-f32.fsdp
train wide wide-f32.fsdp --ranks 1 --steps 1
expect 1 generate wide.fsdp --weights wide.weights --prompt '!' --tokens 4
said err 'heads of 264 dimensions'

# Mistakes in the block are said where they are.
with_precision gpt-tiny 'f16 loss_scale { backof 0.5 }' >typo.fsdp
expect 1 check typo.fsdp
said err 'did you mean "backoff"?'
with_precision gpt-tiny 'f16 loss_scale { init 1e15 backoff 1 }' >same.fsdp # it would skip each step
expect 1 check same.fsdp
said err '"backoff" must be at most 0.999, this is 1'
