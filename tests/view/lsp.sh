#!/usr/bin/env bash
# Owns: the language server: what Neovim gets from it (skipped where there is none), and how it bears hostile clients.
#
# usage: lsp.sh [--update] FSDPC
set -euo pipefail
update=0
if [ "${1-}" = --update ]; then update=1 && shift; fi
fsdpc=$(realpath "$1")
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# message JSON: as it goes over the wire.
message() { printf 'Content-Length: %d\r\n\r\n%s' "$(printf '%s' "$1" | wc -c)" "$1"; }

# serve CODE: runs the server on $scratch/in; its answers, one a line, are in $scratch/out.
serve() {
  local code=0
  timeout 60 "$fsdpc" lsp <"$scratch/in" >"$scratch/raw" 2>"$scratch/err" || code=$?
  [ "$code" = "$1" ] || fail "exit code $code, expected $1: $(head -c 400 "$scratch/raw")"
  sed 's/Content-Length: [0-9]*\r$//' "$scratch/raw" | grep -v '^\r*$' >"$scratch/out" || true
}
says() { grep -qF -- "$1" "$scratch/out" || fail "no $1 in: $(cat "$scratch/out")"; }

start='{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"general":{"positionEncodings":["utf-8"]}}}}'
stop='{"jsonrpc":"2.0","id":9,"method":"shutdown"}' leave='{"jsonrpc":"2.0","method":"exit"}'

{ message "$start"; message "$stop"; message "$leave"; } >"$scratch/in"
serve 0
says '"positionEncoding":"utf-8"'
"$fsdpc" lsp --stdio <"$scratch/in" >"$scratch/raw" || fail 'lsp --stdio, as editors start servers, is refused'
{ message "$start"; message "$leave"; } >"$scratch/in"
serve 1 # exit without shutdown
{ message '{"jsonrpc":"2.0","id":1,"method":"textDocument/hover","params":{}}'; message "$leave"; } >"$scratch/in"
serve 1
says '"code":-32002'
{ message '{broken'; message "$start"; message '{"jsonrpc":"2.0","id":2,"method":"no/such"}'; message '[]'; message 'null'
  message '{"jsonrpc":"2.0","id":3,"method":"textDocument/hover","params":{"textDocument":{"uri":"file:///none"},"position":{"line":-5,"character":99999999}}}'
  message '{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///no%2","text":"model x {"}}}'
  message '{"jsonrpc":"2.0","id":4,"method":"textDocument/completion","params":{"textDocument":{"uri":"file:///no%2"},"position":{"line":9,"character":9}}}'
  message "$stop"; message "$leave"; } >"$scratch/in"
serve 0
says '"code":-32700'
says '"code":-32601'
says '"id":3,"result":null'
says '"textDocument/publishDiagnostics"'
printf 'Content-Length: 99999999999\r\n\r\n' >"$scratch/in"
serve 1
grep -q 'no message of an editor' "$scratch/err" || fail "nothing is said of lost framing: $(cat "$scratch/err")"
printf 'Content-Length: 20\r\n\r\n{"cut":' >"$scratch/in"
serve 1
head -c 20000 /dev/urandom >"$scratch/in"
serve 1
echo foo >"$scratch/in"
serve 1
grep -q 'no message of an editor' "$scratch/err" || fail "nothing is said of what is no header: $(cat "$scratch/err")"
: >"$scratch/in"
serve 1
grep -q 'the input ended before a shutdown was asked for' "$scratch/err" || fail "nothing is said of an end without shutdown: $(cat "$scratch/err")"

# Positions count UTF-16 units unless the client asks otherwise: the error stands behind an emoji and an umlaut.
text='model m {\n  input t: int[batch, 4]\n  # a\n  loss = cross_entropy(linear(t, 3), missing) # \u00fc\n}\n'
{ message "${start/'"utf-8"'/'"utf-16"'}"
  message '{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file://'"$PWD"'/lsp/model.fsdp","text":"'"$text"'"}}}'
  message "$stop"; message "$leave"; } >"$scratch/in"
serve 0
says '"positionEncoding":"utf-16"'
says '"start":{"line":3,"character":37}'

# ask TEXT: what is offered at its end, in $scratch/out.
ask() {
  { message "$start"
    message '{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file://'"$PWD"'/lsp/model.fsdp","text":"'"${1//\"/\\\"}"' "}}}'
    message '{"jsonrpc":"2.0","id":9,"method":"textDocument/completion","params":{"textDocument":{"uri":"file://'"$PWD"'/lsp/model.fsdp"},"position":{"line":0,"character":'"${#1}"'}}}'
    message "$stop"; message "$leave"; } >"$scratch/in"
  serve 0
}

# labels KIND: those of that kind among what is offered, one a line.
labels() { grep -o '"label":"[^"]*","kind":'"$1"'[,}]' "$scratch/out" | cut -d'"' -f4 || true; }

# The keys that are offered are those that the frontend names when it is given another.
while read -r block; do
  ask "$block"
  printf 'model m {\n  input t: int[batch, 4]\n  loss = cross_entropy(embedding(t, 3, 3), t)\n}\n%s zzz%s\n' "$block" "$(tr -dc '{' <<<"$block" | tr '{' '}')" >"$scratch/keys.fsdp"
  known=$("$fsdpc" check "$scratch/keys.fsdp" 2>&1 | sed -n 's/^help: its keys are //p' | head -1 | tr -d ',' | tr ' ' '\n' | sort || true)
  [ -n "$known" ] && [ "$known" = "$(labels 10 | sort)" ] || fail "keys of $block: offered $(labels 10), known $known"
done <<'BLOCKS'
train {
train { optimizer adamw {
train { optimizer sgd {
train { optimizer lion {
train { optimizer adafactor {
train { loss_scale {
cluster {
cluster { device cpu {
cluster { device gpu {
cluster { device gpu { product linear_fwd {
cluster { device gpu { attention attention_bwd {
cluster { node {
cluster { network {
plan {
plan { executor pytorch-fsdp2 eager {
BLOCKS

# A model may be called like a block of settings: layers are offered in it, not keys.
for name in network attention train plan; do
  ask "model $name {"
  says '"label":"linear"'
  [ -z "$(labels 10)" ] || fail "keys are offered in a model called $name: $(labels 10)"
done

# What is offered behind a key may stand there: so many words.
while read -r block key count; do
  ask "$block { $key "
  labels 12 >"$scratch/values"
  [ "$(wc -l <"$scratch/values")" = "$count" ] || fail "behind $key: $(cat "$scratch/values")"
  while read -r value; do
    case $value in *:) value+=1 ;; esac
    body="$block { $key $value }"
    [ "$key" != device ] || body="cluster { use \"clusters/cpu.fsdp\" device $value { } }"
    [ "$key" != optimizer ] || body="train { optimizer $value { lr 1e-3 } }"
    printf 'model m {\n  input t: int[batch, 4]\n  loss = cross_entropy(embedding(t, 3, 3), t)\n}\n%s\n' "$body" >"$scratch/values.fsdp"
    "$fsdpc" check "$scratch/values.fsdp" >"$scratch/said" 2>&1 || fail "$body: $(cat "$scratch/said")"
  done <"$scratch/values"
done <<'KEYS'
train optimizer 4
train precision 3
train order 2
train steps 0
cluster device 2
plan strategy 6
plan wrap 4
plan checkpoint 3
plan prefetch 1
plan micro_batch 1
plan reshard 3
plan gather 3
plan reduce 3
plan offload 2
plan executor 12
plan save 0
plan memory 0
KEYS
# Inside every block that the frontend reads, an executor's under each of its names.
while IFS='|' read -r head key; do
  ask "$head"
  says "\"label\":\"$key\""
done <<'HEADS'
train { optimizer lion { |betas
train { optimizer adafactor { |threshold
train { loss_scale { |backoff
plan { executor pytorch-fsdp2 { |states
plan { executor pytorch-fsdp1-2022 { |states
plan { executor pytorch-fsdp2 compiled { |loss_chunks
plan { wrap |block
plan { wrap size:100M strategy sha|shard_optim
plan { wrap block |checkpoint
plan { executor |pytorch-fsdp2-eager
train { precision bf16 |clip
plan { unit a { head } |strategy
plan { executor pytorch-fsdp2 { states |bf16
plan { executor pytorch-fsdp2 { packed |yes
cluster { device gpu { generation |hopper
HEADS

# Where patterns and file names stand nothing is known.
while IFS= read -r head; do
  ask "$head"
  says '"id":9,"result":[]'
done <<'HEADS'
plan { unit a { h.
plan { save h.
cluster { use "clus
# mod
HEADS

command -v nvim >/dev/null || { [ "$update" = 0 ] && echo "no Neovim here: its part is skipped" && exit 0; }
FSDPC=$fsdpc FSDPC_DOCUMENT=$PWD/lsp/model.fsdp XDG_STATE_HOME=$scratch XDG_CACHE_HOME=$scratch timeout 100 \
  nvim --headless --clean -n -c 'luafile lsp/client.lua' >"$scratch/said" 2>&1 || fail "Neovim: $(cat "$scratch/said")"
sed 's/\r$//' "$scratch/said" >"$scratch/now"
if [ "$update" = 1 ]; then
  cp "$scratch/now" lsp/neovim.golden
else
  diff -u lsp/neovim.golden "$scratch/now" || fail "Neovim is told something else"
fi
