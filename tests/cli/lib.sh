# shellcheck shell=bash
# Owns: what the scripts of this folder share. Each is run as: SCRIPT FSDPC COMPARE, from anywhere, in its own scratch
# folder.
set -euo pipefail

# shellcheck disable=SC2034
fsdpc=$1 compare=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fixtures=$root/tests/fixtures
export NO_COLOR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# expect CODE ARGUMENT...: runs fsdpc, output in ./out and ./err, and checks the exit code.
expect() {
  local want=$1 got=0
  shift
  "$fsdpc" "$@" >out 2>err </dev/null || got=$?
  [ "$got" = "$want" ] && return
  printf -- '--- stdout\n%s\n--- stderr\n%s\n' "$(head -c 4000 out)" "$(head -c 4000 err)" >&2
  fail "fsdpc $*: exit code $got, expected $want"
}

# said FILE TEXT: the text occurs in the output of the last command.
said() {
  grep -qF -- "$2" "$1" && return
  cat "$1" >&2
  fail "$1 does not say: $2"
}

silent() { [ ! -s "$1" ] || { cat "$1" >&2 && fail "$1 is not empty"; }; }

# wait_for COMMAND...: until it is true; what is said of failures meanwhile lies in ./err*.
wait_for() {
  local i
  for ((i = 0; i < 2000; i++)); do
    if "$@"; then return; fi
    sleep 0.05
  done
  cat err* >&2
  fail "waited too long for: $*"
}
# The processes that PROCESS has started.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null || true; }
# A run that writes ./metrics.jsonl is under way.
has_steps() { [ -e metrics.jsonl ] && [ "$(grep -c '"step"' metrics.jsonl)" -ge 3 ]; }

# with_plan FIXTURE BLOCK >FILE: the fixture with another plan block. It must be its last line.
with_plan() { sed '$d' "$fixtures/$1.fsdp" && printf 'plan { memory 256MiB %s }\n' "$2"; }

# Two files, which cmp alone says of missing ones and of folders, too.
differ() { [ -f "$1" ] && [ -f "$2" ] && ! cmp -s "$1" "$2"; }

# Choices that train puts before its arguments, which have the last word, unless they begin with a finished plan. A script that asks
# what a run gives, and not which plan is best, sets it to one_plan, so that the planner need not search; random_plans/ runs all kinds.
pinned=()
one_plan=(--wrap block --checkpoint none --prefetch 1)

# train NAME MODEL|PLAN ARGUMENT...: a quiet run on the fixtures' tokens; NAME.jsonl, NAME.weights/.
train() {
  local name=$1 choices=("${pinned[@]}")
  shift
  case $1 in *.plan) choices=() ;; esac
  case " $* " in *' --resume '*) ;; *) rm -rf "$name.weights" ;; esac # a fresh start wants a fresh folder
  expect 0 run "${choices[@]}" "$@" --data "$fixtures/tokens.bin" --metrics "$name.jsonl" --save "$name.weights" --threads 1 --quiet
}
