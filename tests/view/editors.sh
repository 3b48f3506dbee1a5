#!/usr/bin/env bash
# Owns: the editors' grammars know every layer of frontend/layers.def and every key that completion offers.
set -euo pipefail
cd "$(dirname "$0")/../.."
vim=docs/editors/vim/syntax/fsdp.vim textmate=docs/editors/fsdp.tmLanguage.json
for word in $(sed -n 's/^LAYER([A-Z_]*, *"\([a-z_]*\)".*/\1/p' frontend/layers.def) \
  $(sed -n 's/^    {"[a-z_]*", "\([a-z0-9_ ]*\)"}.*/\1/p' cli/lsp_completion.c) \
  $(sed -n 's/^static const char \*const keywords\[\] = {\(.*\)};/\1/p' cli/lsp_completion.c | tr -d '",'); do
  for grammar in "$vim" "$textmate"; do
    grep -qwE -- "$word" "$grammar" || { echo "FAILED: $grammar does not know $word" >&2 && exit 1; }
  done
done
if vim --version 2>/dev/null | grep '+syntax' >/dev/null; then # small ones have none
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  timeout 30 vim -es -u NONE -c 'syntax on' -c "source $vim" -c 'read models/quickstart.fsdp' -c "source $vim" -c \
    "redir! > $scratch/kinds | call search('optimizer') | echo synIDattr(synID(line('.'), col('.'), 1), 'name') | call search('3e-3') | echo synIDattr(synID(line('.'), col('.'), 1), 'name') | redir END" \
    -c 'qa!' </dev/null >/dev/null 2>&1 || true
  kinds=$(cat "$scratch/kinds")
  [[ $kinds == *fsdpBlock*fsdpNumber* ]] || { echo "FAILED: vim sees $kinds" >&2 && exit 1; }
fi
