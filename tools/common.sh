# shellcheck shell=bash disable=SC2034
# Owns: what the scripts of this folder share: messages, packages, the build. Sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C # numbers with points, also where people write them with commas

say() { printf '\n== %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# help_if_asked ARGUMENT...: what the head of the script says, before anything is installed, built or written.
help_if_asked() {
  case ${1-} in -h | --help) sed -n '2,/^[^#]/{s/^#$//p;s/^# //p}' "$0" && exit 0 ;; esac
}

# Packages of Debian 12 and what each is for.
build_packages=(
  gcc libc6-dev make cmake pkg-config # the compiler and the build
  flex bison                          # scanner and parser of the language
  libjansson-dev                      # JSON: reports, metrics, safetensors headers
  libdnnl2                            # oneDNN: matrix products, loaded at run time
)
test_packages=(
  libcmocka-dev        # unit tests
  libopenblas0-pthread # the second library of matrix products
  graphviz             # checks that drawings of units are valid
  libopenmpi-dev       # ranks on several hosts: the headers
  openmpi-bin          # the same: the library, loaded at run time, and mpirun
  iproute2             # two hosts as network namespaces
  zsh fish             # completion in each shell
)

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Packages that Debian's own tools do not know as installed.
missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
  done
}

require_packages() {
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "not a Debian system: assuming that these are there: $*"
    return
  fi
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" = 0 ] && return
  say "installing ${missing[*]}"
  [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "run as root, or install: apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# require_tool NAME: of a package of that name.
require_tool() { command -v "$1" >/dev/null || die "$1 is needed: apt-get install $1"; }

# field FILE NAME: a number of one JSON object.
field() { grep -oE "\"$2\": *[-+.0-9eE]+" "$1" | head -n 1 | sed 's/.*: *//'; }

# Cores that may be used: in a container fewer than are seen, where its share of time is limited (cgroups, version 2).
usable_cores() {
  local cores quota period
  cores=$(nproc)
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [ "$quota" != max ]; then
    quota=$(((quota + period - 1) / period))
    [ "$quota" -ge "$cores" ] || cores=$quota
  fi
  echo "$cores"
}

build_jobs() {
  local cores
  cores=$(usable_cores)
  echo "${FSDPC_JOBS:-$((cores < 8 ? cores : 8))}"
}

# Runs a command quietly; its output is shown only when it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 200 "$log" >&2
    rm -f "$log"
    die "$1 failed"
  fi
  rm -f "$log"
}

# configure_and_build FOLDER CMAKE_ARGUMENT...
configure_and_build() {
  local folder=$1
  shift
  quietly cmake -S "$root" -B "$folder" "$@"
  quietly cmake --build "$folder" -j"$(build_jobs)"
}

# The scripts train on CPUs; FSDPC_CUDA=ON in the environment adds the CUDA backend, which takes minutes to compile.
build_release() {
  say "building a release in build/ (about a minute the first time)"
  configure_and_build "$root/build" -DCMAKE_BUILD_TYPE=Release -DFSDPC_CUDA="${FSDPC_CUDA:-OFF}"
}
