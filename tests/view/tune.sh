#!/usr/bin/env bash
# Owns: sweeps: the same whatever the number of workers, a front that nothing dominates, every other point with its reason.
#
# usage: tune.sh FSDPC
set -euo pipefail
fsdpc=$(realpath "$1")
cd "$(dirname "$0")/../.."
export NO_COLOR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
grid=(tests/fixtures/gpt-tiny.fsdp --ranks 1,2,4,3 --memory 64MiB,300KiB,100KiB --micro-batch auto,1,2 --wrap block --prefetch 1)

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

"$fsdpc" tune "${grid[@]}" --jobs 1 --csv "$scratch/one.csv" >"$scratch/one.txt"
"$fsdpc" tune "${grid[@]}" --jobs 3 --csv "$scratch/three.csv" --html "$scratch/plot.html" >"$scratch/three.txt"
cmp "$scratch/one.csv" "$scratch/three.csv" || fail "workers change the result"

# state,front,ranks,... stand behind the nine that were asked for, in quotes.
sed 's/^\("[^"]*",\)\{9\}//' "$scratch/one.csv" | tail -n +2 | awk -F, '
  $1 == "fits" { n++; front[n] = $2; ranks[n] = $3; time[n] = 1 / $(NF - 2); memory[n] = $(NF - 1) }
  END {
    for (i = 1; i <= n; i++) {
      on += front[i]; beaten = 0
      for (j = 1; j <= n; j++) {
        worse = time[j] > time[i] * (1 + 1e-12) || memory[j] > memory[i] || ranks[j] > ranks[i]
        better = time[j] < time[i] * (1 - 1e-12) || memory[j] < memory[i] || ranks[j] < ranks[i]
        if (!worse && better) beaten = 1
      }
      if (front[i] && beaten) { print "dominated but on the front: " i; exit 1 }
    }
    if (!on || on == n) { print on " of " n " on the front"; exit 1 }
  }' || fail "the front"
grep -qE '^Tune: .* fitting, .* impossible' "$scratch/one.txt" || fail "no summary"
grep -q 'does not fit, needs' "$scratch/one.txt" || fail "no reasons"
grep -q '^  ranks 3: a step of 8 samples cannot be split' "$scratch/one.txt" || fail "why 3 ranks are impossible"
grep -q '<circle' "$scratch/plot.html" || fail "an empty plot"
! grep -oE '(src|href)="[^"]*"' "$scratch/plot.html" | grep -v 'data:,' || fail "the plot refers to something outside"

# A cluster that was named is told; one that only the file states is not an empty option.
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --ranks 2 --memory 64MiB --micro-batch 1 --prefetch 1 --strategy full_shard --wrap block --json >"$scratch/own.json"
grep -q '"cluster": null' "$scratch/own.json" || fail "an empty option is said to have been asked for"

# A million tokens cost what all ranks cost for as long as they take, and less money keeps a plan on the front.
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --ranks 1,2,4 --memory 64MiB --micro-batch 1,2 --prefetch 1 --strategy full_shard \
  --cluster tests/view/priced.fsdp --csv "$scratch/priced.csv" --html "$scratch/priced.html" --json >"$scratch/priced.json"
grep -q '"dominated_by"' "$scratch/priced.json" || fail "JSON without dominance"
sed 's/^\("[^"]*",\)\{9\}//' "$scratch/priced.csv" | tail -n +2 | awk -F, '
  $1 == "fits" {
    n++; want = 2.5 * $3 * 1e6 / $(NF - 2) / 3600
    if ($NF < want * (1 - 1e-9) || $NF > want * (1 + 1e-9)) { print "costs " $NF ", not " want; exit 1 }
    if (n == 1 || $NF < least) { least = $NF; cheapest = $2 }
  }
  END { if (!n || !cheapest) { print "the cheapest of " n " is not on the front"; exit 1 } }' || fail "prices"
grep -q 'USD a million tokens' "$scratch/priced.html" || fail "the plot says nothing of money"
grep -q 'Why their neighbours lost' "$scratch/plot.html" || fail "the page does not say why neighbours lost"

# Clusters are told apart, axes have round numbers, and what is chosen reads as options take it.
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --cluster models/clusters/dgx-h100.fsdp,models/clusters/v100-box.fsdp --ranks 4 --micro-batch 1,2 --memory 64MiB \
  --strategy hybrid_shard:2 --wrap size:5000 --html "$scratch/clusters.html" >"$scratch/clusters.txt"
grep -q '4 ranks on models/clusters/v100-box.fsdp</span>' "$scratch/clusters.html" || fail "no legend of clusters"
[ "$(grep -oE '(circle|path).* fill="#[0-9a-f]*" opacity' "$scratch/clusters.html" | grep -oE '#[0-9a-f]{6}' | sort -u | wc -l)" = 2 ] || fail "two clusters in one colour"
grep -q '<path d=' "$scratch/clusters.html" || fail "two clusters in one shape"
grep -q 'log scale' "$scratch/clusters.html" || fail "the scale of time"
grep -E 'text-anchor="middle".*>[0-9.]+ [num]?s<' "$scratch/clusters.html" >"$scratch/ticks"
[ "$(wc -l <"$scratch/ticks")" -ge 3 ] && ! grep -vE '>([125]0*|[0-9]{0,2}\.?[05]|[0-9]{1,3}) [num]?s<' "$scratch/ticks" || fail "ticks of time: $(cat "$scratch/ticks")"
grep -q ' hybrid_shard:2 ' "$scratch/clusters.txt" || fail "the F of hybrid_shard"
# Rows stand under their heads, however long the words are.
sed 's/^plan {/& unit first_of_three { h.0 }/' tests/fixtures/gpt-tiny.fsdp >"$scratch/hand.fsdp"
"$fsdpc" tune "$scratch/hand.fsdp" --ranks 4 --micro-batch 1 --memory 64MiB --strategy hybrid_shard:2,no_shard --wrap block,size:123456 --checkpoint none,full >"$scratch/hand.txt"
awk '/strategy .* wrap .* checkpoint/ { at = index($0, "checkpoint"); wrap = index($0, "wrap"); next }
  at && !NF { exit }
  at && !/and .* more/ { rows++; if (substr($0, at - 2, 3) !~ /^  [^ ]/ || substr($0, wrap - 2, 3) !~ /^  [^ ]/) crooked = 1 }
  END { exit !(rows > 1 && !crooked) }' "$scratch/hand.txt" || fail "columns of the front: $(cat "$scratch/hand.txt")"
"$fsdpc" tune models/gpt2.fsdp --ranks 8 --memory 40GiB --micro-batch 4 --prefetch 1 --strategy full_shard --wrap size:25000000,size:60000000 >"$scratch/wraps.txt"
grep -q "^  wrap size:" "$scratch/wraps.txt" || fail "no size lost"
if grep -oE 'wrap size:[^ :,]*' "$scratch/wraps.txt" | grep -vE 'size:(25|60)000000$'; then fail "units' sizes as nobody gave them"; fi

# Left alone, it tries what the planner finds too, not only what people set by hand: no other plan may be faster.
"$fsdpc" tune models/gpt2.fsdp --ranks 8 --memory 20GiB --micro-batch 4,8 --csv "$scratch/open.csv" >/dev/null
tr -d '"' <"$scratch/open.csv" | awk -F, 'NR > 1 && $10 == "fits" { tokens = $(NF - 2); if (tokens > most) most = tokens; if ($4 == "auto" && $5 == "auto" && $6 == "auto" && tokens > found) found = tokens }
  END { exit !(found > 0 && found >= most * 0.995) }' || fail "the planner's own choice is missing, or slower: $(cut -d, -f4-9,20- "$scratch/open.csv")"

# A value given twice is tried once; no price is no price of 0.
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --ranks 2,2 --ranks 2 --memory 64MiB --micro-batch 1 --wrap block --strategy full_shard --checkpoint none --csv "$scratch/twice.csv" |
  grep -q '^Tune: 1 plan' || fail "a value given twice is tried twice"
grep -q ',$' "$scratch/twice.csv" || fail "a price that nobody stated: $(cat "$scratch/twice.csv")"

code=0
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --memory 10KiB --html "$scratch/none.html" >"$scratch/none.txt" 2>"$scratch/err" || code=$?
[ "$code" = 3 ] || fail "nothing fits, but exit code $code"
! grep -qE 'The front|neighbours' "$scratch/none.html" && grep -q 'none fits' "$scratch/none.html" || fail "a page of nothing"
grep -q 'no plan fits; the smallest needs .* of the budget of 10.0 KiB' "$scratch/err" || fail "the smallest need is not named"
code=0
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --ranks 3 >"$scratch/none.txt" 2>"$scratch/err" || code=$?
[ "$code" = 1 ] || fail "nothing is possible, but exit code $code"
[ "$(wc -l <"$scratch/none.txt")" = 1 ] || fail "an empty table"
grep -q 'plans: a step of 8 samples cannot be split into micro-batches of 1 on 3 ranks' "$scratch/err" || fail "it is not said why nothing is possible"
code=0
"$fsdpc" tune tests/fixtures/gpt-tiny.fsdp --ranks 2,many 2>"$scratch/err" || code=$?
[ "$code" = 64 ] || fail "a bad value, but exit code $code"
