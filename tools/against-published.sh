#!/usr/bin/env bash
# Owns: predictions beside published measurements. Each run of a CSV (columns of docs/cost-model.md) becomes a model, a cluster and a
# pinned policy, is predicted under its executor, and is compared: one line a metric, then median and worst by source.
#   tools/against-published.sh published.csv [--keep DIR]
set -euo pipefail
export LC_ALL=C # numbers with points, also where people write them with commas
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fsdpc=${FSDPC:-$here/../build/fsdpc}
[ $# -ge 1 ] && [ "$1" != --help ] || { printf 'Usage: tools/against-published.sh FILE.csv [--keep DIR]\nFSDPC=path names the compiler.\n' >&2; exit 64; }
csv=$1
out=$(mktemp -d)
if [ "${2:-}" = --keep ]; then rm -rf "$out"; out=$3; mkdir -p "$out"; else trap 'rm -rf "$out"' EXIT; fi

readers=() # each reads what those before it do not
for part in cells origin boards policy executor models doubts write rows; do readers+=(-f "$here/published/$part.awk"); done
awk -v out="$out" "${readers[@]}" "$csv" >"$out/manifest"
while IFS=$'\t' read -r id _; do
  code=0
  "$fsdpc" predict "$out/$id.fsdp" --json >"$out/$id.json" 2>"$out/$id.err" || code=$?
  [ $code = 0 ] || [ $code = 3 ] || { printf 'error: %s: exit %d\n' "$id" $code && cat "$out/$id.err"; } >&2
done <"$out/manifest"
awk -v out="$out" -f "$here/published/compare.awk" "$out/manifest"
