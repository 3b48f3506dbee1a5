#!/usr/bin/env bash
# Owns: what tools/gpu-check.sh packs for a machine with a GPU, with the kernel tests and, for want of cmocka, without: programs, the
# libraries that a bare machine lacks, the commit. Compilers are stood in for. Run as: gpu_check_pack.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/../cli/lib.sh"
mkdir bin build
cat >bin/pkg-config <<'END_OF_PROGRAM'
#!/bin/sh
[ "$*" = '--exists cmocka' ] && [ -n "${FAKE_CMOCKA:-}" ]
END_OF_PROGRAM
# Configures nothing, and "builds" its targets by copying the program.
cat >bin/cmake <<END_OF_PROGRAM
#!/bin/bash
[ "\$1" = --build ] || exit 0
mkdir -p "\$2/tests/cuda"
case \${*: -1} in fsdpc) cp "$fsdpc" "\$2/fsdpc" ;; *) cp "$fsdpc" "\$2/tests/cuda/\${*: -1}" ;; esac
END_OF_PROGRAM
chmod +x bin/*
export PATH=$PWD/bin:$PATH

pack() { "$root/tools/gpu-check.sh" --build build --table table.md --pack packed >out 2>err || { cat out err >&2 && fail "nothing was packed"; }; }
pack
[ ! -e packed/test_cuda_kernels_device ] || fail 'there are kernel tests without cmocka'
[ -s packed/commit ] && [ -s packed/lib/libjansson.so.4 ] || { find packed >&2 && fail 'something is missing'; }
LD_LIBRARY_PATH=packed/lib packed/fsdpc doctor >out || fail 'what was packed does not run'
said out 'fake GPU, compute 9.0'
FAKE_CMOCKA=1 pack
[ -x packed/test_cuda_kernels_device ] || fail 'the kernel tests are missing'
