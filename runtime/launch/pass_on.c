/* Owns: pass_on.h. The signal is blocked, and a thread that does nothing else waits for it. */
#include "runtime/launch/pass_on.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

static void *wait_and_pass_on(void *number) {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, (int)(intptr_t)number);
  for (int arrived;;)
    if (sigwait(&awaited, &arrived) == 0) kill(getppid(), arrived);
  return NULL;
}

/* Without room for one more thread it is the parent that has to be signalled. */
void signal_pass_on(int number) {
  sigset_t blocked;
  pthread_attr_t small;
  pthread_t thread;
  sigemptyset(&blocked);
  sigaddset(&blocked, number);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 4 * (size_t)sysconf(_SC_THREAD_STACK_MIN));
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  (void)pthread_create(&thread, &small, wait_and_pass_on, (void *)(intptr_t)number);
  pthread_attr_destroy(&small);
}
