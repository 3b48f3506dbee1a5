#!/usr/bin/env bash
# Owns: the compiler has no choice which products of an optimizer's update to fuse with additions, seen in its PTX, so that all its
# instantiations, and the last elements of a parameter, are computed alike. Run as: contraction.sh NVCC.
set -euo pipefail
nvcc=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compile() { # FILE FUSES
  "$nvcc" -std=c++17 -O3 -fmad="$2" -I"$root" -arch=compute_90 -ptx "$root/kernels/cuda/$1.cu" -o "$scratch/$1.$2.ptx" 2>"$scratch/log" ||
    { cat "$scratch/log" >&2 && exit 1; }
}
updates() { awk '/\.entry / { on = /update_kernel/ } on' "$1"; } # PTX

for file in optimizer adafactor; do
  # What nvcc fuses by itself it does not where it is told to fuse nothing.
  for fuses in true false; do
    compile $file $fuses
    updates "$scratch/$file.$fuses.ptx" | grep '\.f32' | sed 's/\.rn\././; s/%[a-z]*[0-9]*/%/g' >"$scratch/$fuses"
  done
  cmp "$scratch/true" "$scratch/false" || { echo "FAILED: nvcc fuses products and additions of $file.cu" && exit 1; }
  # And ptxas may fuse a product, other than mul.rn, with an addition of it.
  updates "$scratch/$file.true.ptx" | tr -d ',;' | awk -v file=$file '
    /\.entry / { split("", product); kernels++ }
    $1 == "mul.f32" { product[$2] = 1; products++ }
    $1 ~ /^(add|sub)\.f32$/ && (product[$3] || product[$4]) { print "FAILED: " file ".cu: a product may be fused, or not: " $0; bad = 1; exit }
    END { if (!bad) printf "%s.cu: %d updates, %d products\n", file, kernels, products; exit bad || kernels < 7 || products < 7 }'
done
