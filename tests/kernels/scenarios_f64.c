/* Owns: the scenarios in double, and the table of all. */
#include "tests/kernels/scenario.h"
#include <math.h>

typedef double real;
typedef KernelTable64 Table;
#define NAME(name) scenario_f64_##name
#include "tests/kernels/scenarios.inc"

const Scenario SCENARIOS[] = {
#define SCENARIO(name) {#name, scenario_f32_##name, scenario_f64_##name, 5e-6},
#include "tests/kernels/scenarios.def"
#undef SCENARIO
};
const int SCENARIO_COUNT = sizeof SCENARIOS / sizeof *SCENARIOS;
