/* Owns: the meeting of a job's processes. */
#include "runtime/join.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { RETRY_MS = 20, FAREWELL_MS = 2000, MAGIC = 0x63736466 };

typedef struct Hello {
  uint32_t magic, rank, ranks, pid;
  JoinTerms terms;
} Hello;

static uint64_t now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void pause_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

/* Abstract: starts with a zero byte, lies in no folder. The user's number keeps users apart. */
static socklen_t address_of(const Launcher *launcher, struct sockaddr_un *out) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char *c = launcher->job; *c != '\0'; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
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

/* --- rank 0
 * ----------------------------------------------------------------------------------------------------------- */

static bool check_hello(const Join *join, const Hello *own, const Hello *hello, Failure *failure) {
  if (hello->ranks != own->ranks || hello->rank >= own->ranks || hello->rank == 0 || join->peers[hello->rank] >= 0)
    return fail(failure, RUN_INVALID,
                "launch: a process says that it is rank %u of %u, and this is rank 0 of %u: are two jobs "
                "mixed up?",
                hello->rank, hello->ranks, own->ranks);
  if (hello->terms.plan_hash != own->terms.plan_hash)
    return fail(failure, RUN_INVALID,
                "launch: rank %u has plan %016llx and rank 0 has %016llx; give all ranks the same model, "
                "options and version",
                hello->rank, (unsigned long long)hello->terms.plan_hash, (unsigned long long)own->terms.plan_hash);
  if (hello->terms.first_step != own->terms.first_step)
    return fail(failure, RUN_INVALID,
                "launch: rank %u would begin after step %llu and rank 0 after step %llu; do they see the "
                "same checkpoints?",
                hello->rank, (unsigned long long)hello->terms.first_step, (unsigned long long)own->terms.first_step);
  if (memcmp(&hello->terms, &own->terms, sizeof own->terms) != 0)
    return fail(failure, RUN_INVALID, "launch: rank %u was started with other options than rank 0", hello->rank);
  return true;
}

static bool accept_one(Join *join, int listener, const Hello *own, Failure *failure) {
  Hello hello = {0};
  int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (peer < 0) return errno == EINTR || errno == ECONNABORTED || trouble("accept", failure);
  if (!same_user(peer) || recv(peer, &hello, sizeof hello, 0) != (ssize_t)sizeof hello || hello.magic != MAGIC) {
    close(peer); /* none of ours */
    return true;
  }
  if (!check_hello(join, own, &hello, failure)) {
    close(peer);
    return false;
  }
  join->peers[hello.rank] = peer;
  return true;
}

/* The lowest rank that has not come, or `ranks`. */
static uint32_t missing(const Join *join) {
  uint32_t rank = 1;
  while (rank < join->ranks && join->peers[rank] >= 0) rank++;
  return rank;
}

static bool gather(Join *join, int listener, const Hello *own, uint32_t timeout_s, Failure *failure) {
  uint64_t deadline = now_ms() + (uint64_t)timeout_s * 1000;
  while (missing(join) < join->ranks) {
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    uint64_t now = now_ms();
    int32_t gone = join_gone(join);
    if (gone >= 0)
      return fail(failure, RUN_PEER_FAILED, "launch: the process of rank %d ended before the job began", (int)gone);
    if (now >= deadline)
      return fail(failure, RUN_PEER_FAILED, "launch: rank %u of %u did not appear within %u s", missing(join),
                  join->ranks, timeout_s);
    if (poll(&ready, 1, 200) > 0 && !accept_one(join, listener, own, failure)) return false;
  }
  return true;
}

static bool send_memory(int peer, int memory) {
  char go = 1, space[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec bytes = {&go, 1};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  struct cmsghdr *control = CMSG_FIRSTHDR(&message);
  *control = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof memory)};
  memcpy(CMSG_DATA(control), &memory, sizeof memory);
  return sendmsg(peer, &message, MSG_NOSIGNAL) == 1;
}

static bool lead(Join *join, const struct sockaddr_un *address, socklen_t length, const Hello *own, uint32_t timeout_s,
                 Failure *failure) {
  int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  bool ok = listener >= 0 && bind(listener, (const struct sockaddr *)address, length) == 0 &&
            listen(listener, (int)join->ranks) == 0;
  if (!ok) trouble(errno == EADDRINUSE ? "another job has the same name" : "socket", failure);
  ok = ok && gather(join, listener, own, timeout_s, failure);
  if (listener >= 0) close(listener);
  if (!ok) return false;
  join->memory = memfd_create("fsdpc", MFD_CLOEXEC);
  if (join->memory < 0 || ftruncate(join->memory, (off_t)own->terms.memory_bytes) != 0)
    return fail(failure, RUN_INVALID, "memory: %llu bytes to share cannot be had: %s",
                (unsigned long long)own->terms.memory_bytes, strerror(errno));
  for (uint32_t rank = 1; rank < join->ranks; rank++)
    if (!send_memory(join->peers[rank], join->memory))
      return fail(failure, RUN_PEER_FAILED, "launch: the process of rank %u ended before the job began", rank);
  return true;
}

/* --- the others
 * ------------------------------------------------------------------------------------------------------- */

static bool reach(Join *join, const struct sockaddr_un *address, socklen_t length, uint32_t timeout_s,
                  Failure *failure) {
  uint64_t deadline = now_ms() + (uint64_t)timeout_s * 1000;
  for (;;) {
    int leader = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (leader < 0) return trouble("socket", failure);
    join->peers[0] = leader;
    if (connect(leader, (const struct sockaddr *)address, length) == 0)
      return same_user(leader) || trouble("rank 0 is another user's", failure);
    close(leader);
    join->peers[0] = -1;
    if (now_ms() >= deadline)
      return fail(failure, RUN_PEER_FAILED, "launch: rank %u waited %u s for rank 0, which did not appear", join->rank,
                  timeout_s);
    pause_ms(RETRY_MS);
  }
}

static bool receive_memory(Join *join) {
  char go, space[CMSG_SPACE(sizeof(int))];
  struct iovec bytes = {&go, 1};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
  ssize_t got;
  do got = recvmsg(join->peers[0], &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  struct cmsghdr *control = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
  if (control == NULL || control->cmsg_type != SCM_RIGHTS) return false;
  memcpy(&join->memory, CMSG_DATA(control), sizeof join->memory);
  return true;
}

static bool follow(Join *join, const struct sockaddr_un *address, socklen_t length, const Hello *own,
                   uint32_t timeout_s, Failure *failure) {
  if (!reach(join, address, length, timeout_s, failure)) return false;
  if (send(join->peers[0], own, sizeof *own, MSG_NOSIGNAL) == (ssize_t)sizeof *own && receive_memory(join)) return true;
  return fail(failure, RUN_PEER_FAILED, "%s", ""); /* rank 0 has said why */
}

/* --- both
 * ------------------------------------------------------------------------------------------------------------- */

bool join_open(Arena *arena, Join *join, const Launcher *launcher, const JoinTerms *terms, uint32_t timeout_s,
               Failure *failure) {
  struct sockaddr_un address;
  socklen_t length = address_of(launcher, &address);
  const Hello own = {MAGIC, launcher->rank, launcher->ranks, (uint32_t)getpid(), *terms};
  *join = (Join){.rank = launcher->rank, .ranks = launcher->ranks, .memory = -1};
  join->peers = ARENA_ARRAY(arena, int, launcher->ranks);
  for (uint32_t i = 0; i < join->ranks; i++) join->peers[i] = -1;
  bool ok = join->rank == 0 ? lead(join, &address, length, &own, timeout_s, failure)
                            : follow(join, &address, length, &own, timeout_s, failure);
  if (!ok) join_close(join);
  return ok;
}

int32_t join_gone(const Join *join) {
  char byte;
  for (uint32_t rank = 0; rank < join->ranks; rank++)
    if (join->peers[rank] >= 0 && recv(join->peers[rank], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return (int32_t)rank;
  return -1;
}

void join_close(Join *join) {
  uint64_t deadline = now_ms() + FAREWELL_MS;
  for (uint32_t rank = 0; rank < join->ranks; rank++) {
    struct pollfd end = {.fd = join->peers[rank], .events = POLLIN};
    uint64_t now = now_ms();
    if (join->peers[rank] < 0) continue;
    if (join->rank == 0 && join->memory >= 0 && now < deadline) poll(&end, 1, (int)(deadline - now));
    close(join->peers[rank]);
    join->peers[rank] = -1;
  }
  if (join->memory >= 0) close(join->memory);
  join->memory = -1;
}
