/* Owns: claiming the job's one failure message; what it says there is to go on from; that it begins a line. */
#include "runtime/launch/control.h"

#include "runtime/runtime.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void control_fail(Control *control, uint32_t rank, const Failure *failure) {
  uint32_t free = CONTROL_FREE;
  if (atomic_load(&control->stop) == 0 && atomic_compare_exchange_strong(&control->failed, &free, CONTROL_CLAIMED)) {
    control->failed_rank = rank;
    control->failure = *failure;
    atomic_store(&control->failed, CONTROL_SAID);
  }
  atomic_store(&control->stop, 1);
}

void control_end_line(Control *control) {
  if (atomic_exchange(&control->line_open, 0) != 0) fputc('\n', stderr);
}

void control_name_saved(Control *control, Failure *failure) {
  uint64_t step = atomic_load(&control->saved_step);
  size_t used = strlen(failure->text);
  if (failure->code == RUN_INVALID && step != 0)
    snprintf(failure->text + used, sizeof failure->text - used, "; the checkpoint of step %" PRIu64 " is whole", step);
}
