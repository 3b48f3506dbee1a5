#!/usr/bin/env bash
# Owns: every test, on a fresh Debian 12: packages, a build with sanitizers in build-test/, ctest.
# --long adds the slow tiers (label "long"); other arguments go to ctest, such as -R NAME.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tier=(-LE long)
arguments=()
for argument in "$@"; do
  case $argument in
  --long) tier=() ;;
  -h | --help)
    printf 'Examples:\n  tools/test.sh\n  tools/test.sh --long\n  tools/test.sh -R frontend\n'
    exit 0
    ;;
  *) arguments+=("$argument") ;;
  esac
done

require_packages "${build_packages[@]}" "${test_packages[@]}"
say "building with sanitizers in build-test/" # CUDA's kernels are tested as plain C++ there; label long compiles them
configure_and_build "$root/build-test" -DFSDPC_CUDA=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O2 -g1" -DFSDPC_TESTS=ON \
  -DFSDPC_SANITIZE=address,undefined -DFSDPC_ALLOC_GUARD=ON
say "testing"
cd "$root/build-test"
# Leaks are found by tracing, which some containers forbid.
if [[ $(./fsdpc --version 2>&1) == *'LeakSanitizer has encountered a fatal error'* ]]; then
  say "leaks are not looked for: processes may not be traced here"
  export LSAN_OPTIONS=detect_leaks=0
fi
# One more than there are cores: tests that wait, for processes to end or for signals, leave theirs idle.
# A test that hangs ends after half an hour: none takes five minutes on two cores, but machines may be slow.
exec ctest --output-on-failure --timeout 1800 -j"$(($(build_jobs) + 1))" "${tier[@]}" "${arguments[@]}"
