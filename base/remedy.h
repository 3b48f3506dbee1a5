/* Owns: what a user can do about an errno. */
#ifndef FSDPC_BASE_REMEDY_H
#define FSDPC_BASE_REMEDY_H

/* To follow the reason: "; free some space there, or choose another folder"; empty where nothing is known to help. */
const char *remedy_of(int error);

#endif
