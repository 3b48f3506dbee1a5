#!/usr/bin/env bash
# Owns: the examples of --help and the commands of README.md and of docs/questions.md's exports are commands that work, one after the
# other, with the files that they name.
source "$(dirname "$0")/lib.sh"

for folder in models docs build; do mkdir -p "$folder"; done
cp -r "$root"/models/. models && ln -s "$fsdpc" build/fsdpc
export PATH=$scratch/build:$PATH

# What the examples of sweeps, of machines and of trained or published models take is not here, or takes minutes.
elsewhere='^fsdpc (tune|profile|import|lsp)|out/step-00001000|train\.bin|^source |~/|man -l|cmake|tools/'

# works LINE: the command, training but few steps.
works() {
  local line=$1
  case $line in *--save*) rm -rf out ;; esac # a fresh start wants a fresh folder
  case $line in *' run '*) line=${line/ run / run --threads 1 } && [[ $line == *--steps* ]] || line="$line --steps 2" ;; esac
  bash -c "${line/--steps [0-9]*/--steps 2}" >said 2>err </dev/null || { cat err >&2 && fail "an example: $1 ($line)"; }
  count=$((count + 1))
}
count=0

# Files of one's own, as they are called there.
cp models/quickstart.fsdp model.fsdp
cp /usr/share/common-licenses/GPL-3 text.txt
fsdpc plan models/quickstart.fsdp --ranks 2 -o before.plan >said
fsdpc plan models/quickstart.fsdp --ranks 2 --wrap block -o after.plan >said
fsdpc plan models/quickstart.fsdp --ranks 2 -o my.plan >said
fsdpc run my.plan --data text.txt --steps 1 --trace step.json --save out --threads 1 --quiet

while IFS= read -r line; do works "${line%%    #*}"; done < <(sed -n '/^Then:/,/^To see/p' "$root/README.md" | grep '^build/fsdpc ')
for command in $("$fsdpc" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  while IFS= read -r line; do works "$line"; done < <("$fsdpc" "$command" --help | sed -n '/^Examples:/,/^$/s/^  //p' | grep -vE "$elsewhere")
done
while IFS= read -r line; do works "$line"; done < <(sed -n '/^## From the answer to PyTorch/,$s/^fsdpc /&/p' "$root/docs/questions.md")
[ "$count" -ge 34 ] || fail "only $count examples were found"

# No name runs into what is said of it.
fsdpc --help >said
[ -z "$(sed -n '/^Commands:/,/^$/p' said | grep -vE '^(Commands:|)$|^  [a-z]+ .{0,9}[a-z]' || true)" ] || fail 'the list of commands'
