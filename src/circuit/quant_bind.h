/* quant_bind.h - the tensors of one quantised matrix in a checkpoint: are they there, of the right type and shape?
 * Bytes are not looked at; src/weights/quant.c does that.
 * Thread: any. */
#ifndef METRALE_CIRCUIT_QUANT_BIND_H
#define METRALE_CIRCUIT_QUANT_BIND_H
#include "circuit/instance.h"
#include "core/quant.h"

enum { QUANT_NAME_MAX = 512 };

/* The module's name: `tensor` without ".weight". False when it is too long. */
bool quant_module(const char *tensor, char out[QUANT_NAME_MAX]);
/* Is the module stored in this scheme: its main tensor is no float, or a tensor beside it is there? Where src names no
 * tensors, the configuration's word is taken. */
bool quant_stored(const InstanceSource *src, const QuantScheme *s, const char *module);
/* The scheme with the spelling of side tensors that the module has. */
QuantScheme quant_spelling(const InstanceSource *src, const QuantScheme *s, const char *module);
/* Calls fn for each tensor that the module has. */
Status quant_each(const InstanceSource *src, const QuantScheme *s, const char *module,
                  Status (*fn)(void *ctx, const char *tensor, Err *err), void *ctx, Err *err);
/* Checks types and shapes of the tensors of a matrix [n][k]; experts: how many lie in one tensor, 0 for a plain matrix.
 * *format: of its rows. */
Status quant_check(const InstanceSource *src, const QuantScheme *s, const char *module, uint32_t experts, uint64_t n,
                   uint64_t k, DType *format, Err *err);
#endif
