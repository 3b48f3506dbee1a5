#!/usr/bin/env bash
# Owns: the scripts under tools/. quickstart.sh, given again: what it trained before it trains anew, and what another run left it leaves
# alone; packages and the build are taken to be there, and the model is a small one. Each script says what it does before it does it.
source "$(dirname "$0")/lib.sh"
mkdir -p clone/tools clone/models clone/build bin
cp "$root"/tools/{quickstart,common}.sh clone/tools/
ln -s "$fsdpc" clone/build/fsdpc
sed 's/vocab = 67/vocab = 256/' "$fixtures/gpt-tiny.fsdp" >clone/models/quickstart.fsdp
printf '#!/bin/sh\nexit 0\n' >bin/cmake
printf '#!/bin/sh\necho installed\n' >bin/dpkg-query
chmod +x bin/*
export PATH=$PWD/bin:$PATH
head -c 20000 "$root/README.md" >text.txt

quickstart() { # CODE ARGUMENT...
  local want=$1 got=0
  shift
  clone/tools/quickstart.sh --data text.txt "$@" >out 2>err </dev/null || got=$?
  [ "$got" = "$want" ] || { cat err >&2 && fail "quickstart.sh $*: exit code $got"; }
}
quickstart 0 --steps 12
said err 'training with 2 ranks'
quickstart 0 --steps 12
said err 'already trained'
quickstart 0 --steps 16
said err 'training with 2 ranks'
quickstart 0 --steps 16 --force
[ "$(echo clone/out/quickstart/step-*)" = clone/out/quickstart/step-00000016 ] || fail 'an earlier training was mixed in'

expect 0 run clone/models/quickstart.fsdp --ranks 1 --steps 4 --data text.txt --save own --quiet
quickstart 1 --out own
said err 'own/step-00000004 is of an earlier run'
[ -e own/step-00000004/checkpoint.json ] && [ -e own/model.safetensors ] || fail "another run's checkpoint was removed"

# --- asked for help, a script does nothing else: here nothing of what it would need is there
mkdir asked && cp "$root"/tools/*.sh asked
for script in against-pytorch against-published bench budgets gaps gpu-check pictures policies quickstart scaling test; do
  asked/$script.sh --help >out 2>err </dev/null || [ $? = 64 ] || fail "$script.sh --help: exit code $?"
  cat out err | grep -q "tools/$script.sh\|Owns: " || { cat out err >&2 && fail "$script.sh --help says nothing of it"; }
  [ "$(ls asked)" = "$(ls "$root/tools" | grep 'sh$')" ] || fail "$script.sh --help left something"
done
