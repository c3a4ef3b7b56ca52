/* plan.h - a lowered instance: launches with their arguments, buffers at fixed offsets, one plan for each step shape.
 *
 * Step inputs (StepInput) are the tables that the engine fills for a step; rows of one sequence are consecutive and in
 * position order. Dynamic values: rows, outs, seqs of the step. All else is fixed at lowering.
 *
 * Owns: its arena.   Thread: immutable after lower(). */
#ifndef METRALE_CIRCUIT_PLAN_H
#define METRALE_CIRCUIT_PLAN_H
#include "circuit/families.h"
#include "circuit/instance.h"
#include "core/sample.h"
#include "core/str.h"

/* The step's inputs. Sizes are bounded by the plan's shape. All tables are of 32-bit words. Groups are the instance's KV groups; a
 * kernel sees slots and block_table of its state's group only: [rows] and [seqs][max_blocks].
 *
 * Blocks of a window group in which no row of the step sees a token (kv_group_dead) may have gone to another sequence: their entry is any
 * block of the pool. A kernel may load from there, but what it finds must not reach a result. */
typedef struct StepInput {
    uint32_t rows, seqs, outs;
    const int32_t *tokens; /* [rows]; -1 - o: what the last step before this one with samples picked for its output o */
    const int32_t *positions;   /* [rows] position in the sequence, from 0 */
    const int32_t *slots;       /* [groups][rows] where the row's KV goes: physical block * 16 + offset */
    const int32_t *row_seq;     /* [rows] index of the row's sequence in this step */
    const int32_t *seq_start;   /* [seqs + 1] first row of each sequence */
    const int32_t *block_table; /* [groups][seqs][max_blocks] physical block of each logical block */
    const int32_t *out_rows;    /* [outs] rows whose logits are wanted, ascending */
    const int32_t *state_slots; /* [seqs] where each sequence's recurrent states are; NULL when the model has none */
    const SampleRow *samples;   /* [outs] what is wanted of each output's token; NULL: no picks */
    const SampleEdit *edits;    /* [n_edits] behind samples */
    uint32_t n_edits;           /* at most step_max_edits() */
} StepInput;

/* Entries of a step's edits: room for what one output may need at most, and beyond that for what many usually do. */
static inline uint32_t step_max_edits(uint32_t outs, uint32_t vocab, uint32_t max_len)
{
    const uint64_t one = (uint64_t)vocab + (vocab < max_len ? vocab : max_len), all = one * outs;
    const uint64_t usual = all < (1u << 18) ? all : 1u << 18;

    return (uint32_t)(one > usual ? one : usual);
}

typedef enum {
    STEP_TOKENS,
    STEP_POSITIONS,
    STEP_SLOTS,
    STEP_ROW_SEQ,
    STEP_SEQ_START,
    STEP_BLOCK_TABLE,
    STEP_OUT_ROWS,
    STEP_STATE_SLOTS,
    STEP_SAMPLES,
    STEP_EDITS,
    STEP_PICKS, /* no input: SamplePick [outs], written by the step and read by the next one's rows */
    STEP_TABLES
} StepTable;
const char *step_table_name(StepTable t);
/* One table for each KV group. */
static inline bool step_table_grouped(StepTable t)
{
    return t == STEP_SLOTS || t == STEP_BLOCK_TABLE;
}

typedef enum { SHAPE_DECODE, SHAPE_EXTEND } ShapeKind;
typedef struct StepShape {
    ShapeKind kind;
    uint32_t min_rows, max_rows; /* decode rung r: (r/2, r]; extend: 1..max */
    uint32_t max_seqs, max_outs; /* points of ops on outputs are chosen for outs min_rows..max_outs when decoding, for
                                    1..max_outs when extending */
    uint32_t max_len;            /* tokens of a sequence: block table stride = ceil(max_len, 16), rope table length */
} StepShape;

typedef enum {
    ARG_NULL,
    ARG_BUFFER, /* arena + offset */
    ARG_WEIGHT, /* index: slot of the block; the layer's binding gives the bytes */
    ARG_STATE,  /* index: state of the block, part */
    ARG_ROPE,   /* index: Instance.ropes */
    ARG_STEP,   /* index: StepTable */
    ARG_I32,    /* value */
    ARG_F32,    /* fvalue */
    ARG_EXPR,   /* i32, depends on rows, outs or seqs */
} ArgKind;

typedef struct PlanArg {
    ArgKind kind;
    const char *name;
    uint32_t index;
    uint32_t part;   /* ARG_STEP: the KV group, of slots and block_table */
    uint64_t offset; /* ARG_BUFFER: bytes into the plan's arena */
    int32_t value;
    float fvalue;
    const Expr *expr;
} PlanArg;

/* Names of dynamic and constant values for ARG_EXPR, grid, smem: see plan_eval. */
typedef struct PlanStep {
    const Family *family;
    const FamilyPoint *point;
    const KernelObject *kernel;
    const Rule *rule;
    uint32_t n_args, n_nodes;
    const PlanArg *args;
    const char *const *nodes;      /* ids of the nodes it covers */
    const struct PlanScope *scope; /* the step's fixed names (dims, n, k, constants) */
    bool on_outputs;
    uint64_t weight_bytes, edge_bytes_per_row; /* traffic, for cost and reports */
} PlanStep;

typedef struct PlanBlock {
    const InstanceBlock *source; /* with the act_quant nodes that lowering put in; weights and states as they were */
    const DType *formats;        /* of each edge of source */
    const char *name;
    uint32_t n_steps;
    const PlanStep *steps;
    double cost_s; /* as the cost model has it, at max_rows */
} PlanBlock;

/* The layout and format that the plan needs each weight slot in. */
typedef struct PlanWeight {
    const char *layout; /* "n16", "f32", "row" */
} PlanWeight;

typedef struct Plan {
    const Instance *instance;
    const FamilySet *families;
    StepShape shape;
    PlanBlock stem, head;
    const PlanBlock *blocks;                                              /* as Instance.blocks */
    const PlanWeight *stem_weights, *head_weights, *const *block_weights; /* [block][slot] */
    uint64_t arena_bytes;                                                 /* activations and workspaces, by liveness */
    uint64_t logits_offset; /* f32 [outs][vocab] in the arena after the head */
    char digest[33];
    struct Arena *arena;
} Plan;

typedef struct LowerOptions {
    StepShape shape;
    bool batch_invariant;      /* only reference and bit_identical rules */
    const char *const *levers; /* NULL-terminated: opted-in `differs` rules; may be NULL */
} LowerOptions;

/* Exact cover of every distinct block at least cost, or a refusal that names op, node, formats, rows and class:
 * "no family of class hopper covers op embed (node embed: weight bf16, out bf16) at rows 1..1; add one to
 * FAMILIES.toml". */
Status plan_lower(Plan **out, const Instance *in, const FamilySet *fs, const LowerOptions *opt, Err *err);
void plan_free(Plan *p);

/* Evaluates an expression of a step for a concrete step. Fixed names come from the step's scope. */
Status plan_eval(const PlanStep *s, const Expr *e, uint32_t rows, uint32_t outs, uint32_t seqs, int64_t *out, Err *err);

/* Reports. Text for people, or a JSON object (caller owns). */
void plan_show(const Plan *p, Str *out);
json_t *plan_json(const Plan *p);
void instance_show(const Instance *in, Str *out);
json_t *instance_json(const Instance *in);
/* One line for each difference in structure, formats, params; nothing when equal. */
void instance_diff(const Instance *a, const Instance *b, Str *out);
/* 32 hex digits over structure, formats, params; no names of files. */
Status instance_digest(const Instance *in, char out[33], Err *err);
#endif
