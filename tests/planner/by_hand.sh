#!/usr/bin/env bash
# Owns: units, shardings and cadences other than auto chooses, set by hand, gain nothing worth having.
#   tests/planner/by_hand.sh FSDPC
set -euo pipefail
fsdpc=$1
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# MODEL CLUSTER MEMORY OPTION...: nanoseconds of the step; nothing if it does not fit
step() { "$fsdpc" plan "models/$1.fsdp" --cluster "models/clusters/$2.fsdp" --ranks 8 --micro-batch 1 --memory "$3" "${@:4}" --json |
  sed -n 's/.*"step_ns": *\([0-9]*\).*/\1/p'; }

# AUTO BY_HAND WHAT
near() { [ $(($1 * 1000)) -le $(($2 * 1005)) ] || { echo "auto takes $1 ns, $3 $2 ns" >&2; exit 1; }; }

# Where memory is this tight, the best units lie between the sizes that auto begins with.
auto=$(step gpt2 hgx-b200 578MiB --wrap auto)
for size in 4M 6M 8M 13M 20M; do near "$auto" "$(step gpt2 hgx-b200 578MiB --wrap "size:$size")" "units of $size elements"; done

# So they do for this sharding, which is slower than another one with the sizes that auto begins with.
near "$(step gpt2 hgx-b200 851797570B)" "$(step gpt2 hgx-b200 851797570B --strategy shard_optim)" shard_optim

# It fits here because the shards that are gathered once a step do not all wait on the device until they are.
near "$(step gpt2-large dgx-h200 4833598710B)" "$(step gpt2-large dgx-h200 4833598710B --strategy shard_optim)" shard_optim

# Block units are estimated to be slower than others here, and moves make them faster.
tight=(qwen3-8b gcp-a3-mega 21890027149B --ranks 16 --offload none)
near "$(step "${tight[@]}")" "$(step "${tight[@]}" --wrap block)" 'block units'

# What the memory of a plan by hand leaves free lets its gathers start early, which estimates do not know.
roomy=(llama3-405b dgx-h100 586984914176B --ranks 1024)
by_hand=(--strategy full_shard --gather micro_batch --reduce micro_batch --offload none --wrap block --checkpoint none --prefetch 1 --reshard yes)
[ "$(step "${roomy[@]}")" -le "$(step "${roomy[@]}" "${by_hand[@]}")" ] || { echo "auto is slower than blocks gathered one ahead" >&2 && exit 1; }

# Host memory holds a part of the state, where it does not hold all.
deep=(llama3-8b dgx-h100 60GiB --set layers=444)
near "$(step "${deep[@]}")" "$(step "${deep[@]}" --offload gradients,optimizer,activations)" 'the optimizer and gradients in host memory'

# FILE RANKS MOST WHAT OPTION...: as planned, the step is at most so much above its bound, and not below
gap() {
  local gap
  gap=$("$fsdpc" plan "$1" --ranks "$2" "${@:5}" --json | sed -n 's/.*"gap": *\([0-9.e-]*\).*/\1/p')
  awk -v gap="$gap" -v most="$3" 'BEGIN { exit !(gap != "" && gap >= 0 && gap < most) }' || { echo "$1 on $2 ranks is $gap above its bound: $4" >&2; exit 1; }
}

# Small results that come back from the host beside large ones make compute wait for neither, so that little is left to gain.
gap models/llama3-70b.fsdp 64 0.003 'fetches are late'

# Where memory is tight seeds start a quarter above what moves make of them: no choice is given up for its seeds alone.
gap models/gpt3-175b.fsdp 512 0.008 'offloading results is given up' --memory 20GiB
gap models/llama3-70b.fsdp 64 0.02 'offloading states is given up' --memory 20GiB

# Bounds count norms of each head where rotary positions run again, for they read what the norms make.
gap models/qwen3-0.6b.fsdp 8 0.01 'norms of each head run again for nothing' --micro-batch 1 --memory 5.9GiB

# Nor is such a norm kept, and with it all that it makes, where the rotary positions that read it run again.
gap models/qwen3-8b.fsdp 16 0.01 'norms of each head are kept beside rotary positions that run again' --micro-batch 1 --offload none --memory 23GiB --cluster models/clusters/dgx-a100-80.fsdp

# Where what is never run again does not fit the device, the room beside it counts once: what moves, moves with it.
gap models/llama3-405b.fsdp 16384 0.027 'results that are held in host memory are counted as if they were not' --memory 30GiB

# Whole classes of items take all the moves that a program of this length affords, so that runs of a few are moved afterwards.
gap models/llama3-8b.fsdp 16 0.015 'runs of few items are never moved' --micro-batch 1 --memory 41662572888B --cluster models/clusters/ethernet-a100.fsdp

# Where a gradient does not fit beside what follows, bounds count that compute waits for it.
gap models/gpt2-medium.fsdp 8 0.045 'the embedding'"'"'s gradient goes unseen' --cluster models/clusters/hgx-b200.fsdp --micro-batch 1 --offload none --memory 1533675882B

# A gradient's part stays until it has been summed over replicas: gathers placed over it waited for that.
gap models/gpt2-xl.fsdp 32 0.03 'shards over some nodes' --cluster models/clusters/ethernet-a100.fsdp --strategy hybrid_shard:16 --micro-batch 1 --offload none --memory 8GiB

# Near the smallest budget the update's images bind: what it only writes is not there while the next unit's are fetched.
gap models/gpt2.fsdp 4 0.05 'the least that an update needs' --cluster models/clusters/v100-box.fsdp --strategy no_shard --memory 788101632B

# One rank adds to its gradient where that lies: what is fetched for it comes while the one before is written, not when it is waited for.
gap models/llama3-8b.fsdp 1 0.04 'gradients are fetched too late' --cluster models/clusters/dgx-a100-80.fsdp --memory 26GiB

# Nor do sums over ranks wait for what they add to.
gap models/gpt2-xl.fsdp 8 0.02 'what gradients are added to is fetched too late' --cluster models/clusters/dgx-h200.fsdp --micro-batch 1 --memory 5416544241B

# The last gradient's way to host memory, in which nothing communicates; units that take turns; sizes far from the one that was found first.
gap models/gpt2.fsdp 8 0.021 'what is silent as gradients leave' --cluster models/clusters/dgx-a100-80.fsdp --micro-batch 1 --memory 538733546B
gap models/gpt2.fsdp 8 0.022 'turns that units take' --cluster models/clusters/hgx-h800.fsdp --micro-batch 1 --memory 538733546B
gap models/gpt2.fsdp 8 0.036 'the best size of units is not near' --cluster models/clusters/hgx-b200.fsdp --micro-batch 1 --memory 538733546B

# A gather with the shard that was fetched for it does not fit beside an operator: after it that takes time, and before it too. And what is behind a
# reduction in the one queue there is, is behind both of its sums.
gap models/fsdp-figure2.fsdp 4 0.04 'of after and before neither is counted' --cluster models/clusters/workstation-pro6000.fsdp --micro-batch 1 --strategy full_shard --reduce step --offload parameters,gradients,optimizer,activations --memory 104500260B
gap models/quickstart.fsdp 8 0.038 'sums over replicas are not in the queue' --cluster models/clusters/aws-p3.fsdp --micro-batch 1 --offload auto --memory 5963096B

# What is gathered again because the file says so may be before the loss: the bound must not say otherwise, nor that it need not be at all.
gap models/fsdp-figure2.fsdp 2 0.005 'units that are released as asked' --cluster models/clusters/workstation-pcie.fsdp --micro-batch 1 --offload auto --memory 136819511B
gap models/fsdp-figure2.fsdp 2 0.005 'parameters that are released as asked' --cluster models/clusters/workstation-pcie.fsdp --micro-batch 1 --offload auto --reshard yes --memory 136819511B

# Gathers may take the room before copies do: results that are fetched early keep a unit from being gathered in time.
gap models/fsdp-figure2.fsdp 2 0.06 'copies take the room of gathers' --cluster models/clusters/workstation-pcie.fsdp --micro-batch 1 --offload auto --memory 154864676B

# Units that take turns in forward, behind each other in the queue, and behind reductions that share it; what cannot be gathered before; gathers beside no
# reduction.
gap models/fsdp-figure2.fsdp 8 0.01 'turns in one queue' --cluster models/clusters/aws-p3.fsdp --micro-batch 1 --offload auto --memory 97363218B
gap models/fsdp-figure2.fsdp 8 0.03 'gathers after a turn' --cluster models/clusters/aws-p3.fsdp --micro-batch 1 --offload auto --memory 61272887B
gap models/fsdp-figure2.fsdp 8 0.04 'gathers beside no reduction' --cluster models/clusters/hgx-h800.fsdp --micro-batch 1 --offload auto --memory 73026596B
gap models/fsdp-figure2.fsdp 8 0.03 'gathers beside a reduction that may be late' --cluster models/clusters/dgx-h100.fsdp --micro-batch 1 --offload auto --memory 57078583B

# Results that do not fit at the tightest operator come back after it; after the last gather of backward, what uses its unit is left.
gap models/fsdp-figure2.fsdp 4 0.035 'results that come back' --cluster models/clusters/v100-box.fsdp --micro-batch 1 --offload auto --memory 104500260B
gap models/fsdp-figure2.fsdp 2 0.005 'what follows the last gather' --cluster models/clusters/workstation-pcie.fsdp --micro-batch 1 --offload auto --memory 172909842B

# What is run again may use a unit before the one that backward uses first; shards are fetched ahead of their gathers; collectives beside copies
# that compute makes slow nothing.
gap models/fsdp-figure2.fsdp 4 0.03 'units that are run again' --cluster models/clusters/workstation-pcie.fsdp --strategy full_shard --checkpoint auto --offload parameters --micro-batch 1 --memory 109382533B
gap models/fsdp-figure2.fsdp 8 0.02 'shards fetched ahead' --cluster models/clusters/ethernet-a100.fsdp --strategy auto --checkpoint auto --reshard yes --reduce step --offload parameters --micro-batch 1 --prefetch 2 --memory 113939288B
gap models/fsdp-figure2.fsdp 4 0.01 'copies that compute makes' --cluster models/clusters/cpu.fsdp --strategy auto --micro-batch auto --reshard no --gather micro_batch --offload activations --checkpoint none --prefetch 2 --memory 171200991B

# Compute that collectives all but stop is beside them for long: bounds that take this for rest lie above plans.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/stopped.fsdp" <<MODEL
use "$PWD/models/families/llama.fsdp"
model stopped {
  input tokens: int[batch, 64]
  input targets: int[batch, 64]
  x = llama(tokens, 16, 64, 2, 2, 256, 1) as model
  loss = cross_entropy(linear(x, 16, bias = false) as lm_head, targets)
}
train { optimizer sgd { lr 1e-3 }  batch 64  precision bf16 reduce f32 }
cluster {
  device gpu { memory 2GiB  bandwidth 0.005GB/s  peak bf16 0.012GFLOPS f32 3000GFLOPS }
  node { devices 4  bandwidth 0.000000875GB/s  latency 1s }
  contention 0.999
}
plan { strategy full_shard  wrap block  checkpoint full  gather micro_batch }
MODEL
gap "$scratch/stopped.fsdp" 4 0.001 'the bound of stopped compute'

# What is copied to the host has its content's bytes, not its buffer's; where compute copies it, it may do so while it rests for a gather.
gap tests/planner/hard/odd-sizes.fsdp 2 0.06 'copies of odd sizes' --memory 88576B
gap tests/planner/hard/rests-in-forward.fsdp 2 0.03 'copies while compute rests' --memory 79872B

# Units of some other size are best here, and with these another outer choice is.
gap models/quickstart.fsdp 8 0.01 'sizes of units of another outer choice' --cluster models/clusters/aws-p4d.fsdp --micro-batch 1 --offload auto --memory 4221341B

# What runs a block again holds all of it at once, what comes back from the host only what is read next: where no plan that begins with the former
# fits, or is as fast, one is found that leaves but for attention, whose statistics would stay.
crowded=(--cluster models/clusters/dgx-h100.fsdp --micro-batch 4 --offload auto --memory 4220522B)
gap models/quickstart.fsdp 8 0.06 'results that leave and statistics that stay' "${crowded[@]}"
gap models/quickstart.fsdp 8 0.05 'a plan that fits if attention runs again' "${crowded[@]}" --wrap size:61822

# A unit that no operator fits with, beside a gradient, is gathered beside that all the same while compute rests for both.
gap tests/planner/hard/rests-between.fsdp 8 0.02 'gathers between operators' --memory 64932B

# Gradients that add up on the device, and lie in host memory afterwards, take room on both.
gap tests/planner/hard/gradients-away.fsdp 4 0.2 'gradients that add up on the device'

# A gradient's buffer is free once it has been read, though its sum over replicas is still on its way; what is reduced needs room beside results.
gap models/gpt3-175b.fsdp 512 0.03 'gradients wait for their sums over replicas' --cluster models/clusters/ethernet-a100.fsdp --micro-batch 1 --memory 356697033932B

# Shards over sixteen of 64 nodes are best here.
wide=(gpt3-175b aws-p5 356697033932B --ranks 512)
near "$(step "${wide[@]}")" "$(step "${wide[@]}" --strategy hybrid_shard:128)" 'shards over sixteen nodes'
near "$(step "${wide[@]}" --strategy hybrid_shard:128)" "$(step "${wide[@]}" --strategy full_shard)" 'shards over all nodes'

# WIDTH QUEUES RANKS: of the sums over shards and over replicas, on nodes of eight
queues() {
  "$fsdpc" plan models/gpt2-xl.fsdp --cluster models/clusters/dgx-h100.fsdp --ranks "$3" --strategy hybrid_shard:"$1" -o "$scratch/sums.plan" >/dev/null 2>&1
  grep -q "^queues .* $2 " "$scratch/sums.plan" || { echo "sums of shards of $1 beside those over replicas: $(grep '^queues' "$scratch/sums.plan")" >&2; exit 1; }
}

# Two sums that use the same links share them, whichever these are: one waits for the other.
queues 8 'reduce 2 replicate 3' 16
queues 16 'reduce 2 replicate 2' 32
queues 4 'reduce 2 replicate 2' 8
queues 2 'reduce 2 replicate 2' 16

# FILE OPTION...: bytes of the smallest plan, where none fits
smallest() { { "$fsdpc" plan "$@" --memory 1KiB --json 2>/dev/null || true; } | sed -n 's/.*"smallest_peak_bytes": *\([0-9]*\).*/\1/p'; }

# The memory that is proposed where nothing fits is enough, however little was asked for.
tight=(tests/planner/hard/proposed.fsdp --ranks 2 --memory)
proposed=$({ "$fsdpc" plan "${tight[@]}" 14716B 2>&1 || true; } | sed -n 's/^help: cheapest way out: memory //p')
[ "$proposed" ] && "$fsdpc" plan "${tight[@]}" "$proposed" >"$scratch/out" 2>&1 || { echo "$proposed was proposed, and does not fit" >&2; exit 1; }

# Of the many micro-batches that divide this batch the smallest is tried too.
sed 's/batch 64 /batch 20160 /; s/contention 0.999//' "$scratch/stopped.fsdp" >"$scratch/divisible.fsdp"
[ "$(smallest "$scratch/divisible.fsdp")" -le "$(smallest "$scratch/divisible.fsdp" --micro-batch 1)" ] || { echo 'small micro-batches are not tried' >&2; exit 1; }

# A thorough search says what the plan was estimated to take under the budget it was found for, not the fastest estimate of all budgets.
"$fsdpc" plan models/gpt2.fsdp --ranks 8 --cluster models/clusters/dgx-a100-80.fsdp --micro-batch 1 --offload none --memory 1GiB --thorough --json >"$scratch/thorough" 2>/dev/null
number() { sed -n 's/^ *"'"$1"'": \([0-9]*\),*$/\1/p' "$scratch/thorough"; }
[ $((100 * $(number unplaced_step_ns))) -ge $((98 * $(number step_ns))) ] || { echo "a step of $(number step_ns) ns, estimated to take $(number unplaced_step_ns)" >&2; exit 1; }
