/* build.h - the build driver: from a kernel tree to objects, GPU images and the generated registry.
 *
 * One run: read and check the tree, choose targets by globs, work out the artifacts that they need, compile those that the
 * cache lacks, check that each exports what its points name, write the outputs.
 *
 * An artifact is named by its key: the hash of compiler, flags, constants, source and every header that the source can
 * reach. So the same work is never done twice, in one run, in the next, or for another target.
 *
 * Owns: nothing between calls.   Thread: one run at a time in a cache entry is not needed: artifacts appear whole. */
#ifndef METRALE_KBUILD_BUILD_H
#define METRALE_KBUILD_BUILD_H
#include "closure/layout.h"
#include "compute/compute.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct BuildOptions {
    const char *tree, *circuits;    /* directories to read */
    const char *abi;                /* where kernel_abi.h is */
    const char *cache, *out;        /* directories to write, made when missing */
    const char *hw, *model, *quant; /* globs; NULL is "*" */
    Toolchain tools;
    unsigned jobs;
    bool skip; /* files only, no target */
    FILE *log; /* faults, compilers' words, classes left out */
} BuildOptions;

typedef struct BuildSummary {
    size_t n_targets, n_artifacts, n_compiled, n_cached;
} BuildSummary;

/* Writes OUT/registry.c, OUT/libmetrale_kernels.a and OUT/registry.d; a file whose content would not change is not touched. */
Status build_run(const BuildOptions *o, BuildSummary *summary, Err *err);

/* ---- parts, shared by the files of this room ---- */

/* One thing to compile, once, for all targets that need it. */
typedef struct Artifact {
    char key[33];
    const ComputeTarget *compute;
    const TreeTarget *target; /* the first that needs it: compiled in its view */
    const TargetFile *source;
    const char *defines_text; /* the constants as the point writes them */
    CompileUnit unit;
    const char *path; /* in the cache */
    bool cached;      /* it was there before this run */
    NameList entries; /* that points name, each once */
    char *bytes;      /* malloc'd, once compiled */
    size_t len;
} Artifact;

typedef struct BuiltObject {
    const TreePoint *point;
    Artifact *artifact;
} BuiltObject;

typedef struct BuiltTarget {
    const TreeTarget *target;
    BuiltObject *objects; /* sorted by entry, then constants */
    size_t n_objects;
    char hash[33];
} BuiltTarget;

typedef struct Build {
    const BuildOptions *o;
    Arena *arena;
    Tree *tree;
    BuiltTarget *targets;
    size_t n_targets;
    Artifact **artifacts; /* in order of first need */
    size_t n_artifacts, cap_artifacts;
    const char *left_out; /* NULL: nothing */
    NameList inputs;      /* files outside the tree that were read, for the depfile */
} Build;

/* key.c: the content key of a unit compiled for t. `identity` is the compiler's version text. */
Status build_key(Build *b, const TreeTarget *t, const TargetFile *source, const ComputeTarget *compute,
                 const char *identity, const CompileUnit *u, char key[33], Err *err);
/* view.c: writes what t sees (each winner under its name) to dir; removes such a directory. */
Status view_write(const Build *b, const TreeTarget *t, const char *dir, Err *err);
void view_remove(const char *dir);
/* emit.c: the three outputs. */
Status build_emit(Build *b, Err *err);
#endif
