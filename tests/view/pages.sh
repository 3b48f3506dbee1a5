#!/usr/bin/env bash
# Owns: what is generated from tables: a man page without warnings, SARIF with the members that consumers require. Completions are tried in
# cli/completions.sh.
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
odd="$scratch/a \"b%#?"$'\xc3\xa9\xff'.fsdp
cp "$scratch/bad.fsdp" "$odd"
"$fsdpc" check "$odd" --sarif >"$scratch/sarif" || code=$?
grep -qF '/a%20%22b%25%23%3F%C3%A9%FF.fsdp"' "$scratch/sarif" || fail "a URI is not percent-encoded: $(grep uri "$scratch/sarif")"
"$fsdpc" check models/gpt2.fsdp --sarif | grep -qF '"results": []' || fail "SARIF of a good file"
