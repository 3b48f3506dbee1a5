#!/usr/bin/env bash
# Owns: frozen parameters: their bits never change, the others learn as in the reference (make_reference.py, recipe
# "frozen"), nothing is computed, stored or sent for them, no master is kept, and no plan changes a bit of what is left.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")
init=$fixtures/gpt-tiny.init.safetensors
frozen='wte. h.0.ln_1. h.0.mlp.c_fc.weight h.1.attn.'

# freeze SED PATTERN...: the GPT with freeze statements.
freeze() {
  local edit=$1 lines=
  shift
  for pattern; do lines+="  freeze \"$pattern\"\\n"; done
  sed -E "s/^  loss = /$lines&/; $edit" "$fixtures/gpt-tiny.fsdp"
}
adamw='s/lr 3e-3 cosine min_lr 3e-4/lr 3e-3 cosine/'
freeze "$adamw" wte h.0.ln_1 h.0.mlp.c_fc.weight h.1.attn >frozen.fsdp
for ranks in 1 2; do
  train "frozen-$ranks" frozen.fsdp --ranks $ranks --init "$init"
  "$compare" reference "frozen-$ranks.jsonl" "$fixtures/gpt-tiny.frozen.expected.json" 1e-5
done

# One step of plain SGD with rate 1 shows every gradient, and that there is none. Biases learn beside frozen weights.
sgd='s/optimizer adamw \{[^}]*\}/optimizer sgd { lr 1 momentum 0 decay 0 }/; s/clip 1\.0/clip 0/; s/steps 20/steps 1/'
freeze "$sgd" wte h.0.ln_1 h.0.mlp.c_fc.weight h.1.attn >sgd.fsdp
freeze "$sgd; s/, targets\)$/, targets, chunk = 5)/" wte h.0.ln_1 h.0.mlp.c_fc.weight h.1.attn >chunk.fsdp
for model in sgd chunk; do
  train $model $model.fsdp --ranks 2 --init "$init"
  # shellcheck disable=SC2086
  "$compare" gradient "$init" $model.weights/model.safetensors "$fixtures/gpt-tiny.grad.safetensors" 1e-5 $frozen
done
freeze "$sgd" 'h.*.attn.c_attn.weight' 'h.*.ln_2.weight' ln_f.bias >biases.fsdp
train biases biases.fsdp --ranks 2 --init "$init"
"$compare" gradient "$init" biases.weights/model.safetensors "$fixtures/gpt-tiny.grad.safetensors" 1e-5 \
  h.0.attn.c_attn.weight h.1.attn.c_attn.weight h.0.ln_2.weight h.1.ln_2.weight ln_f.bias

# No plan changes the bits.
for plan in '--strategy full_shard --wrap whole' '--strategy full_shard --wrap size:700 --checkpoint full' '--strategy no_shard'; do
  # shellcheck disable=SC2086
  train plan frozen.fsdp --ranks 2 --init "$init" $plan
  "$compare" metrics plan.jsonl frozen-2.jsonl 0
  "$compare" weights plan.weights/model.safetensors frozen-2.weights/model.safetensors
done

# Backward ends at the lowest parameter that learns, and what lies below leaves nothing behind.
freeze '' wte wpe h.0 >top.fsdp
expect 0 plan top.fsdp --ranks 2 --strategy full_shard --checkpoint none --wrap block -o top.plan
grep -qE 'backward .* for "h\.1\.ln_1"' top.plan || fail 'backward does not reach h.1'
if grep -E '(backward|recompute) [a-z_]+_bwd.* for "(h\.0|wte|wpe|add)' top.plan; then fail 'backward goes below what learns'; fi
if grep -E 'reduce_scatter.* for "h\.0"' top.plan; then fail 'a frozen unit is reduced'; fi
grep -qE '^unit .*"h\.0".* grad - m - v -' top.plan || fail 'a frozen unit has a gradient or moments'
expect 0 verify top.plan
expect 0 explain top.plan
said out 'frozen, '
expect 0 plan top.fsdp --ranks 2
said out 'of them frozen'

# A weight is frozen by any of its names; a tied one too.
sed -E 's/linear\(x, vocab, weight = wte\)/linear(x, vocab, weight = wte) as head/' frozen.fsdp |
  sed -E 's/freeze "wte"/freeze "head"/' >tied.fsdp
train tied tied.fsdp --ranks 2 --init "$init"
"$compare" weights tied.weights/model.safetensors frozen-2.weights/model.safetensors

# Checkpoints: to the bit on other plans; never over other freezes; frozen weights are exported like others.
train parts frozen.fsdp --ranks 2 --init "$init" --steps 9
if grep -q '"m/wte' parts.weights/step-00000009/rank-*.safetensors; then fail 'a frozen parameter has moments'; fi
train parts frozen.fsdp --ranks 2 --resume auto --wrap whole
"$compare" weights parts.weights/model.safetensors frozen-2.weights/model.safetensors
expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --data "$fixtures/tokens.bin" --resume parts.weights
said err 'was frozen there and is trained now'
train all "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 2
expect 1 run frozen.fsdp --ranks 2 --data "$fixtures/tokens.bin" --resume all.weights
said err 'was trained there and is frozen now'
said err 'init'
expect 0 export frozen.fsdp hf --to safetensors --weights parts.weights
train from-hf frozen.fsdp --ranks 1 --init hf --steps 1

# In 16 bits what is frozen is kept as it is gathered, without a master: rounded once, to the bits that a master's copy has.
loss_of_first() { grep -m 1 '"step"' "$1" | grep -o '"loss":[^,]*'; }
for type in bf16 f16; do
  narrow="s/^  precision .*/  precision $type/"
  freeze "$narrow" wte h.0.ln_1 h.0.mlp.c_fc.weight h.1.attn >narrow.fsdp
  expect 0 plan narrow.fsdp --ranks 2 "${one_plan[@]}" -o narrow.plan
  grep -qE '^unit .* grad - m - v - cast -' narrow.plan || fail "what is frozen has two copies in $type"
  if grep -E '^unit .* grad b[0-9]+ .* cast -' narrow.plan; then fail "what learns has no master in $type"; fi
  sed -E 's/(^buf b[0-9]+ "u0.param" parameters) f32/\1 '$type'/' narrow.plan >masterless.plan
  expect 1 verify masterless.plan
  said out "the param buffer of u0 is not in the recipe's master dtype, f32"
  train once narrow.fsdp --ranks 2 --init "$init" --steps 3
  train twice narrow.fsdp --ranks 1 --init once.weights/model.safetensors --steps 1
  # shellcheck disable=SC2086
  "$compare" gradient {once,twice}.weights/model.safetensors "$fixtures/gpt-tiny.grad.safetensors" 1e9 $frozen
  freeze "$narrow" >free.fsdp
  train free free.fsdp --ranks 2 --init "$init" --steps 1
  [ "$(loss_of_first once.jsonl)" = "$(loss_of_first free.jsonl)" ] || fail "frozen parameters are rounded otherwise in $type"
done

# What a person gets wrong.
freeze '' wtf >typo.fsdp
expect 1 check typo.fsdp
said err 'freeze pattern "wtf" matches no parameter'
freeze '' wte wpe 'h.*' ln_f >all.fsdp
expect 1 check all.fsdp
said err 'every parameter is frozen'
said err 'freeze less'
