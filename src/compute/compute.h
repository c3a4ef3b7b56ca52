/* compute.h - how one source becomes one artifact, for each vendor.
 *
 * A ComputeTarget knows its compiler: how to ask who it is, how to call it, and what it must not have said. It runs nothing
 * itself but the question: the build driver decides what is compiled, when, and where the artifact is kept.
 *
 * Owns: nothing; strings come from the caller's arena.   Thread: any. */
#ifndef METRALE_COMPUTE_COMPUTE_H
#define METRALE_COMPUTE_COMPUTE_H
#include "core/arena.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

/* Compilers by name or path. */
typedef struct Toolchain {
    const char *cc, *nvcc;
} Toolchain;

typedef struct CompileUnit {
    const char *source; /* path of the file to compile */
    const char *label;  /* what messages call it: "kernels/gb10/common/rms_norm.cu" */
    const char *arch;   /* HARDWARE.toml arch */
    const char *const *flags;
    size_t n_flags;
    const char *const *include_dirs; /* first wins */
    size_t n_include_dirs;
    const char *const *defines; /* "TILE_N=16" */
    size_t n_defines;
    const char *instance;         /* suffix that makes the object's symbols unique */
    const char *const *may_spill; /* entries whose points say why they spill */
    size_t n_may_spill;
    const char *out; /* path of the artifact */
} CompileUnit;

typedef struct ComputeTarget {
    const char *vendor;       /* "cpu" */
    const char *artifact_ext; /* ".o" */
    bool is_image;            /* true: the artifact's bytes go into the registry; false: it is linked */
    const char *compiler;     /* what messages call it: "a C compiler (--cc)" */
    /* The compiler's own words on its version. ST_NOTFOUND when it is not there. */
    Status (*identify)(const Toolchain *tc, Arena *a, const char **identity, Err *err);
    /* *argv is NULL-terminated. */
    Status (*command)(const Toolchain *tc, const CompileUnit *u, Arena *a, const char *const **argv, Err *err);
    /* Whether what the compiler said on success is acceptable. NULL: it always is. */
    Status (*accept)(const CompileUnit *u, const char *output, Err *err);
    /* The name of an entry in the artifact; NULL when out of memory. */
    const char *(*symbol)(const CompileUnit *u, const char *entry, Arena *a);
} ComputeTarget;

extern const ComputeTarget compute_cpu, compute_nvidia;

/* ST_UNSUPPORTED for a vendor that nothing here can compile for; the sentence names those that exist. */
Status compute_find(const char *vendor, const ComputeTarget **out, Err *err);

/* A growing argv in an arena; a failure is sticky and comes out of compute_args_take as NULL. */
typedef struct ComputeArgs {
    Arena *arena;
    const char **items;
    size_t len, cap;
    bool failed;
} ComputeArgs;
void compute_args_add(ComputeArgs *c, const char *arg); /* NULL counts as a failure */
/* Flags, then -I and -D of the unit. */
void compute_args_unit(ComputeArgs *c, const CompileUnit *u);
const char *const *compute_args_take(ComputeArgs *c);
/* Runs `program --version`. */
Status compute_version(const char *program, const char *what, Arena *a, const char **identity, Err *err);
#endif
