/* elf.h - which functions an object file or a cubin defines (both are ELF64). Thread: any. */
#ifndef METRALE_COMPUTE_ELF_H
#define METRALE_COMPUTE_ELF_H
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Calls seen for each defined global function symbol; the name lives as long as the bytes. `name` is what messages call the
 * input. Bytes are not trusted: an offset outside them is ST_FORMAT. */
Status elf_functions(const void *bytes, size_t len, const char *name, void (*seen)(void *ctx, const char *symbol),
                     void *ctx, Err *err);
/* Whether one of them is called `symbol`. */
Status elf_has_function(const void *bytes, size_t len, const char *name, const char *symbol, bool *has, Err *err);
#endif
