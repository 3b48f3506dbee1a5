#!/usr/bin/env bash
# Owns: what is generated from the option table: completions that their shells accept and that complete, a man page without
# warnings, SARIF with the members that consumers require.
#
# usage: pages.sh FSDPC
set -euo pipefail
fsdpc=$(realpath "$1")
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# completed WORD...: what bash offers for the last word.
completed() {
  # shellcheck disable=SC2034
  COMP_WORDS=(fsdpc "$@") COMP_CWORD=$# COMPREPLY=()
  _fsdpc
  printf '%s ' "${COMPREPLY[@]}"
}

"$fsdpc" completions bash >"$scratch/bash"
# shellcheck disable=SC1091
source "$scratch/bash"
[ "$(completed expl)" = 'explain ' ] || fail "a command is not completed: $(completed expl)"
[ "$(completed plan --mem)" = '--memory ' ] || fail "an option is not completed"
[ "$(completed plan --checkpoint f)" = 'full ' ] || fail "a value is not completed"
[ "$(completed explain --why x)" = ' ' ] || fail "files offered for a name"
[ "$(completed check READ)" = 'README.md ' ] || fail "a file is not completed"
"$fsdpc" completions zsh >"$scratch/zsh"
"$fsdpc" completions fish >"$scratch/fish"
if command -v zsh >/dev/null; then zsh -n "$scratch/zsh" || fail "zsh"; fi
if command -v fish >/dev/null; then fish --no-execute "$scratch/fish" || fail "fish"; fi
grep -q "'--memory=\[" "$scratch/zsh" || fail "zsh lacks --memory"
grep -q -- '-l memory' "$scratch/fish" || fail "fish lacks --memory"
for command in $("$fsdpc" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
  grep -q "^    $command)" "$scratch/bash" || fail "bash does not know $command"
done

"$fsdpc" man >"$scratch/fsdpc.1"
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww "$scratch/fsdpc.1" >"$scratch/page" 2>"$scratch/warnings"
  [ ! -s "$scratch/warnings" ] || fail "groff: $(head -3 "$scratch/warnings")"
fi
grep -q 'detailed\\-exitcode' "$scratch/fsdpc.1" || fail "the man page lacks an option"

printf 'model m {\n  input t: int[batch, 4]\n  # \xc3\xa9\n  loss = cross_entropy(linear(t, 3) as \xc3\xa9, t)\n}\n' >"$scratch/bad.fsdp"
code=0
"$fsdpc" check "$scratch/bad.fsdp" --sarif >"$scratch/sarif" || code=$?
[ "$code" = 1 ] || fail "check --sarif exits with $code"
for member in '"version": "2.1.0"' '"name": "fsdpc"' '"columnKind": "unicodeCodePoints"' '"startLine": 4' '"level": "error"'; do
  grep -qF "$member" "$scratch/sarif" || fail "SARIF lacks $member"
done
"$fsdpc" check models/gpt2.fsdp --sarif | grep -qF '"results": []' || fail "SARIF of a good file"
