#!/usr/bin/env bash
# Owns: tests of `plan --executor` and of exporting its policies.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Planning for PyTorch: the policy it writes predicts what was planned, plans to itself, and is exported.
model=$root/models/llama3.2-1b.fsdp
fsdp2=(--executor pytorch-fsdp2-compiled --ranks 8)
expect 0 plan "$model" "${fsdp2[@]}" --json -o policy.fsdp
grep -qx '  executor pytorch-fsdp2-compiled' policy.fsdp || fail 'the policy says of its executor what goes without saying'
step() { sed -n 's/.*"step_ns": \([0-9]*\).*/\1/p' out; }
said out '"runners_up": ['
planned=$(step)
expect 0 predict policy.fsdp --ranks 8
expect 0 plan policy.fsdp --ranks 8 --json
[ "$(step)" = "$planned" ] || fail "planned $planned, the written policy takes $(step)"
said out '"candidates": 1,'
expect 0 export policy.fsdp --ranks 8 --to torch -o policy.py
# Names and patterns of units that are no words, or words of the plan block, are written so that they are read as they were.
sed 's/^  wrap auto/  wrap block\n  unit "the first" { "model.layers.0" }\n  unit "wrap" { model.layers.1 }/' "$model" >quoted.fsdp
expect 0 plan quoted.fsdp --ranks 16 --executor pytorch-fsdp2 --strategy full_shard -o written.fsdp
grep -qx '  unit "the first" { model.layers.0 }' written.fsdp && grep -qx '  unit "wrap" { model.layers.1 }' written.fsdp || fail 'a name in quotes is written otherwise'
expect 0 check written.fsdp
grep -q '"model.layers.0"' policy.py || fail 'the exported policy names no block'
if command -v python3 >/dev/null; then python3 -c 'import ast; ast.parse(open("policy.py").read())' || fail 'policy.py is no Python'; fi
block=(--strategy full_shard --wrap block --reshard yes --prefetch 1 --checkpoint full --precision bf16:bf16)
expect 0 export "$model" "${fsdp2[@]}" "${block[@]}" --to transformers
said out '"activation_checkpointing": true'
expect 0 export "$model" "${fsdp2[@]}" "${block[@]}" --micro-batch 16 --memory 2TB --to accelerate
said out 'fsdp_reshard_after_forward: true'
expect 0 export "$model" "${fsdp2[@]}" --strategy hybrid_shard:4 "${block[@]:2}" --to accelerate
said out 'parallelism_config_dp_replicate_size: 2'
expect 1 export "$model" "${fsdp2[@]}" --strategy no_shard "${block[@]:2:2}" "${block[@]:6}" --to accelerate
said err 'replicas without shards, which accelerate refuses: all ranks share (--strategy full_shard)'
expect 0 export "$model" "${fsdp2[@]}" --strategy no_shard "${block[@]:2:2}" "${block[@]:6}" --to accelerate --lossy
grep -q parallelism_config out && fail 'accelerate is told of shards of one rank, which it refuses'
expect 1 export "$model" "${fsdp2[@]}" --prefetch 2 --to accelerate
said err 'gathering more than one unit ahead'
expect 0 export "$model" "${fsdp2[@]}" --prefetch 2 --to accelerate --lossy
expect 1 export "$model" "${fsdp2[@]}" "${block[@]:0:10}" --to transformers
said err 'gradients reduced in f32: they are in bf16 (--precision bf16:bf16)'
expect 64 export "$model" --executor native --ranks 8 --to torch

# All of the model as one unit still has blocks: what is checkpointed is predicted, planned and exported.
whole=("$model" "${fsdp2[@]}" --strategy full_shard --wrap whole --micro-batch 1)
figure() { sed -n "s/.*\"$1\": \([0-9]*\).*/\1/p" out | head -n 1; }
expect 0 predict "${whole[@]}" --checkpoint none --json
fast=$(figure step_ns) large=$(figure active_bytes)
expect 0 predict "${whole[@]}" --checkpoint full --json
[ "$(figure step_ns)" -gt "$fast" ] && [ "$(figure active_bytes)" -lt "$large" ] || { cat out >&2 && fail "one unit's checkpointing takes no time or saves nothing"; }
expect 0 plan "${whole[@]}" --memory 20GiB --offload none
! grep -E '^  (reshard|prefetch) ' out || fail 'the root alone has something to release or to gather ahead'
expect 0 plan "${whole[@]}" --memory 20GiB --offload none --json -o whole.fsdp
grep -qE '^  (recompute model|checkpoint full)' whole.fsdp || fail 'nothing is checkpointed where all is one unit'
planned=$(step)
expect 0 predict whole.fsdp --ranks 8 --json
[ "$(step)" = "$planned" ] || fail "planned $planned as one unit, the written policy takes $(step)"
expect 0 export "${whole[@]}" --checkpoint full --to torch -o whole.py
grep -q '^CHECKPOINTED = \["model.layers.0", .*"model.layers.15"\]$' whole.py || fail 'no block of the one unit is checkpointed'
[ "$(sed -n '/^UNITS = /,/^]$/p' whole.py | wc -l)" = 2 ] && grep -q '^ *if COMPILE and not UNITS:$' whole.py || fail 'one unit is not exported as the root'
expect 1 export "${whole[@]}" --checkpoint full --to accelerate
said err 'all of the model as one unit: every block becomes one (--wrap block)'

# What is told of checkpointing is what was planned: all of a block though the file asks for a part of it, and parts of blocks for all alike.
sed 's/^  checkpoint auto/&\n  executor pytorch-fsdp2 eager { selective operators }/' "$model" >selective.fsdp
cp -r "$root/models/families" "$root/models/clusters" .
expect 0 export selective.fsdp --ranks 8 --to torch -o selective.py
grep -q '^SELECTIVE = True ' selective.py || fail 'checkpointing by operator is not exported'
expect 0 export selective.fsdp --ranks 8 --checkpoint full --to torch -o selective.py
grep -q '^SELECTIVE = False ' selective.py && grep -q '^CHECKPOINTED = \["model.layers.0", ' selective.py || fail '--checkpoint full is exported as checkpointing by operator'
sed 's/^  checkpoint auto/&\n  recompute model.layers.3/' selective.fsdp >apart.fsdp
expect 1 export apart.fsdp --ranks 8 --to torch
said err '"model.layers.3" apart: all blocks are checkpointed by operator'

# A Hugging Face model caches keys and values unless told not to, and would again where a block runs again; memory can be pinned for a device only.
grep -q '^        model.config.use_cache = False' selective.py || fail 'what runs again adds to the cache'
grep -q 'CPUOffloadPolicy(pin_memory=device_type != "cpu")' selective.py || fail 'memory is pinned without a device'

# PyTorch gathers ahead unasked; f16 needs a scaled loss.
expect 1 export "$model" "${fsdp2[@]}" "${block[@]:0:6}" --prefetch 0 --to torch
said err 'gathering no unit ahead: PyTorch gathers one (--prefetch 1)'
expect 0 export "$model" "${fsdp2[@]}" --strategy no_shard --prefetch 0 --to torch
expect 0 export "$model" "${fsdp2[@]}" --strategy full_shard --wrap whole --prefetch 0 --precision f16 --to torch
said out 'PARAM_DTYPE, REDUCE_DTYPE = torch.float16, torch.float32  # scale the loss, with torch.amp.GradScaler'

# Nobody said who trains: what the exported module does by itself, and a note.
expect 0 export "$model" "${fsdp2[@]}" --to torch -o named.py
expect 0 export "$model" --ranks 8 --to torch -o unnamed.py
said err 'names no executor: planned for pytorch-fsdp2-compiled, which compiles; --executor pytorch-fsdp2-eager does not'
cmp named.py unnamed.py || fail 'the default executor is not pytorch-fsdp2-compiled'

# What FSDP2 can be told of a plan of our own runtime; what it cannot is noted, and options have the last word.
cp -r "$root/models/families" "$root/models/clusters" .
sed 's/^  wrap auto/  wrap block\n  unit pair { model.layers.0 model.layers.1 }\n  unit far { model.layers.4 model.layers.6 }/' "$model" >own.fsdp
own() { expect 0 plan own.fsdp --ranks 16 --strategy hybrid_shard:8 --micro-batch 1 --reduce step --gather micro_batch --reshard yes --prefetch 1 "$@" -o own.plan; }
has() { grep -qxF -- "$1" own.py || { cat own.py >&2 && fail "the policy of a plan does not say: $1"; }; }
own --checkpoint none --offload none --memory 72GiB
expect 0 export own.plan --to torch -o own.py
said err 'note: not as in own.plan: what lies outside of blocks is one unit, the root, and stays gathered'
grep -q 'run again\|once a step\|warning' err && fail 'notes of what carries over'
grep -q '^"""FSDP2 .* on 16 ranks of dgx-h100, by what it can be told of own.plan.$' own.py || fail 'the policy does not name its plan'
has 'REPLICAS, SHARD = 2, 8'
has 'MICRO_BATCH, ACCUMULATION = 1, 8  # samples of a rank, micro-batches of a step'
has 'REDUCE_EACH_MICRO_BATCH = False'
has '    (["model.layers.0", "model.layers.1"], True),'
has '    (["model.layers.2"], True),'
said err 'note: not as in own.plan: units of blocks that are not neighbours: each row of neighbours becomes one'
has 'CHECKPOINTED = []'
expect 0 export own.plan --to torch --reshard no --checkpoint full --ranks 8 --strategy full_shard -o own.py
has 'REPLICAS, SHARD = 1, 8'
has '    (["model.layers.0", "model.layers.1"], False),'
grep -q '^CHECKPOINTED = \["model.layers.0", ' own.py || fail '--checkpoint is not heeded beside a plan'
expect 3 export own.plan --to torch --memory 6GiB
said err 'no policy of pytorch-fsdp2-compiled fits the budget of 6.00 GiB'
expect 1 export own.plan --to accelerate
said err '--to accelerate cannot say all of this policy'
expect 0 export own.plan --to accelerate --precision bf16:bf16 --lossy
said out '# By what FSDP2 can be told of own.plan.'
own --checkpoint full --offload optimizer --memory 14GiB
expect 0 export own.plan --to torch -o own.py
said err '; 16 of 16 blocks are checkpointed, those of which it is more than half'
said err 'stay on the device: FSDP2 moves all three'
said err 'and own.plan was planned for 14.0 GiB'
said err '--memory 14.0GiB, and options'
sed -i 's/^  unit .*//; s/^  wrap block/  wrap size:20M/' own.fsdp
own --checkpoint none --memory 72GiB
expect 0 export own.plan --to torch
said err 'note: not as in own.plan: 16 blocks that several units hold parts of: each becomes one unit'

# Names are no code.
odd=$'odd"""\n\\.plan'
cp own.plan "$odd"
expect 0 export "$odd" --to torch -o odd.py
grep -q ', by what it can be told of odd?????.plan\.$' odd.py || fail 'the name of a plan is not made fit for a comment'

# Its model must be the one it was planned from.
expect 0 plan own.fsdp --ranks 8 --micro-batch 1 --set layers=2 -o two.plan
expect 1 export two.plan --to torch
said err 'own.fsdp is not what two.plan was planned from'
said err 'help: give --set and --cluster as they were given for the plan'
expect 0 export two.plan --to torch --set layers=2
# A shipped cluster that the plan names needs not be given once more.
sed 's/^train {/&\n  loss_scale { init 8 }/' own.fsdp >warned.fsdp
expect 0 plan warned.fsdp --ranks 8 --micro-batch 1 --cluster aws-p4d -o other.plan
expect 0 export other.plan --to torch
said out ' on 8 ranks of aws-p4d'
[ "$(grep -c 'warning: .*loss_scale' err)" = 1 ] || fail "the model's warnings are not said once: $(cat err)"
mv own.fsdp away.fsdp
expect 1 export own.plan --to torch
said err 'note: own.plan was planned from own.fsdp, which names modules and blocks'
expect 3 plan "$model" "${fsdp2[@]}" --memory 4GiB
said err 'help: cheapest way out: memory'
expect 64 plan "$model" "${fsdp2[@]}" --dump units
expect 64 plan "$model" "${fsdp2[@]}" --thorough
said err '--thorough is for plans of our own runtime'
expect 1 plan "$model" --executor pytorch-fsdp2-compiled --ranks 2 --reshard 3
said err 'units that at most 2 ranks share cannot be resharded to groups of 3'
expect 1 plan "$model" --executor pytorch-fsdp2-compiled --ranks 2 --reshard 2 --strategy no_shard --offload parameters,gradients,optimizer --wrap block
said err 'units that at most 1 rank shares cannot be resharded to groups of 2'
expect 1 predict "$model" --executor pytorch-fsdp2-compiled --ranks 2 --reshard 2 --strategy no_shard --offload parameters,gradients,optimizer
said err 'shards of 1 rank cannot be resharded to groups of 2'
expect 64 predict "$model" --precision bf17

# What has no effect is said where it was asked for, once, of predictions and plans alike; not of what the search tries by itself.
unsharded=("$model" --executor pytorch-fsdp2-compiled --ranks 2 --strategy no_shard --micro-batch 1)
for command in predict plan; do
  expect 0 "$command" "${unsharded[@]}" --reshard 2
  [ "$(grep -c 'warning: reshard has no effect: with strategy no_shard' err)" = 1 ] || fail "$command does not say once that reshard has no effect: $(cat err)"
done
expect 0 plan "${unsharded[@]}" --checkpoint none
grep -q '^Chosen .* units block, offload none$' out || { cat out >&2 && fail 'what makes no difference is chosen'; }
expect 0 plan "${unsharded[@]:0:5}"
grep 'warning' err && fail 'the search warns of what nobody asked for'
expect 0 predict "${unsharded[@]}" --reshard yes --offload parameters,gradients,optimizer
grep 'warning' err && fail 'what is gathered from host memory has nothing to release'
expect 0 plan "$model" "${fsdp2[@]}" --micro-batch 1 --max ctx
said out 'does not'

# Of policies that are as fast but for the last digits of their sums, the one that reserves least.
expect 0 plan "$root/models/llama3.2-1b.fsdp" --executor pytorch-fsdp2-compiled --ranks 32 --cluster ethernet-a100 --micro-batch 4 --checkpoint none
grep -q '^Chosen .* prefetch 1,' out || { cat out >&2 && fail 'more is gathered ahead than is of use'; }
grep -q '^  prefetch     2  *0.00 % .* as fast, reserves .* more$' out || { cat out >&2 && fail 'a rival as fast is called slower'; }

# What is frozen and what parameters are kept in: PyTorch is told; the others cannot be.
recipe() { sed -e 's/^  loss = /  freeze "model.layers.0"\n  freeze "model.layers.*.mlp.up_proj"\n&/' -e "s/precision .*/precision bf16 reduce f32 $1/" "$model"; }
recipe 'master bf16 rounding nearest' >frozen.fsdp
expect 0 export frozen.fsdp "${fsdp2[@]}" --set layers=3 --to torch -o frozen.py
grep -q '^STATE_DTYPE = torch.bfloat16 ' frozen.py || fail 'shards are not said to be bf16'
grep -qx 'FROZEN = \["model.layers.0", "model.layers.1.mlp.up_proj", "model.layers.2.mlp.up_proj"\]' frozen.py || fail 'what is frozen is not said'
expect 1 export frozen.fsdp "${fsdp2[@]}" "${block[@]}" --to accelerate
said err 'frozen parameters, "model.layers.0" and others: the script must freeze them (--to torch)'
recipe 'master bf16' >rounded.fsdp
expect 1 export rounded.fsdp "${fsdp2[@]}" --to torch
said err 'stochastic rounding of updates: torch.optim rounds to nearest'
grep -q '^FROZEN = \[\]$' policy.py && grep -q '^STATE_DTYPE = torch.float32 ' policy.py || fail 'something is frozen or narrow that is not'

# Offload: FSDP2's CPUOffloadPolicy, chosen where nothing else fits.
fits() { expect 0 plan "$root/models/llama3-8b.fsdp" --executor pytorch-fsdp2-compiled "$@" -o offload.fsdp; }
fits --ranks 8
grep -q '^  offload none$' offload.fsdp || fail 'states are offloaded that fit'
fits --ranks 4 --cluster dgx-a100-40
grep -q '^  offload parameters gradients optimizer$' offload.fsdp || fail 'nothing fits without offload, and it is not chosen'
said out '  offload      none                no fit '
expect 3 plan "$root/models/llama3-8b.fsdp" --executor pytorch-fsdp2-compiled --ranks 4 --cluster dgx-a100-40 --offload none
expect 0 predict offload.fsdp --ranks 4 --cluster dgx-a100-40
said out '  host      29.9 GiB of parameters, gradients and moments' # 16 bytes of a quarter of 8.03 B parameters
expect 0 export offload.fsdp --ranks 4 --cluster dgx-a100-40 --to torch -o offload.py
grep -q '^OFFLOAD = True ' offload.py || fail 'the exported policy keeps states on the device'
grep -q '^OFFLOAD = False ' policy.py || fail 'the exported policy offloads'
expect 0 export "$model" "${fsdp2[@]}" "${block[@]}" --offload parameters,gradients,optimizer --micro-batch 1 --to accelerate
said out 'fsdp_offload_params: true'
expect 1 predict "$model" "${fsdp2[@]}" --offload optimizer
said err 'offloads parameters, gradients and optimizer together (CPUOffloadPolicy), and no activations'
expect 1 plan "$model" --executor pytorch-fsdp1-eager --ranks 8 --offload parameters,gradients,optimizer
said err 'offload of pytorch-fsdp1-eager is predicted, not planned'
expect 1 predict "$model" --executor native --ranks 8 --offload optimizer
said err "'fsdpc plan' plans it"

# A host that cannot hold it is what lacks, not the device.
lacking=("$root/models/llama3-8b.fsdp" --executor pytorch-fsdp2-eager --ranks 8 --cluster aws-p3 --strategy hybrid_shard:2 --offload parameters,gradients,optimizer)
for command in "predict --micro-batch 1" "plan" "plan --json" "export --to torch"; do
  # shellcheck disable=SC2086
  expect 3 $command "${lacking[@]}"
  said err 'what is offloaded takes 59.8 GiB of a rank'"'"'s host memory, more than the cluster'"'"'s host_memory'
done
expect 3 plan "${lacking[@]}" --max layers --set layers=32
said err 'no value of layers makes a plan that fits'

# What lies outside of blocks, as units of its own: predicted, planned and exported alike.
by_hand() { sed "s/^  wrap auto/  wrap block\n  unit $1/" "$root/models/${2:-llama3-8b}.fsdp"; }
by_hand 'embedding { model.embed_tokens }\n  unit head { model.norm lm_head }' >ends.fsdp
expect 0 plan ends.fsdp "${fsdp2[@]}" --reshard yes --json -o ends.policy.fsdp
grep -q '"name": "head", "last": "head", "blocks": 0,' <(tr -d '\n' <out | tr -s ' ') || fail 'the head is no unit of the plan'
planned=$(step)
expect 0 predict ends.policy.fsdp --ranks 8 --json
awk -F'[:,]' -v planned="$planned" '/"step_ns"/ { off = $2 / planned - 1; found = off * off < 1e-16 } END { exit !found }' out ||
  fail "planned $planned with ends apart, and the written policy takes something else"
expect 0 export ends.policy.fsdp --ranks 8 --to torch -o ends.py
grep -A1 '^UNITS = ' ends.py | grep -qF '(["model.embed_tokens"], True),' || fail 'the embedding is not the first unit'
grep -B1 '^]$' ends.py | grep -qF '(["model.norm", "lm_head"], True),' || fail 'norm and head are not the last unit'
grep -q '^ROOT_RESHARD = False ' ends.py || fail 'the root is resharded unasked'
expect 1 export ends.policy.fsdp --ranks 8 --to accelerate
said err 'units outside of blocks, or a root that is resharded: all of it is the root, and kept (--to torch)'
by_hand 'rest { model.embed_tokens model.norm lm_head reshard yes }' >rest.fsdp
expect 0 export rest.fsdp "${fsdp2[@]}" --to torch -o rest.py
grep -q '^ROOT_RESHARD = True ' rest.py && ! grep -q '"lm_head"' rest.py || fail 'a root by hand is no root'
by_hand 'first { model.layers.0 }' >first.fsdp
expect 1 predict first.fsdp "${fsdp2[@]}" --wrap whole
said err 'unit "first" holds part of what wrap whole gathers at once'
by_hand 'embedding { model.embed_tokens }' llama3.2-1b >tied.fsdp
expect 1 predict tied.fsdp "${fsdp2[@]}"
said err 'unit "embedding" holds what is used on both sides of the blocks, or between them'
said err 'what both sides share stays in the root, which a unit of "model.embed_tokens model.norm" names'
by_hand 'head { lm_head }' >head.fsdp
expect 1 predict head.fsdp --executor pytorch-fsdp1-eager --ranks 8
said err 'unit "head" holds what lies outside of all blocks'

# Who else explains, draws or sweeps a file is told that this is not about the executor that it names.
for command in 'explain policy.fsdp' 'draw policy.fsdp --dot policy.dot' 'tune policy.fsdp --memory 80GiB --micro-batch 1 --prefetch 1'; do
  # shellcheck disable=SC2086
  expect 0 $command --ranks 8 --reshard yes
  said err "note: this is about our own runtime; pytorch-fsdp2-compiled, which policy.fsdp names, is heeded by 'fsdpc plan', predict and export"
done
expect 0 plan policy.fsdp --ranks 8
grep -q 'our own runtime' err && fail 'plan heeds the executor'

# A model without blocks is gathered as a whole: units say nothing of it but by the root's name. Its file says nothing of a step, which is
# one sample a rank whoever runs it.
blockless() {
  cat <<END
model blockless {
  let vocab = 256, ctx = 128, d = 64
  input tokens: int[batch, ctx]
  input targets: int[batch, ctx]
  x = layernorm(embedding(tokens, vocab, d) as e) as ln
  loss = cross_entropy(linear(x, vocab) as head, targets)
}
cluster { use "clusters/dgx-h100.fsdp" }
plan { unit a { $1 } }
END
}
blockless e >part.fsdp
blockless 'e ln head' >all.fsdp
expect 0 plan part.fsdp --ranks 2
said out 'Batch: 2 samples a step = micro-batch 1 x 1 accumulated x 2 ranks'
expect 1 plan part.fsdp "${fsdp2[@]}"
said err 'unit "a" holds modules of a model without blocks'
said err 'help: pytorch-fsdp2-compiled gathers such a model as a whole: leave the unit out'
expect 1 predict part.fsdp --executor native --ranks 2
said err "help: 'fsdpc plan' plans any unit for this runtime; predictions are of whole blocks: leave the unit out"
expect 0 plan all.fsdp --executor pytorch-fsdp2-compiled --ranks 2
said out 'Batch: 2 samples a step = micro-batch 1 x 1 accumulated x 2 ranks'
expect 1 plan all.fsdp --executor pytorch-fsdp1 --ranks 2
said err 'unit "a" holds modules of a model without blocks'

# What makes no difference on one rank is no alternative: it would only name what was chosen anew beside it.
expect 0 plan "$root/models/gpt2.fsdp" --executor pytorch-fsdp2-eager --ranks 1 --micro-batch 2
grep -q '^  offload  *states ' out || fail 'offload is not weighed'
! grep -E '^  (reshard|prefetch) ' out || fail 'a rank that gathers nothing is told how'
expect 0 export "$root/models/gpt2.fsdp" --executor pytorch-fsdp2-eager --ranks 1 --micro-batch 1 --to torch
said out ' on 1 rank of dgx-a100-80'
expect 1 plan "$root/models/gpt2.fsdp" --ranks 1 --ranks-per-node 8
said err '1 rank does not fill nodes of 8'

# What a model uses is named as from where its policy is written.
mkdir -p sub/deep other
printf 'module double(x) { return x + x }\n' >sub/lib.fsdp
cp "$root/models/clusters/dgx-h100.fsdp" sub/box.fsdp
cat >sub/used.fsdp <<'TEXT'
use "lib.fsdp"
model small { input tokens: int[batch, 16] input targets: int[batch, 16]
  x = double(embedding(tokens, 64, 32) as wte)
  loss = cross_entropy(linear(x, 64, bias = false) as head, targets) }
train { batch 8 }
cluster { use "box.fsdp" }
TEXT
for place in used.policy:sub/ other/used:../sub/ sub/deep/used:../ sub/beside:; do
  expect 0 plan sub/used.fsdp --executor pytorch-fsdp2-compiled --ranks 8 -o "${place%:*}.fsdp"
  grep -qx "use \"${place#*:}lib.fsdp\"" "${place%:*}.fsdp" || fail "${place%:*} does not name the module file"
  grep -q "use \"${place#*:}box.fsdp\"" "${place%:*}.fsdp" || fail "${place%:*} does not name the cluster file"
  expect 0 predict "${place%:*}.fsdp" --ranks 8
done
