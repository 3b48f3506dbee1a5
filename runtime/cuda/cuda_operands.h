/* Owns: the operands of call c by the numbers that they have in instr.def. Only for .c files of this folder, after all other headers:
 * the names are short. */
#ifndef FSDPC_RUNTIME_CUDA_OPERANDS_H
#define FSDPC_RUNTIME_CUDA_OPERANDS_H

/* As the kernels want it. */
#define T(i)   (c->o[i])
#define F32(i) ((float *)c->o[i].x)
#define I32(i) ((int32_t *)c->o[i].x)
#define F64(i) ((double *)c->o[i].x)
#define ACC(i) ((int64_t *)c->o[i].x)
#define N(i)   (c->n[i])
#define X(i)   (c->x[i])
#define S      (c->stream)

#endif
