#!/usr/bin/env bash
# Owns: the report in a real browser: no console errors, ready soon, zoom and marks work, light and dark, narrow and wide;
# readable without JavaScript; small; self-contained. Exits 77 (skipped) where there is no Chromium.
#
# usage: html.sh FSDPC      FSDPC_VIEW_DIR=folder keeps the screenshots there, to be looked at
set -euo pipefail
fsdpc=$(realpath "$1")
cd "$(dirname "$0")/../.."
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
shots=${FSDPC_VIEW_DIR:-$scratch}

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# report NAME FILE OPTION...
report() {
  local name=$1
  shift
  "$fsdpc" draw "$@" --html "$scratch/$name.html"
  [ "$(stat -c %s "$scratch/$name.html")" -lt 3000000 ] || fail "$name is larger than 3 MB"
  if grep -oE '(src|href)="[^"]*"|https?://[^" ]*' "$scratch/$name.html" | grep -vE 'href="data:,"|http://www.w3.org/2000/svg'; then
    fail "$name refers to something outside"
  fi
  grep -q '<svg' "$scratch/$name.html" && grep -q '<table class="units"' "$scratch/$name.html" || fail "$name says nothing without JavaScript"
}

# open_page NAME HASH OPTION...: the page's DOM in $scratch/dom, what it logged in $scratch/log.
open_page() {
  local name=$1 hash=$2
  shift 2
  timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$scratch/profile" \
    --enable-logging=stderr "$@" "file://$scratch/$name.html$hash" >"$scratch/dom" 2>"$scratch/log" || fail "the browser failed on $name: $(tail -3 "$scratch/log")"
  if grep -E 'CONSOLE' "$scratch/log"; then fail "$name wrote to the console"; fi
}

# dom NAME VALUE: the root element has data-NAME="VALUE".
dom() { grep -qE "<html[^>]* data-$1=\"$2\"" "$scratch/dom" || fail "data-$1 is not $2: $(grep -o '<html[^>]*>' "$scratch/dom")"; }

report figure2 models/fsdp-figure2.fsdp
report gpt2 models/gpt2.fsdp --ranks 8 --memory 16GiB
report llama3-405b models/llama3-405b.fsdp --ranks 1024
tiny=(tests/fixtures/gpt-tiny.fsdp --ranks 2 --micro-batch 1)
report whole "${tiny[@]}" --strategy no_shard
long=$(printf 'quite_a_long_name_%.0s' 1 2 3 4 5 6 7) # nothing runs out of the page
sed -E "s/^model [a-z_]+/model $long/; s/as mlp/as $long/" tests/fixtures/gpt-tiny.fsdp >"$scratch/long.fsdp"
grep -q "as $long" "$scratch/long.fsdp" || fail "no long name"
report long "$scratch/long.fsdp" --ranks 2 --micro-batch 1
echo '<script>document.documentElement.dataset.beyond = document.documentElement.scrollWidth - document.documentElement.clientWidth</script>' >>"$scratch/long.html"
! grep -q 'units* ahead' "$scratch/whole.html" || fail "something is gathered ahead where nothing is gathered"
grep -q ', gathered [1-9][0-9]* units* ahead\.' "$scratch/figure2.html" || fail "how far ahead units are gathered is missing"
"$fsdpc" run "${tiny[@]}" --data tests/fixtures/tokens.bin --steps 3 --quiet --trace "$scratch/step.json" 2>/dev/null
report measured "${tiny[@]}" --measured "$scratch/step.json"
grep -q 'step, measured' "$scratch/measured.html" || fail "the measured step is missing"
grep -q '"measured":{"total":[1-9]' "$scratch/measured.html" || fail "the measured slices are missing"
if "$fsdpc" draw "${tiny[@]}" --html "$scratch/x.html" --measured "$scratch/missing.json" 2>/dev/null; then fail "a trace that is missing"; fi

[ -n "$browser" ] || { echo "no Chromium here: skipped" && exit 77; }
for name in figure2 gpt2 llama3-405b measured; do
  open_page "$name" '' --dump-dom
  dom ready '[1-9][0-9]*'
  dom ms '1?[0-9]{1,3}' # under 2 s
  dom axis '0(\.0+)? (us|ms|s)'
  open_page "$name" '#zoom=0.25-0.5&unit=1' --dump-dom
  dom marked 1
  dom window '[1-9][0-9]*-[1-9][0-9]*'
  dom axis '[0-9.]+ (us|ms|s)'
  open_page "$name" '' --window-size=1400,1800 --screenshot="$shots/$name-wide-light.png"
  open_page "$name" '' --window-size=500,1800 --blink-settings=preferredColorScheme=0 --screenshot="$shots/$name-narrow-dark.png"
  [ -s "$shots/$name-wide-light.png" ] && [ -s "$shots/$name-narrow-dark.png" ] || fail "no screenshot of $name"
done

for width in 500 1200; do
  open_page long '' --window-size=$width,900 --dump-dom
  dom beyond 0
done

"$fsdpc" tune "${tiny[0]}" --ranks 1,2 --memory 64MiB,300KiB --micro-batch 1,2 --wrap block --strategy full_shard --html "$scratch/tune.html" >/dev/null
open_page tune '' --window-size=1400,1200 --screenshot="$shots/tune-wide-light.png"
open_page tune '' --window-size=500,1200 --blink-settings=preferredColorScheme=0 --screenshot="$shots/tune-narrow-dark.png"
