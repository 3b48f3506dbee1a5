#!/usr/bin/env bash
# Owns: the source tarball: the tracked files and the generated scanner and parser, so that it builds without Flex and
# Bison. Run by the target `dist`:  tools/dist.sh VERSION BUILD-FOLDER  writes BUILD-FOLDER/fsdpc-VERSION.tar.gz.
set -euo pipefail
version=${1:?version} build=$(realpath "${2:?build folder}")
root=$(cd "$(dirname "$0")/.." && pwd)
name=fsdpc-$version
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cd "$root"

# Tracked files, with their changes; outside a clone (a tarball of a tarball) everything but builds and outputs.
sources() {
  if [ -e .git ] && git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z
  else
    find . -type f -not -path './.git*' -not -path './build*' -not -path './out/*' -printf '%P\0'
  fi
}
sources | while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done >"$stage/list"
mkdir "$stage/$name"
tar -c --null -T "$stage/list" | tar -x -C "$stage/$name"

# From the build, unless the sources brought them. #line must not name folders of this machine.
generated=$root/frontend/generated
[ -e "$generated/parser.c" ] || generated=$build/frontend/generated
mkdir -p "$stage/$name/frontend/generated"
for file in lexer.c lexer.h parser.c parser.h; do
  sed "s,\"$root/,\",; s,\"$build/,\"," "$generated/$file" >"$stage/$name/frontend/generated/$file"
done

# The same sources give the same bytes.
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
tar -c --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" -C "$stage" "$name" | gzip -n >"$build/$name.tar.gz"
echo "$build/$name.tar.gz"
