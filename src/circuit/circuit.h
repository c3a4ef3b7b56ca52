/* circuit.h - the circuits, config maps and weight maps of all architectures, read from TOML text.
 * Owns: the parsed library (immutable).   Not: checkpoints.   Thread: any after load. */
#ifndef METRALE_CIRCUIT_CIRCUIT_H
#define METRALE_CIRCUIT_CIRCUIT_H
#include "core/status.h"
#include "kernels/registry.h"

typedef struct CircuitLibrary CircuitLibrary;

/* files: EmbeddedFile entries whose path starts with "circuits/": <arch>.toml, <arch>.config.toml, <arch>.weights.toml,
 * blocks/NAME.toml. Every file is checked whole; an error names file, line, column. */
Status circuit_library_new(CircuitLibrary **out, const EmbeddedFile *files, size_t n_files, Err *err);
void circuit_library_free(CircuitLibrary *lib);
size_t circuit_library_count(const CircuitLibrary *lib);
const char *circuit_library_arch(const CircuitLibrary *lib, size_t i);
#endif
