/* Owns: signals that reach a rank and are its parent's to answer. */
#ifndef FSDPC_RUNTIME_PASS_ON_H
#define FSDPC_RUNTIME_PASS_ON_H

/* From now on the parent gets this signal, whichever of the process's threads it was sent to. Before any other thread is started: what those
 * compute with may use the stack pointer for something else (oneDNN does), and a handler would write over that. */
void signal_pass_on(int number);

#endif
