#!/usr/bin/env bash
# Owns: every CUDA kernel loads and stores device memory 16 bytes at a time, seen in its PTX, or stands in the table below with
# the reason; and no activation of 16 bits divides with correct rounding, which is slow and does not show.
# Instantiations for rows that are not aligned (an argument 1) have single accesses. Run as: accesses.sh NVCC.
set -euo pipefail
nvcc=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# file:kernel (a pattern); what is narrower: loads, stores; why
cat >"$scratch/exempt" <<'EOF'
adafactor:(grid|rates)_kernel\(             loads,stores  a few numbers a parameter
adafactor:(average|row_scale)_kernel\(      loads,stores  moments lie at any multiple of 4; rows + columns of them
adafactor:sums_kernel<                      stores        sums go out by atomics
adafactor:update_kernel<bf16, bf16          loads,stores  four elements of 16 bits
adafactor:update_kernel<float, bf16         stores        the same
attention:forward_kernel<(bf16|f16),        loads,stores  four elements of 16 bits, in arithmetic of f32: shapes that tensor cores do not take
attention_bwd:(query|key)_kernel<(bf16|f16) loads,stores  the same
attention_bwd:delta_kernel<                 stores        one number for eight threads
attention_hopper_bwd:prepare_kernel<        stores        two numbers for eight threads
loss:sum_kernel\(                           loads,stores  one number a row
narrow:narrow_forward_kernel<               stores        one number a row and output
norm:piece_kernel<                          loads,stores  a thread a column, or few threads would be left
optimizer:(carry|clip|scale_count|clip_scaled)_kernel\( loads,stores a few numbers
step:(input|advance)_kernel\(               loads,stores  tokens
tree_sum:(tree_f64|integer)_kernel\(        loads,stores  a few numbers
EOF

compile() {
  local arch=compute_90
  [[ $1 != *_hopper*.cu ]] || arch=compute_90a
  "$nvcc" -std=c++17 -O3 -I"$root" -arch=$arch -ptx "$1" -o "$scratch/$(basename "$1" .cu).ptx" 2>"$scratch/$(basename "$1").log" ||
    { cat "$scratch/$(basename "$1").log" >&2 && exit 1; }
}
for file in "$root"/kernels/cuda/*.cu; do
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
  compile "$file" &
done
for job in $(jobs -p); do wait "$job"; done

# A line a kernel: what of it is narrow ("-": nothing), then file:kernel.
for ptx in "$scratch"/*.ptx; do
  awk -v file="$(basename "$ptx" .ptx)" '
    function wide() { return /v4\.[a-z]*32|v2\.[a-z]*64/ }
    function finish() {
      if (name == "") return
      narrow = loads && !wide_loads ? "loads" : ""
      if (stores && !wide_stores) narrow = narrow (narrow == "" ? "" : ",") "stores"
      if (divisions && file == "activation" && name ~ /nv_bfloat16|__half/) narrow = narrow (narrow == "" ? "" : ",") "divisions"
      printf "%s %s:%s\n", narrow == "" ? "-" : narrow, file, name
    }
    /\.entry / { finish(); name = $0; sub(/.*\.entry /, "", name); sub(/\(.*/, "", name); loads = stores = wide_loads = wide_stores = divisions = 0 }
    /(div|rcp)\.rn\.f32/ { divisions++ }
    /ld\.global/ { loads++; wide_loads += wide() }
    /cp\.async\.c[ag]\.shared\.global/ { loads++; wide_loads += /cp\.async\.cg/ } # by which only 16 bytes go
    /st\.global/ { stores++; wide_stores += wide() }
    END { finish() }' "$ptx"
done | sed 's/ \([a-z_]*\):\(_Z.*\)$/ \2 \1/' | c++filt |
  sed -E 's/^([^ ]*) (.*) ([a-z_]*)$/\1 \3:\2/; s/:(static )?void /:/; s/__nv_bfloat16/bf16/g; s/__half/f16/g' >"$scratch/kernels"

awk '
  FNR == NR { pattern[++n] = $0; sub(/ +(loads|stores).*/, "", pattern[n]); what[n] = $0
              match(what[n], / (loads,stores|loads|stores) /); what[n] = substr(what[n], RSTART + 1, RLENGTH - 2); next }
  { narrow = $1; sub(/^[^ ]* /, ""); kernels++ }
  narrow == "-" || /[<,] ?1[,>]/ { next }
  { left = narrow
    for (i = 1; i <= n; i++) if ($0 ~ "^" pattern[i] && index(what[i], narrow)) { used[i] = 1; left = "" }
    if (left != "") { print "FAILED: narrow or slow " left ": " $0; bad = 1 } }
  END {
    for (i = 1; i <= n; i++) if (!used[i]) { print "FAILED: the table exempts what needs it not: " pattern[i]; bad = 1 }
    if (kernels < 100) { print "FAILED: only " kernels + 0 " kernels were found"; bad = 1 }
    printf "%d kernels\n", kernels
    exit bad }' "$scratch/exempt" "$scratch/kernels"
