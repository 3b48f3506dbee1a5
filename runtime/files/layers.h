/* Owns: what a model's layers do, as far as parameters do not show it: another number of heads, another activation or another
 * mask fits the same weights, and using them with it is not silent. Of any plan of a model it is the same, so what a plan
 * decides (rows, fused products with silu, chunks of the loss) is not in it. */
#ifndef FSDPC_RUNTIME_LAYERS_H
#define FSDPC_RUNTIME_LAYERS_H

#include "planner/plan/plan.h"

#include <jansson.h>

/* What to do about weights of another model, at the end of a message. */
#define OTHER_MODEL "; give the model, and the --set, that these weights are of"

/* By name, each in words. Owned by the caller. Allocates only outside of this program's objects. */
json_t *layers_pack(const Plan *plan);
/* The same as JSON; NULL without memory. */
const char *layers_text(Arena *arena, const Plan *plan);
/* "layer \"h.0.gelu\" is gelu erf=1, and was gelu erf=0 WHEN"; NULL where nothing differs. stored: what layers_pack gave; NULL: not
 * known. to_train: dropout and the loss count too, which weights do not depend on. */
const char *layers_difference(Arena *arena, const Plan *plan, json_t *stored, bool to_train, const char *when);

#endif
