#!/usr/bin/env bash
# Owns: tools/gpu-check.sh has no mistake of its own: it runs on the fake device, large models replaced by a tiny one. What it says of
# wrong results, gpu_check_wrong.sh asks.
# Run as: gpu_check.sh FSDPC_FAKE COMPARE PART...
source "$(dirname "$0")/../cli/lib.sh"
shift 2
mkdir -p bin build driver/lib64
# Needs the driver's libraries where containers have them.
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case :$LD_LIBRARY_PATH: in *:"$NVIDIA_HOME/lib64":*) ;; *) echo 'NVML is not found' >&2 && exit 12 ;; esac
case "$*" in *memory.used*) echo 777 ;; *) echo 'NVIDIA H200, 580.0, 1024 MiB' ;; esac
END
cat >build/fsdpc <<END
#!/bin/bash
for argument in "\$@"; do
  case \$argument in */models/gpt2*.fsdp | */models/llama*.fsdp) argument="$scratch/tiny.fsdp" ;; esac
  arguments+=("\$argument")
done
exec "$fsdpc" "\${arguments[@]}"
END
cat >bin/compute-sanitizer <<'END'
#!/bin/sh
summary=ERROR
while [ "${1#--}" != "$1" ]; do
  case $1 in
  --tool | --report-api-errors | --error-exitcode | --target-processes | --kernel-name-exclude) [ "$2" != racecheck ] || summary=RACECHECK; shift 2 ;;
  --require-cuda-init=no) shift ;;
  *) echo "unrecognised option $1" && exit 2 ;;
  esac
done
"$@" && [ -z "${FAKE_UNWATCHED:-}" ] && echo "========= $summary SUMMARY: 0 errors"
exit 0
END
echo 'echo "[  PASSED  ] 1 test(s)."' >build/test_cuda_kernels_device
chmod +x bin/* build/*
sed -e 's/precision f32 reduce f32/precision bf16 reduce f32/' -e 's/vocab = 67/vocab = 256/' "$fixtures/gpt-tiny.fsdp" >tiny.fsdp
export PATH=$PWD/bin:$PATH NVIDIA_HOME=$PWD/driver FAKE_CUDNN=1 FAKE_GPUS=2
"$root/tools/gpu-check.sh" --build build --table table.md --context 16 --limit 100000 --patience 100000 "$@" >out 2>err || { cat out err >&2 && fail "gpu-check.sh $*"; }
said table.md '- device: NVIDIA H200'
said out '0 checks failed'
! grep -E 'FAILED|out of time|not run' table.md || fail 'a check went wrong'
case " $* " in *' bench '*)
  said out 'tokens/s, MFU'
  said out 'in use at most'
  said table.log 'fake GPU, compute 9.0, products '
  grep -q '^product .* bf16 to ' table.log || fail 'nothing says how products were computed'
  grep -q '^layernorm_bwd: .* of its bound' table.log || fail 'not all instructions are in the log'
  [ "$(grep -c 'of its bound' out)" = 5 ] || { cat out >&2 && fail 'not five instructions'; }
  ;;
esac
case " $* " in *' train '*)
  for model in gpt-tiny llama-tiny; do
    said table.md "| $model: micro-batches as on the CPU | ok |"
    said table.md "| $model: micro-batches, graph or not | ok |"
    said table.md "| $model: recomputed and offloaded or not | ok |"
    said table.md "| $model: raced or from the file | ok |"
    said table.md "| $model: f16 as on the CPU | ok |"
    said table.md "| $model: f16 skips the steps that the CPU does | ok |"
  done
  ;;
esac
case " $* " in *' ranks '*)
  said table.log 'peers read in place'
  said table.log 'nccl, window registered'
  said table.md '| 2 ranks, FSDPC_NCCL_WINDOWS=0: same bits | ok |'
  said table.md '| 4 ranks apart, hybrid_shard:2: same bits | ok |'
  said table.md '| one of 2 ranks apart is killed | ok |'
  said table.md '| one of 2 ranks apart is stopped | ok |'
  ;;
esac
case " $* " in *' sanitizer '*)
  said table.md '| compute-sanitizer | ok |'
  said table.md "| kernels' accesses | ok |"
  said table.md '| races in shared memory | ok | ========= RACECHECK SUMMARY'
  ! FAKE_UNWATCHED=1 "$root/tools/gpu-check.sh" --build build --table table.md --limit 100000 --patience 100000 sanitizer >out 2>err || fail 'nothing was watched, and nobody said so'
  said table.md 'no error summary: the process that uses CUDA was not watched'
  ;;
esac

# What fails hides nothing beside it.
case " $* " in *' bench '*)
  mkdir none && printf '#!/bin/sh\nexit 1\n' >none/python3 && chmod +x none/python3 # has no torch
  printf '#!/bin/sh\necho broken && exit 9\n' >build/fsdpc
  ! PATH=$PWD/none:$PATH "$root/tools/gpu-check.sh" --build build --table table.md bench >out 2>err || fail 'all failed, and nobody said so'
  said table.md '| GPT-2 124M | FAILED (9) |'
  said table.md '| GPT-2 124M, own attention | FAILED (9) |'
  said table.md '| GPT-2 124M: PyTorch | skipped | not installed |'
  said table.md '| GPT-2 124M, loss in chunks | FAILED (9) |'
  printf '#!/bin/sh\ncase "$*" in *"--memory 72GiB --offload none"*) exit 5 ;; esac\nexit 3\n' >build/fsdpc # it does not fit
  ! PATH=$PWD/none:$PATH "$root/tools/gpu-check.sh" --build build --table table.md bench >out 2>err || fail 'nothing fitted, and nobody said so'
  said table.md '| GPT-2 124M, in 72 GiB without offload | FAILED (5) |'
  ;;
esac

# A check that hangs costs its own time, not that of others, and is no success.
printf '#!/bin/sh\nexec sleep 100\n' >build/fsdpc
! "$root/tools/gpu-check.sh" --build build --table table.md --patience 1 optimizers >out 2>err || fail 'all hung, and nobody said so'
[ "$(grep -c 'out of time' table.md)" = 8 ] || { cat table.md >&2 && fail 'not every check was tried'; }
said out '0 checks failed, 8 had too little time'
