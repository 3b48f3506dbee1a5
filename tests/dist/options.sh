#!/usr/bin/env bash
# Owns: an option of the build that is none of AUTO, ON and OFF is refused: "off" would look for what it was to leave out, "yes" would do
# without what it was to insist on.
#
#   options.sh CMAKE
set -euo pipefail
cmake=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for wrong in FSDPC_CUDA=off FSDPC_MPI=yes; do
  ! "$cmake" -S "$root" -B "$scratch/build" -DFSDPC_CUDA=OFF -D$wrong >"$scratch/log" 2>&1 || { echo "accepted: $wrong" && exit 1; }
  grep -q "${wrong%=*} is \"${wrong#*=}\", but must be AUTO, ON or OFF" "$scratch/log" || { cat "$scratch/log" && exit 1; }
done
