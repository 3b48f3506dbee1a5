#!/usr/bin/env bash
# Owns: ranks started by a launcher, one process each, as torchrun, Open MPI and Slurm start them: the bits of ranks started
# here, one message when something is wrong, never one rank by mistake.
source "$(dirname "$0")/lib.sh"
model=$fixtures/gpt-tiny.fsdp
run=(run "$model" --data "$fixtures/tokens.bin" --threads 1 --quiet)

# as LAUNCHER RANK RANKS COMMAND...: runs with the launcher's variables. Jobs are of this run alone: another may be on its way beside it.
as() {
  local launcher=$1 rank=$2 ranks=$3
  shift 3
  case $launcher in
  torchrun) env RANK="$rank" WORLD_SIZE="$ranks" LOCAL_RANK="$rank" LOCAL_WORLD_SIZE="$ranks" MASTER_ADDR=localhost \
    MASTER_PORT=$port TORCHELASTIC_RUN_ID="test$$" "$@" ;;
  mpi) env OMPI_COMM_WORLD_RANK="$rank" OMPI_COMM_WORLD_SIZE="$ranks" OMPI_COMM_WORLD_LOCAL_SIZE="$ranks" \
    PMIX_NAMESPACE="test$$.$port" "$@" ;;
  slurm) env SLURM_PROCID="$rank" SLURM_STEP_NUM_TASKS="$ranks" SLURM_STEP_ID="$port" SLURM_JOB_ID=$$ "$@" ;;
  esac
}
# together LAUNCHER RANKS ARGUMENT...: starts all ranks, waits; codes in ${codes[*]}, messages in err.RANK.
together() {
  local launcher=$1 ranks=$2 rank
  shift 2
  pids=() codes=()
  for ((rank = ranks - 1; rank >= 0; rank--)); do
    as "$launcher" $rank "$ranks" "$fsdpc" "$@" >out.$rank 2>err.$rank </dev/null &
    pids[rank]=$!
  done
  for ((rank = 0; rank < ranks; rank++)); do
    codes[rank]=0
    wait "${pids[rank]}" || codes[rank]=$?
  done
}
port=$$

for ranks in 2 4; do train "here-$ranks" "$model" --ranks $ranks; done
for launcher in torchrun mpi slurm; do
  for ranks in 2 4; do
    name=$launcher-$ranks port=$((port + 1))
    together $launcher $ranks "${run[@]}" --save "$name" --metrics "$name.jsonl"
    [ "$(printf '%s' "${codes[@]}" | tr -d 0)" = '' ] || { cat err.* >&2 && fail "$name: exit codes ${codes[*]}"; }
    "$compare" metrics "$name.jsonl" "here-$ranks.jsonl" 0
    "$compare" weights "$name/model.safetensors" "here-$ranks.weights/model.safetensors"
  done
done
# And go on elsewhere.
together slurm 2 "${run[@]}" --save mpi-2 --resume auto
[ "${codes[*]}" = '0 0' ] || fail "resuming: exit codes ${codes[*]}"
# From the checkpoint before, where only one of the ranks can see that the newest is damaged.
port=$((port + 1))
together slurm 2 "${run[@]}" --save spoilt --save-every 8 --strategy full_shard
file=spoilt/step-00000020/rank-00002-of-00002.safetensors
printf 'x' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 2)) conv=notrunc status=none
port=$((port + 1))
together slurm 2 "${run[@]}" --save spoilt --strategy full_shard --resume auto
[ "${codes[*]}" = '0 0' ] || { cat err.* >&2 && fail "resuming from the one before: exit codes ${codes[*]}"; }
cat err.0 err.1 >err
said err "warning: checkpoint: $file: the checksum of tensor"
said err 'resuming from spoilt/step-00000016, after step 16'
"$compare" weights spoilt/model.safetensors here-2.weights/model.safetensors

# Ranks that do not run the same: one message, which names the rank that differs, and all of them end.
disagree() { # MESSAGE ARGUMENT...: rank 2 of 4 has these arguments too
  local message=$1 rank extra
  shift
  port=$((port + 1)) pids=() codes=()
  for rank in 3 2 1 0; do
    extra=()
    [ $rank != 2 ] || extra=("$@")
    as torchrun $rank 4 "$fsdpc" "${run[@]}" "${extra[@]}" >out.$rank 2>err.$rank </dev/null &
    pids[rank]=$!
  done
  for rank in 0 1 2 3; do
    codes[rank]=0
    wait "${pids[rank]}" || codes[rank]=$?
  done
  [ "${codes[*]}" = '4 4 4 4' ] || { cat err.* >&2 && fail "$message: exit codes ${codes[*]}"; }
  said err.0 "$message"
  for rank in 1 2 3; do silent err.$rank; done
}
disagree 'rank 2 has plan ' --wrap whole
disagree 'rank 2 was started with other options than rank 0' --steps 3
disagree 'rank 2 reads other data than rank 0; give all ranks the same --data and --eval' --data "$fixtures/tokens.bin"

# A rank that never comes.
code=0
as torchrun 0 2 "$fsdpc" "${run[@]}" --timeout 1 >out 2>err || code=$?
[ $code = 4 ] || fail "exit code $code without rank 1"
said err 'note: rank 0 still waits for rank 1 of 2 to appear, for 1 s at most'
said err 'rank 1 of 2 did not appear within 1 s; start all ranks on this host, or those of several hosts with mpirun'
code=0
as torchrun 1 2 "$fsdpc" "${run[@]}" --timeout 1 >out 2>err || code=$?
[ $code = 4 ] || fail "exit code $code without rank 0"
said err 'note: rank 1 still waits for rank 0 to appear, for 1 s at most'
said err 'waited 1 s for rank 0, which did not appear; start all ranks on this host, or those of several hosts with mpirun'

# A leader that is stopped while others come: they end by themselves.
listens() { # PID: it has a socket at which others could meet it
  local link
  for link in "/proc/$1"/fd/*; do
    link=$(readlink "$link") || continue
    [[ $link != socket:* ]] || ! grep -q " 00010000 .* ${link//[^0-9]/} @fsdpc" /proc/net/unix || return 0
  done
  return 1
}
port=$((port + 1))
as torchrun 0 2 "$fsdpc" "${run[@]}" --timeout 60 >out 2>err.0 </dev/null &
as_shell=$!
for ((i = 0; i < 400; i++)); do
  leader=$(cat "/proc/$as_shell/task/$as_shell/children" 2>/dev/null) && leader=${leader// /} && [ -n "$leader" ] && listens "$leader" && break
  sleep 0.05
done
kill -STOP "$leader"
code=0
as torchrun 1 2 "$fsdpc" "${run[@]}" --timeout 1 >out 2>err </dev/null || code=$?
kill -KILL "$leader"
wait "$as_shell" 2>/dev/null || true
[ $code = 4 ] || { cat err >&2 && fail "exit code $code where the leader is stopped"; }
said err 'launch: rank 1 waited 6 s for an answer of rank 0, which is stuck'

# A process that is killed takes the others with it.
for victim in 0 1 2; do
  port=$((port + 1))
  rm -f metrics.jsonl
  for rank in 0 1 2 3; do
    as torchrun $rank 4 setsid "$fsdpc" "${run[@]}" --steps 300000 --metrics metrics.jsonl >out 2>err.$rank </dev/null &
    pids[rank]=$!
  done
  wait_for has_steps
  # Bash runs `as` in a process of its own, whose child is ours.
  kill -9 "$(cat "/proc/${pids[victim]}/task/${pids[victim]}/children")"
  since=$SECONDS
  for rank in 0 1 2 3; do
    code=0
    wait "${pids[rank]}" 2>/dev/null || code=$?
    [ $rank = $victim ] || [ $code = 4 ] || { cat err.* >&2 && fail "rank $rank: exit code $code after kill -9 of rank $victim"; }
  done
  [ $((SECONDS - since)) -le 30 ] || fail 'the others took long to end'
  rm err.$victim # only bash's own word about it
  grep -qh "process of rank $victim is gone" err.* || { cat err.* >&2 && fail 'the message does not name the rank'; }
  [ "$(cat err.* | wc -l)" = 1 ] || { cat err.* >&2 && fail 'not one message'; }
done

# start_pair LAUNCHER FOLDER: two ranks that train on and on, past their first steps; their processes, and those that started them.
start_pair() {
  port=$((port + 1)) pids=()
  rm -f metrics.jsonl
  for rank in 0 1; do
    as "$1" $rank 2 setsid "$fsdpc" "${run[@]}" --steps 300000 --metrics metrics.jsonl --save "$2" >out 2>err.$rank </dev/null &
    pids[rank]=$!
  done
  wait_for has_steps
  mapfile -t processes < <(for rank in 0 1; do cat "/proc/${pids[rank]}/task/${pids[rank]}/children" && echo; done)
}

# A signal to all processes: one checkpoint, from which they go on.
start_pair slurm signalled
kill -TERM ${processes[*]} # one signal stops both, so the second may come too late
for rank in 0 1; do
  code=0
  wait "${pids[rank]}" || code=$?
  [ $code = 143 ] || [ $code = 0 ] || { cat err.* >&2 && fail "rank $rank: exit code $code after SIGTERM"; }
done
[ -n "$(find signalled -name 'step-*')" ] || fail 'SIGTERM saved nothing'

# What started the processes is killed, as mpirun can be: they save and end, rather than train on for nobody and keep the folder.
start_pair mpi orphaned
kill -9 "${pids[@]}"
for rank in 0 1; do wait "${pids[rank]}" 2>/dev/null || true; done
# One that nobody waits for has no command line any more. Without grep -q: it would end cat, which would count as none.
ended() { [ -z "$(cat "/proc/${processes[0]// /}/cmdline" "/proc/${processes[1]// /}/cmdline" 2>/dev/null | tr -d '\0')" ]; }
wait_for ended
cat err.0 err.1 >orphans
said orphans 'note: what started this run is gone'
[ "$(grep -c 'what started this run is gone' orphans)" = 1 ] || fail 'not said once'
said err.0 'which is saved; --resume auto goes on from there'
[ -n "$(find orphaned -name 'step-*')" ] || fail 'a launcher that was killed took what was trained along'

# Variables that contradict each other.
refuse() {
  local want=$1
  shift
  code=0
  env "$@" "$fsdpc" "${run[@]}" >out 2>err </dev/null || code=$?
  [ $code = 1 ] || { cat err >&2 && fail "exit code $code with $*"; }
  said err "$want"
}
refuse 'WORLD_SIZE is not set' RANK=0
refuse 'RANK is not set' WORLD_SIZE=2
refuse 'contradict' RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1
refuse 'must be a number' RANK=x WORLD_SIZE=2
refuse 'must be a number' RANK=' 0' WORLD_SIZE=2
refuse 'MASTER_PORT is not set' RANK=0 WORLD_SIZE=2
refuse 'start it with mpirun -n 4' RANK=0 LOCAL_RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1
refuse "by torchrun's variables this is rank 0 of 2, by Open MPI's rank 1 of 2" RANK=0 WORLD_SIZE=2 MASTER_ADDR=a \
  MASTER_PORT=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=x
refuse 'MPICH' PMI_SIZE=2 PMI_RANK=0
step=(SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=1)
refuse 'SLURM_NODEID is not set' "${step[@]}"
refuse 'srun --mpi=pmix' "${step[@]}" SLURM_NODEID=0 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE='3,1'
refuse 'does not say how many of 4 tasks node 2 has' "${step[@]}" SLURM_NODEID=2 SLURM_STEP_TASKS_PER_NODE='1(x2)'
refuse 'SLURM_LOCALID is 2, but this host has 2' "${step[@]}" SLURM_NODEID=1 SLURM_LOCALID=2 SLURM_STEP_TASKS_PER_NODE='2(x2)' \
  PMIX_NAMESPACE=x
# Of several hosts, so Open MPI must connect them; but nothing of Open MPI has started this process, which may have no network either.
if "$fsdpc" doctor | grep -q 'Open MPI .* loads'; then
  reason='Open MPI rank 0 of 1'
  [ -n "$(hostname -I 2>/dev/null)" ] || reason='this host has no address that the other hosts could reach'
  refuse "$reason" OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
    OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE="alone$$" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
else
  refuse 'apt-get install' OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 \
    OMPI_COMM_WORLD_LOCAL_RANK=0 PMIX_NAMESPACE="alone$$"
fi
RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 expect 64 "${run[@]}" --ranks 4
said err 'torchrun started 2 processes'
expect 0 plan "$model" --ranks 4 -o four.plan
RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 expect 64 run four.plan --data "$fixtures/tokens.bin"
said err 'torchrun started 2 processes, each of them one rank, but four.plan is a plan for 4 ranks'
said err 'help: start 4, or plan again with --ranks 2'
# One process is one rank.
for one in 'RANK=0 WORLD_SIZE=1' 'OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1'; do
  env $one "$fsdpc" "${run[@]}" --metrics one.jsonl >out 2>err </dev/null || { cat err >&2 && fail "one process, $one"; }
  head -n 1 one.jsonl | grep -q '"ranks":1,' || fail "not one rank with $one"
  code=0
  env $one "$fsdpc" "${run[@]}" --ranks 2 >out 2>err </dev/null || code=$?
  [ $code = 64 ] || fail "exit code $code with --ranks 2 and $one"
  said err 'started 1 process, each of them one rank'
done
# A batch script is no step, and a step of one task starts its ranks itself.
SLURM_PROCID=0 SLURM_NTASKS=4 expect 0 "${run[@]}" --ranks 2
SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 expect 0 "${run[@]}" --ranks 2
