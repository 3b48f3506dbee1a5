#!/usr/bin/env bash
# Owns: goldens of what is said and drawn about plans. Plans are files here, so that a change of the planner or of the cost
# model changes nothing; cases that plan leave costs out.
#
# usage: goldens.sh [--update] FSDPC      --update rewrites the goldens
set -euo pipefail
update=0
if [ "${1-}" = --update ]; then update=1 && shift; fi
fsdpc=$(realpath "$1")
cd "$(dirname "$0")"
export NO_COLOR=1 COLUMNS=100
failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The format of plans may change: then they are planned anew, and the goldens' differences say what else did.
if [ "$update" = 1 ] && ! "$fsdpc" verify figure2.plan >/dev/null 2>&1; then
  (cd ../.. && "$fsdpc" plan models/fsdp-figure2.fsdp -o tests/view/figure2.plan >/dev/null &&
    "$fsdpc" plan models/fsdp-figure2.fsdp --reshard no --micro-batch 4 -o tests/view/figure2-kept.plan >/dev/null)
fi

# told ARGUMENT...: what fsdpc prints, or writes to OUT, and its exit code.
told() {
  local code=0
  rm -f "$scratch/out"
  "$fsdpc" "${@/OUT/$scratch/out}" >"$scratch/said" 2>&1 </dev/null || code=$?
  if [ -e "$scratch/out" ]; then cat "$scratch/out"; else cat "$scratch/said"; fi
  [ "$code" = 0 ] || echo "exit $code"
}

# same NAME: $scratch/now is goldens/NAME.
same() {
  if [ "$update" = 1 ]; then
    cp "$scratch/now" "goldens/$1"
  elif ! diff -u "goldens/$1" "$scratch/now"; then
    echo "FAILED $1" >&2
    failed=1
  fi
}

# golden NAME ARGUMENT...
golden() {
  told "${@:2}" >"$scratch/now"
  same "$1"
}

# masked NAME ARGUMENT...: without collectives and figures, which change with the planner, and what follows from their signs.
masked() {
  told "${@:2}" | sed -E '/^  i[0-9]/d; s/[-+]?\b[0-9]+(\.[0-9]+)?( (ns|us|ms|s|B|KiB|MiB|GiB|K|M|%)\b)?/N/g; s/; faster//; s/  +/  /g' >"$scratch/now"
  same "$1"
}

golden explain.txt explain figure2.plan
golden explain-narrow.txt explain figure2.plan --no-costs
golden explain-why-unit.txt explain figure2.plan --why unit0
golden explain-why-param.txt explain figure2.plan --why layer3.weight
golden explain-why-layer.txt explain figure2.plan --why layer3 --no-costs
golden explain-why-unknown.txt explain figure2.plan --why unit9
golden explain-file.txt explain ../fixtures/gpt-tiny.fsdp --ranks 2 --no-costs --wrap block --checkpoint none --prefetch 1 --strategy full_shard --micro-batch 2
golden diff.txt diff figure2.plan figure2-kept.plan
golden diff-same.txt diff figure2.plan figure2.plan --detailed-exitcode
golden diff-exitcode.txt diff figure2.plan figure2-kept.plan --no-costs --detailed-exitcode
golden diff.json diff figure2.plan figure2-kept.plan --json
golden units.dot draw figure2.plan --dot OUT
golden timeline.svg draw figure2.plan --timeline OUT
golden trace.json draw figure2.plan --trace OUT
golden against-json.txt plan ../../models/fsdp-figure2.fsdp --against figure2.plan --json

# Micro-batches of a step are drawn, counted and described once, into however many segments they fall.
once() {
  "$fsdpc" plan ../fixtures/gpt-tiny.fsdp --ranks 2 --wrap block --strategy shard_optim --checkpoint "$1" --micro-batch "$2" -o "$scratch/$2.plan" >/dev/null
  "$fsdpc" draw "$scratch/$2.plan" --dot "$scratch/dot" >/dev/null
  grep -E '^    n[0-9]' "$scratch/dot"
  "$fsdpc" explain "$scratch/$2.plan" --no-costs | grep -Eo 'Nothing is computed twice|[0-9]+ operators run again'
}
for checkpoint in none full; do
  once "$checkpoint" 4 >"$scratch/one"
  once "$checkpoint" 1 >"$scratch/several"
  if ! grep -q 'segment "last"' "$scratch/1.plan" || ! diff "$scratch/one" "$scratch/several"; then
    echo "FAILED micro-batches in several segments, --checkpoint $checkpoint" >&2
    failed=1
  fi
done
"$fsdpc" explain "$scratch/1.plan" --why h.1.mlp.c_fc | grep -q '^h.1.mlp.c_fc: 6.00 KiB of results' || { echo "FAILED results of one micro-batch" >&2; failed=1; }

# A silu that its product computes is asked about and drawn as part of it.
gated=(../fixtures/llama-tiny.fsdp --ranks 2 --wrap block --strategy full_shard --micro-batch 2 --checkpoint none)
"$fsdpc" explain "${gated[@]}" --why model.layers.0.mlp.silu >"$scratch/said"
grep -q '^model.layers.0.mlp.silu is computed by the instruction of the product' "$scratch/said" &&
  grep -q '^model.layers.0.mlp.mul: 9.00 KiB of results' "$scratch/said" || { echo "FAILED --why of a silu within a product" >&2; failed=1; }
"$fsdpc" plan "${gated[@]}" -o "$scratch/gated.plan" >/dev/null
told explain "$scratch/gated.plan" --why model.layers.0.mlp.silu >"$scratch/now"
grep -q 'did you mean model.layers.0.mlp.mul?' "$scratch/now" || { echo "FAILED --why of a silu that a plan does not name" >&2; failed=1; }
# So are the logits of a loss in chunks; the loss is computed with its gradient.
sed 's/weight = wte)/& as head/; s/, targets)/, targets, chunk = 8)/' ../fixtures/gpt-tiny.fsdp >"$scratch/tied.fsdp"
tied=("$scratch/tied.fsdp" --cluster "$PWD/../../models/clusters/cpu.fsdp" --ranks 2 --wrap block --checkpoint none)
told explain "${tied[@]}" --why head >"$scratch/now"
grep -q '^head is computed by the instruction of the loss' "$scratch/now" &&
  grep -q '^cross_entropy: computed with its gradient' "$scratch/now" || { cat "$scratch/now" >&2; echo "FAILED --why of a loss, or of logits within it" >&2; failed=1; }
told explain "${gated[@]}" --why lm_head >"$scratch/now"
grep -q '^  no results of its own' "$scratch/now" || { cat "$scratch/now" >&2; echo "FAILED --why of logits with a weight of their own" >&2; failed=1; }
# A shared weight has a name in each layer.
told explain "${tied[@]}" --why head.weight >"$scratch/now"
grep -q '^wte.weight lies at element 0' "$scratch/now" || { cat "$scratch/now" >&2; echo "FAILED --why of a shared weight" >&2; failed=1; }
"$fsdpc" draw "$scratch/gated.plan" --dot "$scratch/dot" >/dev/null
grep -q 'label=<mlp.mul<br/>.*>silu_mul_fwd<' "$scratch/dot" && ! grep -q 'mlp.silu' "$scratch/dot" || { echo "FAILED the drawing of a silu within a product" >&2; failed=1; }

# The summary's figures are those of the drawings, where streams slow each other too.
"$fsdpc" plan ../../models/gpt2.fsdp --ranks 8 --memory 16GiB --wrap size:25M --reshard no --gather step -o "$scratch/plan" >"$scratch/summary"
"$fsdpc" draw "$scratch/plan" --dot "$scratch/dot" >/dev/null
sed -nE 's/^.* no +([0-9.]+ [mu]s).*/\1/p' "$scratch/summary" >"$scratch/one"
sed -nE 's/.*gather [0-9.]+ [KMG]iB in ([0-9.]+ [mu]s).*/\1/p' "$scratch/dot" >"$scratch/several"
if ! [ -s "$scratch/one" ] || ! diff "$scratch/one" "$scratch/several"; then
  echo "FAILED times of gathers, told and drawn" >&2
  failed=1
fi

# Labels: a run of parameters says where it begins; blocks are numbered all or none; the axis has the step's unit.
fails() { echo "FAILED $1" >&2; failed=1; }
"$fsdpc" draw "$scratch/plan" --timeline "$scratch/svg" --html "$scratch/html" >/dev/null
grep -qE '>(h\.)?[0-9]+\.\.<' "$scratch/svg" && ! grep -qE '>(mlp|c_proj|ln_1)[^<]*\+' "$scratch/svg" || fails "names of runs of parameters"
grep -q '<i style="--share:0\.[0-9]*"></i><span>' "$scratch/html" && grep -q 'td.bar i {[^}]*left: 70px' "$scratch/html" || fails "bars beside their figures"
"$fsdpc" draw ../../models/llama3-8b.fsdp --ranks 8 --memory 77GiB --micro-batch 2 --checkpoint none --wrap block --strategy full_shard --timeline "$scratch/svg" --dot "$scratch/dot" >/dev/null
[ "$(grep -c '>31</text>' "$scratch/svg")" = "$(grep -c '>9</text>' "$scratch/svg")" ] || fails "numbers of blocks"
grep -q '> *[0-9.]* s a step<' "$scratch/svg" && grep -q '>0 s<' "$scratch/svg" || fails "the unit of the axis"
grep -qE 'communication exposed for [0-9.]+ [mu]?s \([0-9]\.[0-9] %\)<' "$scratch/svg" || fails "a small share of exposed communication"
grep -qE '<b>model[.]layers[^<]* . [0-9]+<.b>' <(sed 's|×|.|' "$scratch/dot") || fails "a space before a count"
"$fsdpc" draw ../fixtures/gpt-tiny.fsdp --ranks 2 --wrap block --strategy full_shard --micro-batch 1 --checkpoint full --dot "$scratch/one" >/dev/null
grep -q 'label=<mlp[.]c_fc<' "$scratch/one" && ! grep -q 'label=<h[.]0' "$scratch/one" || fails "names within a unit of its own"
grep -q 'into the next block' "$scratch/dot" && ! grep -q 'label="next block"' "$scratch/dot" || fails "edges to the next block"
cat >"$scratch/stack.fsdp" <<'END'
model stack {
  input t: int[batch, 4]
  input y: int[batch, 4]
  module layer(x) { return linear(x, 8) as fc }
  x = embedding(t, 8, 8) as e
  x = repeat 4 layer(x) as h
  loss = cross_entropy(linear(x, 8) as head, y, chunk = 2)
}
cluster { use "clusters/cpu.fsdp" }
END
"$fsdpc" draw "$scratch/stack.fsdp" --ranks 2 --wrap block --micro-batch 1 --dot "$scratch/dot" >/dev/null
[ "$(grep -cE '(n[0-9]+) -> \1 \[style=dashed' "$scratch/dot")" = 1 ] || fails "blocks of one layer: $(grep -e '->' "$scratch/dot")"
# The head stays on the page, and beside the time of a step, however much there is to say: half of its size is what a letter takes, and
# what the widest in bold takes is 1.1.
sed 's/^model gpt_tiny/model a_name_that_says_what_the_model_is_for_and_who_made_it_and_when_and_why_and_where_it_was_made/; s/^plan {/& unit one_of_three { h.0 }/' ../fixtures/gpt-tiny.fsdp >"$scratch/long.fsdp"
"$fsdpc" draw "$scratch/long.fsdp" --ranks 8 --strategy hybrid_shard:4 --wrap size:123456789 --micro-batch 1 --memory 260KiB --timeline "$scratch/svg" >/dev/null
sed -nE 's/^<text x="24.0" y="([0-9.]+)" font-size="([0-9.]+)"[^>]*>(.*)<.text>$/\1|\2|\3/p' "$scratch/svg" |
  awk -F'|' '{ gsub(/·|×|…/, "x"); lines++; if (24 + length($3) * $2 * ($1 < 50 ? 1.1 : 0.5) > ($1 < 50 ? 950 : 1120)) { print; exit 1 } } END { if (lines < 3) exit 1 }' || fails "a head that leaves the page"
"$fsdpc" draw ../fixtures/gpt-tiny.fsdp --ranks 8 --strategy hybrid_shard:4 --wrap block --micro-batch 1 --html "$scratch/html" >/dev/null
grep -q 'Strategy <code>hybrid_shard:4</code>' "$scratch/html" || fails "the width of hybrid sharding in the report"
cat >"$scratch/one.fsdp" <<'END'
model one { input t: int[batch] input y: int[batch] loss = cross_entropy(embedding(t, 3, 3) as e, y) }
cluster { use "clusters/cpu.fsdp" }
END
"$fsdpc" draw "$scratch/one.fsdp" --ranks 4 --timeline "$scratch/svg" >/dev/null # little but scalars, which are pale
grep 'the axis does not begin at zero' "$scratch/svg" | grep -q 'class="halo"' || fails "what the axis says of itself on a pale ground"
"$fsdpc" draw "$scratch/one.fsdp" --ranks 1 --timeline "$scratch/svg" >/dev/null
grep -q '>arena ' "$scratch/svg" && ! grep -q exposed "$scratch/svg" || fails "communication of a rank by itself"
"$fsdpc" plan "$scratch/one.fsdp" --ranks 1 | grep -qxE 'Model one: [^,]* parameters' || fails "layers of a model without any"
"$fsdpc" explain ../fixtures/gpt-tiny.fsdp --ranks 2 --micro-batch 1 --strategy full_shard --reshard no --wrap size:10K --no-costs >"$scratch/now"
units=$(sed -nE '1s/.* in ([0-9]+) units?,.*/\1/p' "$scratch/now")
[ "$units" = 2 ] && grep -q '^  Both units stay gathered ' "$scratch/now" || fails "how two units are called: $units"

# No two units have one name: those found by the policy leave what was given by hand.
sed 's/^plan {.*/plan { wrap block unit h.1 { h.0.mlp } unit wte { ln_f } }/' ../fixtures/gpt-tiny.fsdp >"$scratch/taken.fsdp"
"$fsdpc" plan "$scratch/taken.fsdp" --ranks 2 --micro-batch 1 --prefetch 1 --checkpoint none -o "$scratch/taken.plan" >/dev/null
told diff "$scratch/taken.plan" "$scratch/taken.plan" --detailed-exitcode >"$scratch/now"
grep -q ', 0 changed, ' "$scratch/now" && ! grep -q '^exit' "$scratch/now" || { cat "$scratch/now" && fails "a plan that differs from itself"; }
told explain "$scratch/taken.plan" --why 'h.1 (2)' >"$scratch/now"
grep -q '^unit h\.1 (2): 12 tensors' "$scratch/now" || { cat "$scratch/now" && fails "the block whose name is taken"; }

# What a sweep asked for and which of it is possible; figures would change with the planner.
told tune ../fixtures/gpt-tiny.fsdp --ranks 1,2,3 --memory 64MiB,10KiB --micro-batch 1 --wrap block --checkpoint none --strategy full_shard,shard_grad_op --csv OUT | cut -d, -f1-10 >"$scratch/now"
same tune.csv

# What each decision could have been instead; what a sweep says of its front, with and without a price.
pinned=(--ranks 2 --wrap block --checkpoint none --prefetch 1 --strategy full_shard --micro-batch 2 --reshard yes)
masked explain-why-not-unit.txt explain ../fixtures/gpt-tiny.fsdp "${pinned[@]}" --why h.0
masked explain-why-not-tensor.txt explain ../fixtures/gpt-tiny.fsdp "${pinned[@]}" --why h.0.mlp.c_fc
masked explain-why-not-module.txt explain ../fixtures/gpt-tiny.fsdp "${pinned[@]}" --why h.0.mlp
told explain ../fixtures/gpt-tiny.fsdp --ranks 2 --wrap whole --why h.0 >"$scratch/now" # a block that is no unit
grep -q '^module h.0: 12 tensors' "$scratch/now" && grep -q '^    a unit of its own ' "$scratch/now" || { cat "$scratch/now" && echo "FAILED a block that is no unit" >&2; failed=1; }
told plan ../../models/gpt2.fsdp --ranks 8 --wrap block --micro-batch 1 -o "$scratch/deep.plan" >"$scratch/now"
told explain "$scratch/deep.plan" --why h >"$scratch/now"
grep -q 'h.5 (12 tensors) and 6 more units$' "$scratch/now" || { cat "$scratch/now" && echo "FAILED the first units of many" >&2; failed=1; }
told explain ../fixtures/gpt-tiny.fsdp --ranks 2 --wrap block --micro-batch 1 --strategy shard_optim --gather step --why h.0 >"$scratch/now"
grep -q '^  kept gathered over all micro-batches: ' "$scratch/now" || { cat "$scratch/now" && echo "FAILED gathered once a step" >&2; failed=1; }
front=(--ranks 2,3,4 --memory 64MiB,10KiB --micro-batch 1 --wrap block --checkpoint none --strategy full_shard --prefetch 1 --reshard yes)
masked tune.txt tune ../fixtures/gpt-tiny.fsdp "${front[@]}"
masked tune-priced.txt tune ../fixtures/gpt-tiny.fsdp "${front[@]}" --cluster priced.fsdp
exit "$failed"
