#!/usr/bin/env bash
# Goldens. For each x.fsdp the files beside it say what is run and what must come out:
#
#   x.err    TOOL check x.fsdp     diagnostics, exit 1 (0 when there are only warnings)
#   x.graph  TOOL graph x.fsdp     the checked graph
#   x.fmt    TOOL fmt x.fsdp       canonical layout; formatting that again must change nothing
#
# Further arguments stand in the first comment: `# args: --set layers=3`. Each case runs in its own folder, so that
# messages show bare file names.
#
# usage: run.sh [--update] TOOL FILE.fsdp|FOLDER...      --update rewrites the goldens
set -u

update=0
if [[ ${1-} == --update ]]; then
  update=1
  shift
fi
if (( $# < 2 )); then
  sed -n '2,/^set/p' "$0" | grep '^#' >&2
  exit 64
fi
tool=$(realpath "$1")
shift
failed=0
passed=0
limit=${FSDPC_TEST_TIMEOUT:-60}

# Prints what `tool mode file` says, and its exit status when that is not 0.
observe() {
  local mode=$1 file=$2 status=0
  local -a args=()
  read -r -a args < <(sed -n '1s/^# args: //p' "$file")
  timeout "$limit" "$tool" "$mode" "$file" "${args[@]}" 2>&1 || status=$?
  (( status == 0 )) || echo "exit $status"
}

check() {
  local file=$1 suffix=$2 mode=$3
  local golden=${file%.fsdp}.$suffix actual
  [[ -e $golden ]] || return 0
  actual=$(observe "$mode" "$file")
  if (( update )); then
    printf '%s\n' "$actual" > "$golden"
  elif ! diff -u "$golden" <(printf '%s\n' "$actual"); then
    echo "FAILED $PWD/$golden" >&2
    failed=$(( failed + 1 ))
    return
  fi
  passed=$(( passed + 1 ))
  [[ $mode == fmt ]] || return 0
  again=$(mktemp --suffix=.fsdp)
  cp "$golden" "$again"
  if [[ $(observe fmt "$again") != "$actual" ]]; then
    echo "FAILED $PWD/$golden: formatting it again changes it" >&2
    failed=$(( failed + 1 ))
  fi
  rm -f "$again"
}

run_case() {
  pushd "$(dirname "$1")" > /dev/null || exit 1
  local name
  name=$(basename "$1")
  check "$name" err check
  check "$name" graph graph
  check "$name" fmt fmt
  popd > /dev/null || exit 1
}

for target in "$@"; do
  if [[ -d $target ]]; then
    while IFS= read -r file; do run_case "$file"; done < <(find "$target" -name '*.fsdp' | sort)
  else
    run_case "$target"
  fi
done
echo "$passed passed, $failed failed"
(( failed == 0 && passed > 0 ))
