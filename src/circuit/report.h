/* report.h - what hardware classes offer, and what a model needs of them.
 *
 * It is read from the TOML files that the build embedded, all of them, so that a class can be spoken of whose kernels
 * this binary does not hold. A report is a JSON object (the caller owns it); its text is written from that object, so
 * that neither can know more than the other.
 *
 * Pure.   Thread: one caller; Classes is immutable once made. */
#ifndef METRALE_CIRCUIT_REPORT_H
#define METRALE_CIRCUIT_REPORT_H
#include "circuit/plan.h"

/* One class of kernels/. Its targets are descriptions: no objects, no hash. */
typedef struct ReportClass {
    const char *name, *vendor, *arch;
    const char *inherits; /* "" for none */
    bool built;           /* the binary has kernels for it */
    KernelTarget common;  /* what every target of the class has: the layers common/ */
    const Family **families;
    uint32_t n_families; /* of all its targets, each definition once; in file order */
    const Rule **rules;  /* the first rule of each family: what it covers */
    uint32_t residual;   /* shadows that its own KERNEL.toml files declare */
} ReportClass;

typedef struct Classes {
    KernelRegistry reg; /* the embedded files, with the described targets of every class */
    ReportClass *classes;
    size_t n_classes;
    FamilySet **sets; /* hold what classes point at */
    size_t n_sets;
    struct Arena *arena;
} Classes;

/* reg's files must outlive *out. */
Status classes_new(Classes **out, const KernelRegistry *reg, Err *err);
void classes_free(Classes *c); /* NULL is fine */
/* ST_INVALID lists the classes that there are. */
Status classes_find(const Classes *c, const char *name, const ReportClass **out, Err *err);

/* What a model asks of a class: the step shapes of its plans. */
typedef struct ReportNeed {
    const Instance *in;
    const StepShape *shapes;
    uint32_t n_shapes;
    bool batch_invariant;
} ReportNeed;

/* Every op, format and shape of the model's plans that no family of the class covers. *open: is there any? A model
 * that no target of the class serves is held against what all targets of the class have in common. */
Status report_gap(json_t **out, bool *open, const Classes *c, const ReportClass *hw, const ReportNeed *need, Err *err);
void report_gap_text(const json_t *report, Str *out);

/* Which families the classes share, and which only some have. need NULL: of all families; else of those that can cover
 * something of the model. At most 16 classes. */
Status report_venn(json_t **out, const Classes *c, const ReportClass *const *hw, size_t n, const ReportNeed *need,
                   Err *err);
void report_venn_text(const json_t *report, Str *out);

/* Lines of the files that shadow others, class by class; the embedded tables have no sources, so the caller says. */
typedef struct ReportLines {
    const char *hw;
    uint64_t lines;
} ReportLines;

/* The blueprint of families: by op and format, with points, the share of points that cite a measurement, and what is
 * left unshared. hw NULL: all classes. lines may be NULL. */
Status report_lkb(json_t **out, const Classes *c, const ReportClass *hw, const ReportLines *lines, size_t n_lines,
                  Err *err);
void report_lkb_text(const json_t *report, Str *out);

/* Each kind of weight of a plan: how it is stored, how the device has it, in which format activations meet it, how
 * sums are made, and bytes. device_bytes: of one slot in a layout; false when it cannot be laid out so. */
typedef bool (*ReportDeviceBytes)(const InstanceWeight *w, const char *layout, uint64_t *bytes);
Status report_precision(json_t **out, const Plan *p, ReportDeviceBytes device_bytes, Err *err);
void report_precision_text(const json_t *report, Str *out);
#endif
