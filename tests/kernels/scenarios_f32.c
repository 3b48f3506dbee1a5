/* Owns: the scenarios in float. */
#include "tests/kernels/scenario.h"
#include <math.h>

typedef float real;
typedef KernelTable Table;
#define NAME(name) scenario_f32_##name
#include "tests/kernels/scenarios.inc"
