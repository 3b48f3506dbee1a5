#!/usr/bin/env bash
# Owns: every optimizer, and targets that do not count, against trajectories that JAX computed in float64
# (tests/fixtures/make_reference.py, RECIPES), on 1 and 2 ranks; that no plan changes Adafactor's bits, and its checkpoints.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")
init=$fixtures/gpt-tiny.init.safetensors

# recipe NAME OPTIMIZER [SED]: NAME.fsdp, the GPT with another train block.
recipe() {
  sed -E "s/optimizer adamw \{[^}]*\}/optimizer $2/; ${3:-}" "$fixtures/gpt-tiny.fsdp" >"$1.fsdp"
}
schedule='cosine warmup 4'
# Micro-batches of one sample, whose numbers of valid targets differ.
recipe uneven "adamw { lr 3e-3 $schedule betas 0.9 0.95 decay 0.1 no_decay wte wpe }" \
  's/clip 1\.0/clip 0.5/; s/, targets\)$/, targets, ignore_index = 7)/; s/memory 64MiB/& micro_batch 1/'
recipe lion "lion { lr 3e-4 $schedule betas 0.9 0.99 decay 0.1 }"
recipe sgd "sgd { lr 3e-2 $schedule momentum 0.9 decay 0.01 }"
recipe adafactor "adafactor { lr 12e-3 $schedule decay 0.1 }" 's/memory 64MiB/& micro_batch 2/'
for name in uneven lion sgd adafactor; do
  for ranks in 1 2; do
    train "$name-$ranks" "$name.fsdp" --ranks $ranks --init "$init"
    "$compare" reference "$name-$ranks.jsonl" "$fixtures/gpt-tiny.$name.expected.json" 1e-5
  done
done

# Adafactor's sums cross shards, units and ranks, and its factored moments lie whole on every rank: no bit may depend on it.
for plan in '--strategy full_shard --wrap size:700' '--strategy no_shard --threads 2'; do
  # shellcheck disable=SC2086
  train plan adafactor.fsdp --ranks 2 --init "$init" $plan
  "$compare" metrics plan.jsonl adafactor-2.jsonl 0
  "$compare" weights plan.weights/model.safetensors adafactor-2.weights/model.safetensors
done
for strategy in full_shard hybrid_shard:2; do
  train "four-$strategy" adafactor.fsdp --ranks 4 --init "$init" --strategy $strategy
  "$compare" metrics "four-$strategy.jsonl" adafactor-2.jsonl 1e-5
done
"$compare" weights four-hybrid_shard:2.weights/model.safetensors four-full_shard.weights/model.safetensors

# Stopped and resumed, on the same ranks to the bit, on others within rounding.
train parts adafactor.fsdp --ranks 2 --init "$init" --steps 9
cp -r parts.weights other.weights
train parts adafactor.fsdp --ranks 2 --resume auto --strategy no_shard
"$compare" weights parts.weights/model.safetensors adafactor-2.weights/model.safetensors
train other adafactor.fsdp --ranks 4 --resume auto
tail -n 12 other.jsonl | grep -o '"loss": *[^,]*' >other.losses
tail -n 12 four-full_shard.jsonl | grep -o '"loss": *[^,]*' >four.losses
paste other.losses four.losses | awk '{ d = ($2 - $4) / $4; if (d > 1e-5 || d < -1e-5) exit 1 }' || fail 'losses after a resume on 4 ranks'
train lost lion.fsdp --ranks 2 --steps 2
expect 1 run adafactor.fsdp --ranks 2 --data "$fixtures/tokens.bin" --save lost.weights --resume auto
said err 'moments are of optimizer lion'
said err 'set `optimizer lion` to go on, or begin a new run from its weights with --init'

# A plan that takes a sum twice over the group, or reads one that it never took, is refused.
expect 0 plan adafactor.fsdp --ranks 2 --strategy full_shard -o good.plan
first=$(grep -oE 'allreduce_int -> b[0-9]+ \{n=[0-9]+\}' good.plan | head -n 1)
sed -E "s/allreduce_int -> b[0-9]+ \{n=[0-9]+\}/$first/" good.plan >bad.plan
expect 1 verify bad.plan
said out 'sums'

# What a person gets wrong.
recipe typo 'adafactor { lr 1e-2 beta2_decai -0.8 }'
expect 1 check typo.fsdp
said err 'did you mean "beta2_decay"'
recipe sign 'adafactor { lr 1e-2 beta2_decay 0.8 }'
expect 1 check sign.fsdp
said err 'an exponent of at most 0'
