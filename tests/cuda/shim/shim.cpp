/* Owns: running CUDA blocks as fibers. Threads of a block run in a seeded order, at one pace or warp by warp, until they wait;
 * whoever waits for a barrier or a value is passed over until it opens, or is there. Waiting for what can never come ends the program with
 * a message. */
#include "tests/cuda/shim/shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <map>
#include <sys/mman.h>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define SHOW(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#define HIDDEN(p, n) (__asan_region_is_poisoned(p, n) != NULL)
#else
#define HIDE(p, n) ((void)(p), (void)(n))
#define SHOW(p, n) ((void)(p), (void)(n))
#define HIDDEN(p, n) ((void)(p), (void)(n), false)
#endif

namespace {

constexpr size_t STACK_BYTES = 256 * 1024, SHARED_BYTES = 256 * 1024, RED_ZONE = 64;
constexpr size_t STAGGER = 13 * 64; /* between the tops of stacks, modulo pages: or all would share few lines of the cache */

struct Barrier {
  unsigned phase;
  int arrived, live;
};

struct Warp {
  Barrier barrier;
  unsigned lanes[2];
  alignas(16) unsigned char slot[2][32][16];
};

struct Copy {
  void *to;
  const void *from;
  size_t bytes;
  bool there;
};

struct Fiber {
  void *sp;
#if !defined(__x86_64__)
  ucontext_t context;
#endif
  unsigned char *stack;
  ShimThread thread;
  int index;
  size_t shared; /* next array */
  int turn;      /* of __syncthreads_or */
  std::vector<Copy> copies; /* on their way */
  bool done;
  const Barrier *waiting; /* while its phase is `phase` */
  unsigned phase;
  bool (*until)(const void *at, uint32_t value); /* or until this holds */
  const void *at;
  uint32_t value;
};

/* The machine; tests are single-threaded. */
struct Machine {
  Fiber fiber[SHIM_MOST_THREADS];
  Warp warp[SHIM_MOST_THREADS / 32];
  Barrier block, named[16];
  int any[2]; /* of __syncthreads_or, taking turns */
  Fiber *now;
  const int *next, *end; /* threads that are still to run in this pass */
  int ended;             /* in this pass; -1: all waited */
  int lingering;         /* threads that do */
  uint32_t standstills;  /* so often nobody else could go on */
  void *scheduler;
#if !defined(__x86_64__)
  ucontext_t scheduler_context;
#endif
  void (*call)(void *);
  void *arg;
  uint64_t random;
  alignas(1024) unsigned char shared[SHARED_BYTES];
  size_t dynamic_bytes;
} machine;

uint64_t random_next() {
  machine.random = machine.random * 6364136223846793005u + 1442695040888963407u;
  return machine.random >> 33;
}

void shuffle(int n, int *order) {
  for (int i = 0; i < n; i++) order[i] = i;
  for (int i = n - 1; i > 0; i--) {
    int j = (int)(random_next() % (uint64_t)(i + 1)), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

/* --- switching ---------------------------------------------------------------------------------------------------- */

extern "C" void shim_fiber_main(void);
#if defined(__x86_64__)
/* Saves the callee-saved registers on the stack of the caller, whose top goes to *from, and takes up another. */
extern "C" void shim_switch(void **from, void *to);
__asm__(".text\n.globl shim_switch\n.type shim_switch,@function\nshim_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n"
        ".size shim_switch,.-shim_switch\n.section .note.GNU-stack,\"\",@progbits\n.text\n");

void prepare(Fiber *f) {
  /* So that after `ret` rsp is 8 below a multiple of 16. */
  void **top = (void **)(f->stack + STACK_BYTES - (size_t)(f->index % 64) * STAGGER) - 2;
  *top = (void *)shim_fiber_main;
  top -= 6;
  memset(top, 0, 6 * sizeof *top);
  f->sp = top;
}
void enter(Fiber *f) { shim_switch(&machine.scheduler, f->sp); }
void change(Fiber *from, Fiber *to) { shim_switch(&from->sp, to != NULL ? to->sp : machine.scheduler); }
#else
void prepare(Fiber *f) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK_BYTES - (size_t)(f->index % 64) * STAGGER;
  makecontext(&f->context, shim_fiber_main, 0);
}
void enter(Fiber *f) { swapcontext(&machine.scheduler_context, &f->context); }
void change(Fiber *from, Fiber *to) { swapcontext(&from->context, to != NULL ? &to->context : &machine.scheduler_context); }
#endif

bool waits(const Fiber *f) {
  return (f->waiting != NULL && f->waiting->phase == f->phase) || (f->until != NULL && !f->until(f->at, f->value));
}

/* Of this pass the next thread that does not wait, as the one that runs now. */
bool choose_next() {
  while (machine.next < machine.end) {
    Fiber *f = &machine.fiber[*machine.next++];
    if (f->done || waits(f)) continue;
    f->waiting = NULL, f->until = NULL, machine.now = f, shim_now = &f->thread;
    if (machine.ended < 0) machine.ended = 0;
    return true;
  }
  return false;
}

/* To the next thread at once, or back to the scheduler. */
void leave(Fiber *f) { change(f, choose_next() ? machine.now : NULL); }

/* --- barriers ----------------------------------------------------------------------------------------------------- */

void open_if_complete(Barrier *b) {
  if (b->live == 0 || b->arrived < b->live) return;
  b->arrived = 0;
  b->phase++;
}

void wait(Barrier *b) {
  Fiber *f = machine.now;
  unsigned phase = b->phase;
  b->arrived++;
  open_if_complete(b);
  if (b->phase != phase) return;
  f->waiting = b, f->phase = phase;
  leave(f);
}

Warp *warp_of(const Fiber *f) { return &machine.warp[f->index / 32]; }

void end_fiber(Fiber *f) {
  Warp *w = warp_of(f);
  f->done = true, machine.ended++;
  w->barrier.live--, machine.block.live--;
  open_if_complete(&w->barrier);
  open_if_complete(&machine.block);
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

void start_block(dim3 block, dim3 threads, dim3 blocks, int count) {
  SHOW(machine.shared, SHARED_BYTES);
  memset(machine.shared, 0xff, SHARED_BYTES);
  HIDE(machine.shared + machine.dynamic_bytes, SHARED_BYTES - machine.dynamic_bytes);
  machine.block = Barrier{0, 0, count};
  memset(machine.warp, 0, sizeof machine.warp);
  memset(machine.named, 0, sizeof machine.named);
  memset(machine.any, 0, sizeof machine.any);
  for (int i = 0; i < count; i++) {
    Fiber *f = &machine.fiber[i];
    if (f->stack == NULL) {
      void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (stack == MAP_FAILED) shim_fail("no memory for a fiber");
      f->stack = (unsigned char *)stack;
    }
    unsigned u = (unsigned)i;
    f->thread = ShimThread{dim3(u % threads.x, u / threads.x % threads.y, u / threads.x / threads.y), block, threads,
                           blocks};
    f->index = i, f->shared = (machine.dynamic_bytes + RED_ZONE + 255) / 256 * 256, f->done = false, f->waiting = NULL, f->until = NULL, f->turn = 0;
    f->copies.clear();
    machine.warp[i / 32].barrier.live++;
    prepare(f);
  }
}

/* Runs each of these threads until it waits. How many ended; -1: all wait. */
int run_once(const int *threads, int count) {
  machine.next = threads, machine.end = threads + count, machine.ended = -1;
  if (choose_next()) enter(machine.now);
  return machine.ended;
}

/* In half the blocks all threads keep pace; in the others each warp in turn runs as far ahead as barriers let it, which shows where
 * one is missing. */
void run_block(int count) {
  int order[SHIM_MOST_THREADS], left = count, part = random_next() % 2 == 0 ? count : 32, parts = (count + part - 1) / part, idle = 0;
  shuffle(count, order);
  for (int i = 0; part == 32 && i < count; i++) order[i] = i;
  for (int turn = (int)(random_next() % (uint64_t)parts); left > 0; turn = (turn + 1) % parts) {
    int first = turn * part, most = count - first < part ? count - first : part;
    bool moved = false;
    for (int ended; (ended = run_once(order + first, most)) >= 0; moved = true) left -= ended;
    idle = moved ? 0 : idle + 1;
    if (idle == parts && machine.lingering > 0) machine.lingering = idle = 0, machine.standstills++;
    if (idle == parts) shim_fail("threads wait for a barrier that others never reach, or for a value that never comes");
  }
}

} // namespace

const ShimThread *shim_now;

__attribute__((weak)) int shim_last_error() { return 0; }
__attribute__((weak)) void shim_submit(void *, std::function<void()> work) { work(); }

void shim_fail(const char *what) {
  fprintf(stderr, "shim: %s\n", what);
  abort();
}

void shim_seed(uint64_t seed) { machine.random = seed * 0x9E3779B97F4A7C15u + 1; }

extern "C" void shim_fiber_main(void) {
  machine.call(machine.arg);
  shim_async_end();
  end_fiber(machine.now);
  leave(machine.now);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static std::map<void *, size_t> allowed;

int shim_allow_bytes(void *kernel, size_t bytes, size_t most) {
  if (bytes > most) return 1;
  allowed[kernel] = bytes;
  return 0;
}

void shim_need_allowed(void *kernel, size_t bytes) {
  if (bytes > 48 * 1024 && bytes > allowed[kernel]) shim_fail("a launch with more shared memory than its kernel has been allowed");
}

void shim_run(dim3 blocks, dim3 threads, size_t shared_bytes, void (*call)(void *), void *arg) {
  int count = (int)(threads.x * threads.y * threads.z), total = (int)(blocks.x * blocks.y * blocks.z);
  if (count < 1 || count > SHIM_MOST_THREADS || total < 1) shim_fail("a launch of no thread, or of more than 1024");
  if (blocks.y > 65535 || blocks.z > 65535) shim_fail("a grid of more than 65535 blocks in y or z");
  int *order = (int *)malloc(sizeof *order * (size_t)total);
  shuffle(total, order);
  machine.call = call, machine.arg = arg, machine.dynamic_bytes = shared_bytes;
  for (int i = 0; i < total; i++) {
    unsigned u = (unsigned)order[i];
    start_block(dim3(u % blocks.x, u / blocks.x % blocks.y, u / blocks.x / blocks.y), threads, blocks, count);
    run_block(count);
  }
  SHOW(machine.shared, SHARED_BYTES);
  free(order);
}

void *shim_shared(size_t bytes) {
  Fiber *f = machine.now;
  unsigned char *at = machine.shared + f->shared;
  f->shared += (bytes + RED_ZONE + 15) / 16 * 16;
  if (f->shared > SHARED_BYTES) shim_fail("more shared memory than a block may have");
  SHOW(at, bytes);
  return at;
}

void *shim_dynamic(void) { return machine.shared; }

bool shim_is_shared(const void *p, size_t bytes) {
  uintptr_t at = (uintptr_t)p - (uintptr_t)machine.shared;
  return at <= SHARED_BYTES && bytes <= SHARED_BYTES - at && !HIDDEN((void *)p, bytes);
}

bool shim_chance(void) { return random_next() % 2 == 0; }

void shim_wait_until(bool (*holds)(const void *at, uint32_t value), const void *at, uint32_t value) {
  Fiber *f = machine.now;
  if (holds(at, value)) return;
  f->until = holds, f->at = at, f->value = value;
  leave(f);
}

void shim_linger(void) {
  machine.lingering++;
  shim_wait_until([](const void *at, uint32_t value) { return *(const uint32_t *)at != value; }, &machine.standstills, machine.standstills);
}

static Barrier *named_of(int id, int threads) {
  if (id < 1 || id > 15 || threads < 32 || threads % 32 != 0) shim_fail("a named barrier that there is not, or of no whole warps");
  Barrier *b = &machine.named[id];
  if (b->arrived > 0 && b->live != threads) shim_fail("threads expect different numbers at a named barrier");
  b->live = threads;
  return b;
}
void named_barrier(int id, int threads) { wait(named_of(id, threads)); }
void named_arrive(int id, int threads) {
  Barrier *b = named_of(id, threads);
  b->arrived++;
  open_if_complete(b);
}

void __syncthreads(void) { wait(&machine.block); }

int __syncthreads_or(int predicate) {
  int turn = machine.now->turn++ & 1;
  machine.any[turn] |= predicate != 0;
  wait(&machine.block);
  int any = machine.any[turn];
  machine.any[turn ^ 1] = 0; /* everyone has read it: it belonged to the call before */
  wait(&machine.block);
  return any;
}

unsigned char *shim_offer(void) {
  Fiber *f = machine.now;
  Warp *w = warp_of(f);
  unsigned phase = w->barrier.phase & 1;
  if (w->barrier.arrived == 0) w->lanes[phase] = 0;
  w->lanes[phase] |= 1u << f->index % 32;
  return w->slot[phase][f->index % 32];
}

ShimExchange shim_meet(void) {
  Warp *w = warp_of(machine.now);
  unsigned phase = w->barrier.phase & 1;
  wait(&w->barrier);
  return ShimExchange{w->slot[phase], w->lanes[phase]};
}

/* --- asynchronous copies ------------------------------------------------------------------------------------------ */

static void copy_now(const Copy &c) {
  if (c.there) memcpy(c.to, c.from, c.bytes);
  else memset(c.to, 0, c.bytes);
}

void shim_copy_async(void *to, const void *from, size_t bytes, bool there) {
  Copy copy = {to, from, bytes, there};
  if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0) shim_fail("a misaligned asynchronous copy");
  if (random_next() % 2 == 0) copy_now(copy);
  else machine.now->copies.push_back(copy);
}

void copies_wait(void) {
  for (const Copy &c : machine.now->copies) copy_now(c);
  machine.now->copies.clear();
}

/* --- halves ------------------------------------------------------------------------------------------------------- */

uint16_t shim_float_to_half(float x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  if (x != x) return 0x7fff;
  float a = fabsf(x);
  if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);
  int exponent;
  frexpf(a, &exponent); /* a = m 2^exponent, m in [0.5, 1) */
  int unit = exponent - 11 < -24 ? -24 : exponent - 11; /* 2^unit: weight of the last bit */
  uint32_t steps = (uint32_t)nearbyintf(ldexpf(a, -unit));
  if (steps == 0) return sign;
  if (unit == -24) return (uint16_t)(sign | steps); /* below 2^-14, or just reaching it: the bits carry over */
  return (uint16_t)(sign | (((uint32_t)(unit + 24) << 10) + steps));
}
