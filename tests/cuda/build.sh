#!/usr/bin/env bash
# Owns: the build with CUDA on a machine without a GPU: nothing is warned about, the program links, and says what is
# missing. Run as: build.sh CMAKE. Exit code 77 without nvcc.
set -euo pipefail
cmake=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
command -v nvcc >/dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo 'no nvcc: skipped' && exit 77; }

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

"$cmake" -S "$root" -B "$scratch/build" -DFSDPC_CUDA=ON -DFSDPC_TESTS=ON >"$scratch/log" 2>&1 || { cat "$scratch/log" && exit 1; }
"$cmake" --build "$scratch/build" -j2 --target fsdpc test_cuda_kernels_device >"$scratch/log" 2>&1 || { tail -n 50 "$scratch/log" && exit 1; }
! grep -i warning "$scratch/log" || fail 'the compiler warns'

# Planning and the CPU load none of CUDA's libraries; they come with the backend.
! ldd "$scratch/build/fsdpc" | grep -iE 'cuda|cublas|nccl|cudnn' || fail 'a library of CUDA is linked in'
"$scratch/build/fsdpc" run "$root/tests/fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --quiet --data "$root/tests/fixtures/tokens.bin"
"$scratch/build/fsdpc" doctor >"$scratch/out"
grep -q 'CUDA runtime' "$scratch/out" || fail 'doctor says nothing of CUDA'

# Without a driver: exit 1, and what to do.
if ! ldconfig -p | grep -q libcuda.so.1; then
  code=0
  "$scratch/build/fsdpc" run "$root/tests/fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --backend cuda \
    --data "$root/tests/fixtures/tokens.bin" 2>"$scratch/err" || code=$?
  [ "$code" = 1 ] || fail "exit code $code without a driver"
  grep -q 'no NVIDIA driver here' "$scratch/err" || fail 'it does not say that there is no driver'
fi
