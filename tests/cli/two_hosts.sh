# shellcheck shell=bash
# Owns: two hosts on one machine: network namespaces joined by a cable (veth), each with a host name of its own, and
# mpirun over both. Sourced after lib.sh. Without the right to make namespaces the test is skipped, with the reason.

skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

command -v ip >/dev/null || skip 'no ip; apt-get install iproute2'
command -v mpirun >/dev/null || skip 'no mpirun; apt-get install openmpi-bin'
[ "$(id -u)" = 0 ] || skip 'network namespaces are made by root'
space=fsdpc-$$
ip netns add "$space-a" 2>err || skip "network namespaces are not allowed here: $(cat err)"

# Processes of both hosts, ours: they live in the namespaces.
on_hosts() { ip netns pids "$space-a" 2>/dev/null; ip netns pids "$space-b" 2>/dev/null; }
leave_hosts() {
  on_hosts | xargs -r kill -9 2>/dev/null || true
  ip netns del "$space-a" 2>/dev/null || true
  ip netns del "$space-b" 2>/dev/null || true
  rm -rf "$scratch"
}
trap leave_hosts EXIT
ip netns add "$space-b"
ip link add "fa$$" netns "$space-a" type veth peer name "fb$$" netns "$space-b" 2>err || skip "no veth here: $(cat err)"
for side in a b; do
  ip -n "$space-$side" address add 10.213.77.$([ $side = a ] && echo 1 || echo 2)/24 dev "f$side$$"
  ip -n "$space-$side" link set lo up
  ip -n "$space-$side" link set "f$side$$" up
done

# on SIDE COMMAND...: on host a or b, which have the names of their spaces, so that what a host leaves can be told from others'.
cat >on <<EOF
#!/bin/sh
side=\$1
shift
exec ip netns exec "$space-\$side" unshare --uts sh -c 'hostname "$space-\$0"; exec "\$@"' "\$side" "\$@"
EOF
# As Open MPI calls ssh: HOST COMMAND, a line for its shell.
cat >agent <<EOF
#!/bin/sh
host=\$1
shift
exec "$scratch/on" "\${host#$space-}" sh -c "\$*"
EOF
chmod +x on agent
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# over_hosts RANKS_A RANKS_B COMMAND...: mpirun from host a, ranks in the order of hosts. A path with blanks would be two agents.
over_hosts() {
  local a=$1 b=$2
  shift 2
  ./on a mpirun -H "$space-a:$a,$space-b:$b" -n $((a + b)) --bind-to none --mca plm_rsh_agent ./agent \
    --mca btl_tcp_if_include 10.213.77.0/24 --mca oob_tcp_if_include 10.213.77.0/24 "$@" </dev/null
}
# The process that fsdpc started as rank N, on whichever host.
rank_pid() {
  local pid
  for pid in $(on_hosts); do
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "fsdpc-rank$1" ] && echo "$pid" && return
  done
  return 1
}
parent_of() { awk '/^PPid:/ { print $2 }' "/proc/$1/status"; }
