#!/usr/bin/env bash
# Owns: check, fmt, plan, verify, explain and draw on files: exit codes, what is printed where, JSON fields.
source "$(dirname "$0")/lib.sh"
model=$fixtures/gpt-tiny.fsdp

# --- check
expect 0 check "$model" "$fixtures/llama-tiny.fsdp"
silent out
sed 's/as ln_f/as ln_f junk(/' "$model" >broken.fsdp
expect 1 check broken.fsdp "$model"
said err 'broken.fsdp:'
silent out
expect 1 check broken.fsdp --json
"$compare" fields out schema_version errors diagnostics.file diagnostics.line diagnostics.message
silent err
expect 1 check missing.fsdp
said err 'missing.fsdp'
expect 1 check /gpt2.fsdp
! grep -q 'did you mean' err || fail 'a file is proposed in place of itself'
ln -s nowhere.fsdp dangling.fsdp && ln -s round.fsdp round.fsdp
for link in 'dangling.fsdp": No such file' 'round.fsdp": Too many levels of symbolic links'; do
  expect 1 check "${link%%\"*}"
  said err "cannot read \"$link"
  said err 'help: it is a symbolic link'
  ! grep -q 'did you mean' err || fail 'a link is proposed in place of itself'
done
expect 1 check broken.fsdp --color always
grep -q "$(printf '\033')" err || fail '--color always gives no colour'
expect 1 check broken.fsdp
grep -q "$(printf '\033')" err && fail 'NO_COLOR gives colour'

# --- fmt: idempotent, in place, whole or not at all
sed 's/  */ /g' "$model" >loose.fsdp
expect 1 fmt --check loose.fsdp
said out 'loose.fsdp'
expect 0 fmt loose.fsdp
said out 'loose.fsdp'
cp loose.fsdp once.fsdp
expect 0 fmt loose.fsdp
silent out
cmp loose.fsdp once.fsdp || fail 'fmt is not idempotent'
expect 0 fmt --check loose.fsdp
expect 0 fmt --stdout loose.fsdp
cmp out loose.fsdp
cp broken.fsdp before.fsdp
expect 1 fmt broken.fsdp
cmp broken.fsdp before.fsdp || fail 'fmt changed a file that does not parse'

# --- plan
expect 0 plan "$model" --ranks 2
said out 'Plan: '
tail -n 1 out | grep -qE '^Plan: [0-9]+ units?, peak .*/.* \(.*\), .*/step predicted, fits$' || fail "last line: $(tail -n 1 out)"
silent err
expect 0 plan "$model" --ranks 2 -o a.plan --json
"$compare" fields out schema_version model.name model.params model.layers world.ranks world.shard world.replicas \
  world.ranks_per_node micro_batch accumulation strategy budget_bytes fits peak_bytes peak_at persistent_bytes \
  arena_bytes max_live_bytes memory.parameters memory.gradients memory.optimizer memory.gathered memory.activations \
  memory.workspace step_ns tokens_per_s_per_rank mfu exposed_comm_ns lower_bound_ns gap unplaced_step_ns bound_by plan_seconds \
  units.name units.params units.numel units.padded units.reshard units.gather_bytes units.gather_ns \
  checkpoint.kept_bytes checkpoint.recompute_ns prefetch instructions
expect 0 plan "$model" --ranks 2 -o b.plan
cmp a.plan b.plan || fail 'planning twice gives different plans'
printf '%s\n' 'model m {' 'input x: int[batch, 4]' 'input y: int[batch, 4]' 'loss = cross_entropy(linear(embedding(x, 8, 8), 8), y)' '}' >flat.fsdp
expect 3 plan flat.fsdp --cluster cpu --ranks 2 --memory 1KiB --json
chosen=$(sed -n 's/.*"wrap": "\(size:.*\)".*/\1/p' out)
expect 3 plan flat.fsdp --cluster cpu --ranks 2 --memory 1KiB --wrap "$chosen" # what is said to be chosen can be asked for
for dump in graph program units checkpoint memory plan; do
  expect 0 plan "$model" --ranks 2 --dump="$dump"
  [ -s out ] || fail "--dump=$dump prints nothing"
done
# What is neither kept nor computed again is not said to be.
expect 0 plan "$root/models/gpt2.fsdp" --cluster dgx-a100-40 --ranks 8 --memory 3GiB --dump=checkpoint
grep -q '^drop  *h\.0\.mlp\.c_proj (linear_fwd)$' out || fail 'backward never reads a projection before a sum, which is said to be kept'
grep -q '^offload  *h\.[0-9]*\.[a-z0-9_.]* ([a-z]*_fwd)$' out || fail 'a result in host memory is not said to be there'
grep -q '^keep  *h\.[0-9]*\.ln_1 (layernorm_fwd)$' out || fail 'a result that is kept is not said to be'
expect 0 plan "$model" --ranks 2 --dump=plan
cmp out a.plan || fail '--dump=plan is not what -o writes'

# A budget that cannot be met: explained, exit 3, no file.
# A plan outlives changes to its model, and says so.
cp "$model" own.fsdp
expect 0 plan own.fsdp --ranks 1 -o own.plan
touch -d '1 hour ago' own.fsdp
expect 0 run own.plan --steps 1 --data "$fixtures/tokens.bin"
! grep -q 'has been changed' err || fail 'a plan is said to be old that is not'
touch -d '1 hour' own.fsdp
expect 0 run own.plan --steps 1 --data "$fixtures/tokens.bin"
said err 'note: own.fsdp has been changed since own.plan was planned from it'
expect 3 plan "$model" --ranks 2 --memory 4KiB -o none.plan --json
"$compare" fields out fits infeasible.smallest_peak_bytes infeasible.peak_at infeasible.largest.name infeasible.relaxations
said err 'smallest peak'
[ ! -e none.plan ] || fail 'a plan that does not fit was written'
expect 3 run "$model" --ranks 2 --memory 4KiB --data "$fixtures/tokens.bin"
silent out
# The smallest plan is no search's, and has a bound all the same, also where nothing but it was to be searched.
for choices in '--ranks 8 --micro-batch 1 --strategy full_shard --wrap size:500' '--ranks 2 --micro-batch 4 --strategy no_shard --wrap size:5K --offload optimizer,gradients'; do
  # shellcheck disable=SC2086
  expect 3 plan "$model" $choices --memory 1KiB --json
  least=$(grep -o '"smallest_peak_bytes": *[0-9]*' out | tr -dc 0-9)
  # shellcheck disable=SC2086
  expect 0 plan "$model" $choices --memory "${least}B" --json
  grep -q '"lower_bound_ns": [1-9]' out || fail "the smallest plan has no bound: $choices"
done
# What else is proposed fits, beside all that was asked for: MISSING, PROPOSED or -, CHOICE...
proposes() {
  local missing=$1 proposed=$2 asked=("$root/models/gpt2.fsdp" --cluster dgx-a100-40 --ranks 8 --offload none "${@:3}") name value
  expect 3 plan "${asked[@]}"
  sed -n 's/^help: or: \([a-z_]*\) \([^ ]*\): .*/\1 \2/p' err >proposals
  [ "$proposed" = - ] || grep -qx "$proposed" proposals || fail "not proposed: $proposed beside $*"
  ! grep -q "^$missing" proposals || fail "proposed: $missing beside $*"
  while read -r name value; do expect 0 plan "${asked[@]}" "--${name/_/-}" "$value"; done <proposals
}
proposes ranks 'strategy full_shard' --strategy hybrid_shard:2 --memory 1100MiB # groups of two hold as much on more ranks
proposes strategy - --strategy no_shard --gather step --memory 900MiB           # full_shard does not gather once a step
proposes checkpoint 'strategy full_shard' --strategy shard_optim --memory 800MiB
proposes strategy 'reshard auto' --reshard no --memory 700MiB
proposes strategy 'gather auto' --gather step --memory 700MiB
expect 0 plan "$root/models/gpt2.fsdp" --cluster dgx-a100-40 --ranks 8 --offload none --prefetch 20 --memory 690MiB # a depth is the most
expect 1 plan "$model" --ranks 3 # 8 samples a step
for tokens in 2251799813685248 4611686018427387904; do # times, and then counts, that no plan can hold
  sed "s/tokens_per_step 128/tokens_per_step $tokens/" "$model" >vast.fsdp
  expect 1 plan vast.fsdp --ranks 2
  said err 'years or more by the cluster'
done
for command in 'plan a.plan' 'plan a.plan --max d' 'check a.plan' 'fmt a.plan' 'tune a.plan' 'predict a.plan' 'generate a.plan --weights o'; do
  # shellcheck disable=SC2086
  expect 1 $command
  said err 'a.plan:1:1: error: this is a finished plan; a model is wanted here'
  said err "it was planned from $model: give that"
  [ "$(grep -c error err)" = 1 ] || fail "several errors of fsdpc $command"
done
cmp a.plan b.plan || fail 'a plan was formatted'
expect 1 plan "$model" --ranks 2 -o no/such/folder/x.plan
said err 'cannot write no/such/folder/x.plan: No such file or directory; make its folder first'
expect 1 run "$model" --ranks 1 --data "$fixtures/tokens.bin" --metrics no/such/folder/m.jsonl
said err 'metrics: no/such/folder/m.jsonl: cannot be opened: No such file or directory; make its folder first'
expect 1 verify "$model"
said err "help: 'fsdpc plan FILE -o PLAN' writes one"
expect 1 plan "$model" --set layers=1e99
said err '--set layers=1e99: "1e99" cannot be its value: it is too large'

# --- one of a thing; a byte order mark
expect 0 plan "$model" --ranks 2 --wrap whole -o whole.plan
said out 'Plan: 1 unit, '
expect 0 explain whole.plan --no-costs
said out 'parameters in 1 unit, 2 ranks'
! grep -E '(^|[ (])1 (units|ranks|steps|layers|samples|operators)|All 1' out || fail 'one, and an s'
expect 0 plan "$model" --ranks 1
! grep -E '(^|[ (])1 (units|ranks|steps|layers|samples)' out || fail 'one, and an s'
expect 0 run "$model" --ranks 1 --data "$fixtures/tokens.bin" --steps 1
said out '1 step in'
said err '; 1 step, seed'
{ printf '\357\273\277' && cat a.plan; } >marked.plan
expect 0 verify marked.plan
expect 0 explain marked.plan
expect 1 check marked.plan
said err 'this is a finished plan'
sed 's/^plan {/plan { prefetch 1001 /' "$model" >deep.fsdp
expect 1 check deep.fsdp
said err '"prefetch" must be at most 1000'

# --- the largest value: bracketed to a hundredth, or to neighbours
expect 0 plan "$model" --ranks 2 --memory 2MiB --strategy full_shard --wrap block --max layers
most=$(sed -n 's/^layers \([0-9]*\) fits$/\1/p' out) least=$(sed -n 's/^layers \([0-9]*\) does not$/\1/p' out)
[ "$((least - most))" -le "$((most / 100 > 1 ? most / 100 : 1))" ] || fail "a wide bracket: $most to $least"
for layers in "$most 0" "$least 3"; do
  expect "${layers#* }" plan "$model" --ranks 2 --memory 2MiB --strategy full_shard --wrap block --set layers="${layers% *}"
done
expect 0 plan "$model" --ranks 2 --memory 2MiB --strategy full_shard --wrap block --set d=24 --max d --json
"$compare" fields out schema_version let step tried fits does_not_fit
[ "$(($(sed -n 's/.*"fits": \([0-9]*\).*/\1/p' out) % 24))" = 0 ] || fail 'no multiple of 24'
expect 0 plan "$model" --ranks 2 --memory 8MiB --strategy full_shard --wrap block --checkpoint none --set vocab=1K --max vocab
[ "$(($(sed -n 's/^vocab \([0-9]*\) fits.*/\1/p' out) % 1000))" = 0 ] || { cat out >&2 && fail 'no multiple of 1K'; }
expect 64 plan "$model" --ranks 2 --max ''
expect 1 plan "$model" --ranks 2 --max d # of 3 heads
said err 'help: values are tried from d=1 on; with --set d=VALUE beside --max they are that value'"'"'s multiples'
expect 64 plan "$model" --ranks 2 --max d --set d=0
said err 'beside --max, --set d expects a whole number whose multiples are tried, but got "0"'
expect 1 plan "$model" --max foo
said err 'error: model "gpt_tiny" has no let named "foo"'
! grep 'values are tried' err || fail 'a let that is not there has no values'
expect 3 plan "$model" --ranks 2 --memory 1KiB --max layers
said err 'help: plan with --set layers=1 in place of --max layers to read what would fit'
for executor in native pytorch-fsdp2; do
  expect 1 plan "$model" --ranks 3 --max layers --executor $executor
  said err 'a step of 8 samples cannot be split into micro-batches of 1 on 3 ranks'
done
for wrong in '-o x.plan' '--dump graph' '--against a.plan' --thorough; do
  # shellcheck disable=SC2086
  expect 64 plan "$model" --max d $wrong
  said err '--max finds a value'
done
expect 64 plan "$model" --max d=3

# --- every budget up to this one
for budget in 400 415; do
  expect 0 plan "$model" --ranks 2 --wrap block --memory ${budget}KiB --thorough -o "$budget.plan" --json
  silent err
  cp out "$budget.json"
  expect 0 verify "$budget.plan"
done
step() { sed -n 's/^ *"step_ns": \([0-9]*\),*$/\1/p' "$1"; }
[ "$(step 415.json)" -le "$(step 400.json)" ] || fail 'slower with more memory'
# What takes long says on a terminal what it does until it is done, also on a narrow one.
typed() { # COLUMNS ARGUMENT...: what fsdpc types on such a terminal, line by line; what it prints lies in ./again
  (unset CI && TERM=xterm script -qec "stty cols $1 && '$fsdpc' ${*:2} >again" /dev/null) </dev/null >typed
  tr '\r' '\n' <typed >lines
}
typed 200 plan "'$model'" --ranks 2 --memory 415KiB --thorough -o wide.plan
grep -qE $'^planning gpt_tiny on 2 ranks \\.\\.\\. [0-9.]+ s; [0-9]+ budgets tried, down to [0-9]+ KiB; [0-9.]+ ..?s a step\e' lines ||
  fail "progress: $(head -n 3 lines)"
[ "$(tail -c 4 typed)" = $'\r\e[K' ] || fail 'progress stays on the terminal'
for command in "plan '$model' --ranks 2 --memory 415KiB --thorough -o narrow.plan" "tune '$model' --ranks 1,2"; do
  typed 30 "$command"
  awk '{ sub(/\x1b\[K/, "") } /plan/ { seen = 1; if (length >= 30) wide = 1 } END { exit wide || !seen }' lines || { cat lines >&2 && fail "wider than 30 columns: fsdpc $command"; }
done
cmp wide.plan narrow.plan || fail 'a thorough search is not deterministic'
! grep -q $'\r' again || fail 'progress among the results'

# --- files that are no JSON, or none at all
mkdir folder
for wrong in missing:'cannot read missing: No such file' folder:'cannot read folder: it is a folder' "broken.fsdp:broken.fsdp:1:"; do
  expect 1 explain a.plan --measured "${wrong%%:*}"
  said err "${wrong#*:}"
done

# --- verify
head -c 3000 a.plan >cut.plan
expect 1 verify cut.plan
said err 'the plan ends without a line "end"'
[ "$(grep -c error: err)" = 1 ] || fail 'more is said of a plan that was cut off'
sed '1s/1/2/' a.plan >later.plan
expect 1 verify later.plan
said err 'plan again with this fsdpc, or use the one that wrote it'
expect 1 plan "$model" --ranks 3 --against cut.plan # before the planner, which would refuse 3 ranks
said err 'the plan ends without a line "end"'
cat a.plan a.plan >twice.plan
expect 1 verify twice.plan
[ "$(grep -c error: err)" = 1 ] || fail 'more is said of what follows the end'
expect 0 verify a.plan
said out 'valid'
expect 1 verify "$model"
sed -E '/^buf /s/@ 0x[0-9a-f]+/@ 0x0/' a.plan >overlap.plan
cmp -s a.plan overlap.plan && fail 'the broken plan is not broken'
expect 1 verify overlap.plan
said out 'overlap: two buffers'
expect 1 verify overlap.plan --json
"$compare" fields out valid violations.rule violations.meaning violations.message
expect 1 run overlap.plan --data "$fixtures/tokens.bin"
said err 'overlap'
head -c 300 a.plan >torn.plan
expect 1 verify torn.plan
expect 1 verify missing.plan
head -c 100000 /dev/urandom >junk.plan
expect 1 verify junk.plan

# What is run again must be what forward ran: with its attributes, on its parameters and values.
expect 0 plan "$root/models/quickstart.fsdp" --ranks 2 --checkpoint full -o again.plan
for edit in 's/(recompute layernorm_fwd .* eps=)1e-05/\11e-04/' 's/(recompute gelu_fwd .*erf=)0/\11/' 's/(recompute add_fwd) (b[0-9]+) (b[0-9]+)/\1 \3 \2/' \
  's/(recompute layernorm_fwd b[0-9]+ )b[0-9]+\+[0-9]+ (b[0-9]+\+[0-9]+)/\1\2 \2/'; do
  sed -E "$edit" again.plan >other.plan
  cmp -s again.plan other.plan && fail "$edit changes nothing"
  expect 1 verify other.plan
  said out 'runs nothing of forward again'
done

# --- a finished plan takes no planning options
expect 64 run a.plan --memory 1GiB --data "$fixtures/tokens.bin"
said err 'no effect on a finished plan'
expect 64 run a.plan --ranks 4 --data "$fixtures/tokens.bin"
said err 'plan for 2 ranks'

# --- explain and draw
expect 0 explain a.plan
said out 'Where the time goes'
expect 0 explain a.plan --no-costs
grep -qE '[0-9] (ns|us|ms)' out && fail '--no-costs shows times'
expect 64 draw a.plan
said err '--svg'
expect 0 draw a.plan --timeline a.svg --dot a.dot
head -c 200 a.svg | grep -q '<svg' || fail 'no svg'
if command -v dot >/dev/null; then
  expect 0 draw a.plan --svg units.svg
  grep -q '<svg' units.svg || fail 'no picture of the units'
fi
mkdir linked && ln -s linked/target link
expect 0 draw a.plan --dot link
[ -L link ] && cmp -s linked/target a.dot || fail 'a link was replaced, or does not lead to what was written'
expect 0 draw a.plan --dot link
[ -L link ] && cmp -s linked/target a.dot || fail 'a link to a file was replaced'
mkdir no-programs
PATH=$PWD/no-programs expect 1 draw a.plan --svg none.svg
said err 'apt-get install graphviz'
[ ! -e none.svg ] || fail 'a picture without Graphviz'
PATH=$PWD/no-programs expect 1 draw a.plan --svg none.svg --timeline all.svg --html all.html
[ ! -e none.svg ] && [ -s all.svg ] && [ -s all.html ] || fail 'without Graphviz all else is not written'
expect 0 draw "$model" --ranks 4 --dot b.dot

# --- what cannot be written is said before the work, not after it
for output in no/such/folder/x linked; do
  expect 1 tune "$model" --csv $output
  said err "cannot write $output: "
  silent out
  expect 1 run a.plan --data "$fixtures/tokens.bin" --trace $output
  said err "cannot write $output: "
  silent out
done

# --- no output is an input, by any name, or another output; nothing is written
spared() { # FILE ARGUMENT...
  local file=$1
  shift
  cp "$file" before
  expect 64 "$@"
  said err 'is the same file as'
  cmp "$file" before || fail "fsdpc $*: $file was written"
}
cp "$model" own.fsdp
cp a.plan own.plan
cp "$fixtures/tokens.bin" own.bin
mkdir data && cp own.bin data/own.bin
ln -s own.bin linked.bin && ln own.bin again.bin
spared own.fsdp plan own.fsdp --ranks 2 -o own.fsdp
said err 'output own.fsdp (--output) is the same file as input own.fsdp'
cp "$root/models/quickstart.fsdp" planned.fsdp
expect 0 plan planned.fsdp --ranks 2 -o planned.plan "${one_plan[@]}"
for made in 'draw planned.plan --svg planned.fsdp' 'draw planned.plan --trace planned.fsdp' "run planned.plan --data $root/README.md --metrics planned.fsdp"; do
  # shellcheck disable=SC2086
  expect 64 $made
  said err 'is the same file as input'
  cmp planned.fsdp "$root/models/quickstart.fsdp" || fail "$made has overwritten the model"
done
spared own.fsdp tune own.fsdp --csv own.fsdp
spared own.plan draw own.plan --dot ./own.plan
spared own.plan run own.plan --data own.bin --metrics own.plan
for name in own.bin linked.bin again.bin; do
  spared own.bin run "$model" --ranks 2 --data own.bin --metrics $name
  spared own.bin run "$model" --ranks 2 --data linked.bin --trace $name
done
spared data/own.bin run "$model" --ranks 2 --data data --steps 1 --metrics data/own.bin
mkdir hf && echo '{}' >hf/config.json
spared hf/config.json import hf -o hf/config.json
cp -r "$root/models" models
spared models/families/gpt2.fsdp plan models/gpt2.fsdp -o models/families/gpt2.fsdp # what the model uses
expect 64 draw a.plan --dot new --timeline ./new
said err 'output new (--dot) is the same file as output ./new (--timeline)'
[ ! -e new ] || fail 'two outputs were written to one file'
expect 0 draw a.plan --dot /dev/null --timeline /dev/null
expect 0 run "$model" --ranks 2 --data own.bin --steps 1 --metrics data/new.jsonl --quiet
# --- nor part of a checkpoint, or of what the run itself writes, whether that is there yet or not
expect 0 run "$model" --ranks 2 --data own.bin --steps 1 --save kept --quiet
checkpoint=kept/step-00000001/checkpoint.json
spared $checkpoint run "$model" --ranks 2 --data own.bin --resume kept/step-00000001 --trace $checkpoint
spared $checkpoint run "$model" --ranks 2 --data own.bin --init kept --metrics $checkpoint
ln -s kept kept.link
for output in kept/model.safetensors new/model.safetensors kept.link/step-00000001/checkpoint.json kept/step-00000002/x.jsonl; do
  for option in trace metrics; do
    expect 64 run "$model" --ranks 2 --data own.bin --save "${output%%[./]*}" --resume auto "--$option" "$output"
    said err "output $output (--$option) is where --save puts files of its own"
  done
done
[ ! -e new ] || fail 'a refused run left its folder'
expect 0 run "$model" --ranks 2 --data own.bin --steps 1 --save kept --resume auto --metrics kept/m.jsonl --trace kept/step.json --quiet
# --- nor does an output become input when the command is given again
rm data/new.jsonl
ln -s data data.link
for output in '--save data/out' '--save data' '--metrics data/new.jsonl' '--trace data.link/step.json' '--tensorboard data/no/such/folder'; do
  for input in "--data data" "--data own.bin --eval $PWD/data/"; do
    # shellcheck disable=SC2086
    expect 64 run "$model" --ranks 2 --steps 1 $input $output
    said err "output ${output#* } (${output% *}) lies in folder "
    [ "$(ls -A data)" = own.bin ] || fail "written: $(ls -A data)"
  done
done
expect 0 run "$model" --ranks 2 --steps 1 --data data --save data/.out --metrics data.new --quiet
