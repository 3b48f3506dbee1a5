#!/usr/bin/env bash
# Owns: everything worth knowing about the CUDA backend on a machine with a GPU, in at most 8 minutes: builds, compares
# kernels with float64, trains the same tiny models on CPU and GPU, several ranks on one GPU, compute-sanitizer, and the
# GPT-2 124M benchmark. Writes a table to out/gpu-check.md; copy it into docs/gpu-results.md.
#
#   tools/gpu-check.sh                builds in build-gpu/ (needs nvcc, CMake, jansson; with cmocka also the kernel tests)
#   tools/gpu-check.sh --build DIR    uses what was built there
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=
while [ $# -gt 0 ]; do
  case $1 in
  --build) build=$(realpath "${2:?--build DIR}") && shift 2 ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 64 ;;
  esac
done

limit=470 # seconds for the whole
begin=$SECONDS
table=$root/out/gpu-check.md
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$root/out"
failures=0

left() { echo $((limit - (SECONDS - begin) > 1 ? limit - (SECONDS - begin) : 1)); }
row() { printf '| %s | %s | %s |\n' "$1" "$2" "$3" | tee -a "$table"; }

# check NAME COMMAND...: one row, "ok" or what went wrong, and the last line said.
check() {
  local name=$1 code=0 said
  shift
  timeout "$(left)" bash -c '"$@"' check "$@" >"$scratch/out" 2>&1 || code=$? # a shell, since some are functions
  said=$(grep -v '^$' "$scratch/out" | tail -n 1 | tr '|' '/' | cut -c1-120)
  case $code in
  0) row "$name" ok "$said" ;;
  77) row "$name" skipped "$said" ;;
  124) row "$name" "out of time" "" ;;
  *) row "$name" "FAILED ($code)" "$said" && failures=$((failures + 1)) && sed 's/^/    /' "$scratch/out" | tail -n 15 >&2 ;;
  esac
  return "$code"
}

# --- what is here -------------------------------------------------------------------------------------------------------
{
  printf '# GPU check\n\n'
  printf -- '- date: %s\n- commit: %s\n' "$(date -u +%F)" "$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  printf -- '- device: %s\n\n' "$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)"
  printf '| check | result | said |\n|---|---|---|\n'
} >"$table"
if ! nvidia-smi -L >/dev/null 2>&1; then
  row 'a GPU' 'FAILED' 'nvidia-smi finds none: nothing was checked'
  exit 1
fi
# pip's packages, where a toolkit without libraries finds cuBLASLt and NCCL
pip=$(python3 -c "import importlib.util as u; print(list(u.find_spec('nvidia').submodule_search_locations)[0])" 2>/dev/null || true)
for folder in "$pip"/*/lib; do [ -d "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} NO_COLOR=1

# --- build --------------------------------------------------------------------------------------------------------------
make_build() {
  local tests=OFF
  pkg-config --exists cmocka 2>/dev/null && tests=ON
  cmake -S "$root" -B "$build" -DFSDPC_CUDA=ON -DFSDPC_CUDA_ARCHITECTURES=native -DFSDPC_TESTS=$tests &&
    cmake --build "$build" -j"$(nproc)" --target fsdpc &&
    { [ $tests = OFF ] || cmake --build "$build" -j"$(nproc)" --target compare test_cuda_kernels_device; }
}
export -f make_build
export root build scratch
if [ -z "$build" ]; then
  build=$root/build-gpu
  check build make_build || exit 1
fi
fsdpc=$build/fsdpc kernels=$build/tests/cuda/test_cuda_kernels_device
check doctor "$fsdpc" doctor

# --- kernels ------------------------------------------------------------------------------------------------------------
if [ -x "$kernels" ]; then check 'kernels against float64' "$kernels"; else row 'kernels against float64' skipped 'cmocka is missing'; fi

# --- training -----------------------------------------------------------------------------------------------------------
fixtures=$root/tests/fixtures

# train NAME ARGUMENT...
train() {
  local name=$1
  shift
  "$fsdpc" run "$@" --data "$fixtures/tokens.bin" --metrics "$scratch/$name.jsonl" --quiet
}

# agree A B TOLERANCE: losses of every step, without needing jansson or Python.
agree() {
  paste -d' ' <(grep -oE '"loss":[^,]*' "$scratch/$1.jsonl" | cut -d: -f2) \
    <(grep -oE '"loss":[^,]*' "$scratch/$2.jsonl" | cut -d: -f2) |
    awk -v allowed="$3" '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d; n++ }
      END { printf "largest relative difference %.2g over %d steps, allowed %g\n", most, n, allowed; exit !(n > 0 && most <= allowed) }'
}
same() { cmp <(grep -oE '"(loss|grad_norm)":[^,]*' "$scratch/$1.jsonl") <(grep -oE '"(loss|grad_norm)":[^,]*' "$scratch/$2.jsonl") && echo 'equal bits'; }

export -f train agree same
export fsdpc fixtures
for model in gpt-tiny llama-tiny; do
  sed 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/$model.fsdp" >"$scratch/bf16.fsdp"
  train cpu "$fixtures/$model.fsdp" --ranks 1 --steps 50 || failures=$((failures + 1))
  check "$model: f32 trains" train f32 "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda &&
    check "$model: f32 as on the CPU" agree f32 cpu 1e-4
  check "$model: f32 again" train again "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda && check "$model: run to run" same again f32
  FSDPC_CUDA_GRAPH=0 check "$model: without graphs" train eager "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda &&
    check "$model: graph or not" same eager f32
  check "$model: bf16 trains" train bf16 "$scratch/bf16.fsdp" --ranks 1 --steps 50 --backend cuda &&
    check "$model: bf16 near f32" agree bf16 cpu 2e-2
done
# Attention by cuDNN (heads of 64 dimensions, which it takes), beside the own kernels and itself.
sed -e 's/d = 24, heads = 3/d = 128, heads = 2/' -e 's/precision f32 reduce f32/precision bf16 reduce f32/' \
  "$fixtures/gpt-tiny.fsdp" >"$scratch/wide-gpt.fsdp"
sed -e 's/d = 32, heads = 4, kv_heads = 2, head_dim = 8/d = 256, heads = 4, kv_heads = 2, head_dim = 64/' \
  -e 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/llama-tiny.fsdp" >"$scratch/wide-llama.fsdp"
for model in wide-gpt wide-llama; do
  FSDPC_CUDA_ATTENTION=own check "$model: own attention" train own "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda
  FSDPC_CUDA_ATTENTION=cudnn check "$model: cuDNN's attention" train flash "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
    check "$model: cuDNN near own" agree flash own 2e-2 &&
    FSDPC_CUDA_ATTENTION=cudnn check "$model: cuDNN again" train again "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
    check "$model: cuDNN run to run" same again flash
done

# The other optimizers, evaluation in between, generating.
for optimizer in 'lion { lr 1e-3 betas 0.9 0.99 decay 0.1 }' 'adafactor { lr 1e-2 decay 0.1 }'; do
  sed -E "s/optimizer adamw \{[^}]*\}/optimizer $optimizer/" "$fixtures/gpt-tiny.fsdp" >"$scratch/other.fsdp"
  train cpu "$scratch/other.fsdp" --ranks 1 --steps 20 || failures=$((failures + 1))
  check "${optimizer%% *}" train other "$scratch/other.fsdp" --ranks 1 --steps 20 --backend cuda &&
    check "${optimizer%% *} as on the CPU" agree other cpu 1e-4
done
text() { # BACKEND
  "$fsdpc" generate "$scratch/bytes.fsdp" --weights "$scratch/bytes" --prompt 'fsdp and' --tokens 40 --seed 7 --backend "$1"
}
same_text() { cmp <(text cuda) <(text cpu) && echo 'equal bytes'; }
export -f text same_text
sed 's/vocab = 67/vocab = 256/' "$fixtures/gpt-tiny.fsdp" >"$scratch/bytes.fsdp"
check 'training with evaluation' train bytes "$scratch/bytes.fsdp" --ranks 1 --steps 20 --backend cuda --save "$scratch/bytes" \
  --eval "$fixtures/tokens.bin" --eval-every 5 && check 'generates what the CPU does' same_text

for ranks in 2 4; do
  train cpu "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 || failures=$((failures + 1))
  check "$ranks ranks on one GPU" env FSDPC_CUDA_COMM=local "$fsdpc" run "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 \
    --backend cuda --data "$fixtures/tokens.bin" --metrics "$scratch/ranks.jsonl" --quiet && check "$ranks ranks as on the CPU" agree ranks cpu 1e-4
  for strategy in shard_grad_op no_shard; do
    check "$ranks ranks, $strategy" train other "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 --backend cuda --strategy $strategy &&
      check "$ranks ranks, $strategy: same bits" same other ranks
  done
done
if command -v compute-sanitizer >/dev/null; then
  FSDPC_CUDA_GRAPH=0 check 'compute-sanitizer' compute-sanitizer --error-exitcode 1 --target-processes all \
    "$fsdpc" run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 2 --backend cuda --data "$fixtures/tokens.bin" --quiet
else
  row 'compute-sanitizer' skipped 'not installed'
fi

# --- benchmark: GPT-2 124M, bf16 ----------------------------------------------------------------------------------------
cat "$root"/*/*.c "$root"/kernels/*/*.c >"$scratch/text"
# bench MODEL
bench() {
  "$fsdpc" run "$1" --ranks 1 --cluster "$root/models/clusters/dgx-h100.fsdp" --backend cuda --steps 10 \
    --data "$scratch/text" --metrics "$scratch/bench.jsonl" --quiet || return
  grep -oE '"tokens_per_s":[^,}]*' "$scratch/bench.jsonl" | cut -d: -f2 | tail -n 5 | sort -g |
    awk '{ v[NR] = $1 } END { t = v[int((NR + 1) / 2)]; printf "%.0f tokens/s, %.1f %% of 989 TFLOP/s\n", t, t * 0.802e9 / 989e12 * 100 }'
}
export -f bench
# Rows of 50257 logits start anywhere, which slows products down; in chunks the backend aligns them.
cp -r "$root/models" "$scratch/models"
sed -i 's/chunk = none/chunk = 4096/' "$scratch/models/families/gpt2.fsdp"
check 'GPT-2 124M' bench "$root/models/gpt2.fsdp"
check 'GPT-2 124M, loss in chunks' bench "$scratch/models/gpt2.fsdp"

printf '\n%d checks failed; %d s.\n' "$failures" $((SECONDS - begin)) | tee -a "$table"
[ "$failures" = 0 ]
