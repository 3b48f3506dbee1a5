#!/usr/bin/env bash
# Owns: dropout's masks depend on the seed, the step, the place and the sample, and on nothing else: not on the plan,
# on what is run again, on threads, on micro-batches or on the number of ranks.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")

sed -E 's/^    x = x \+ attn\((.*)\) as attn$/    x = x + dropout(attn(\1) as attn, 0.2)/; s/linear\(gelu\((.*)\), d\) as c_proj/linear(dropout(gelu(\1), 0.1), d) as c_proj/' \
  "$fixtures/gpt-tiny.fsdp" >drop.fsdp
[ "$(grep -c dropout drop.fsdp)" = 2 ] || fail 'the model has no dropout'
train without "$fixtures/gpt-tiny.fsdp" --ranks 1
for ranks in 1 2 4; do train "drop-$ranks" drop.fsdp --ranks $ranks; done
if "$compare" metrics drop-1.jsonl without.jsonl 1e-4 2>err >out; then fail 'dropout changes nothing'; fi
for ranks in 2 4; do "$compare" metrics drop-$ranks.jsonl drop-1.jsonl 1e-5; done
for micro in 1 2 4; do
  train micro drop.fsdp --ranks 2 --micro-batch $micro
  "$compare" metrics micro.jsonl drop-1.jsonl 1e-5
done
for plan in '--strategy no_shard --checkpoint none' '--strategy full_shard --checkpoint full' '--wrap whole --threads 2'; do
  # shellcheck disable=SC2086
  train plan drop.fsdp --ranks 2 --micro-batch 4 $plan
  "$compare" metrics plan.jsonl micro.jsonl 0
  "$compare" weights plan.weights/model.safetensors micro.weights/model.safetensors
done
sed 's/  steps 20/  steps 20 seed 7/' drop.fsdp >seed.fsdp
train seed seed.fsdp --ranks 1 --init drop-1.weights
train same drop.fsdp --ranks 1 --init drop-1.weights
if "$compare" metrics seed.jsonl same.jsonl 1e-6 2>err >out; then fail 'the seed changes no mask'; fi
