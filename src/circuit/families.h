/* families.h - the kernel families and rules that a target offers: FAMILIES.toml and RULES.toml of its layers, merged
 * by id (upper layer wins whole).
 *
 * FAMILIES.toml
 *   [[family]]
 *   each = { f = ["q4_0", "q4_1"] }    # optional: one table for many, "{f}" in its strings (core/toml_each.h)
 *   id       = "linear_q4_1"
 *   op       = "linear"       # a family of one op: the pattern is that op, its variables are in and out (in0, in1 ...,
 *                             # out0, out1 ... where the op has several). Left out: a rule in RULES.toml gives the
 *                             # pattern.
 *   formats  = { weight = "q4_1", in = "i8/32", out = "f32" }
 *                             # by variable or weight slot ("alias.weight" with a rule); `state` for KV. A variable
 *                             # that is not listed has the class's activation format (HARDWARE.toml activation);
 *                             # matrices and states must be listed. Logits are f32.
 *   layout   = "n16"          # of its matrices (weights/layout.h); vectors are always "f32"
 *   inplace  = ["out=in0"]    # may write this output over that input
 *   args     = ["y:out", "x:in", "w:weight", "b:bias", "rows", "n", "k"]
 *   compute  = "vector"       # tensor | vector | memory
 *   numerics = "..."          # one sentence: accumulation type and order. Points of a family give the same bits for a
 *                             # row whatever the other rows are.
 *   [[family.point]]
 *   entry = "linear_q4_1_rows1"  module = "linear_q4_1"
 *   rows = [1, 1]             # hi 0: no upper bound. For ops on outputs rows counts outs
 *   where = { head_dim = 64 } # only when these values (dims, or op params / n / k) are so
 *   constants = { ROWS = 1 }  # -D at compile time
 *   grid = ["ceil(n, 16)", "1", "1"]  block = 1  smem = "0"  workspace = "0"
 *   overlap = true            # optional: a GPU may start it before the launch in front of it has ended; the kernel
 *                             # itself waits for that launch before it touches what it made
 *   evidence = "..."          # optional: a record id.   spills = "why": for the build driver only
 *
 * A family covers a node only if it binds what the node has: an optional weight that is there, and an optional
 * parameter that is off its default, must be an argument (or a `where`).
 *
 * Arguments, "NAME:BINDING" or one word for both. A binding is
 *   a pattern variable           pointer to that edge's rows                    (n_rows x width of its format)
 *   [alias.]weight|bias|...      pointer to the weight slot's device bytes, NULL when the optional slot is absent
 *   [alias.]state.k|v            pointer to this layer's pool of that part
 *   [alias.]table                pointer to the rope table: f32 [max_len][dims/2][2] = cos, sin (scaled)
 *   step.NAME                    pointer to a step input (StepInput in plan.h):
 *                                tokens positions slots row_seq seq_start block_table out_rows
 *                                state_slots samples edits picks (the step's own result);
 *                                slots and block_table are those of the KV group of
 *                                the states that the ops work on, as if there were no other
 *   workspace                    pointer to `workspace` bytes private to this launch
 *   [alias.]PARAM                the op's parameter: int or enum -> i32, float -> f32
 *   else an integer expression   -> i32; names: rows, outs, seqs, max_blocks, block_tokens, every dim of the
 *                                instance, [alias.]n / k (matrix shape, of one expert),
 *                                [alias.]experts, [alias.]table.dims (rotated elements of a
 *                                head), VAR.width (elements a row of a variable), the point's constants
 *
 * RULES.toml
 *   [[rule]]
 *   id = "norm_quant"   family = "rms_norm_quant"
 *   pattern = [ { op = "rms_norm", as = "n", in = ["x"], out = ["h"] },
 *               { op = "act_quant", as = "q", in = ["h"], out = ["y"] } ]
 *   where   = { "n.role" = "..." }     # optional: linear roles (string) or integer values
 *   keep    = ["h"]                    # inner variables that the family writes too; an inner value that others read
 *                                      # and that is not kept: no match
 *   numerics = { kind = "bit_identical", proof = "tests/kernels/test_x.c" }
 *                                      # reference | bit_identical (proof) | differs (lever = "...", opted in;
                                      # "batch_invariant": where that lever is off)
 *
 * Owns: its arena.  Thread: immutable after load. */
#ifndef METRALE_CIRCUIT_FAMILIES_H
#define METRALE_CIRCUIT_FAMILIES_H
#include "circuit/signature.h"
#include "core/dtype.h"
#include "core/expr.h"
#include "core/status.h"
#include "kernels/registry.h"

typedef struct FamilyPoint {
    const char *entry, *module, *constants; /* canonical text, as in KernelObject */
    uint32_t rows_lo, rows_hi;              /* hi 0: unbounded */
    uint32_t n_where, n_constants;
    const char *const *where_names;
    const int64_t *where_values;
    const char *const *constant_names;
    const int64_t *constant_values;
    const Expr *grid[3], *smem, *workspace;
    uint32_t block;
    bool overlap;
    const char *evidence;
} FamilyPoint;

typedef struct FamilyFormat {
    const char *name; /* variable or slot */
    DType dtype;
} FamilyFormat;

typedef struct FamilyArg {
    const char *name, *binding;
} FamilyArg;

typedef struct Family {
    const char *id;
    const OpDef *op; /* NULL: by rule */
    const char *layout;
    const char *numerics;
    const char *file; /* where it is defined */
    uint32_t line;
    uint32_t n_formats, n_args, n_points, n_inplace;
    const FamilyFormat *formats;
    const FamilyArg *args;
    const FamilyPoint *points;
    const char *const *inplace; /* "out=in" texts */
} Family;

enum { RULE_MAX_NODES = 8 };
typedef struct RuleNode {
    const OpDef *op;
    const char *as;
    const char *in[OP_MAX_IN], *out[OP_MAX_OUT]; /* variables; n by op */
} RuleNode;
typedef enum { NUMERICS_REFERENCE, NUMERICS_BIT_IDENTICAL, NUMERICS_DIFFERS } NumericsKind;
typedef struct Rule {
    const char *id;
    const Family *family;
    uint32_t n_nodes, n_where, n_keep;
    RuleNode nodes[RULE_MAX_NODES];
    const char *const *where_names, *const *where_values; /* values as text */
    const char *const *keep;
    NumericsKind numerics;
    const char *lever; /* of NUMERICS_DIFFERS */
} Rule;

/* Facts of the class that lowering needs: HARDWARE.toml of the target's own class. */
typedef struct ClassFacts {
    const char *name; /* "avx2" */
    DType activation; /* format of edges */
    double bandwidth; /* bytes / s, for the cost model */
    double launch_s;  /* seconds a launch, for the cost model */
    double memory;    /* bytes that a device of the class has, for reports */
} ClassFacts;

typedef struct FamilySet {
    const KernelTarget *target;
    ClassFacts facts;
    const Family *families;
    uint32_t n_families;
    const Rule *rules; /* explicit ones, then one implied rule for each family with an op */
    uint32_t n_rules;
    struct Arena *arena;
} FamilySet;

/* Reads the tables of t's layers from the embedded files. Every entry must be among t's objects, unless t has no hash:
 * then it is a description for reports (report.h), and no plan can be made of it. */
Status families_load(FamilySet **out, const KernelRegistry *reg, const KernelTarget *t, Err *err);
void families_free(FamilySet *fs);
#endif
