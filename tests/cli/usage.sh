#!/usr/bin/env bash
# Owns: what the command line refuses, and how it says so; help and version.
source "$(dirname "$0")/lib.sh"

expect 64 # no command
said err 'Usage: fsdpc COMMAND'
silent out
expect 0 --help
said out 'Examples:'
silent err
expect 0 --version
said out 'fsdpc '
expect 0 --version --json
"$compare" fields out schema_version version plan_format

for asked in -V version; do
  expect 0 "$asked"
  said out 'fsdpc '
done

for command in check fmt plan predict explain verify draw run generate import export profile doctor; do
  expect 0 "$command" --help
  sed -n 3p out | grep -q '^Examples:' || fail "help of $command does not start with examples"
  expect 64 "$command" --no-such-option x
  said err 'unknown option --no-such-option'
done

expect 64 paln x
said err "did you mean 'plan'?"
expect 64 --versoin
said err 'did you mean --version?'
for meant in train:run compare:diff; do
  expect 64 "${meant%:*}" x
  said err "did you mean '${meant#*:}'?"
done
expect 64 plan --memroy 3GiB x.fsdp
said err 'did you mean --memory?'
expect 64 plan --mem 3GiB x.fsdp # getopt would take it for --memory
said err 'unknown option --mem'
said err 'did you mean --memory?'
expect 64 plan --steps 3 x.fsdp
said err "--steps is an option of 'fsdpc run'"
expect 64 diff a.plan x.fsdp --set d=8
said err "--set is an option of 'fsdpc check', plan, predict, explain, draw, tune, run, generate and export"
expect 64 plan --json=yes x.fsdp
said err 'option --json takes no argument'
expect 64 plan x.fsdp --memory
said err 'option --memory needs an argument (SIZE)'
expect 64 plan x.fsdp --memory 40
said err 'expects a size with a unit'
expect 64 plan x.fsdp --memory 9000000TiB
said err 'below 8000000TiB'
for wrong in wrap=size:0 strategy=hybrid_shard:F; do
  expect 64 plan x.fsdp "--${wrong%%=*}" "${wrong#*=}"
  said err 'expects a whole number from 1 to 9223372036854775807 after the colon'
done
for wrong in micro-batch=0 prefetch=1001 prefetch=; do
  expect 64 plan x.fsdp "--$wrong"
  said err "option --${wrong%%=*} expects auto or a whole number from"
done
# What a terminal would obey is not printed as it stands, of the command line, of names of files, and of files.
expect 64 plan x.fsdp --strategy $'red\e[31m'
said err 'but got "red?[31m"'
expect 1 check $'red\e[31m.fsdp'
said err 'red?[31m.fsdp'
printf '{"a": \e[31mred}' >red.json
expect 1 import red.json
said err "red.json:1:7: not JSON: invalid token near '?'"
printf '{"a": "x\\u0000y"}' >nul.json
expect 1 import nul.json
said err 'not JSON: a text holds the character \u0000'
printf 'model m {\n  a\0b\n}\n' >nul.fsdp
expect 1 check nul.fsdp
said err 'it holds a NUL byte (line 2, column 4), so it is not text'
expect 64 plan x.fsdp -o ''
said err 'option --output expects a path'
for option in data eval init resume save tensorboard metrics trace cluster; do
  expect 64 run x.fsdp --data x "--$option" ''
  said err "option --$option expects a path, but got \"\""
done
expect 64 verify ''
said err 'operand 1 is empty'
for command in check fmt plan; do
  expect 64 "$command" -
  said err 'operand 1 is "-", which names no file'
done
expect 64 plan x.fsdp -o -
said err 'help: standard output is /dev/stdout'
with_plan gpt-tiny 'strategy full_shard gather step' >contradiction.fsdp
expect 1 check contradiction.fsdp
said err ':35:1: error: strategy full_shard releases parameters after use, but gather step keeps them'
"$fsdpc" check <(cat "$fixtures/gpt-tiny.fsdp") >out 2>err && fail 'a pipe is read'
said err 'it is not a regular file'
expect 64 run x.fsdp --data -
said err 'help: standard input is not read; a file of that name is ./-'
for set in layers =3 layers=; do
  expect 64 plan x.fsdp --set d=8 --set $set
  said err "expects NAME=VALUE, but got \"$set\""
done
for list in '' 2,,4 ,2 2,; do
  expect 64 tune "$fixtures/gpt-tiny.fsdp" --ranks "$list"
  said err "but got \"$list\""
done
# What all plans of a sweep share is refused before any is made, once.
for option in '--gather never' '--reduce never' '--offload moments' '--ranks-per-node 0'; do
  # shellcheck disable=SC2086
  expect 64 tune "$fixtures/gpt-tiny.fsdp" $option
  silent out
  [ "$(grep -c '^fsdpc: error: option' err)" = 1 ] || { cat err >&2 && fail "not one message about $option"; }
done
expect 1 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 --ranks-per-node 3
said err '2 ranks do not fill nodes of 3'
expect 64 plan x.fsdp --ranks 0
expect 64 plan x.fsdp --ranks many
expect 64 plan x.fsdp --ranks 1.5
expect 64 plan x.fsdp --strategy ful_shard
said err 'did you mean full_shard?'
expect 64 plan x.fsdp --strategy hybrid_shard
expect 64 plan x.fsdp --strategy hybrid_shard:x
expect 64 plan x.fsdp --wrap size
expect 64 plan x.fsdp --wrap size:-3
expect 64 plan "$fixtures/gpt-tiny.fsdp" --prefetch deep
said err 'option --prefetch expects auto or a whole number from 0 to 1000, but got "deep"'
expect 64 plan "$fixtures/gpt-tiny.fsdp" --micro-batch autoo
said err 'did you mean auto?'
expect 64 plan x.fsdp --executor torch
said err 'expects native, pytorch-fsdp2-eager,'
said err 'or pytorch-fsdp1, but got "torch"'
said err 'did you mean pytorch-fsdp2?'
expect 64 plan x.fsdp --executor pytorch-fsdp2-eagr
said err 'did you mean pytorch-fsdp2-eager?'
for name in native pytorch-fsdp2 pytorch-fsdp1-2022; do
  for command in plan predict export; do
    expect 0 "$command" --help
    grep -q "^  $name  " out || fail "help of $command does not list $name"
  done
  expect 0 completions bash
  grep -q -- "--executor) .*$name[ ']" out || fail "bash does not complete $name"
done
expect 64 completions tcsh
said err 'there are completions for bash zsh fish'
expect 64 plan x.fsdp --dump=grph
said err 'did you mean graph?'
expect 64 check x.fsdp --color sometimes
expect 64 plan
said err 'an operand is missing'
said err "help: fsdpc plan [OPTION]... FILE; 'fsdpc plan --help' says more"
[ "$(wc -l <err)" = 2 ] || fail 'the message is lost among others'
expect 64 plan a.fsdp b.fsdp
said err 'unexpected operand "b.fsdp"'
said err "help: fsdpc plan [OPTION]... FILE; 'fsdpc plan --help' says more"
expect 64 doctor x
said err "help: fsdpc doctor [OPTION]...; 'fsdpc doctor --help' says more"
expect 64 plan -x a.fsdp
said err "help: 'fsdpc plan --help' lists the options"
expect 64 run x.fsdp --ranks 2
said err '--data PATH'
expect 64 run x.fsdp --data x --resume auto
said err 'add --save DIR'
expect 64 run x.fsdp --data x --resume out --init w.safetensors
said err 'give one'
expect 64 run x.fsdp --data x --keep 2
said err 'no effect without --save'
expect 64 run x.fsdp --data x --save-every 3
said err 'no effect without --save'
for both in 'check --json --sarif' 'fmt --check --stdout'; do
  # shellcheck disable=SC2086
  expect 64 $both "$fixtures/gpt-tiny.fsdp"
  said err 'help: give one of them'
  silent out
done
expect 64 generate x.fsdp
said err '--weights DIR'
expect 64 generate x.fsdp --weights out --steps 3
said err "--steps is an option of 'fsdpc run'"

# Operands and options mix; after -- everything is an operand.
expect 1 plan --ranks 2 missing.fsdp --memory=1GiB
said err 'missing.fsdp'
expect 1 check -- --missing.fsdp
said err '--missing.fsdp'

expect 64 run "$root/models/quickstart.fsdp" --backend gpu
said err 'did you mean cuda?'
for command in "run --data $fixtures/tokens.bin" "generate --weights x"; do
  # shellcheck disable=SC2086
  expect 64 $command "$fixtures/gpt-tiny.fsdp" --gemm onedn
  said err 'option --gemm expects onednn, openblas or builtin, but got "onedn"'
  said err 'did you mean onednn?'
done
expect 64 plan "$root/models/quickstart.fsdp" --memory 40gib
said err 'did you mean 40GiB?'
expect 0 doctor
said out 'builtin'
expect 0 doctor --json
"$compare" fields out schema_version findings.name findings.value
RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 expect 0 doctor
said out 'rank 1 of 2, started by torchrun'
RANK=1 expect 0 doctor
said out 'help: launch: RANK or WORLD_SIZE says that torchrun started this process, but WORLD_SIZE is not set'

"$fsdpc" --help >/dev/full 2>err && fail 'writing to a full disk succeeded'
said err 'cannot write'
# As other tools write it.
expect 64 plan "$root/models/gpt2.fsdp" --memory '40 GiB'
said err 'did you mean 40GiB?'
expect 64 plan "$root/models/gpt2.fsdp" --precision bfloat16:fp32
said err 'did you mean bf16:f32?'
expect 64 plan "$root/models/gpt2.fsdp" --precision f64
said err 'help: such as --precision bf16:f32'

# A cluster without a name is no gap in what differs.
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 -o unnamed.plan
expect 0 plan "$fixtures/gpt-tiny.fsdp" --ranks 2 --cluster cpu -o named.plan
expect 0 diff unnamed.plan named.plan
said out 'cluster      (no name) -> cpu'

# Threads by the thousand would only wait for each other; fewer compute the same.
steps() { expect 0 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 2 --data "$fixtures/tokens.bin" --metrics "$2" --quiet --threads "$1"; }
steps 1 one.jsonl
silent err
steps 1000000 many.jsonl
said err 'note: --threads 1000000: '
loss() { grep -o '"loss": [^,]*' "$1"; }
[ "$(loss one.jsonl)" = "$(loss many.jsonl)" ] || fail 'losses depend on the number of threads'
