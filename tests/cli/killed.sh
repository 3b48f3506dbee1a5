#!/usr/bin/env bash
# Owns: a rank that dies: the run ends at once with exit code 4 and the rank's name, and leaves nothing behind.
source "$(dirname "$0")/lib.sh"

# Processes of a session: the command in parentheses may hold blanks, so fields are counted after it.
of_session() {
  local stat
  for stat in /proc/[0-9]*/stat; do
    sed 's/.*) //' "$stat" 2>/dev/null | awk -v s="$1" -v f="$stat" '$4 == s && $1 != "Z" { split(f, p, "/"); print p[3] }'
  done
}
# All descendants of the run that wait in it: ranks are the children of fsdpc.
start_run() {
  rm -f metrics.jsonl
  setsid env --default-signal=INT "$fsdpc" run "$fixtures/gpt-tiny.fsdp" --ranks 4 --steps 100000000 --data "$fixtures/tokens.bin" \
    --metrics metrics.jsonl --quiet --threads 1 "$@" >out 2>err </dev/null &
  run=$!
  wait_for has_steps
}
wait_code() {
  code=0
  wait "$run" || code=$?
}
nothing_left() {
  [ -z "$(of_session "$run")" ] || fail "left behind: $(of_session "$run")"
  [ "$(shared_memory)" = "$before" ] || fail "left in /dev/shm: $(shared_memory)"
}
shared_memory() { find /dev/shm -name 'fsdpc*' 2>/dev/null | sort; }

before=$(shared_memory)
for victim in 1 3; do
  start_run
  child=$(children "$run" | awk -v n="$victim" '{ print $n }')
  [ -n "$child" ] || fail 'the run has no children'
  kill -9 "$child"
  since=$SECONDS
  wait_code
  [ "$code" = 4 ] || { cat err >&2 && fail "exit code $code after kill -9 of a rank"; }
  [ $((SECONDS - since)) -le 30 ] || fail "the run took $((SECONDS - since)) s to end"
  grep -qE 'rank [0-9]' err || { cat err >&2 && fail 'the message names no rank'; }
  nothing_left
done

# A sweep whose worker dies ends, and with it all its workers, as they do when it is killed itself.
sweep() { # VICTIM: the sweep itself, or its N-th worker
  setsid "$fsdpc" tune "$root/models/llama3-8b.fsdp" --jobs 2 >out 2>err </dev/null &
  run=$!
  has_workers() { [ "$(children "$run" | wc -w)" = 2 ]; }
  wait_for has_workers
  victim=$([ "$1" = 0 ] && echo "$run" || children "$run" | awk -v n="$1" '{ print $n }')
  kill -9 "$victim"
  wait_code
  since=$SECONDS
  gone() { [ -z "$(of_session "$run")" ]; }
  wait_for gone
  [ $((SECONDS - since)) -le 15 ] || fail "workers went on for $((SECONDS - since)) s"
}
sweep 2
[ "$code" = 1 ] || { cat err >&2 && fail "exit code $code after kill -9 of a worker"; }
said err 'fsdpc: error: a worker was killed by signal 9 (Killed)'
sweep 0
[ "$code" = 137 ] || { cat err >&2 && fail "exit code $code after kill -9 of a sweep"; }

# Who interrupts a sweep is told what it found, and no file passes for a whole one. A terminal's interrupt reaches workers too.
interrupted() { # ARGUMENT...
  setsid env --default-signal=INT "$fsdpc" tune "$fixtures/gpt-tiny.fsdp" --ranks 1 --jobs 2 --memory "$(seq -s, -f %gMiB 2 500)" "$@" >out 2>err </dev/null &
  run=$!
  has_workers() { [ "$(children "$run" | wc -w)" = 2 ]; }
  wait_for has_workers
  sleep 1
  kill -INT -- "-$run"
  wait_code
  [ "$code" = 130 ] || { cat err >&2 && fail "exit code $code after SIGINT of a sweep"; }
  said err 'fsdpc: error: stopped by signal 2 (Interrupt) before all plans were made'
  nothing_left
}
interrupted --csv half.csv
said out 'ranks, incomplete: the sweep was interrupted'
grep -qE '^Tune: interrupted, [1-9][0-9]* of [0-9]+ plans in ' out || { cat out >&2 && fail 'it is not said how far the sweep came'; }
[ ! -e half.csv ] || fail 'half a sweep is written'
said err 'note: half.csv is not written'
interrupted --json
silent out
said err 'note: --json prints whole sweeps only'

# A user's interrupt is not a failure of a peer.
# (Shells start background jobs with SIGINT ignored, hence env in start_run.)
start_run
kill -INT "$run"
wait_code
[ "$code" = 130 ] || { cat err >&2 && fail "exit code $code after SIGINT"; }
[ "$(cat err)" = 'fsdpc: error: stopped by signal 2 (Interrupt)' ] || { cat err >&2 && fail 'not one message'; }
nothing_left
# One that could have been saved says what is lost.
has_checkpoint() { compgen -G 'kept/step-*' >one; }
start_run --save kept
kill -INT "$run"
wait_code
said err 'stopped by signal 2 (Interrupt); nothing is saved, SIGTERM saves before it stops'
# SIGUSR1 saves, also to a rank's own process. No thread that computes may handle it: products of some libraries use the stack pointer for other things.
start_run --save kept
for _ in 1 2 3 4 5 6 7 8 9 10; do
  kill -USR1 "$(children "$run" | awk '{ print $2 }')"
  sleep 0.05
done
wait_for has_checkpoint
kill -INT "$run"
wait_code
nothing_left
rm -rf kept
start_run --save kept --save-every 20 --keep 2
wait_for has_checkpoint
kill -INT "$run"
wait_code
grep -qE 'stopped by signal 2 \(Interrupt\); step [0-9]+ is saved, SIGTERM saves before it stops' err || { cat err >&2 && fail 'it is not said what is saved'; }
nothing_left
rm -rf kept
# Nor does who is told to stop wait for the end of an evaluation, here of an hour.
truncate -s 2G endless.txt
rm -f metrics.jsonl
"$fsdpc" run "$fixtures/gpt-tiny.fsdp" --wrap block --ranks 2 --steps 3 --data "$fixtures/tokens.bin" --eval endless.txt --eval-every 1 --save kept \
  --metrics metrics.jsonl --quiet --threads 1 >out 2>err </dev/null &
run=$!
has_one() { [ -e metrics.jsonl ] && grep -q '"step":1,' metrics.jsonl; }
wait_for has_one
kill -TERM "$run"
wait_code
[ "$code" = 143 ] || { cat err >&2 && fail "exit code $code after SIGTERM in an evaluation"; }
said err 'note: the evaluation after step 1 was broken off'
said err 'stopped by signal 15 (Terminated) after step 1, which is saved; --resume auto goes on from there'
! grep -q '"eval"' metrics.jsonl || fail 'half an evaluation is reported'
[ "$(echo kept/*)" = kept/step-00000001 ] || fail "not what is to be saved: $(echo kept/*)"
rm -rf kept endless.txt
# `timeout` sends its signal to the command and then to the whole group: that is one request.
start_run --save kept
kill -TERM "$run"
sleep 0.01
kill -TERM "$run" 2>/dev/null || true
wait_code
[ "$code" = 143 ] || { cat err >&2 && fail "exit code $code after two SIGTERM at once"; }
said err 'which is saved; --resume auto goes on from there'
rm -rf kept
# Two runs do not write to one file of metrics. (The first one's output is not expect's.)
start_run
mv out first.out && mv err first.err
size=$(stat -c %s metrics.jsonl)
expect 1 run "$fixtures/gpt-tiny.fsdp" --ranks 1 --steps 1 --data "$fixtures/tokens.bin" --metrics metrics.jsonl --quiet
said err 'metrics: metrics.jsonl: another run is writing to it'
[ "$(stat -c %s metrics.jsonl)" -ge "$size" ] || fail "a refused run cut another's metrics"
kill -TERM "$run"
wait_code
[ "$code" = 143 ] || { cat err >&2 && fail "exit code $code after SIGTERM"; }
nothing_left

# Restarts: from the last checkpoint, to the bits of a run in which nobody died; or with fewer ranks. Of the model as it was at first.
restarted() {
  local tries
  for tries in {1..10}; do # a run may be over before it is killed
    rm -rf metrics.jsonl saved
    cp "$model" edited.fsdp
    setsid "$fsdpc" run edited.fsdp --ranks 4 --steps 1000 --data "$fixtures/tokens.bin" --metrics metrics.jsonl \
      --save saved --save-every 20 --keep 2 --quiet --threads 1 --max-restarts 2 "$@" >out 2>err </dev/null &
    run=$!
    wait_for has_steps
    echo 'model half_edited {' >edited.fsdp
    kill -9 "$(children "$run" | awk '{ print $2 }')" 2>/dev/null || true
    wait_code
    if grep -q 'was killed' err; then break; fi
    echo "try $tries was over too soon"
  done
  [ "$code" = 0 ] || { cat err >&2 && fail "exit code $code of a run with restarts"; }
  said err 'was killed by signal 9'
  nothing_left
}
model=$fixtures/gpt-tiny.fsdp
expect 0 run "$model" --ranks 4 --steps 1000 --data "$fixtures/tokens.bin" --save whole --quiet --threads 1
restarted
said err 'restart 1 of 2, with 4 ranks'
"$compare" weights saved/model.safetensors whole/model.safetensors
steps=$(grep -c '"reason":"step"' metrics.jsonl)
[ "$steps" -ge 1000 ] && [ "$steps" -le 1060 ] || fail "$steps steps were done for 1000: more than since the last checkpoint"
restarted --min-ranks 2
said err 'restart 1 of 2, with 2 ranks'
[ -d saved/step-00001000 ] || fail 'two ranks did not end what four began'
grep '"reason":"start"' metrics.jsonl | tail -n 1 | grep -q '"ranks":2,' || fail 'the restart was not with 2 ranks'
# Who reads what is said may be gone by then.
unheard() {
  local reader
  rm -rf metrics.jsonl saved spoken
  mkfifo spoken
  cat spoken >/dev/null &
  reader=$!
  setsid env --default-signal=PIPE "$fsdpc" run "$model" --ranks 2 --steps 1000 --data "$fixtures/tokens.bin" --metrics metrics.jsonl --save saved --save-every 20 --keep 2 \
    --quiet --threads 1 --max-restarts 2 >out 2>spoken </dev/null &
  run=$!
  wait_for has_steps
  kill -9 "$reader"
  wait "$reader" || true
  kill -9 "$(children "$run" | awk '{ print $2 }')" 2>/dev/null || true
  wait_code
}
unheard
[ "$code" = 0 ] || fail "exit code $code of a run whose rank died unheard"
[ -d saved/step-00001000 ] || fail 'a run whose rank died unheard did not go on'
nothing_left
# Nobody is there to see that the data changed meanwhile.
changed() {
  rm -rf metrics.jsonl saved
  cp "$fixtures/tokens.bin" mine.bin
  setsid "$fsdpc" run "$model" --ranks 2 --steps 100000 --data mine.bin --metrics metrics.jsonl --save saved --save-every 20 --keep 2 --quiet --threads 1 \
    --max-restarts 2 >out 2>err </dev/null &
  run=$!
  wait_for has_saved
  head -c 4096 "$fixtures/tokens.bin" >other.bin
  mv other.bin mine.bin # what is mapped stays as it was
  kill -9 "$(children "$run" | awk '{ print $2 }')" 2>/dev/null || true
  wait_code
}
has_saved() { ls -d saved/step-* >/dev/null 2>&1; }
changed
[ "$code" = 1 ] || { cat err >&2 && fail "exit code $code of a restart on other data"; }
said err 'restart: the data has changed since the run began'
nothing_left
# Numbers of ranks for which there is no plan are passed over, without a word.
# Steps stay as large, also where the file leaves it to the ranks how large that is.
sed '/tokens_per_step/d' "$model" >twelve.fsdp
model=twelve.fsdp
restarted --min-ranks 1 --micro-batch 3
said err 'restart 1 of 2, with 2 ranks'
! grep '"reason":"start"' metrics.jsonl | grep -v '"samples_per_step":12,' || fail 'another number of samples'
restarted --min-ranks 1 --strategy hybrid_shard:4
said err 'restart 1 of 2, with 4 ranks'
[ "$(grep -c error: err)" = 1 ] || { cat err >&2 && fail 'not one error'; }
expect 64 run a.fsdp --data x --max-restarts 2
said err 'no effect without --save'
expect 64 run "$fixtures/gpt-tiny.fsdp" --ranks 2 --data "$fixtures/tokens.bin" --save none --max-restarts 2 --min-ranks 3
said err '--min-ranks is 3, but the job has 2 ranks'
