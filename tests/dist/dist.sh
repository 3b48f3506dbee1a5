#!/usr/bin/env bash
# Owns: the source tarball builds its frontend on a machine that has neither Flex nor Bison.
#
#   dist.sh VERSION BUILD-FOLDER CMAKE
set -euo pipefail
version=$1 build=$2 cmake=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
bin=$(TMPDIR=/tmp mktemp -d) # make calls itself, and bears no blanks there
trap 'rm -rf "$scratch" "$bin"' EXIT

tarball=$("$root/tools/dist.sh" "$version" "$build" | tail -n 1)
tar -xzf "$tarball" -C "$scratch"
! grep -rlF "$root" "$scratch/fsdpc-$version/frontend" || { echo 'the tarball names a folder of this machine' && exit 1; }

# A PATH with everything but the two.
IFS=: read -ra folders <<<"$PATH"
for folder in "${folders[@]}"; do
  for program in "$folder"/*; do
    case ${program##*/} in flex* | bison* | lex | yacc) continue ;; esac
    [ ! -x "$program" ] || ln -sf "$program" "$bin/${program##*/}" 2>/dev/null || true
  done
done
export PATH=$bin
! command -v flex && ! command -v bison || { echo 'flex or bison is still there' && exit 1; }

"$cmake" -S "$scratch/fsdpc-$version" -B "$scratch/build" -DCMAKE_BUILD_TYPE=Debug -DFSDPC_CUDA=OFF >"$scratch/log" 2>&1 ||
  { cat "$scratch/log" && exit 1; }
"$cmake" --build "$scratch/build" --target frontend >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
[ -e "$scratch/build/frontend/libfrontend.a" ] || { echo 'no frontend was built' && exit 1; }
echo "built the frontend from $(basename "$tarball")"
