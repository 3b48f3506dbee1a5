#!/usr/bin/env bash
# Owns: everything worth knowing about the CUDA backend on a machine with a GPU: builds, compares kernels with float64, trains
# the same tiny models on CPU and GPU, several ranks on one GPU, compute-sanitizer, and benchmarks beside PyTorch. Each call
# ends within 8 minutes. Writes a table to out/gpu-check.md, which belongs in docs/gpu-results.md, and what every check said to
# out/gpu-check.log.
#
#   tools/gpu-check.sh [PART...]               builds in build-gpu/ (needs what README.md says, and nvcc; with cmocka also the kernel tests)
#   tools/gpu-check.sh --build DIR [PART...]   uses what was built there
#   tools/gpu-check.sh --pack DIR              on a machine without a GPU: builds for compute 9.0 (where --build says) and puts all
#                                              that a machine with one needs into DIR, so that its time is spent on checks
#
# --alone: benchmarks without PyTorch. --table FILE: somewhere else than out/gpu-check.md.
# --context N: tokens of a sample in the checks of attention, 2048 otherwise. --head-dim N: dimensions of its heads, 64 otherwise.
# --limit N: seconds for the whole, 470 otherwise. --patience N: for a check, 120 otherwise; long ones may take twice that.
# Parts: kernels train attention optimizers ranks sanitizer bench bench-large; all but the last when none is named.
set -uo pipefail
export LC_ALL=C # numbers with points, also where people write them with commas
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build='' pack='' table=$root/out/gpu-check.md context=2048 head_dim=64 limit=470 patience=120 alone='' parts=()
known=(kernels train attention optimizers ranks sanitizer bench bench-large)
usage() { sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 64; }
while [ $# -gt 0 ]; do
  case $1 in
  --alone) alone=yes && shift ;;
  --build) build=$(realpath "${2:?--build DIR}") && shift 2 ;;
  --table) table=${2:?--table FILE} && shift 2 ;;
  --context) context=${2:?--context N} && shift 2 ;;
  --head-dim) head_dim=${2:?--head-dim N} && shift 2 ;;
  --limit) limit=${2:?--limit N} && shift 2 ;;
  --patience) patience=${2:?--patience N} && shift 2 ;;
  --pack) pack=${2:?--pack DIR} && shift 2 ;;
  *)
    case " ${known[*]} " in *" $1 "*) parts+=("$1") && shift ;; *) usage ;; esac
    ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || parts=("${known[@]:0:${#known[@]}-1}")

begin=$SECONDS
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$(dirname "$table")"
log=${table%.md}.log
: >"$log"
failures=0 late=0

left() { echo $((limit - (SECONDS - begin))); }
row() { printf '| %s | %s | %s |\n' "$1" "$2" "$3" | tee -a "$table"; }

# check NAME COMMAND...: one row, "ok" or what went wrong, and the last line said. One that hangs must leave time for the others.
check() {
  local name=$1 code=0 said seconds
  shift
  seconds=$(left)
  [ "$seconds" -le "$patience" ] || seconds=$patience
  if [ "$seconds" -le 0 ]; then
    late=$((late + 1))
    row "$name" 'not run' "after $limit s"
    return 124
  fi
  timeout -k 10 "$seconds" bash -c '"$@"' check "$@" >"$scratch/out" 2>&1 || code=$? # a shell, since some are functions
  printf '== %s (%d)\n%s\n' "$name" "$code" "$(tail -n 300 "$scratch/out")" >>"$log"
  said=$(grep -v '^$' "$scratch/out" | tail -n 1 | tr '|' '/' | cut -c1-120)
  case $code in
  0) row "$name" ok "$said" ;;
  77) row "$name" skipped "$said" ;;
  124 | 137) row "$name" "out of time" "$seconds s; $said" && late=$((late + 1)) ;;
  *) row "$name" "FAILED ($code)" "$said" && failures=$((failures + 1)) && sed 's/^/    /' "$scratch/out" | tail -n 15 >&2 ;;
  esac
  return "$code"
}
check_long() { patience=$((2 * patience)) check "$@"; }

# --- build --------------------------------------------------------------------------------------------------------------
# ARCHITECTURES
make_build() {
  local tests=OFF
  pkg-config --exists cmocka 2>/dev/null && tests=ON
  cmake -S "$root" -B "$build" -DFSDPC_CUDA=ON -DFSDPC_CUDA_ARCHITECTURES="$1" -DFSDPC_TESTS=$tests &&
    cmake --build "$build" -j"$(nproc)" --target fsdpc &&
    { [ $tests = OFF ] || cmake --build "$build" -j"$(nproc)" --target test_cuda_kernels_device; }
}
export -f make_build
export root build scratch

commit() { git -C "$root" describe --always --dirty --exclude '*' 2>/dev/null || echo unknown; }
# Programs, what they were built from, and the libraries that a bare machine lacks.
pack_build() {
  make_build 90-real || return
  mkdir -p "$pack/lib" && cp "$build/fsdpc" "$pack/" && commit >"$pack/commit" || return
  [ ! -x "$build/tests/cuda/test_cuda_kernels_device" ] || cp "$build/tests/cuda/test_cuda_kernels_device" "$pack/" || return
  find "$pack" -maxdepth 1 -type f -executable -exec ldd {} + | awk '/libjansson|libcmocka/ { print $3 }' | sort -u | xargs -r cp -Lt "$pack/lib"
}
if [ -n "$pack" ]; then
  mkdir -p "$pack" && pack=$(realpath "$pack") build=${build:-$root/build-gpu}
  pack_build && du -sh "$pack" && exit 0
  exit 1
fi

# --- what is here -------------------------------------------------------------------------------------------------------
# Where drivers and toolkits leave programs and libraries that need not be on the path: nvidia-smi loads NVML, a run libcuda.
driver=${NVIDIA_HOME:-/usr/local/nvidia}
[ -d "$driver/lib64" ] && export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$driver/lib64"
for folder in "$driver/bin" "${CUDA_HOME:-/usr/local/cuda}/bin" "${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer"; do
  [ -d "$folder" ] && PATH=$PATH:$folder
done
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1)
{
  printf '# GPU check: %s\n\n' "${parts[*]}"
  printf -- '- date: %s\n- commit: %s\n' "$(date -u +%F)" "$(cat "$build/commit" 2>/dev/null || commit)"
  printf -- '- device: %s\n\n' "$gpu"
  printf '| check | result | said |\n|---|---|---|\n'
} >"$table"
if ! nvidia-smi -L >/dev/null 2>&1; then
  row 'a GPU' 'FAILED' 'nvidia-smi finds none: nothing was checked'
  exit 1
fi
# What was packed; and pip's packages, where a toolkit without libraries finds cuBLASLt and NCCL.
pip=$(python3 -c "import importlib.util as u; print(list(u.find_spec('nvidia').submodule_search_locations)[0])" 2>/dev/null || true)
for folder in ${build:+"$build/lib"} ${pip:+"$pip"/*/lib}; do [ -d "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder; done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-} NO_COLOR=1
export FSDPC_CUDA_TIMEOUT=${FSDPC_CUDA_TIMEOUT:-$(((patience + 1) / 2))} # so that a step that hangs says so
if [ -z "$build" ]; then
  build=$root/build-gpu
  patience=$limit check build make_build native || exit 1
fi
fsdpc=$build/fsdpc
devices() {
  "$fsdpc" doctor >"$scratch/doctor" || return
  cat "$scratch/doctor"
  grep -E '^ *(GPU 0|cuDNN|NCCL|cuBLASLt)' "$scratch/doctor" | tr -s ' ' | paste -sd';'
}
export -f devices
export fsdpc
check doctor devices

# --- kernels ------------------------------------------------------------------------------------------------------------
kernels=$build/tests/cuda/test_cuda_kernels_device
[ -x "$kernels" ] || kernels=$build/test_cuda_kernels_device
part_kernels() {
  if [ -x "$kernels" ]; then check_long 'kernels against float64' "$kernels"; else row 'kernels against float64' skipped 'cmocka is missing'; fi
}

# --- training -----------------------------------------------------------------------------------------------------------
fixtures=$root/tests/fixtures

# train NAME ARGUMENT...: on $data
train() {
  local name=$1
  shift
  "$fsdpc" run "$@" --data "$data" --metrics "$scratch/$name.jsonl"
}
write_text() { cat "$root"/*/*.c "$root"/kernels/*/*.c >"$scratch/text"; } # more than fixtures have

losses() { grep '"step":' "$scratch/$1.jsonl" | grep -oE '"loss":[^,}]*' | cut -d: -f2; } # NAME
# agree A B TOLERANCE: losses of every step, without needing jansson or Python. What is no number, or has no counterpart, agrees with nothing.
agree() {
  paste -d' ' <(losses "$1") <(losses "$2") |
    awk -v allowed="$3" '!/^[0-9.e+-]+ [0-9.e+-]+$/ { print "step " NR ": \"" $0 "\" are not two losses"; wrong = 1; exit }
      { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > most) most = d; n++ }
      END { if (wrong) exit 1; printf "largest relative difference %.2g over %d steps, allowed %g\n", most, n, allowed; exit !(n > 0 && most <= allowed) }'
}
# same_of KEYS A B: what the steps have of them, bit by bit.
same_of() {
  local name
  for name in "$2" "$3"; do grep -oE "\"($1)\":[^,}]*" "$scratch/$name.jsonl" >"$scratch/$name.bits" || return; done
  cmp "$scratch/$2.bits" "$scratch/$3.bits" && echo 'equal bits'
}
same() { same_of 'loss|grad_norm' "$@"; } # A B
# same_skips A B: the same steps were skipped, and some were; loss scales are equal, too.
same_skips() {
  same_of 'skipped|loss_scale' "$@" || return
  awk '/"skipped":/ { n++ } /"skipped":true/ { skipped++ } END { printf "%d of %d steps skipped\n", skipped, n; exit !(skipped > 0) }' "$scratch/$1.bits"
}

export -f train losses agree same_of same same_skips
export fixtures data=$fixtures/tokens.bin

# accumulates MODEL: 4 micro-batches a step. With graphs, one is launched for each.
accumulates() {
  local parts=("$fixtures/$1.fsdp" --ranks 1 --steps 20 --micro-batch 2)
  check "$1: micro-batches on the CPU" train parts-cpu "${parts[@]}"
  check "$1: micro-batches" train parts "${parts[@]}" --backend cuda && check "$1: micro-batches as on the CPU" agree parts parts-cpu 1e-4
  FSDPC_CUDA_GRAPH=0 check "$1: micro-batches without graphs" train parts-eager "${parts[@]}" --backend cuda &&
    check "$1: micro-batches, graph or not" same parts-eager parts
}

plan_parts() { "$fsdpc" plan "$scratch/$1.fsdp" --ranks 1 --cluster "$cluster" --micro-batch 2 --reduce micro_batch -o "$scratch/$1.plan"; } # NAME
plan_spared() {
  plan_parts spared && awk '/^ *i[0-9]+ compute recompute / { again++ } /^buf .* activations .* host / { away++ }
    END { printf "%d instructions run again, %d results in host memory\n", again, away; exit !(again > 0 && away > 0) }' "$scratch/spared.plan"
}
# spares_memory MODEL: in bf16, so that weights have a copy, and in micro-batches. Of the model's two blocks one keeps its results in host
# memory, the other computes them again, and all that lasts is in host memory, too: the same bits as with all of it on the device.
spares_memory() {
  local blocks=h
  [ "$1" = gpt-tiny ] || blocks=model.layers
  sed 's/^plan { memory 64MiB }/plan { memory 64MiB checkpoint none offload none }/' "$scratch/bf16.fsdp" >"$scratch/kept.fsdp"
  sed "s/^plan { memory 64MiB }/plan { memory 64MiB host \"$blocks.0\" recompute \"$blocks.1\" offload parameters gradients optimizer activations }/" \
    "$scratch/bf16.fsdp" >"$scratch/spared.fsdp"
  check "$1: plan that keeps all" plan_parts kept && check "$1: all kept" train kept "$scratch/kept.plan" --steps 20 --backend cuda
  check "$1: plan that recomputes and offloads" plan_spared &&
    check "$1: recomputed and offloaded" train spared "$scratch/spared.plan" --steps 20 --backend cuda &&
    check "$1: recomputed and offloaded or not" same spared kept
}

# scales_loss MODEL: f16, whose gradients overflow at first. Scales a seventh smaller or larger would skip the same steps.
scales_loss() {
  sed 's/precision f32 reduce f32/precision f16 reduce f32 loss_scale { init 13e6 interval 4 }/' "$fixtures/$1.fsdp" >"$scratch/f16.fsdp"
  check "$1: f16 on the CPU" train f16-cpu "$scratch/f16.fsdp" --ranks 1 --steps 10
  check "$1: f16" train f16 "$scratch/f16.fsdp" --ranks 1 --steps 10 --backend cuda &&
    check "$1: f16 as on the CPU" agree f16 f16-cpu 2e-2 && check "$1: f16 skips the steps that the CPU does" same_skips f16 f16-cpu
}
export -f plan_parts plan_spared

# races_products MODEL: what won is made of its traits again by the second run.
races_products() {
  local -x FSDPC_CUDA_ALGORITHMS=$scratch/algorithms-$1.json FSDPC_CUDA_PRODUCTS=1
  check "$1: products raced" train raced "$scratch/bf16.fsdp" --ranks 1 --steps 50 --backend cuda && check "$1: raced near the first choices" agree raced bf16 2e-2 &&
    check "$1: products from the file" train known "$scratch/bf16.fsdp" --ranks 1 --steps 50 --backend cuda &&
    check "$1: raced or from the file" same known raced
}

part_train() {
  for model in gpt-tiny llama-tiny; do
    sed 's/precision f32 reduce f32/precision bf16 reduce f32/' "$fixtures/$model.fsdp" >"$scratch/bf16.fsdp"
    check "$model: on the CPU" train cpu "$fixtures/$model.fsdp" --ranks 1 --steps 50
    check "$model: f32 trains" train f32 "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda &&
      check "$model: f32 as on the CPU" agree f32 cpu 1e-4
    check "$model: f32 again" train again "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda && check "$model: run to run" same again f32
    FSDPC_CUDA_GRAPH=0 check "$model: without graphs" train eager "$fixtures/$model.fsdp" --ranks 1 --steps 50 --backend cuda &&
      check "$model: graph or not" same eager f32
    check "$model: bf16 trains" train bf16 "$scratch/bf16.fsdp" --ranks 1 --steps 50 --backend cuda &&
      check "$model: bf16 near f32" agree bf16 cpu 2e-2 && races_products "$model"
    accumulates "$model"
    spares_memory "$model"
    scales_loss "$model"
  done
}

# Attention by cuDNN, beside the own kernels and itself. Samples are long, since sums of
# one tile of keys repeat in whichever order tiles are added; and they differ, or it would not show which of them was read.
part_attention() {
  local -x data=$scratch/text
  local longer=(-e 's/vocab = 67/vocab = 256/' -e 's/lr 3e-3/lr 1e-3/' -e "s/ctx = 16/ctx = $context/" -e "s/tokens_per_step 128/tokens_per_step $((8 * context))/"
    -e 's/plan { memory 64MiB }/plan { memory 900MiB }/' -e 's/precision f32 reduce f32/precision bf16 reduce f32/')
  sed "${longer[@]}" -e "s/d = 24, heads = 3/d = $((2 * head_dim)), heads = 2/" "$fixtures/gpt-tiny.fsdp" >"$scratch/wide-gpt.fsdp"
  sed "${longer[@]}" -e "s/d = 32, heads = 4, kv_heads = 2, head_dim = 8/d = $((4 * head_dim)), heads = 4, kv_heads = 2, head_dim = $head_dim/" \
    "$fixtures/llama-tiny.fsdp" >"$scratch/wide-llama.fsdp"
  write_text
  for model in wide-gpt wide-llama; do
    FSDPC_CUDA_ATTENTION=own check "$model: own attention" train own "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda
    FSDPC_CUDA_ATTENTION=cudnn FSDPC_CUDA_PRODUCTS=1 check "$model: cuDNN's attention" train flash "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "$model: cuDNN near own" agree flash own 2e-2 &&
      FSDPC_CUDA_ATTENTION=cudnn check "$model: cuDNN again" train again "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "$model: cuDNN run to run" same again flash
    check "$model: attention" train auto "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "$model: attention near cuDNN's" agree auto flash 2e-2 &&
      check "$model: attention again" train again "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "$model: attention run to run" same again auto
    FSDPC_CUDA_ATTENTION=fast check "$model: cuDNN's fast attention" train fast "$scratch/$model.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "$model: fast near own" agree fast own 2e-2
  done
}

text() { # BACKEND
  "$fsdpc" generate "$scratch/bytes.fsdp" --weights "$scratch/bytes" --prompt 'fsdp and' --tokens 40 --seed 7 --backend "$1"
}
same_text() { text cuda >"$scratch/text.cuda" && text cpu >"$scratch/text.cpu" && cmp "$scratch/text.cuda" "$scratch/text.cpu" && echo 'equal bytes'; }
export -f text same_text
# The other optimizers, evaluation in between, generating.
part_optimizers() {
  for optimizer in 'lion { lr 1e-3 betas 0.9 0.99 decay 0.1 }' 'adafactor { lr 1e-2 decay 0.1 }'; do
    sed -E "s/optimizer adamw \{[^}]*\}/optimizer $optimizer/" "$fixtures/gpt-tiny.fsdp" >"$scratch/other.fsdp"
    check "${optimizer%% *}: on the CPU" train cpu "$scratch/other.fsdp" --ranks 1 --steps 20
    check "${optimizer%% *}" train other "$scratch/other.fsdp" --ranks 1 --steps 20 --backend cuda &&
      check "${optimizer%% *} as on the CPU" agree other cpu 1e-4
  done
  sed 's/precision f32 reduce f32/precision bf16 master bf16/' "$fixtures/gpt-tiny.fsdp" >"$scratch/alone.fsdp"
  check 'without f32 masters: on the CPU' train cpu "$scratch/alone.fsdp" --ranks 1 --steps 20
  check 'without f32 masters' train other "$scratch/alone.fsdp" --ranks 1 --steps 20 --backend cuda &&
    check 'without f32 masters, as on the CPU' agree other cpu 2e-2
  sed 's/vocab = 67/vocab = 256/' "$fixtures/gpt-tiny.fsdp" >"$scratch/bytes.fsdp"
  check 'training with evaluation' train bytes "$scratch/bytes.fsdp" --ranks 1 --steps 20 --backend cuda --save "$scratch/bytes" \
    --eval "$fixtures/tokens.bin" --eval-every 5 && check 'generates what the CPU does' same_text
}

# apart RANKS ARGUMENT...: ranks that meet in NCCL, whether or not they have a GPU each. NCCL takes one rank a GPU of a host, so each
# is a process that calls itself a host, and they meet over sockets: slowly, but all that is launched is what several GPUs launch.
apart() {
  local ranks=$1 rank pids=() pid code=0
  shift
  for ((rank = 0; rank < ranks; rank++)); do
    NCCL_HOSTID=rank$rank NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 FSDPC_CUDA_COMM=nccl RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank \
      LOCAL_WORLD_SIZE=$ranks MASTER_ADDR=localhost MASTER_PORT=$$ TORCHELASTIC_RUN_ID=gpu-check train apart "$@" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
  return "$code"
}
# last_rank NAME PID: a rank of what trains for long into NAME.jsonl, once it is in its midst; without one all of it ends.
last_rank() {
  local file=$scratch/$1.jsonl victim=$2 children
  until [ -e "$file" ] && [ "$(grep -c '"loss"' "$file")" -ge 3 ]; do kill -0 "$2" && sleep 0.1 || return; done
  while read -r children < <(cat "/proc/$victim/task/$victim/children" && echo) && [ -n "$children" ]; do victim=${children##* }; done
  [ "$victim" != "$2" ] || { echo 'which process is a rank /proc does not say' >&2 && kill "$2" && return 77; }
  echo "$victim"
}
# lose_rank NAME COMMAND...: the last rank is killed: all must end, as peers that have lost one do.
lose_rank() {
  local name=$1 pid victim code=0
  shift
  rm -f "$scratch/$name.jsonl"
  "$@" &
  pid=$!
  victim=$(last_rank "$name" $pid) || return
  kill -9 "$victim"
  wait $pid || code=$?
  [ "$code" = 4 ]
}
# stop_rank NAME COMMAND...: the last rank is stopped: the others must say that the GPU waits for somebody.
stop_rank() {
  local name=$1 pid victim i
  shift
  rm -f "$scratch/$name.jsonl"
  FSDPC_CUDA_TIMEOUT=4 "$@" 2>"$scratch/stopped" &
  pid=$!
  victim=$(last_rank "$name" $pid) || return
  kill -STOP "$victim"
  for ((i = 0; i < 200; i++)); do ! grep -q 'has not finished step' "$scratch/stopped" && sleep 0.1 || break; done
  kill -9 "$victim"
  wait $pid
  grep 'has not finished step' "$scratch/stopped"
}
export -f apart last_rank lose_rank stop_rank

lose_ranks() {
  local endless=("$fixtures/gpt-tiny.fsdp" --steps 5000 --backend cuda --strategy full_shard)
  FSDPC_CUDA_COMM=local check 'one of 2 ranks is killed' lose_rank other train other "${endless[@]}" --ranks 2
  check 'one of 2 ranks apart is killed' lose_rank apart apart 2 "${endless[@]}"
  check 'one of 2 ranks apart is stopped' stop_rank apart apart 2 "${endless[@]}"
}

# Ranks that have a GPU each meet in NCCL unless told otherwise; others read each other's memory in place, which is the reference.
part_ranks() {
  local gpus ranks how strategy setting
  gpus=$(grep -cE '^ *GPU [0-9]' "$scratch/doctor") # that are visible
  for ranks in 2 4 $([ "$gpus" -lt 8 ] || echo 8); do
    how='on one GPU'
    [ "$gpus" -lt 2 ] || how='reading in place'
    check "$ranks ranks on the CPU" train cpu "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20
    FSDPC_CUDA_COMM=local check "$ranks ranks $how" train ranks "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 --backend cuda &&
      check "$ranks ranks as on the CPU" agree ranks cpu 1e-4
    for strategy in full_shard shard_grad_op no_shard; do
      check "$ranks ranks, $strategy" train other "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 --backend cuda --strategy $strategy &&
        check "$ranks ranks, $strategy: same bits" same other ranks
    done
    strategy=full_shard
    [ $ranks = 2 ] || strategy=hybrid_shard:2
    check "$ranks ranks apart, $strategy" apart $ranks "$fixtures/gpt-tiny.fsdp" --steps 20 --backend cuda --strategy $strategy &&
      check "$ranks ranks apart, $strategy: same bits" same apart ranks
    [ $ranks != 2 ] || lose_ranks
    [ "$gpus" -ge $ranks ] || continue
    for setting in FSDPC_NCCL_WINDOWS=0 FSDPC_CUDA_GRAPH=0; do
      check "$ranks ranks, $setting" env "$setting" "$fsdpc" run "$fixtures/gpt-tiny.fsdp" --ranks $ranks --steps 20 --backend cuda \
        --strategy full_shard --data "$fixtures/tokens.bin" --metrics "$scratch/other.jsonl" && check "$ranks ranks, $setting: same bits" same other ranks
    done
  done
}

# sanitize TOOL COMMAND...: a sanitizer that did not follow a child, or whose injected libraries are missing, may end well without
# a word on errors, or without having run anything. Errors of calls are not its business: libraries try what may fail, and fsdpc
# ends on those that matter.
sanitize() {
  local tool=$1 log=$scratch/sanitizer.log code=0
  shift
  compute-sanitizer --tool "$tool" --report-api-errors no --error-exitcode 1 --target-processes all --require-cuda-init=no "$@" >"$log" 2>&1 || code=$?
  cat "$log"
  grep -qE 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" || { echo 'no error summary: the process that uses CUDA was not watched' && return 1; }
  return "$code"
}
# Only the rank, a child that is forked, uses CUDA.
sanitize_run() {
  local code=0
  rm -f "$scratch/sanitized.jsonl"
  sanitize memcheck "$fsdpc" run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 2 --backend cuda --data "$fixtures/tokens.bin" \
    --metrics "$scratch/sanitized.jsonl" --quiet || code=$?
  grep -q '"reason":"end"' "$scratch/sanitized.jsonl" 2>/dev/null || { echo 'the run did not end' && return 1; }
  return "$code"
}
export -f sanitize sanitize_run
part_sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    row 'compute-sanitizer' skipped 'not installed'
    return
  fi
  FSDPC_CUDA_GRAPH=0 FSDPC_CUDA_ATTENTION=own check 'compute-sanitizer' sanitize_run
  [ -x "$kernels" ] || return
  check_long "kernels' accesses" sanitize memcheck "$kernels" # of every kernel, in buffers that end where its operands do
  # Products are cuBLASLt's. What waits for mbarriers by PTX it takes for races: in Hopper's kernels, which the emulation of them tests.
  check_long 'races in shared memory' sanitize racecheck --kernel-name-exclude 'regex=cublas|cutlass|gemm|gemv|nvjet|xmma|hopper_(forward_)?kernel' "$kernels"
}

# --- benchmarks: bf16, beside PyTorch -----------------------------------------------------------------------------------
case $gpu in
*H200*) cluster=dgx-h200 bandwidth=4.8e12 ;;
*A100*) cluster=dgx-a100-80 bandwidth=2.04e12 ;;
*) cluster=dgx-h100 bandwidth=3.35e12 ;;
esac
export cluster=$root/models/clusters/$cluster.fsdp bandwidth

# field NAME: its number in a file of JSON; the median of the last steps' where there are several.
field() { grep -oE "\"$1\": *[0-9.e+-]+" | grep -oE '[0-9.e+-]+$' | tail -n 5 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# The most device memory in use until the file "running" is gone, in MiB.
watch_memory() {
  local most=0 now
  while [ -e "$scratch/running" ]; do
    now=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null | head -n 1)
    [ "${now:-0}" -gt "$most" ] 2>/dev/null && most=$now && echo "$most" >"$scratch/most"
    sleep 0.2
  done
}

run_bench() { "$fsdpc" run "$scratch/bench.plan" --backend cuda --data "$scratch/text" "$@"; } # ARGUMENT...

# bench MODEL STEPS [OPTION...]: a plan of one rank, its step timed as it trains: in graphs. The log gets the libraries' choices.
bench() {
  local watcher code=0
  "$fsdpc" plan "$1" --ranks 1 --cluster "$cluster" "${@:3}" --json -o "$scratch/bench.plan" >"$scratch/plan.json" || return
  : >"$scratch/running"
  rm -f "$scratch/most"
  watch_memory &
  watcher=$!
  FSDPC_CUDA_PRODUCTS=1 run_bench --steps "$2" --metrics "$scratch/bench.jsonl" || code=$?
  rm -f "$scratch/running" && wait "$watcher"
  [ "$code" = 0 ] || return "$code"
  awk -v rate="$(field tokens_per_s <"$scratch/bench.jsonl")" -v planned="$(field tokens_per_s_per_rank <"$scratch/plan.json")" \
    -v mfu="$(field mfu <"$scratch/plan.json")" 'BEGIN { printf "%.0f tokens/s, MFU %.1f %%; predicted %.0f, %.1f %%\n", rate, 100 * mfu * rate / planned, planned, 100 * mfu; exit !(rate > 0) }'
}
# The same plan once more, traced: instruction by instruction, with events between.
traced() {
  run_bench --steps 3 --metrics "$scratch/traced.jsonl" --trace "$scratch/bench.trace" || return
  printf '%.0f tokens/s\n' "$(field tokens_per_s <"$scratch/traced.jsonl")"
}
memory_of() {
  awk -v most="$(cat "$scratch/most" 2>/dev/null || echo 0)" -v arena="$(field arena_bytes <"$scratch/plan.json")" -v beside="$(field beside_bytes <"$scratch/bench.jsonl")" \
    'BEGIN { printf "%d MiB in use at most: arena %d, beside it %d, libraries %d\n", most, arena / 2^20, beside / 2^20, most - (arena + beside) / 2^20; exit !(most > 0) }'
}
# What is measured is said last, after warnings.
pytorch() { cd "$root/tools/pytorch" && PYTHONDONTWRITEBYTECODE=1 python3 gpu.py "$@" >"$scratch/pytorch" && cat "$scratch/pytorch"; }
export -f field watch_memory run_bench bench traced memory_of pytorch

# where_time_goes NAME: the five kinds of instructions that take longest, and how far each is from its bound; all kinds in the log.
where_time_goes() {
  local line peak kinds=$scratch/kinds
  check_long "$1: traced" traced || return
  peak=$(sed -nE 's/^ *peak bf16 ([0-9.]+)TFLOPS.*/\1e12/p' "$cluster" "$root/models/clusters/dgx-h100.fsdp" | head -n 1)
  if ! command -v python3 >/dev/null; then
    row "$1: where its time goes" skipped 'no python3'
    return
  fi
  PYTHONDONTWRITEBYTECODE=1 python3 "$root/tools/top_instructions.py" "$scratch/bench.trace" "$peak" "$bandwidth" 1000 >"$kinds" 2>&1
  printf '== %s: where its time goes\n%s\n' "$1" "$(cat "$kinds")" >>"$log"
  while IFS= read -r line; do row "$1: ${line%%:*}" '' "${line#*: }"; done < <(head -n 5 "$kinds")
}
# measure NAME MODEL STEPS [OPTION...]: a plan that does not run leaves nothing to measure.
measure() {
  check_long "$1" bench "${@:2}" || return
  check "$1: memory" memory_of
  where_time_goes "$1"
  FSDPC_CUDA_ALGORITHMS=$scratch/algorithms.json check_long "$1, products raced" bench "${@:2}"
  return 0
}
# compare NAME MODEL STEPS MICRO ACCUMULATE [OPTION...]: fsdpc, where its time goes, PyTorch, each whatever becomes of the others. Should the GPU have less memory
# than its cluster file says, or the host too little to pin, or should it be cuDNN that keeps a plan from running, the rest can be measured
# without.
compare() {
  local name=$1 model=$2 steps=$3 micro=$4 accumulate=$5 code=0
  measure "$name" "$model" "$steps" "${@:6}" || code=$?
  case $code in
  0 | 124 | 137) ;;
  3) measure "$name, in 72 GiB without offload" "$model" "$steps" --memory 72GiB --offload none ;;
  *) FSDPC_CUDA_ATTENTION=own measure "$name, own attention" "$model" "$steps" "${@:6}" ;;
  esac
  if [ -n "$alone" ]; then
    return
  elif python3 -c 'import torch' 2>/dev/null; then
    check_long "$name: PyTorch" pytorch "$(basename "$model" .fsdp)" --micro "$micro" --accumulate "$accumulate"
  else
    row "$name: PyTorch" skipped 'not installed'
  fi
}
prepare_bench() {
  write_text
  rm -rf "$scratch/models" # of the part before, which changed it
  cp -r "$root/models" "$scratch/models"
  sed -i -E 's/tokens_per_step [0-9]+/tokens_per_step 131072/' "$scratch"/models/gpt2-xl.fsdp "$scratch"/models/llama3.2-1b.fsdp
}
# first_step NAME: of the last benchmark. Its loss is the same however it is computed, also by products whose addresses go beyond 2^31 elements.
first_step() { grep '"step":1,' "$scratch/bench.jsonl" >"$scratch/$1.jsonl" 2>/dev/null; }
part_bench() {
  prepare_bench
  compare 'GPT-2 124M' "$scratch/models/gpt2.fsdp" 8 32 16
  first_step whole
  # Logits of 4096 rows at a time take less memory. As fast?
  sed -i 's/chunk = none/chunk = 4096/' "$scratch/models/families/gpt2.fsdp"
  check 'GPT-2 124M, loss in chunks' bench "$scratch/models/gpt2.fsdp" 5 && first_step chunks &&
    check 'GPT-2 124M: loss in chunks or not, first step' agree chunks whole 1e-5
}
# 131072 tokens a step, so that it ends soon.
part_bench-large() {
  prepare_bench
  compare 'GPT-2 1.5B' "$scratch/models/gpt2-xl.fsdp" 7 16 8
  # An H200 took 4 % longer with 34 GiB offloaded, and 20 s to pin them.
  compare 'llama 1B, 8192 tokens' "$scratch/models/llama3.2-1b.fsdp" 7 2 8 --offload none
}

for part in "${parts[@]}"; do "part_$part"; done
printf '\n%d checks failed, %d had too little time; %d s.\n' "$failures" "$late" $((SECONDS - begin)) | tee -a "$table"
[ $((failures + late)) = 0 ]
