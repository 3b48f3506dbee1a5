/* Owns: the meeting of a job's processes. */
#include "runtime/launch/join.h"

#include "base/clock.h"
#include "base/hash.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { NOTE_MS = 20000, RETRY_MS = 20, FAREWELL_MS = 2000, ANSWER_S = 5 /* who leads is the first to say who is missing */, MAGIC = 0x63736466 };

typedef struct Hello {
  uint32_t magic, rank, ranks, pid;
  JoinTerms terms;
} Hello;

static void pause_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Whether a peer says something, or hangs up, before the deadline: one that was stopped, or is no rank, may never. */
static bool speaks_before(int peer, uint64_t deadline) {
  struct pollfd ready = {.fd = peer, .events = POLLIN};
  for (uint64_t now; (now = clock_ms()) < deadline;)
    if (poll(&ready, 1, (int)(deadline - now)) > 0) return true;
  return false;
}

/* Abstract: starts with a zero byte, lies in no folder. The user's number keeps users apart. */
static socklen_t address_of(const Launcher *launcher, struct sockaddr_un *out) {
  char host[HOST_NAME_MAX + 1] = ""; /* containers that share a network are hosts of their own */
  gethostname(host, sizeof host - 1);
  uint64_t hash = hash_bytes(hash_bytes(HASH_START, launcher->job, strlen(launcher->job)), host, strlen(host));
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(out->sun_path + 1, sizeof out->sun_path - 1, "fsdpc.%u.%016llx", (unsigned)getuid(),
                        (unsigned long long)hash);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool same_user(int socket) {
  struct ucred credentials;
  socklen_t bytes = sizeof credentials;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) == 0 && credentials.uid == getuid();
}

static bool trouble(const char *what, Failure *failure) {
  return fail(failure, RUN_PEER_FAILED, "launch: the ranks cannot meet: %s: %s", what, strerror(errno));
}

/* Whether a rank's terms are the leader's; if not, why. */
static bool agree(uint32_t leader, const JoinTerms *own, uint32_t rank, const JoinTerms *terms, Failure *failure) {
  if (terms->plan_hash != own->plan_hash)
    return fail(failure, RUN_PEER_FAILED,
                "launch: rank %u has plan %016llx and rank %u has %016llx; give all ranks the same model, options and "
                "version",
                rank, (unsigned long long)terms->plan_hash, leader, (unsigned long long)own->plan_hash);
  if (terms->first_step != own->first_step)
    return fail(failure, RUN_PEER_FAILED,
                "launch: rank %u would begin after step %llu and rank %u after step %llu; do they see the same "
                "checkpoints?",
                rank, (unsigned long long)terms->first_step, leader, (unsigned long long)own->first_step);
  if (terms->data_hash != own->data_hash)
    return fail(failure, RUN_PEER_FAILED, "launch: rank %u reads other data than rank %u; give all ranks the same --data and --eval", rank, leader);
  if (memcmp(terms, own, sizeof *own) != 0)
    return fail(failure, RUN_PEER_FAILED, "launch: rank %u was started with other options than rank %u", rank, leader);
  return true;
}

/* How long who waits is silent at first: each time after, it has been twice as long. */
static uint64_t first_note_ms(uint32_t timeout_s) {
  uint64_t most = (uint64_t)timeout_s * 1000 * 2 / 3;
  return most < NOTE_MS ? most : NOTE_MS;
}

static void note_waiting(const Join *join, const char *whom, uint32_t timeout_s) {
  fprintf(stderr, "note: rank %u still waits for %s to appear, for %u s at most\n", join->rank, whom, timeout_s);
}

/* --- who leads ---------------------------------------------------------------------------------------------------- */

/* Place of a rank in locals, or local_ranks. */
static uint32_t place_of(const Join *join, uint32_t count, uint32_t rank) {
  for (uint32_t i = 0; i < count; i++)
    if (join->locals[i] == rank) return i;
  return join->local_ranks;
}

static bool check_hello(const Join *join, uint32_t come, const Hello *own, const Hello *hello, Failure *failure) {
  if (hello->ranks != own->ranks || hello->rank >= own->ranks || hello->rank <= own->rank ||
      place_of(join, come, hello->rank) < come)
    return fail(failure, RUN_PEER_FAILED,
                "launch: a process says that it is rank %u of %u, and this is rank %u of %u: are two jobs mixed up?",
                hello->rank, hello->ranks, own->rank, own->ranks);
  return true;
}

/* Keeps locals ascending. */
static void insert(Join *join, uint32_t come, uint32_t rank, int peer) {
  uint32_t i = come;
  for (; join->locals[i - 1] > rank; i--) {
    join->locals[i] = join->locals[i - 1];
    join->peers[i] = join->peers[i - 1];
  }
  join->locals[i] = rank;
  join->peers[i] = peer;
}

/* dispute: terms that are not the leader's. */
static bool accept_one(Join *join, int listener, uint64_t deadline, uint32_t *come, const Hello *own, Failure *dispute, Failure *failure) {
  Hello hello = {0};
  int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (peer < 0) return errno == EINTR || errno == ECONNABORTED || trouble("accept", failure);
  if (!same_user(peer) || !speaks_before(peer, deadline) || recv(peer, &hello, sizeof hello, 0) != (ssize_t)sizeof hello || hello.magic != MAGIC) {
    close(peer); /* none of ours */
    return true;
  }
  if (!check_hello(join, *come, own, &hello, failure)) {
    close(peer);
    return false;
  }
  insert(join, (*come)++, hello.rank, peer);
  agree(own->rank, &own->terms, hello.rank, &hello.terms, dispute);
  return true;
}

/* By variables as torchrun leaves them, which others set too, for processes that each have a machine of their own. */
static const char not_here[] = "; start all ranks on this host, or those of several hosts with mpirun";

/* "rank 1 of 2", or on one host of several how many: others have ranks between. */
static void name_missing(const Join *join, uint32_t come, char out[64]) {
  uint32_t rank = 0;
  if (join_spans_hosts(join)) {
    snprintf(out, 64, "%u of the %u ranks on this host", join->local_ranks - come, join->local_ranks);
    return;
  }
  while (place_of(join, come, rank) < come) rank++;
  snprintf(out, 64, "rank %u of %u", rank, join->ranks);
}

static bool gather_all(Join *join, int listener, const Hello *own, uint32_t timeout_s, Failure *dispute, Failure *failure) {
  uint64_t begin = clock_ms(), deadline = begin + (uint64_t)timeout_s * 1000, note_ms = first_note_ms(timeout_s);
  uint32_t come = 1;
  while (come < join->local_ranks) {
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    uint64_t now = clock_ms();
    int32_t gone = join_gone(join);
    char missing[64];
    name_missing(join, come, missing);
    if (gone >= 0)
      return fail(failure, RUN_PEER_FAILED, "launch: the process of rank %d ended before the job began", (int)gone);
    if (now - begin >= note_ms) note_waiting(join, missing, timeout_s), note_ms *= 2;
    if (now >= deadline)
      return fail(failure, RUN_PEER_FAILED, "launch: %s did not appear within %u s%s", missing, timeout_s, join_spans_hosts(join) ? "" : not_here);
    if (poll(&ready, 1, 200) > 0 && !accept_one(join, listener, deadline, &come, own, dispute, failure)) return false;
  }
  return true;
}

/* A dispute is said once all have come, since who came later would wait for nobody. */
static bool gather(Join *join, int listener, const Hello *own, uint32_t timeout_s, Failure *failure) {
  Failure dispute = {0};
  bool all = gather_all(join, listener, own, timeout_s, &dispute, failure);
  if (dispute.code == 0) return all;
  *failure = dispute;
  return false;
}

/* With the ranks of this host. */
static bool send_memory(const Join *join, int peer, int memory) {
  char space[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec bytes = {join->locals, join->local_ranks * sizeof *join->locals};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *control = CMSG_FIRSTHDR(&message);
  *control = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof memory)};
  memcpy(CMSG_DATA(control), &memory, sizeof memory);
  return sendmsg(peer, &message, MSG_NOSIGNAL) == (ssize_t)bytes.iov_len;
}

static bool lead(Join *join, const struct sockaddr_un *address, socklen_t length, const Hello *own, uint32_t timeout_s,
                 Failure *failure) {
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  bool ok = listener >= 0 && bind(listener, (const struct sockaddr *)address, length) == 0 &&
            listen(listener, (int)join->local_ranks) == 0;
  if (!ok) trouble(errno == EADDRINUSE ? "another job has the same name" : "socket", failure);
  ok = ok && gather(join, listener, own, timeout_s, failure);
  if (listener >= 0) close(listener);
  if (!ok) return false;
  join->memory = memfd_create("fsdpc", MFD_CLOEXEC);
  if (join->memory < 0 || ftruncate(join->memory, (off_t)own->terms.memory_bytes) != 0)
    return fail(failure, RUN_INVALID, "memory: %llu bytes to share cannot be had: %s",
                (unsigned long long)own->terms.memory_bytes, strerror(errno));
  for (uint32_t i = 1; i < join->local_ranks; i++)
    if (!send_memory(join, join->peers[i], join->memory))
      return fail(failure, RUN_PEER_FAILED, "launch: the process of rank %u ended before the job began", join->locals[i]);
  return true;
}

/* --- the others --------------------------------------------------------------------------------------------------- */

static const char *leader_name(const Join *join) { return join_spans_hosts(join) ? "this host's first rank" : "rank 0"; }

static bool reach(Join *join, const struct sockaddr_un *address, socklen_t length, uint32_t timeout_s,
                  Failure *failure) {
  uint64_t begin = clock_ms(), note_ms = first_note_ms(timeout_s);
  for (;;) {
    int leader = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (leader < 0) return trouble("socket", failure);
    join->peers[0] = leader;
    if (connect(leader, (const struct sockaddr *)address, length) == 0)
      return same_user(leader) || trouble("who leads is another user", failure);
    close(leader);
    join->peers[0] = -1;
    uint64_t waited_ms = clock_ms() - begin;
    if (waited_ms >= note_ms) note_waiting(join, leader_name(join), timeout_s), note_ms *= 2;
    if (waited_ms >= (uint64_t)timeout_s * 1000)
      return fail(failure, RUN_PEER_FAILED, "launch: rank %u waited %u s for %s, which did not appear%s", join->rank,
                  timeout_s, leader_name(join), join_spans_hosts(join) ? "" : not_here);
    pause_ms(RETRY_MS);
  }
}

static bool receive_memory(Join *join) {
  char space[CMSG_SPACE(sizeof(int))];
  struct iovec bytes = {join->locals, join->local_ranks * sizeof *join->locals};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  ssize_t got;
  do got = recvmsg(join->peers[0], &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  struct cmsghdr *control = got == (ssize_t)bytes.iov_len ? CMSG_FIRSTHDR(&message) : NULL;
  if (control == NULL || control->cmsg_type != SCM_RIGHTS) return false;
  memcpy(&join->memory, CMSG_DATA(control), sizeof join->memory);
  return true;
}

static bool follow(Join *join, const struct sockaddr_un *address, socklen_t length, const Hello *own,
                   uint32_t timeout_s, Failure *failure) {
  if (!reach(join, address, length, timeout_s, failure)) return false;
  bool sent = send(join->peers[0], own, sizeof *own, MSG_NOSIGNAL) == (ssize_t)sizeof *own;
  uint32_t patience_s = timeout_s + ANSWER_S;
  if (sent && !speaks_before(join->peers[0], clock_ms() + (uint64_t)patience_s * 1000))
    return fail(failure, RUN_PEER_FAILED, "launch: rank %u waited %u s for an answer of %s, which is stuck", join->rank,
                patience_s, leader_name(join));
  if (sent && receive_memory(join)) return true;
  return fail(failure, RUN_PEER_FAILED, "%s", ""); /* who leads has said why */
}

/* --- both --------------------------------------------------------------------------------------------------------- */

bool join_open(Arena *arena, Join *join, const Launcher *launcher, const JoinTerms *terms, uint32_t timeout_s,
               Failure *failure) {
  struct sockaddr_un address;
  socklen_t length = address_of(launcher, &address);
  const Hello own = {MAGIC, launcher->rank, launcher->ranks, (uint32_t)getpid(), *terms};
  *join = (Join){.rank = launcher->rank,
                 .ranks = launcher->ranks,
                 .local_ranks = launcher->local_ranks,
                 .starter = launcher->starter,
                 .memory = -1};
  join->locals = ARENA_ARRAY(arena, uint32_t, launcher->local_ranks);
  join->peers = ARENA_ARRAY(arena, int, launcher->local_ranks);
  for (uint32_t i = 0; i < join->local_ranks; i++) join->peers[i] = -1;
  join->locals[0] = launcher->rank;
  bool ok = launcher->local_rank == 0 ? lead(join, &address, length, &own, timeout_s, failure)
                                      : follow(join, &address, length, &own, timeout_s, failure);
  if (!ok) join_close(join);
  return ok;
}

bool join_agree_all(Arena *arena, Comm *comm, const JoinTerms *own, Failure *failure) {
  enum { WORDS = sizeof *own / sizeof(uint64_t) };
  uint64_t mine[WORDS], *words = ARENA_ARRAY(arena, uint64_t, comm->ranks);
  JoinTerms *all = ARENA_ARRAY(arena, JoinTerms, comm->ranks);
  memcpy(mine, own, sizeof mine);
  for (size_t i = 0; i < WORDS; i++) {
    if (comm->share(comm, mine[i], words) != COMM_OK)
      return fail(failure, RUN_PEER_FAILED, "rank %u: another rank failed before the first step", comm->rank);
    for (uint32_t rank = 0; rank < comm->ranks; rank++)
      memcpy((unsigned char *)&all[rank] + i * sizeof(uint64_t), &words[rank], sizeof(uint64_t));
  }
  for (uint32_t rank = 1; rank < comm->ranks; rank++)
    if (!agree(0, &all[0], rank, &all[rank], failure)) return false;
  return true;
}

int32_t join_gone(const Join *join) {
  char byte;
  for (uint32_t i = 0; i < join->local_ranks; i++)
    if (join->peers[i] >= 0 && recv(join->peers[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
      return (int32_t)join->locals[i];
  return -1;
}

void join_close(Join *join) {
  uint64_t deadline = clock_ms() + FAREWELL_MS;
  for (uint32_t i = 0; i < join->local_ranks; i++) {
    struct pollfd end = {.fd = join->peers[i], .events = POLLIN};
    uint64_t now = clock_ms();
    if (join->peers[i] < 0) continue;
    if (join_leads(join) && join->memory >= 0 && now < deadline) poll(&end, 1, (int)(deadline - now));
    close(join->peers[i]);
    join->peers[i] = -1;
  }
  if (join->memory >= 0) close(join->memory);
  join->memory = -1;
}
