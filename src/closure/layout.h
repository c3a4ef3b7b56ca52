/* layout.h - a kernel tree, read and resolved: classes, models, layers, and what each target compiles.
 *
 * A target (hw, model, quant) reads up to four layers, first wins: its own leaf, its own common/, its parent's leaf, its
 * parent's common/. A layer is the files of its directory and those that its KERNEL.toml's [sources] use names. A file
 * of an upper layer hides the whole file of the same name below it, and says so in [shadow].
 *
 * FAMILIES.toml and RULES.toml are not files in that sense: all layers' are read, and an entry of an upper layer replaces
 * the entry with the same id below it. That is an override by name, not a shadow, and needs no declaration.
 *
 * All paths are relative to the tree's root ("avx2/common/rms_norm.c") and print behind tree->label.
 * Owns: every byte that it read, until tree_free.   Thread: one at a time while reading; read-only after that. */
#ifndef METRALE_CLOSURE_LAYOUT_H
#define METRALE_CLOSURE_LAYOUT_H
#include "closure/fault.h"
#include "closure/scan.h"
#include "closure/vendor.h"
#include "core/arena.h"
#include "core/hash.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TREE_MAX_LAYERS = 4 };

typedef enum {
    TREE_SOURCE, /* compiled: has the vendor's extension and stands at the top of its layer */
    TREE_HEADER, /* included: *.h *.cuh *.inc anywhere, and whatever a sub-directory holds */
} LayerKind;

/* One physical file. */
typedef struct TreeFile {
    const char *path;
    bool is_table;    /* a *.toml */
    const char *text; /* NUL behind len */
    size_t len;
    Hash128 hash;
    NameList entries; /* entry points that it defines; none in a table */
} TreeFile;

/* A file under the name by which its layer is asked for it. */
typedef struct LayerFile {
    const char *name; /* "rms_norm.cu", "detail/mma.cuh" */
    LayerKind kind;
    const TreeFile *file;
    uint32_t use_line; /* the line in KERNEL.toml that brought it in; 0: it lies in the layer's directory */
} LayerFile;

typedef struct ShadowDecl {
    const char *name, *reason;
    uint32_t line;
    bool met; /* some target saw it hide something */
} ShadowDecl;

typedef struct TreePoint {
    const char *entry, *module;
    const char *constants; /* "A=1 B=2", sorted by name */
    const char *spills;    /* why it may spill, or NULL */
    uint32_t line;
} TreePoint;

typedef struct TreeFamily {
    const char *id;
    const char *path; /* the FAMILIES.toml */
    uint32_t line;
    TreePoint *points;
    size_t n_points;
} TreeFamily;

typedef struct TreeRule {
    const char *id; /* NULL: it overrides nothing and nothing overrides it */
    const char *family;
    const char *path;
    uint32_t line;
} TreeRule;

/* A directory of kernels with its KERNEL.toml. */
typedef struct TreeLayer {
    const char *path;
    const char *kernel_toml; /* its path, also where there is no such file */
    bool has_kernel_toml;
    const char **flags;
    size_t n_flags;
    const char **modules; /* of [build] modules */
    uint32_t *module_lines;
    size_t n_modules;
    bool has_modules;
    const char **uses;
    uint32_t *use_lines;
    size_t n_uses;
    ShadowDecl *shadows;
    size_t n_shadows;
    LayerFile *files; /* sources and headers, sorted by name */
    size_t n_files, cap_files;
    TreeFamily *families;
    size_t n_families;
    TreeRule *rules;
    size_t n_rules;
} TreeLayer;

typedef struct TreeQuant {
    const char *name;
    TreeLayer *layer;
} TreeQuant;

typedef struct TreeModel {
    const char *name; /* the directory */
    const char *toml; /* path of MODEL.toml, also where there is none */
    bool has_toml;
    const char *kernel_source; /* NULL: its own leaves */
    uint32_t kernel_source_line;
    TreeQuant *quants;
    size_t n_quants;
} TreeModel;

typedef struct HwClass {
    const char *name; /* the directory */
    const char *toml;
    const char *vendor_name, *arch, *inherits; /* inherits may be NULL */
    uint32_t inherits_line;
    const Vendor *vendor; /* NULL: unknown, a fault */
    const char **flags;   /* [build] flags; a class without the key has its parent's */
    size_t n_flags;
    bool has_flags;
    TreeLayer *common; /* NULL: none */
    TreeModel *models;
    size_t n_models;
    struct HwClass *parent; /* NULL: none, or a fault */
} HwClass;

typedef struct TargetFile {
    const LayerFile *file;
    const TreeLayer *layer;
} TargetFile;

typedef struct TreeTarget {
    const char *name; /* "hopper/llama/any" */
    const char *hw, *model, *quant;
    const HwClass *cls;
    const char *model_toml; /* path of the MODEL.toml that holds for it */
    TreeLayer *layers[TREE_MAX_LAYERS];
    size_t n_layers;
    TargetFile *files; /* the winners, sorted by name */
    size_t n_files;
    const TreeFamily **families; /* merged by id */
    size_t n_families;
    const TreeRule **rules;
    size_t n_rules;
    const char **flags; /* class, then layers from the last to the first, so that the nearer word comes later */
    size_t n_flags;
    const char *const *modules; /* of the first layer that has the key; NULL: all that points name */
    size_t n_modules;
} TreeTarget;

typedef struct Tree {
    Arena *arena;
    const char *dir;   /* where it was read */
    const char *label; /* in front of paths in messages: dir without a trailing slash */
    HwClass *classes;  /* sorted by name */
    size_t n_classes;
    TreeFile **files; /* every file of every layer and every table, sorted by path once read */
    size_t n_files, cap_files;
    TreeTarget *targets; /* sorted by name */
    size_t n_targets;
    Faults faults; /* sorted */
} Tree;

/* Reads, resolves and checks the tree at dir. What is wrong with its content is no failure but a fault: the call fails
 * only when dir is no readable directory or memory runs out. */
Status tree_read(Tree **out, const char *dir, Err *err);
void tree_free(Tree *t); /* NULL is fine */

const HwClass *tree_class(const Tree *t, const char *name);
const TreeTarget *tree_target(const Tree *t, const char *name);
const TreeFile *tree_file(const Tree *t, const char *path);

/* The winner under that name, or NULL. */
const TargetFile *target_file(const TreeTarget *t, const char *name);
/* The source of a module ("rms_norm"), or NULL. */
const TargetFile *target_module(const TreeTarget *t, const char *module);
/* False when [build] modules leaves it out. */
bool target_has_module(const TreeTarget *t, const char *module);
/* The file under that name in the next layer below `above`, or NULL; *layer is where. above NULL: from the top. */
const LayerFile *target_below(const TreeTarget *t, const TreeLayer *above, const char *name, const TreeLayer **layer);

const ShadowDecl *layer_shadow(const TreeLayer *l, const char *name);
#endif
