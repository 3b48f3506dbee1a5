/* Owns: one more copy of attention's forward kernel for Hopper, in a namespace VARIANT, with the FORWARD_ settings defined before. No guard. */
#define cuda_attention_hopper_fwd       forward_of_variant /* or a call might mean the product's */
#define cuda_attention_hopper_fwd_takes takes_of_variant
namespace VARIANT {
#include "kernels/cuda/attention_hopper_fwd.cu"
}
#undef cuda_attention_hopper_fwd
#undef cuda_attention_hopper_fwd_takes
#undef VARIANT
#undef FORWARD_GROUPS
#undef FORWARD_STAGES
#undef FORWARD_SUMS
#undef FORWARD_TURNS
#undef FORWARD_GROWTH
#undef FORWARD_EARLY
#undef FORWARD_MAXIMA
#undef FORWARD_TMA
