#!/usr/bin/env bash
# Owns: a plan never changes the arithmetic. At 2 ranks, random units (non-contiguous ones too), strategies,
# checkpointing, prefetch depths and resharding must give bit-identical losses, norms and weights.
#
# variant: `plain`, or `mixed`: Adafactor, dropout, norms of each head, rotary positions of a part of it, residuals times a number, a chunked loss and frozen parameters in the middle of units.
#
#   random_plans.sh FSDPC COMPARE [COUNT [SEED [VARIANT [PRECISION]]]]
source "$(dirname "$0")/../cli/lib.sh"
count=${3:-100}
RANDOM=${4:-1}
variant=${5:-plain}
precision=${6:-f32 reduce f32}

# The GPT of the fixtures with 3 blocks, a first, a middle and a last, and a short schedule; two repetitions of the micro-batch, so
# that gradients accumulate over repetitions too.
declare -A edits=(
  [plain]=''
  [mixed]='s/optimizer adamw \{[^}]*\}/optimizer adafactor { lr 1e-2 decay 0.1 }/
           s/q, k, v = split.*/&\n    q = rmsnorm(q, heads = heads) as q_norm\n    k = layernorm(k, heads = heads) as k_norm\n    q = rope(q, heads, dims = 2)\n    k = rope(k, heads, dims = 2)/
           s/linear\(gelu\((.*)\), d\) as c_proj/linear(dropout(gelu(\1), 0.1), d) as c_proj/
           s/ as mlp$/& * 0.22/
           s/, targets\)$/, targets, chunk = 24)/
           s/^  loss = /  freeze "wpe"\n  freeze "*.ln_1.weight"\n  freeze "h.0.mlp"\n  freeze "h.2.attn.c_attn"\n&/'
)
model() {
  sed -E -e '$d; s/layers = 2/layers = 3/; s/d = 24/d = 12/; s/steps 20/steps 3/' -e "s/precision f32 reduce f32/precision $precision/" \
    "$fixtures/gpt-tiny.fsdp" | sed -E "${edits[$variant]}"
  printf 'plan { memory %s micro_batch 2 %s }\n' "$1" "$2"
}

pick() { # one of the arguments
  local i=$((RANDOM % $# + 1))
  printf '%s' "${!i}"
}
chance() { [ $((RANDOM % 100)) -lt "$1" ]; }

# Modules of the model, each in one random unit or in none: units of any neighbours and strangers.
modules="wte wpe ln_f h.0.attn h.0.mlp.c_fc h.0.mlp.c_proj h.0.ln_1 h.1 h.2.mlp h.2.attn.c_attn h.2.ln_2"
random_units() { # RESHARD...: to be drawn from
  local units=$((RANDOM % 5)) module unit members
  local -A of=()
  [ "$units" -gt 0 ] || return 0
  for module in $modules; do
    unit=$((RANDOM % (units + 2)))
    [ "$unit" -ge "$units" ] || of[$unit]+=" $module"
  done
  for unit in "${!of[@]}"; do
    members=${of[$unit]}
    printf 'unit m%d {%s%s } ' "$unit" "$members" "$(chance 30 && printf ' reshard %s' "$(pick "$@")")"
  done
}

random_rules() {
  local rules=$((RANDOM % 5)) i
  for ((i = 0; i < rules; i++)); do
    printf '%s %s ' "$(pick save recompute host)" \
      "$(pick h.0 h.1 'h.*.mlp' 'h.*.attn' h.0.mlp.c_fc h.2.mlp.gelu 'h.*.ln_1' 'h.*.attn.attention' ln_f)"
  done
}

# Adafactor's state stays where it is.
random_offload() {
  local what=()
  if [ "$variant" = plain ]; then for what_else in parameters gradients optimizer; do chance 50 && what+=("$what_else"); done; fi
  chance 50 && what+=(activations)
  [ ${#what[@]} -gt 0 ] || what=(none)
  printf '%s' "${what[*]}"
}

# When gradients are reduced decides in which order they are added up, so it has a reference of its own.
random_block() { # CADENCE
  local strategy gather resharding=(yes no)
  if [ "$1" = step ]; then
    strategy=$(pick full_shard shard_optim shard_grad_op no_shard)
  else
    strategy=$(pick full_shard full_shard shard_grad_op no_shard)
  fi
  gather=$(pick auto micro_batch step)
  case $strategy in # or it would contradict itself
  full_shard) gather=${gather/step/auto} ;;
  shard_optim) gather=${gather/micro_batch/step} resharding=(no) ;;
  shard_grad_op) [ "$1" = micro_batch ] || gather=${gather/step/auto} ;;
  esac
  [ "$gather" != step ] || resharding=(no)
  printf 'strategy %s reduce %s gather %s ' "$strategy" "$1" "$gather"
  printf 'wrap %s ' "$(pick auto block whole 'size 500' 'size 2K' 'size 5K')"
  printf 'checkpoint %s ' "$(pick none full full auto)"
  printf 'prefetch %s ' "$(pick 0 1 2 3 auto)"
  if [ "$strategy" != shard_grad_op ]; then chance 40 && printf 'reshard %s ' "$(pick "${resharding[@]}")"; fi
  chance 40 && printf 'offload %s ' "$(random_offload)"
  random_units "${resharding[@]}"
  random_rules
}

# A plan must do this, and is told apart from the others by its hash in the run's first line.
for cadence in micro_batch step; do
  model 64MiB "strategy no_shard wrap whole checkpoint none prefetch 0 reduce $cadence" >$cadence.fsdp
  train $cadence $cadence.fsdp --ranks 2
done
declare -A seen=()
for ((i = 0; i < count; i++)); do
  cadence=$(pick micro_batch micro_batch step)
  block=$(random_block $cadence)
  model "$(pick 64MiB 64MiB 2MiB 1MiB)" "$block" >plan.fsdp
  expect 0 plan plan.fsdp --ranks 2 -o plan.plan
  expect 0 verify plan.plan
  train other plan.plan
  "$compare" metrics other.jsonl $cadence.jsonl 0 >out || fail "plan $i: $block"
  "$compare" weights other.weights/model.safetensors $cadence.weights/model.safetensors >out || fail "plan $i: $block"
  seen[$(grep -vE '^(source|summary)' plan.plan | cksum | cut -d' ' -f1)]=1
done
echo "$count random settings, ${#seen[@]} different plans, equal bits"
[ "${#seen[@]}" -ge $((count * 8 / 10)) ] || fail "only ${#seen[@]} different plans in $count"
