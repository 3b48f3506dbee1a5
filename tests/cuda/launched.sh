#!/usr/bin/env bash
# Owns: ranks with GPUs that a launcher started: on one host as torchrun, Open MPI and Slurm start them, and on two (network
# namespaces, mpirun) over NCCL: the bits of ranks started here; clear words where GPUs are too few or a rank dies.
# Run as: launched.sh FSDPC_FAKE COMPARE.
source "$(dirname "$0")/lib.sh"
pinned=() # other launchers plan as they are told, too
model=$fixtures/gpt-tiny.fsdp
run=(run "$model" --data "$fixtures/tokens.bin" --threads 1 --backend cuda --steps 3)

# By LAUNCHER, two processes of one host; NAME.jsonl is rank 0's.
launched() {
  local launcher=$1 name=$2 rank pids=() code=0
  for rank in 1 0; do
    case $launcher in
    torchrun) own=(RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$$ TORCHELASTIC_RUN_ID=gpu) ;;
    mpi) own=(OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 "PMIX_NAMESPACE=gpu$$") ;;
    slurm) own=(SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=1 "SLURM_JOB_ID=$$") ;;
    esac
    env "${own[@]}" "$fsdpc" "${run[@]}" --metrics "$name.jsonl" >"out.$rank" 2>"err.$rank" </dev/null &
    pids[rank]=$!
  done
  for rank in 0 1; do wait "${pids[rank]}" || code=$?; done
  [ "$code" = 0 ] || { cat err.0 err.1 >&2 && fail "$launcher: exit code $code"; }
}
FAKE_GPUS=2 train here "$model" --ranks 2 --steps 3 --backend cuda
for launcher in torchrun mpi slurm; do
  FAKE_GPUS=2 launched $launcher $launcher
  said err.0 'nccl'
  "$compare" metrics $launcher.jsonl here.jsonl 0
done
# One GPU for both: they share it.
FAKE_GPUS=1 launched torchrun shared
said err.0 'peers read in place'
"$compare" metrics shared.jsonl here.jsonl 0

# shellcheck source=tests/cli/two_hosts.sh
source "$root/tests/cli/two_hosts.sh"
hosts() {
  local want=$1 a=$2 b=$3 got=0
  shift 3
  over_hosts "$a" "$b" "$fsdpc" "${run[@]}" "$@" >out 2>err || got=$?
  [ "$got" = "$want" ] || { cat err >&2 && fail "$a + $b ranks, $*: exit code $got, expected $want"; }
}
export FAKE_GPUS=2
export FAKE_NCCL_REGISTERS=$PWD/registers # graphs' operands with the network, which hangs
for strategy in full_shard no_shard; do
  train one "$model" --ranks 4 --steps 3 --backend cuda --strategy $strategy
  rm -f registers
  hosts 0 2 2 --metrics two.jsonl --save two --strategy $strategy
  [ ! -e registers ] || fail 'what graphs hold is registered between hosts'
  said err 'nccl'
  "$compare" metrics two.jsonl one.jsonl 0
  "$compare" weights two/model.safetensors one.weights/model.safetensors
  rm -r two
done
NCCL_GRAPH_REGISTER=1 hosts 0 2 2
[ -e registers ] || fail 'who wants it registered is not heard'
export FAKE_GPUS=4
train one "$model" --ranks 4 --steps 3 --backend cuda
hosts 0 3 1 --metrics two.jsonl
"$compare" metrics two.jsonl one.jsonl 0

# Fewer GPUs than processes; and what cannot cross hosts.
FAKE_GPUS=1 hosts 1 2 2
said err 'ranks on several hosts need a GPU each'
FSDPC_CUDA_COMM=local hosts 1 1 1
said err 'ranks on several hosts need NCCL; unset it'
