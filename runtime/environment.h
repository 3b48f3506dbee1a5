/* Owns: the environment variables that a run reads: their names, what each may be, and what they are now. The parent
 * checks all of them before ranks exist, so that who asks for one later finds it valid. */
#ifndef FSDPC_RUNTIME_ENVIRONMENT_H
#define FSDPC_RUNTIME_ENVIRONMENT_H

#include "base/arena.h"
#include "runtime/failure.h"

#include <stdint.h>

enum { CUDA_COMM_AUTO, CUDA_COMM_NCCL, CUDA_COMM_LOCAL };
enum { CUDA_ATTENTION_AUTO, CUDA_ATTENTION_OWN, CUDA_ATTENTION_CUDNN, CUDA_ATTENTION_FAST };
enum { NCCL_SUM_TREE, NCCL_SUM_NCCL };
enum { CPU_ISA_AUTO };

typedef enum Setting {
#define SETTING(id, least, most, otherwise, words, summary) SETTING_##id,
#include "runtime/environment.def"
#undef SETTING
  SETTING_COUNT
} Setting;

/* False: one has a value that it cannot have. */
bool environment_check(Failure *failure);
/* A variable that is nearly one of these and is not: it has no effect. */
typedef struct Stray {
  char name[64];
  const char *meant;
} Stray;
/* The first from place *at of the environment on, which then lies behind it; false: there is none. */
bool environment_stray(uint32_t *at, Stray *out);
/* One line on stderr for each of them. */
void environment_note_strays(void);
/* Checked before, or what it is where it is not set. */
uint32_t environment_setting(Setting setting);
/* Of a setting that is a file: its name, or NULL. */
const char *environment_file(Setting setting);
bool environment_is_file(Setting setting);
const char *environment_name(Setting setting);
/* "auto, own or cudnn", "from 1 to 999999", "the name of a file"; what it means. */
const char *environment_values(Arena *arena, Setting setting);
const char *environment_summary(Setting setting);

#endif
