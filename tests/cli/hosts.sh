#!/usr/bin/env bash
# Owns: two hosts, as network namespaces: the bits of one host, checkpoints in a shared folder, one clear message and
# exit code 4 when a rank dies or gets stuck on either host, nothing left behind.
source "$(dirname "$0")/lib.sh"
source "$root/tests/cli/two_hosts.sh"
model=$fixtures/gpt-tiny.fsdp
pinned=("${one_plan[@]}")
run=(run "$model" --data "$fixtures/tokens.bin" --threads 1 --quiet "${one_plan[@]}")

# hosts CODE A B ARGUMENT...: trains on A + B ranks; output in ./out and ./err.
hosts() {
  local want=$1 a=$2 b=$3 got=0
  shift 3
  over_hosts "$a" "$b" "$fsdpc" "${run[@]}" "$@" >out 2>err || got=$?
  [ "$got" = "$want" ] || { cat err >&2 && fail "$a + $b ranks, $*: exit code $got, expected $want"; }
}

# Any cut of the ranks over hosts, regular or not, has the bits of one host.
same_bits() {
  local a=$1 b=$2 name=$1+$2-$3
  shift 2
  train "one-$name" "$model" --ranks $((a + b)) --strategy "$@"
  hosts 0 "$a" "$b" --metrics "two-$name.jsonl" --save "two-$name" --strategy "$@"
  "$compare" metrics "two-$name.jsonl" "one-$name.jsonl" 0
  "$compare" weights "two-$name/model.safetensors" "one-$name.weights/model.safetensors"
}
same_bits 1 1 full_shard --eval "$fixtures/tokens.bin" --eval-every 10
same_bits 2 2 shard_grad_op
same_bits 2 2 hybrid_shard:2
same_bits 2 2 no_shard
same_bits 3 1 full_shard

# A checkpoint of two hosts: goes on on one host to the bits of a run that never stopped, and on one rank.
hosts 0 1 1 --steps 10 --save half
expect 0 "${run[@]}" --ranks 2 --save half --resume auto --metrics rest.jsonl
expect 0 "${run[@]}" --ranks 2 --save whole
"$compare" weights half/model.safetensors whole/model.safetensors
hosts 0 1 1 --steps 10 --save other
expect 0 "${run[@]}" --ranks 1 --save other --resume auto

# start A B ARGUMENT...: a long run in the background, once it has steps.
start() {
  local a=$1 b=$2
  shift 2
  rm -f metrics.jsonl
  over_hosts "$a" "$b" "$fsdpc" "${run[@]}" --strategy full_shard --steps 300000 --metrics metrics.jsonl "$@" >out 2>err &
  mpi=$!
  wait_for has_steps
}
shared_memory() { find /dev/shm -name "*$space*" 2>/dev/null | sort; }
before=$(shared_memory) # of others
# ended CODE: it has, with that code, and nothing is left of it.
ended() {
  local want=$1 code=0 since=$SECONDS i
  wait $mpi 2>/dev/null || code=$?
  [ "$code" = "$want" ] || { cat err >&2 && fail "exit code $code, expected $want"; }
  [ $((SECONDS - since)) -le 60 ] || fail "the run took $((SECONDS - since)) s to end"
  for ((i = 0; i < 100; i++)); do
    if [ -z "$(on_hosts)" ]; then break; fi
    sleep 0.05
  done
  [ -z "$(on_hosts)" ] || fail "left behind: $(on_hosts | xargs ps -o args= -p)"
  [ "$(shared_memory)" = "$before" ] || fail "left in /dev/shm: $(shared_memory)"
}
once() { [ "$(grep -c 'fsdpc: error' err)" = 1 ] || { cat err >&2 && fail 'not one message'; }; }

for victim in 0 3; do
  start 2 2
  kill -9 "$(rank_pid $victim)"
  ended 4
  grep -qE "rank $victim was killed by signal 9 \(Killed\) in step [0-9]+ at .*instruction" err || { cat err >&2 && fail 'who died is not said'; }
  once
done

# The process that leads on the other host: mpirun's exit code is that of the process killed.
start 2 2
kill -9 "$(parent_of "$(rank_pid 2)")"
ended 137
grep -qE 'the process of rank [23] is gone, in step [0-9]+' err || { cat err >&2 && fail 'who is gone is not said'; }

# Who does not get on, though its host is well. (Seconds, since on a busy machine the others need some to begin.)
start 3 1 --timeout 15
kill -STOP "$(rank_pid 3)"
ended 4
grep -qE "no rank has got on for 15 s: rank 3 is stopped by a signal .* in step [0-9]+ at .*instruction" err || { cat err >&2 && fail 'who is stuck is not said'; }
once

# A signal to one process on one host: all save after the same step, and go on.
start 1 1 --save signalled
kill -USR1 "$(parent_of "$(rank_pid 1)")"
has_saved() { compgen -G 'signalled/step-*/checkpoint.json' >one; } # not one that is still hidden
wait_for has_saved
kill -9 "$(rank_pid 1)"
ended 4
newest=$(find signalled -maxdepth 1 -name 'step-*' | sort | tail -n 1)
[ -e "$newest/checkpoint.json" ] || fail 'SIGUSR1 on one host saved nothing'
expect 0 "${run[@]}" --ranks 2 --strategy full_shard --steps $((10#${newest##*step-} + 3)) --save signalled --resume auto

# Hosts that would not run the same.
cat >unlike <<EOF
#!/bin/sh
[ \$OMPI_COMM_WORLD_RANK = 0 ] || set -- "\$@" --wrap whole
exec "$fsdpc" "\$@"
EOF
chmod +x unlike
code=0
over_hosts 1 1 ./unlike "${run[@]}" --strategy full_shard >out 2>err || code=$?
[ $code = 4 ] || fail "exit code $code for different plans"
said err 'rank 1 has plan '
once
[ -z "$(on_hosts)" ] || fail "left behind: $(on_hosts | xargs ps -o args= -p)"
