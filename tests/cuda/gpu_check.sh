#!/usr/bin/env bash
# Owns: tools/gpu-check.sh has no mistake of its own: it runs on the fake device, large models replaced by a tiny one.
# Run as: gpu_check.sh FSDPC_FAKE COMPARE PART...
source "$(dirname "$0")/../cli/lib.sh"
shift 2
mkdir bin build
cat >bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in *memory.used*) echo 777 ;; *) echo 'NVIDIA H200, 580.0, 1024 MiB' ;; esac
END
cat >build/fsdpc <<END
#!/bin/bash
for argument in "\$@"; do
  case \$argument in */models/gpt2*.fsdp | */models/llama*.fsdp) argument=$scratch/tiny.fsdp ;; esac
  arguments+=("\$argument")
done
exec "$fsdpc" "\${arguments[@]}"
END
cat >bin/compute-sanitizer <<'END'
#!/bin/sh
while [ "${1#--}" != "$1" ]; do case $1 in --target-processes | --error-exitcode) shift 2 ;; *) shift ;; esac; done
"$@" && [ -z "${FAKE_UNWATCHED:-}" ] && echo '========= ERROR SUMMARY: 0 errors'
exit 0
END
chmod +x bin/* build/fsdpc
sed -e 's/precision f32 reduce f32/precision bf16 reduce f32/' -e 's/vocab = 67/vocab = 256/' "$fixtures/gpt-tiny.fsdp" >tiny.fsdp
export PATH=$PWD/bin:$PATH FAKE_CUDNN=1
"$root/tools/gpu-check.sh" --build build --table table.md --context 16 "$@" >out 2>err || { cat out err >&2 && fail "gpu-check.sh $*"; }
said table.md '- device: NVIDIA H200'
said out '0 checks failed'
! grep -E 'FAILED|out of time' table.md || fail 'a check went wrong'
case " $* " in *' bench '*)
  said out 'tokens/s, MFU'
  said out 'in use at most'
  [ "$(grep -c 'of its bound' out)" = 5 ] || { cat out >&2 && fail 'not five instructions'; }
  ;;
esac
case " $* " in *' sanitizer '*)
  said table.md '| compute-sanitizer | ok |'
  ! FAKE_UNWATCHED=1 "$root/tools/gpu-check.sh" --build build --table table.md sanitizer >out 2>err || fail 'nothing was watched, and nobody said so'
  said table.md 'no error summary: the process that uses CUDA was not watched'
  ;;
esac
