/* Owns: claiming the job's one failure message. */
#include "runtime/control.h"

void control_fail(Control *control, uint32_t rank, const Failure *failure) {
  uint32_t free = CONTROL_FREE;
  if (atomic_load(&control->stop) == 0 && atomic_compare_exchange_strong(&control->failed, &free, CONTROL_CLAIMED)) {
    control->failed_rank = rank;
    control->failure = *failure;
    atomic_store(&control->failed, CONTROL_SAID);
  }
  atomic_store(&control->stop, 1);
}
