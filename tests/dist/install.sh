#!/usr/bin/env bash
# Owns: an installation stands on its own: it plans the models that came with it, from any folder, also after it was moved.
#
#   install.sh BUILD-FOLDER CMAKE
set -euo pipefail
build=$1 cmake=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset FSDPC_MODELS

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
mv "$scratch/first" "$scratch/moved to"
fsdpc="$scratch/moved to/bin/fsdpc" models="$scratch/moved to/share/fsdpc/models"
for file in "$models/../../man/man1/fsdpc.1" "$models/families/gpt2.fsdp" "$models/clusters/dgx-h100.fsdp"; do
  [ -e "$file" ] || fail "$file was not installed"
done
# Messages name pages of the documentation as the source tree has them.
for file in README.md docs/language.md docs/cost-model.md docs/images/figure2-units.svg; do
  [ -e "$models/../../doc/fsdpc/$file" ] || fail "$file was not installed"
done
"$fsdpc" doctor | grep -qF "$models" || fail "doctor does not name $models"

# A name that only the installation has, so that the source tree cannot stand in for it.
mv "$models/gpt2.fsdp" "$models/only-here.fsdp"
cd "$scratch"
"$fsdpc" plan only-here.fsdp --ranks 8 --cluster dgx-h100 --wrap block >plan || fail "the installed models are not found"
grep -q '^Plan: .*fits$' plan || { cat plan && fail "no plan"; }
FSDPC_MODELS=$scratch/none "$fsdpc" check only-here.fsdp 2>said && fail "FSDPC_MODELS does not come first"
grep -qF "the models folder, $scratch/none, is not there" said || { cat said && fail "no reason"; }
"$fsdpc" plan models/only-here.fsdp 2>said && fail "a path of another folder is found"
grep -qF "the models folder, $models, has it as \"only-here.fsdp\"" said || { cat said && fail "no remedy"; }
