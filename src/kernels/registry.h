/* registry.h - what the build put into the binary: compiled kernels by target, and every TOML file of kernels/ and
 * circuits/. The generated registry.c defines metrale_registry, the one global of the program. Everything is read-only.
 *
 * Owns: nothing; static data.   Thread: any. */
#ifndef METRALE_KERNELS_REGISTRY_H
#define METRALE_KERNELS_REGISTRY_H
#include "core/status.h"
#include "kernels/kernel_abi.h"
#include <stddef.h>
#include <stdint.h>

/* One embedded text file; path is relative to the repository ("kernels/avx2/HARDWARE.toml", "circuits/llama.toml"). */
typedef struct EmbeddedFile {
    const char *path;
    const char *text; /* NUL behind len */
    size_t len;
} EmbeddedFile;

/* A GPU image (cubin or PTX), shared by all entries compiled from one (source, constants). */
typedef struct KernelImage {
    const uint8_t *bytes;
    size_t len;
} KernelImage;

/* One entry point of one instance. fn is NULL on GPU classes, image is NULL on CPU classes. */
typedef struct KernelObject {
    const char *entry;     /* the name in FAMILIES.toml: "linear_q4_1_rows8" */
    const char *module;    /* source stem: "linear_q4_1" */
    const char *constants; /* canonical "A=1 B=2" (sorted by name), "" for none: with entry it names the instance */
    const char *symbol;    /* name in the object or image */
    const char *hash;      /* 32 hex digits: content of the artifact's sources, flags, constants, compiler */
    KernelFn fn;
    const KernelImage *image;
} KernelObject;

typedef struct KernelTarget {
    const char *name; /* "avx2/llama/q4_1": hw/model/quant */
    const char *hw, *model, *quant;
    const char *arch;          /* HARDWARE.toml arch: "x86-64-v3", "sm_90a" */
    const char *vendor;        /* "cpu", "nvidia" */
    const char *const *layers; /* directories, first wins: "kernels/avx2/llama/any", "kernels/avx2/common", ... */
    size_t n_layers;
    const KernelObject *objects;
    size_t n_objects;
    const char *hash; /* of all transitive sources and TOML files of the target */
} KernelTarget;

typedef struct KernelRegistry {
    const KernelTarget *targets;
    size_t n_targets;
    const EmbeddedFile *files; /* sorted by path */
    size_t n_files;
    const char *left_out; /* a sentence on the classes left out at build time, or NULL */
} KernelRegistry;

extern const KernelRegistry metrale_registry;

/* NULL when absent. */
const EmbeddedFile *registry_file(const KernelRegistry *r, const char *path);
const KernelTarget *registry_target(const KernelRegistry *r, const char *name);
const KernelObject *target_object(const KernelTarget *t, const char *entry, const char *constants);
#endif
