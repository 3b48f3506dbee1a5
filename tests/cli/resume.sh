#!/usr/bin/env bash
# Owns: going on from a checkpoint by the command line: in other worlds under other policies, from an older one where the
# newest is damaged, and with fewer ranks after one died.
source "$(dirname "$0")/lib.sh"
pinned=("${one_plan[@]}")

# --- saved by 4 ranks in two shards of two; 50 steps agree with those of 1, 2 and 3 ranks, whatever their policies
for model in gpt-tiny llama-tiny; do
  sed -e 's/tokens_per_step 128/tokens_per_step 192/' -e 's/steps 20/steps 50/' "$fixtures/$model.fsdp" >"$model.fsdp"
  train "$model-whole" "$model.fsdp" --ranks 4 --strategy hybrid_shard:2
  train "$model-part" "$model.fsdp" --ranks 4 --strategy hybrid_shard:2 --steps 10
  other() { # NAME ARGUMENT...: on from step 10; NAME.jsonl holds all 50 steps
    cp "$model-part.jsonl" "$model-$1.jsonl"
    train "$model-$1" "$model.fsdp" --resume "$model-part.weights" "${@:2}"
    silent err # another plan is no other model
    "$compare" metrics "$model-$1.jsonl" "$model-whole.jsonl" 1e-5
  }
  other one --ranks 1 --wrap whole --checkpoint full
  other two --ranks 2 --strategy no_shard --checkpoint none
  other two-sharded --ranks 2 --strategy shard_grad_op --wrap block --checkpoint full --prefetch 2
  other three --ranks 3 --strategy full_shard --wrap size:10K --prefetch 1 --micro-batch 2
  "$compare" metrics "$model-two.jsonl" "$model-two-sharded.jsonl" 0 # policies do not even change a bit
done

# --- what is done is evaluated all the same, as it was at the end
train held gpt-tiny.fsdp --ranks 2 --steps 5 --eval "$fixtures/tokens.bin"
train reheld gpt-tiny.fsdp --ranks 2 --steps 5 --resume held.weights --eval "$fixtures/tokens.bin"
grep '"end"' reheld.jsonl | grep '"loss":null' | grep -q '"peak_bytes":null' || { cat reheld.jsonl >&2 && fail 'a run of no step has a loss'; }
[ "$(grep -c '"eval"' reheld.jsonl)" = 1 ] && [ "$(grep '"eval"' reheld.jsonl)" = "$(grep '"eval"' held.jsonl)" ] || { cat reheld.jsonl >&2 && fail 'a run that is done is not evaluated as at its end'; }

# --- a disk that takes no more: here a limit of file sizes, 40 blocks of 1 KiB; the metrics end in a torn line
code=0
(ulimit -f 40 && exec "$fsdpc" run gpt-tiny.fsdp --ranks 2 --data "$fixtures/tokens.bin" --metrics torn.jsonl --save torn.weights \
  --save-every 5 --quiet) >out 2>err </dev/null || code=$?
[ "$code" = 1 ] || fail "exit code $code where files cannot grow"
said err 'torn.weights/.step-00000005.tmp/rank-0000'
said err 'cannot be written: File too large; raise the limit of file sizes (ulimit -f)'
[ -z "$(ls -A torn.weights)" ] || fail "left behind: $(ls -A torn.weights)"
code=0
(ulimit -f 60 && exec "$fsdpc" run gpt-tiny.fsdp "${one_plan[@]}" --ranks 4 --strategy full_shard --data "$fixtures/tokens.bin" --save full.weights --steps 5 --quiet) \
  >out 2>err </dev/null || code=$?
[ "$code" = 1 ] || fail "exit code $code where the weights have no room"
said err 'full.weights/model.safetensors: no room for it: File too large; raise the limit of file sizes (ulimit -f); the checkpoint of step 5 is whole'
code=0
(ulimit -f 40 && exec "$fsdpc" export gpt-tiny.fsdp hf --to safetensors --weights gpt-tiny-part.weights) >out 2>err || code=$?
[ "$code" = 1 ] || fail "export: exit code $code where files cannot grow"
said err 'hf/model.safetensors: cannot be written: File too large; raise the limit of file sizes (ulimit -f)'
[ -z "$(ls -A hf)" ] || fail "left behind: $(ls -A hf)"
train torn gpt-tiny.fsdp --ranks 2 --steps 10 --save-every 5
printf '{"reason":"step","st' >>torn.jsonl
train torn gpt-tiny.fsdp --ranks 2 --resume auto
train torn gpt-tiny.fsdp --ranks 2 --resume auto --trace none.json
said err 'note: no step was run, so there is none to trace or to analyze'
[ ! -e none.json ] || fail 'a trace of no step'
train untorn gpt-tiny.fsdp --ranks 2
"$compare" metrics torn.jsonl untorn.jsonl 0 # every line can be read

expect 1 run gpt-tiny.fsdp --ranks 2 --data "$fixtures/tokens.bin" --resume torn.weights/model.safetensors
said err 'is neither a checkpoint nor the folder of a run; where it holds weights, --init begins a new run with them'
# A file of a checkpoint stands for it.
for file in checkpoint.json rank-00001-of-00002.safetensors; do
  train torn-again gpt-tiny.fsdp --ranks 2 --resume torn.weights/step-00000010/$file
  "$compare" weights torn-again.weights/model.safetensors untorn.weights/model.safetensors
  rm -rf torn-again.weights
done
expect 0 export gpt-tiny.fsdp half --to safetensors --weights torn.weights/step-00000010/checkpoint.json
expect 0 export gpt-tiny.fsdp whole --to safetensors --weights torn.weights/step-00000010
cmp half/model.safetensors whole/model.safetensors || fail 'a file of a checkpoint is not that checkpoint'

# --- one command line serves every start, also from weights
for steps in 6 20; do
  train tuned gpt-tiny.fsdp --ranks 2 --init torn.weights/step-00000010 --steps $steps --resume auto
done
train tuned-whole gpt-tiny.fsdp --ranks 2 --init torn.weights/step-00000010 --steps 20
"$compare" metrics tuned.jsonl tuned-whole.jsonl 0
"$compare" weights tuned.weights/model.safetensors tuned-whole.weights/model.safetensors

# --- another recipe is gone on with, but not silently
train recipe "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 4
sed -e 's/lr 3e-3 cosine min_lr 3e-4 warmup 4 betas 0.9 0.95/lr 1e-3 linear min_lr 3e-4 warmup 4 betas 0.8 0.95/; s/decay 0.1/decay 0.1 no_decay wte/' \
  -e 's/tokens_per_step 128/tokens_per_step 256/; s/clip 1.0/clip 0.5/; s/precision f32 reduce f32/precision bf16 reduce f32/' \
  "$fixtures/gpt-tiny.fsdp" >changed.fsdp
train again "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy no_shard --resume recipe.weights --steps 6
silent err
expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --data "$fixtures/tokens.bin" --set d=48 --wrap block --resume recipe.weights
said err 'parameter "wte.weight" has shape [67, 24], but the model'"'"'s has [67, 48]; give the model, and the --set, that it was trained with'
train changed changed.fsdp --ranks 2 --resume recipe.weights --steps 6
{
  echo 'batch is 16, and was 8'
  echo 'schedule is linear, and was cosine'
  echo 'lr is 0.001, and was 0.003'
  echo 'beta1 is 0.8, and was 0.9'
  echo 'clip is 0.5, and was 1'
  echo 'precision is bf16, and was f32'
  echo 'parameter "wte.weight" has no weight decay, and had some'
} | sed 's/.*/note: & at the checkpoint/' | diff - err || fail 'not each change of the recipe, and nothing else, is said'

# --- so are other data, also of the same length; not where the same tokens lie in other files
mkdir cut
head -c 300 "$fixtures/tokens.bin" >cut/1.bin
tail -c +301 "$fixtures/tokens.bin" >cut/2.bin
gone_on() { expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --quiet --resume recipe.weights --steps 6 --data "$1"; }
gone_on cut
silent err
printf '\1\0' | dd of=cut/2.bin bs=1 seek=1000 conv=notrunc status=none
gone_on cut
[ "$(cat err)" = 'note: the data has other tokens than at the checkpoint, if as many; samples go on from number 32' ] || { cat err >&2 && fail 'other data of the same length'; }
gone_on cut/2.bin
grep -qE '^note: the data has [0-9]+ tokens, and had [0-9]+ at the checkpoint; samples go on from number 32$' err || { cat err >&2 && fail 'data of another length'; }

# --- so is another model that the same parameters fit
model_is() { # WORDS MODEL [RUN]
  rm -rf remodelled.weights
  train remodelled "$2" --ranks 2 --resume "${3:-recipe}.weights" --steps 6
  printf 'note: layer "%s\n' "$1" | diff - err || fail 'not what differs in the model, and nothing else, is said'
}
sed 's/heads = 3/heads = 4/' "$fixtures/gpt-tiny.fsdp" >changed.fsdp
model_is 'h.0.attn.attention" is attention heads=4 kv_heads=4 causal=1 scale=0.408248290464, and was attention heads=3 kv_heads=3 causal=1 scale=0.353553390593 at the checkpoint; 1 more layer differs' changed.fsdp
sed 's/gelu(/silu(/' "$fixtures/gpt-tiny.fsdp" >changed.fsdp
model_is 'h.0.mlp.gelu" is not there, and was gelu erf=0 at the checkpoint; 1 more layer differs' changed.fsdp
sed 's/heads, theta = 10000)/heads, theta = 10000, dims = 6)/' "$fixtures/llama-tiny.fsdp" >changed.fsdp
train turning "$fixtures/llama-tiny.fsdp" --ranks 2 --steps 4
turns='rope heads=4 theta=10000 llama3=0 factor=8 low=1 high=4 original=8192'
model_is "model.layers.0.self_attn.rope\" is $turns dims=6, and was $turns at the checkpoint; 3 more layers differ" changed.fsdp turning

# --- and weights that another model's parameters fit are used with a warning, wherever they lie; dropout and the loss do not count
sed 's/heads = 3/heads = 4/' "$fixtures/gpt-tiny.fsdp" >changed.fsdp
sed 's/x + \(attn(.*) as attn\)$/x + dropout(\1, 0.5)/' "$fixtures/gpt-tiny.fsdp" >dropped.fsdp
cmp -s "$fixtures/gpt-tiny.fsdp" dropped.fsdp && fail 'dropout is not in the model'
expect 0 export "$fixtures/gpt-tiny.fsdp" stored --to safetensors --weights recipe.weights
for weights in recipe.weights recipe.weights/step-00000004 stored; do
  for model in changed.fsdp dropped.fsdp "$fixtures/gpt-tiny.fsdp"; do
    rm -rf again.weights again.exported
    expect 0 generate "$model" --weights $weights --tokens 1 --gemm builtin
    cp err generated.err
    expect 0 export "$model" again.exported --to safetensors --weights $weights
    cp err exported.err
    train again "$model" --ranks 2 --init $weights --steps 1
    diff generated.err err && diff exported.err err || fail "$weights: commands do not agree about the layers of $model"
    [ $model = changed.fsdp ] || silent err
    [ $model != changed.fsdp ] || grep -Eq '^warning: weights: '$weights': layer "h.0.attn.attention" is attention heads=4 .*, and was attention heads=3 .* (at the checkpoint|when they were written); 1 more layer differs; give the model, ' err ||
      fail "$weights: it is not said that they are of another model"
  done
done

# --- what is refused before its first step changes nothing of earlier runs
train earlier "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 12 --save-every 4
find earlier.weights | sort >before
cp earlier.jsonl before.jsonl
refused() { # ARGUMENT...
  expect 1 run "$fixtures/gpt-tiny.fsdp" "${one_plan[@]}" --ranks 2 --data "$fixtures/tokens.bin" --metrics earlier.jsonl "$@"
  find earlier.weights | sort | diff before - || fail "checkpoints of a refused run: $*"
  cmp earlier.jsonl before.jsonl || fail "metrics of a refused run: $*"
}
refused --tensorboard /dev/null/board
refused --save earlier.weights --resume earlier.weights/step-00000004 --tensorboard /dev/null/board
refused --save earlier.weights/step-00000004 --resume auto
said err 'save: earlier.weights/step-00000004 is a checkpoint itself; name the folder of its run, in which it lies, to go on there, or another'
train earlier "$fixtures/gpt-tiny.fsdp" --ranks 2 --resume earlier.weights/step-00000004 --steps 6
said err 'earlier.weights/step-00000008 is newer than where this run goes on, and is now called superseded-step-00000008'
[ "$(cd earlier.weights && echo step-*)" = 'step-00000004 step-00000006' ] || fail 'newest is not of this branch'
train earlier "$fixtures/gpt-tiny.fsdp" --ranks 2 --resume earlier.weights/step-00000004 --steps 8
train earlier "$fixtures/gpt-tiny.fsdp" --ranks 2 --resume earlier.weights/step-00000004 --steps 5
said err 'earlier.weights/step-00000008 is newer than where this run goes on, and is now called superseded-step-00000008-2'
[ "$(cd earlier.weights && echo superseded-*)" = 'superseded-step-00000006 superseded-step-00000008 superseded-step-00000008-2 superseded-step-00000012' ] ||
  fail "a branch was lost: $(ls earlier.weights)"

# --- a run that has nothing left to train leaves a folder that it goes on from
train done "$fixtures/gpt-tiny.fsdp" --ranks 2 --steps 4
expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --data "$fixtures/tokens.bin" --steps 4 --resume done.weights --save moved.weights --quiet
[ -e moved.weights/step-00000004/checkpoint.json ] || fail 'a run without steps saves no checkpoint in its folder'
expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --data "$fixtures/tokens.bin" --steps 5 --resume auto --save moved.weights --quiet

# --- however long names are, what is saved is found again
long=$(printf 'x%.0s' {1..190})
sed "s/as h\$/as h$long/; s/as attn\$/as a$long/; s/as c_attn/as c$long/" "$fixtures/gpt-tiny.fsdp" >long.fsdp
train long long.fsdp --ranks 2 --steps 4
train long long.fsdp --ranks 2 --steps 6 --resume auto
[ -e long.weights/step-00000006 ] || fail 'a model of long names does not go on'

# --- a damaged checkpoint: --resume auto takes the one before, and loses nothing of it
train whole "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy full_shard
train damaged "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy full_shard --steps 12 --save-every 4
file=damaged.weights/step-00000012/rank-00002-of-00002.safetensors
printf 'x' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 2)) conv=notrunc status=none
expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy full_shard --data "$fixtures/tokens.bin" --resume damaged.weights --quiet
said err "$file: the checksum of tensor"
said err 'the checkpoint is damaged: use an older one'
train damaged "$fixtures/gpt-tiny.fsdp" --ranks 2 --strategy full_shard --resume auto
said err "warning: checkpoint: $file: the checksum of tensor"
said err 'resuming from damaged.weights/step-00000008, after step 8'
said err 'superseded-step-00000012'
"$compare" weights damaged.weights/model.safetensors whole.weights/model.safetensors
