#!/usr/bin/env bash
# Owns: training by the command line: 1, 2 and 4 ranks agree, a plan and its file agree, saving and generating.
source "$(dirname "$0")/lib.sh"

for model in gpt-tiny llama-tiny; do
  file=$fixtures/$model.fsdp
  for ranks in 1 2 4; do train "$model-$ranks" "$file" --ranks "$ranks"; done
  for ranks in 2 4; do "$compare" metrics "$model-$ranks.jsonl" "$model-1.jsonl" 1e-5; done

  expect 0 plan "$file" --ranks 2 -o "$model.plan"
  train "$model-plan" "$model.plan"
  "$compare" metrics "$model-plan.jsonl" "$model-2.jsonl" 0
  "$compare" weights "$model-plan.weights/model.safetensors" "$model-2.weights/model.safetensors"

  train "$model-threads" "$file" --ranks 2 --threads 2 # also across thread counts
  "$compare" metrics "$model-threads.jsonl" "$model-2.jsonl" 0
done

# Metrics open with start and close with end, and the peak is the plan's.
head -n 1 gpt-tiny-2.jsonl >first.json
tail -n 1 gpt-tiny-2.jsonl >last.json
sed -n 2p gpt-tiny-2.jsonl >step.json
grep -q '"start"' first.json || fail 'metrics do not open with start'
grep -q '"end"' last.json || fail 'metrics do not close with end'
"$compare" fields step.json step loss grad_norm lr tokens tokens_per_s step_ns peak_bytes
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 --json
params=$(grep -oE '"params": *[0-9]+' out | head -n 1 | grep -oE '[0-9]+$')
arena=$(grep -oE '"peak_bytes": *[0-9]+' out | grep -oE '[0-9]+$')
observed=$(grep -oE '"peak_bytes": *[0-9]+' step.json | grep -oE '[0-9]+$')
[ "$arena" = "$observed" ] || fail "the run reached $observed bytes, the plan says $arena"
# So is the host memory that saving takes: parameters and two moments in f32, sharded by two.
host() { grep -oE '"checkpoint_host_bytes": *[0-9]+' "$1" | grep -oE '[0-9]+$'; }
[ "$(host out)" -ge $((params * 6)) ] || fail "$params parameters take $(host out) bytes in a checkpoint of two"
[ "$(host out)" = "$(host first.json)" ] || fail "the run copies $(host first.json) bytes, the plan says $(host out)"

pinned=("${one_plan[@]}") # above, the planner chose
# Every strategy trains to the same bits at 2 ranks.
for strategy in full_shard shard_grad_op no_shard; do
  train "$strategy" "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy "$strategy"
  "$compare" metrics "$strategy.jsonl" full_shard.jsonl 0
  "$compare" weights "$strategy.weights/model.safetensors" full_shard.weights/model.safetensors
done

# So they do at 4, where hybrid sharding sums in two groups of two and then across: subtrees of the one tree.
for strategy in full_shard hybrid_shard:2 no_shard; do
  train "four-$strategy" "$fixtures/gpt-tiny.fsdp" --ranks 4 --strategy "$strategy"
  "$compare" metrics "four-$strategy.jsonl" four-full_shard.jsonl 0
  "$compare" weights "four-$strategy.weights/model.safetensors" four-full_shard.weights/model.safetensors
done

# Every input but the targets is given the same tokens, and that is said where there are several.
sed -e 's/^  input tokens.*/&\n  input others: int[batch, ctx]/' -e 's/as wte/as wte + embedding(others, vocab, d) as wtf/' "$fixtures/gpt-tiny.fsdp" >twice.fsdp
expect 0 run twice.fsdp --wrap block --ranks 1 --steps 1 --data "$fixtures/tokens.bin"
said err 'inputs tokens, others are all given the same tokens'

# A budget for training on many ranks may be too small for one that generates; what is proposed is taken.
(sed '$d' "$fixtures/gpt-tiny.fsdp" && echo 'plan { memory 20KiB }') >small.fsdp
expect 3 generate small.fsdp --weights gpt-tiny-2.weights --prompt '!' --tokens 4
said err 'help: cheapest way out: memory '
expect 0 generate small.fsdp --weights gpt-tiny-2.weights --prompt '!' --tokens 4 --memory "$(sed -n 's/^help: cheapest way out: memory //p' err)"
# Nor do pins of training hinder: one rank is no group of two.
(sed '$d' "$fixtures/gpt-tiny.fsdp" && echo 'plan { memory 64MiB strategy hybrid_shard:2 }') >grouped.fsdp
expect 0 generate grouped.fsdp --weights gpt-tiny-2.weights --prompt '!' --tokens 4

# What was saved generates: bytes out, as many as asked for, the same ones again. (Not with oneDNN: once its code has
# run in this very process, LeakSanitizer crashes at exit. Ranks are other processes, and end by _exit.)
generate() {
  expect 0 generate "$fixtures/gpt-tiny.fsdp" --weights gpt-tiny-2.weights --prompt "$1" --tokens 20 --seed 7 --gemm builtin
}
generate '!!'
cp out sample
generate '!!'
cmp out sample || fail 'one seed gives two samples'
[ "$(wc -c <out)" -ge 22 ] || fail 'the sample is too short'
script -qec "'$fsdpc' generate '$fixtures/gpt-tiny.fsdp' --weights gpt-tiny-2.weights --prompt '!!' --tokens 20 --seed 7 --gemm builtin" /dev/null </dev/null >typed
[ "$(tail -c 1 typed)" = '' ] && [ "$(tail -c 1 sample)" != '' ] || fail 'on a terminal a sample does not end its line, or in a file does'
expect 1 generate "$fixtures/llama-tiny.fsdp" --weights gpt-tiny-2.weights --gemm builtin
sed 's/causal/full/' "$fixtures/gpt-tiny.fsdp" >full.fsdp
expect 1 generate full.fsdp --weights gpt-tiny-2.weights
said err '"h.0.attn.attention" sees tokens that are still to come'

# Weights that are somebody's own are not written over.
for name in model.safetensors model.safetensors.index.json; do
  rm -rf foreign && mkdir foreign && cp gpt-tiny-4.weights/model.safetensors foreign/$name
  expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 1 --data "$fixtures/tokens.bin" --save foreign
  said err "foreign/$name is not of this run"
  cmp foreign/$name gpt-tiny-4.weights/model.safetensors || fail 'weights of others were written over'
  [ "$(ls -A foreign)" = $name ] || fail 'a refused run wrote into the folder'
done

# A checkpoint of 4 ranks exports to Hugging Face's files, which initialise as the weights themselves do.
step=gpt-tiny-4.weights/step-00000020
expect 0 export "$fixtures/gpt-tiny.fsdp" hf --to safetensors --weights $step --max-file 20KB
# Of a model whose step is for other ranks, and whose budget for more of them.
(sed 's/tokens_per_step 128/tokens_per_step 16/; $d' "$fixtures/gpt-tiny.fsdp" && echo 'plan { memory 1KiB }') >elsewhere.fsdp
expect 0 export elsewhere.fsdp elsewhere --to safetensors --weights $step --max-file 20KB
diff -r elsewhere hf || fail 'weights depend on how a step is planned'
[ -e hf/model.safetensors.index.json ] || fail 'no index'
expect 1 export "$fixtures/gpt-tiny.fsdp" hf --to safetensors --weights $step --max-file 20KB
said err 'exists; --force'
# One set of weights in a folder: others are refused, and with --force removed when the new ones are whole.
exported() { # CODE ARGUMENT...: to ./one, from step 20
  local code=$1
  shift
  expect "$code" export "$fixtures/gpt-tiny.fsdp" one --to safetensors --weights $step "$@"
}
exported 0
exported 1 --max-file 20KB
said err 'one/model.safetensors exists; --force'
exported 0 --max-file 20KB --force
[ ! -e one/model.safetensors ] && [ "$(ls one/model-*)" = "$(sort out)" ] || fail 'old weights beside new ones'
exported 1
said err 'exists; --force'
exported 0 --max-file 40KB --force
[ "$(ls one/model-*)" = "$(sort out)" ] || fail 'old parts beside new ones'
exported 0 --force
[ "$(ls -A one)" = model.safetensors ] || fail 'old parts beside new weights'
expect 0 export "$fixtures/gpt-tiny.fsdp" half --to safetensors --weights gpt-tiny-4.weights --dtype bf16
[ "$(stat -c %s half/model.safetensors)" -lt "$(stat -c %s gpt-tiny-4.weights/model.safetensors)" ] || fail 'bf16 is not smaller'
train from-hf "$fixtures/gpt-tiny.fsdp" --ranks 2 --init hf
train from-ours "$fixtures/gpt-tiny.fsdp" --ranks 2 --init gpt-tiny-4.weights
"$compare" metrics from-hf.jsonl from-ours.jsonl 0
train from-half "$fixtures/gpt-tiny.fsdp" --ranks 1 --init half
"$compare" metrics from-half.jsonl from-ours.jsonl 2e-2
expect 1 run "$fixtures/llama-tiny.fsdp" --ranks 1 --init hf --data "$fixtures/tokens.bin"
said err 'of the model is missing; give the model, and the --set, that these weights are of'

# A loss that is none from the start is laid to what the run began with: here no weights of a file.
sed 's/^  loss = /  x = scale(scale(scale(x, 1e18), 1e18), 1e18)\n&/' "$fixtures/gpt-tiny.fsdp" >large.fsdp
expect 1 run large.fsdp --ranks 1 --steps 2 --data "$fixtures/tokens.bin"
said err 'before any update: with the model'"'"'s initial values a result leaves the range of f32'

# Of a run's folder the latest weights count: a step's, where the run did not get to its end.
sampled() { # WEIGHTS
  expect 0 generate "$fixtures/gpt-tiny.fsdp" --weights "$1" --prompt '!!' --tokens 20 --seed 7 --gemm builtin
}
train latest "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 9 --save-every 4
sampled latest.weights
silent err
mv out early
sampled latest.weights/step-00000009
cmp out early || fail "a checkpoint's weights are not those of model.safetensors"
cp -r gpt-tiny-2.weights/step-00000020 latest.weights
touch latest.weights/model.safetensors # a copy's times tell nothing
sampled latest.weights
said err 'note: latest.weights/step-00000020 is newer than model.safetensors'
mv out late
sampled gpt-tiny-2.weights
cmp out late || fail 'old weights were used'
# Weights that were cut short are not called older than a checkpoint of the same step.
cp -r gpt-tiny-2.weights cut.weights
truncate -s -1 cut.weights/model.safetensors
sampled cut.weights
said err 'warning: cut.weights/model.safetensors: not a safetensors file: it is cut short'
said err '; cut.weights/step-00000020 is what is used'
cmp out late || fail 'not the weights of the checkpoint'
# A run that has less to do than was done writes weights of the step that it stands at.
expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --data "$fixtures/tokens.bin" --save latest.weights --resume auto --steps 9 --quiet
sampled latest.weights
silent err
cmp out late || fail 'weights of an earlier step were written'
rm latest.weights/model.safetensors
sampled latest.weights
cmp out late || fail 'the newest checkpoint was not used'
for kind in latest.weights gpt-tiny-2.weights; do
  train "from-$kind" "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 2 --init $kind
done
"$compare" metrics from-latest.weights.jsonl from-gpt-tiny-2.weights.jsonl 0
expect 1 generate "$fixtures/gpt-tiny.fsdp" --weights nowhere
said err 'nowhere'
expect 1 export "$fixtures/gpt-tiny.fsdp" none --to safetensors --weights nowhere

# Stopped and resumed: the bits of a run that never stopped.
train parts "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 9 --save-every 4
train parts "$fixtures/gpt-tiny.fsdp" --ranks 2 --resume auto --keep 2
"$compare" weights parts.weights/model.safetensors gpt-tiny-2.weights/model.safetensors
[ "$(find parts.weights -name 'step-*' | wc -l)" = 2 ] || fail '--keep 2 does not keep 2'
sed 's/order sequential/order shuffled/' "$fixtures/gpt-tiny.fsdp" >shuffled.fsdp
train shuffled shuffled.fsdp --ranks 2
train shuffled-parts shuffled.fsdp --ranks 2 --steps 13
train shuffled-parts shuffled.fsdp --ranks 2 --resume auto
"$compare" weights shuffled-parts.weights/model.safetensors shuffled.weights/model.safetensors
# Elsewhere, with other ranks: strategies still agree to the bit.
for strategy in full_shard no_shard; do
  train "moved-$strategy" "$fixtures/gpt-tiny.fsdp" --ranks 4 --strategy $strategy --resume parts.weights/step-00000009
  "$compare" weights "moved-$strategy.weights/model.safetensors" moved-full_shard.weights/model.safetensors
done

# Other optimizers and schedules: the loss falls, strategies agree, a stop costs no bit.
sed -E 's/optimizer adamw \{[^}]*\}/optimizer lion { lr 3e-4 wsd cooldown 6 warmup 2 decay 0.1 no_decay wte wpe }/' \
  "$fixtures/gpt-tiny.fsdp" >lion.fsdp
train lion-full lion.fsdp --ranks 2 --strategy full_shard
train lion-none lion.fsdp --ranks 2 --strategy no_shard --steps 11
train lion-none lion.fsdp --ranks 2 --strategy no_shard --resume auto
"$compare" weights lion-none.weights/model.safetensors lion-full.weights/model.safetensors
expect 0 plan lion.fsdp --ranks 2 --dump=plan
grep -q 'param p0 "wte.weight" .* decay no' out || fail 'no_decay has no effect'
sed 's/no_decay wte wpe/no_decay wtf/' lion.fsdp >typo.fsdp
expect 1 check typo.fsdp
said err 'matches no parameter'

# On a terminal progress is one line, however narrow: what does not fit is left out.
for columns in 200 60; do
  (unset CI && TERM=xterm script -qec "stty cols $columns && '$fsdpc' run '$fixtures/gpt-tiny.fsdp' --ranks 1 --data '$fixtures/tokens.bin'" /dev/null) </dev/null >typed
  tr '\r' '\n' <typed | sed -n 's/\x1b\[K//; /^step/p' >lines
  awk -v most="$columns" 'length >= most { wide = 1 } END { exit wide || !NR }' lines || { cat lines >&2 && fail "progress is wider than $columns columns"; }
done
tail -n 1 lines | grep -qE 'step +20/20  loss [0-9.]+  norm [0-9.]+  lr [0-9.e+-]+' || fail "progress: $(tail -n 1 lines)"

# A run that is over before its warmup says how far the rate gets.
expect 0 run "$fixtures/gpt-tiny.fsdp" "${one_plan[@]}" --ranks 1 --steps 2 --data "$fixtures/tokens.bin"
said err 'the warmup is longer: lr rises to 0.0015, and no further'
# One that goes on after the schedule's end says so, where there is one.
expect 0 run "$fixtures/gpt-tiny.fsdp" "${one_plan[@]}" --ranks 1 --steps 21 --data "$fixtures/tokens.bin"
said err 'the schedule ends after 20 steps: lr stays at 0.0003 from there'
# Not before the warmup's, whatever --steps says.
sed 's/warmup 4/warmup 30/' "$fixtures/gpt-tiny.fsdp" >slow.fsdp
expect 0 run slow.fsdp "${one_plan[@]}" --ranks 1 --steps 25 --data "$fixtures/tokens.bin"
! grep 'the schedule ends' err || fail 'a schedule ends within its warmup'
expect 0 run slow.fsdp "${one_plan[@]}" --ranks 1 --steps 31 --data "$fixtures/tokens.bin"
said err 'the schedule ends after 30 steps: lr stays at 0.0003 from there'
sed 's/cosine min_lr 3e-4/constant/' "$fixtures/gpt-tiny.fsdp" >flat.fsdp
expect 0 run flat.fsdp "${one_plan[@]}" --ranks 1 --steps 21 --data "$fixtures/tokens.bin"
! grep 'the schedule ends' err || fail 'a constant rate ends'

# What is read as text and is none is named.
mkdir -p mixed && head -c 4000 "$fixtures/gpt-tiny.fsdp" | tr -c 'a-z' 'a' | tr 'a-z' '!-:' >mixed/a.txt && head -c 300 "$fixtures/tokens.bin" >mixed/b.npy
expect 0 run "$fixtures/gpt-tiny.fsdp" "${one_plan[@]}" --ranks 1 --steps 1 --data mixed/a.txt
grep -q 'NUL bytes' err && fail 'text is taken for something else'
expect 0 run "$fixtures/gpt-tiny.fsdp" "${one_plan[@]}" --ranks 1 --steps 1 --data mixed
said err 'mixed/b.npy holds NUL bytes, so it may be no text'

# A step of which no target counts has no loss, and has not diverged.
sed 's/, targets)$/, targets, ignore_index = 1)/' "$fixtures/gpt-tiny.fsdp" >ignored.fsdp
head -c 1024 /dev/zero | tr '\0' '\1' >ignored.txt
expect 1 run ignored.fsdp "${one_plan[@]}" --ranks 2 --data ignored.txt --metrics ignored.jsonl
said err 'no target of step 1 counts: each is what cross_entropy ignores (ignore_index); leave such data out, or make steps larger'

# Held-out data that make no evaluation: how much is there, how much is needed, and what to change.
head -c 60 "$fixtures/tokens.bin" >few.bin
expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 1 --data "$fixtures/tokens.bin" --eval few.bin
said err 'eval: few.bin: it has 1 sample of 16 tokens, and one evaluation takes at least the 8 of a step; give more data, or make steps smaller'

# The loss turns logits into their gradient where they lie, but not those that are part of a result, or attention's, which backward reads
# once more: they train as if a layer that changes nothing stood between.
logits() {
  printf 'model m { input tokens: int[batch, 16] input targets: int[batch, 16] x = embedding(tokens, 256, 256) as wte %s loss = cross_entropy(%s, targets) }
train { optimizer adamw { lr 1e-2 } batch 4 steps 5 } cluster { use "clusters/cpu.fsdp" }\n' "$1" "$2"
}
for way in 'y = attention(x, x, x, 4)' '_a, y = split(linear(x, 265) as up, [9, 256])' 'y, _b = split(attention(linear(x, 512), linear(x, 512), linear(x, 512), 4), 2)'; do
  logits "$way" y >turned.fsdp
  logits "$way" 'dropout(y, 0)' >apart.fsdp
  for model in turned apart; do train "$model" "$model.fsdp" --ranks 2; done
  "$compare" metrics turned.jsonl apart.jsonl 0
  "$compare" weights turned.weights/model.safetensors apart.weights/model.safetensors
done
for model in turned apart; do
  expect 0 generate $model.fsdp --weights $model.weights --prompt ab --tokens 8 --temperature 0
  cp out $model.ids
done
cmp turned.ids apart.ids
