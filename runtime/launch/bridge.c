/* Owns: the connections between hosts and what goes over them. */
#include "runtime/launch/bridge.h"

#include "base/clock.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  MAGIC = 0x31736466,
  TRY_MS = 2000,      /* one address */
  REACH_MS = 60000,   /* all of them */
  REPEAT_MS = 1000,   /* news are told again, so that a dead line is noticed */
  SILENT_MS = 2 * REPEAT_MS,
  STRANGERS = 8,      /* connections that have not said who they are */
  NOBODY = UINT32_MAX
};

/* Who leads on a host, and everything it knows; `count` RankNews follow. */
typedef struct News {
  unsigned char token[32];
  uint32_t magic, leader, count;
  uint32_t stop, failed, failed_rank, committed;
  uint64_t saved_step;
  Failure failure;
} News;

typedef struct RankNews {
  uint64_t step, beats, saved_bytes;
  uint32_t rank, arrived, departed, saved, saved_crc, polls;
  uint16_t finished, held; /* so that nothing is padded: what is told anew is compared by its bytes */
  int32_t instr;
} RankNews;

typedef struct Line {
  int fd;          /* -1: none */
  uint32_t leader; /* of the host at the other end; NOBODY: it has not said */
  unsigned char *in;
  uint64_t have, heard_ms;
} Line;

struct Bridge {
  const Join *join;
  const SharedMemory *memory;
  int listener; /* rank 0's host, else -1 */
  Line *lines;
  uint32_t line_count;
  uint32_t *leader_of; /* by rank; NOBODY: unknown */
  bool *gone;          /* by leader */
  unsigned char *out, *told;
  uint64_t most_bytes, told_bytes, told_ms;
  uint32_t address; /* being tried */
  uint64_t since_ms, try_ms;
};

static bool is_center(const Bridge *bridge) { return bridge->join->rank == 0; }

/* --- news ----------------------------------------------------------------------------------------------------------- */

static RankNews rank_news(const SharedMemory *memory, uint32_t rank) {
  const RankStatus *status = &memory->statuses[rank];
  const CommLane *lane = &memory->lanes[rank];
  RankNews news = {.rank = rank, .saved = counter_get(&status->saved)}; /* first: what it guards is read after it */
  news.saved_bytes = status->saved_bytes;
  news.saved_crc = status->saved_crc;
  news.step = atomic_load(&status->step);
  news.beats = atomic_load(&status->beats);
  news.instr = atomic_load(&status->instr);
  news.arrived = counter_get(&lane->arrived);
  news.departed = counter_get(&lane->departed);
  news.polls = atomic_load(&lane->polls);
  news.held = (uint16_t)atomic_load(&status->held);
  news.finished = (uint16_t)atomic_load(&status->finished);
  return news;
}

static uint64_t write_news(const Bridge *bridge) {
  const Join *join = bridge->join;
  const Control *control = bridge->memory->control;
  News news = {.magic = MAGIC, .leader = join->rank, .count = join->local_ranks, .stop = atomic_load(&control->stop)};
  memcpy(news.token, control->offer.token, sizeof news.token);
  news.failed = atomic_load(&control->failed) == CONTROL_SAID;
  if (news.failed) {
    news.failed_rank = control->failed_rank;
    news.failure = control->failure;
  }
  news.committed = counter_get(&control->committed);
  news.saved_step = atomic_load(&control->saved_step);
  memcpy(bridge->out, &news, sizeof news);
  for (uint32_t i = 0; i < join->local_ranks; i++) {
    RankNews rank = rank_news(bridge->memory, join->locals[i]);
    memcpy(bridge->out + sizeof news + i * sizeof rank, &rank, sizeof rank);
  }
  return sizeof news + join->local_ranks * sizeof(RankNews);
}

static void take_rank(Bridge *bridge, uint32_t leader, const RankNews *news) {
  RankStatus *status = &bridge->memory->statuses[news->rank];
  CommLane *lane = &bridge->memory->lanes[news->rank];
  bridge->leader_of[news->rank] = leader;
  atomic_store(&status->step, news->step);
  atomic_store(&status->instr, news->instr);
  atomic_store(&status->beats, news->beats);
  status->saved_bytes = news->saved_bytes;
  status->saved_crc = news->saved_crc;
  counter_set(&status->saved, news->saved);
  counter_set(&lane->arrived, news->arrived);
  counter_set(&lane->departed, news->departed);
  atomic_store(&lane->polls, news->polls);
  atomic_store(&status->held, news->held);
  atomic_store(&status->finished, news->finished);
}

static void take_news(Bridge *bridge, const News *news, const unsigned char *ranks) {
  Control *control = bridge->memory->control;
  for (uint32_t i = 0; i < news->count; i++) {
    RankNews rank;
    memcpy(&rank, ranks + i * sizeof rank, sizeof rank);
    if (rank.rank < bridge->join->ranks && bridge->memory->arenas[rank.rank] == NULL) take_rank(bridge, news->leader, &rank);
  }
  if (!is_center(bridge)) {
    atomic_store(&control->saved_step, news->saved_step);
    counter_set(&control->committed, news->committed);
  }
  if (news->failed) control_fail(control, news->failed_rank, &news->failure);
  if (news->stop) atomic_store(&control->stop, 1);
}

/* --- one line ------------------------------------------------------------------------------------------------------- */

static void hang_up(Bridge *bridge, Line *line) {
  if (line->leader != NOBODY) bridge->gone[line->leader] = true;
  close(line->fd);
  *line = (Line){.fd = -1, .leader = NOBODY, .in = line->in};
}

/* Its first message says who calls. */
static bool known(const Bridge *bridge, Line *line, const News *news) {
  const unsigned char *token = bridge->memory->control->offer.token;
  if (news->magic != MAGIC || memcmp(news->token, token, sizeof news->token) != 0) return false;
  if (news->leader >= bridge->join->ranks || news->count > bridge->join->ranks) return false;
  if (line->leader == NOBODY) line->leader = news->leader;
  return line->leader == news->leader;
}

/* Reads on in a message, and takes it when it is whole; false when the socket holds nothing more. */
static bool hear_some(Bridge *bridge, Line *line) {
  News news;
  bool headed = line->have >= sizeof news;
  if (headed) memcpy(&news, line->in, sizeof news);
  if (headed && !known(bridge, line, &news)) return hang_up(bridge, line), false;
  uint64_t all = sizeof news + (headed ? news.count * sizeof(RankNews) : 0);
  if (headed && line->have == all) {
    take_news(bridge, &news, line->in + sizeof news);
    line->heard_ms = clock_ms();
    line->have = 0;
    return true;
  }
  ssize_t got = recv(line->fd, line->in + line->have, all - line->have, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return hang_up(bridge, line), false;
  line->have += (uint64_t)got;
  return true;
}

static void hear(Bridge *bridge, Line *line) {
  while (line->fd >= 0 && hear_some(bridge, line)) {
    /* until nothing more has come */
  }
}

/* Only when the last message has arrived, so that there is always room for one. That a line is dead is heard, after all
 * that was said over it. False: to be told again. */
static bool tell(const Bridge *bridge, const Line *line, uint64_t bytes) {
  int waiting = 0;
  if (line->fd < 0 || (is_center(bridge) && line->leader == NOBODY)) return true;
  if (ioctl(line->fd, SIOCOUTQ, &waiting) != 0 || waiting != 0) return false;
  return send(line->fd, bridge->out, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

static void tell_all(Bridge *bridge) {
  uint64_t bytes = write_news(bridge), now = clock_ms();
  bool told = true, same = bytes == bridge->told_bytes && memcmp(bridge->out, bridge->told, bytes) == 0;
  if (same && now - bridge->told_ms < REPEAT_MS) return;
  for (uint32_t i = 0; i < bridge->line_count; i++)
    if (!tell(bridge, &bridge->lines[i], bytes)) told = false;
  if (!told) return;
  memcpy(bridge->told, bridge->out, bytes);
  bridge->told_bytes = bytes;
  bridge->told_ms = now;
}

static void take_line(Bridge *bridge, Line *line, int fd) {
  int bytes = (int)(2 * bridge->most_bytes);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  line->fd = fd;
  line->leader = NOBODY;
  line->have = 0;
  bridge->told_bytes = 0; /* it has been told nothing */
}

/* --- rank 0's host -------------------------------------------------------------------------------------------------- */

static socklen_t address_bytes(int family) {
  return family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

static bool is_offered(const struct ifaddrs *face) {
  if (face->ifa_addr == NULL || (face->ifa_flags & IFF_UP) == 0 || (face->ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (face->ifa_addr->sa_family == AF_INET) return true;
  const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)face->ifa_addr;
  return face->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
}

/* Every address of this machine; the port of both families lies at one place. */
static bool list_addresses(Offer *offer, in_port_t port, int listening) {
  struct ifaddrs *faces;
  if (getifaddrs(&faces) != 0) return false;
  for (const struct ifaddrs *face = faces; face != NULL && offer->count < OFFER_ADDRESSES; face = face->ifa_next) {
    if (!is_offered(face) || (listening == AF_INET && face->ifa_addr->sa_family != AF_INET)) continue;
    struct sockaddr_in6 *to = &offer->addresses[offer->count++];
    memcpy(to, face->ifa_addr, address_bytes(face->ifa_addr->sa_family));
    to->sin6_port = port;
  }
  freeifaddrs(faces);
  return offer->count > 0;
}

/* On a port that the system chooses, for both families where there are two. */
static int open_listener(int *family, in_port_t *port) {
  struct sockaddr_in6 any = {.sin6_family = AF_INET6};
  socklen_t bytes = sizeof any;
  int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  else fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), any.sin6_family = AF_INET;
  *family = any.sin6_family;
  bool ok = fd >= 0 && bind(fd, (const struct sockaddr *)&any, address_bytes(*family)) == 0 &&
            listen(fd, SOMAXCONN) == 0 && getsockname(fd, (struct sockaddr *)&any, &bytes) == 0;
  *port = any.sin6_port;
  if (ok || fd < 0) return fd;
  close(fd);
  return -1;
}

static bool offer(Bridge *bridge, Failure *failure) {
  Offer *out = &bridge->memory->control->offer;
  int family;
  in_port_t port;
  bridge->listener = open_listener(&family, &port);
  if (bridge->listener < 0)
    return fail(failure, RUN_PEER_FAILED, "launch: no port for the other hosts: %s", strerror(errno));
  if (!list_addresses(out, port, family))
    return fail(failure, RUN_INVALID, "launch: this host has no address that the other hosts could reach");
  return getrandom(out->token, sizeof out->token, 0) == (ssize_t)sizeof out->token ||
         fail(failure, RUN_INVALID, "launch: no random numbers: %s", strerror(errno));
}

static void accept_lines(Bridge *bridge) {
  int fd;
  while ((fd = accept4(bridge->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
    uint32_t i = 0;
    while (i < bridge->line_count && bridge->lines[i].fd >= 0) i++;
    if (i < bridge->line_count) take_line(bridge, &bridge->lines[i], fd);
    else close(fd);
  }
}

/* --- the other hosts ------------------------------------------------------------------------------------------------ */

static void try_next(Bridge *bridge, const Offer *offer) {
  const struct sockaddr_in6 *address = &offer->addresses[bridge->address++ % offer->count];
  int fd = socket(address->sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bridge->try_ms = clock_ms();
  if (fd < 0) return;
  if (connect(fd, (const struct sockaddr *)address, address_bytes(address->sin6_family)) == 0 || errno == EINPROGRESS)
    take_line(bridge, &bridge->lines[0], fd);
  else close(fd);
}

/* Until rank 0's host has answered, whoever ends the connection was another. */
static bool reach(Bridge *bridge, Failure *failure) {
  const Control *control = bridge->memory->control;
  uint64_t now = clock_ms();
  Line *line = &bridge->lines[0];
  if (atomic_load(&control->offered) == 0 || line->leader == 0 || bridge->gone[0]) return true;
  if (bridge->since_ms == 0) bridge->since_ms = now;
  if (now - bridge->since_ms > REACH_MS)
    return fail(failure, RUN_PEER_FAILED,
                "launch: the host of rank %u cannot reach rank 0's at port %u for %d s; let the hosts of a job connect "
                "to each other by TCP",
                bridge->join->rank, ntohs(control->offer.addresses[0].sin6_port), REACH_MS / 1000);
  if (line->fd >= 0 && now - bridge->try_ms > TRY_MS) hang_up(bridge, line);
  if (line->fd < 0) try_next(bridge, &control->offer);
  return true;
}

/* --- both ----------------------------------------------------------------------------------------------------------- */

Bridge *bridge_open(Arena *arena, const Join *join, const SharedMemory *memory, Failure *failure) {
  Bridge *bridge = ARENA_NEW(arena, Bridge);
  *bridge = (Bridge){.join = join, .memory = memory, .listener = -1};
  bridge->most_bytes = sizeof(News) + (uint64_t)join->ranks * sizeof(RankNews);
  bridge->line_count = is_center(bridge) ? join->ranks - join->local_ranks + STRANGERS : 1;
  bridge->lines = ARENA_ARRAY(arena, Line, bridge->line_count);
  bridge->leader_of = ARENA_ARRAY(arena, uint32_t, join->ranks);
  bridge->gone = ARENA_ARRAY(arena, bool, join->ranks);
  bridge->out = arena_alloc(arena, bridge->most_bytes);
  bridge->told = arena_alloc(arena, bridge->most_bytes);
  for (uint32_t i = 0; i < bridge->line_count; i++)
    bridge->lines[i] = (Line){.fd = -1, .leader = NOBODY, .in = arena_alloc(arena, bridge->most_bytes)};
  for (uint32_t rank = 0; rank < join->ranks; rank++) bridge->leader_of[rank] = NOBODY;
  if (!is_center(bridge) || offer(bridge, failure)) return bridge;
  bridge_close(bridge);
  return NULL;
}

bool bridge_tick(Bridge *bridge, Failure *failure) {
  if (is_center(bridge)) accept_lines(bridge);
  else if (!reach(bridge, failure)) return false;
  for (uint32_t i = 0; i < bridge->line_count; i++) hear(bridge, &bridge->lines[i]);
  tell_all(bridge);
  return true;
}

int32_t bridge_gone(const Bridge *bridge) {
  for (uint32_t rank = 0; rank < bridge->join->ranks; rank++) {
    uint32_t leader = bridge->leader_of[rank];
    if (leader != NOBODY && bridge->gone[leader] && atomic_load(&bridge->memory->statuses[rank].finished) == 0)
      return (int32_t)rank;
  }
  return -1;
}

int32_t bridge_silent(const Bridge *bridge, uint64_t *silent_s) {
  uint64_t now = clock_ms();
  for (uint32_t i = 0; i < bridge->line_count; i++) {
    const Line *line = &bridge->lines[i];
    if (line->leader == NOBODY || now - line->heard_ms < SILENT_MS) continue;
    *silent_s = (now - line->heard_ms) / 1000;
    return (int32_t)line->leader;
  }
  return -1;
}

void bridge_close(Bridge *bridge) {
  if (bridge == NULL) return;
  uint64_t bytes = write_news(bridge);
  for (uint32_t i = 0; i < bridge->line_count; i++) {
    if (bridge->lines[i].fd < 0) continue;
    if (bridge->lines[i].leader != NOBODY) send(bridge->lines[i].fd, bridge->out, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(bridge->lines[i].fd);
  }
  if (bridge->listener >= 0) close(bridge->listener);
}
