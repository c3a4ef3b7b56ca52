/* lowering.h - what the passes of plan_lower() hand to each other. Private to the room.
 *
 *   quantize.c   block            -> LowerBlock   act_quant nodes in front of linears, a format for every edge
 *   match.c      LowerBlock       -> Match[]      every place where a rule fits, with its point
 *   cover.c      Match[]          -> Match*[]     the cheapest exact cover, in launch order
 *   buffers.c    LowerBlock+cover -> offsets      where each value lives
 *   bind.c       Match + offsets  -> PlanStep     arguments, scope, traffic
 *   lower.c      puts them together, checks layouts, digests
 */
#ifndef METRALE_CIRCUIT_LOWERING_H
#define METRALE_CIRCUIT_LOWERING_H
#include "circuit/plan.h"
#include "circuit/rules.h"
#include "core/arena.h"

enum {
    LOWER_MAX_NODES = 64,       /* of a block, act_quant included: sets of nodes are one word */
    COVER_MAX_STATES = 1 << 17, /* sets of covered nodes that the search may visit */
    LOWER_ALIGN = 64,           /* bytes: a cache line, and the widest vector register */
};

typedef enum { BLOCK_STEM, BLOCK_LAYER, BLOCK_HEAD } BlockRole;

/* What is the same for all blocks of one plan. */
typedef struct Lowering {
    const Instance *in;
    const FamilySet *fs;
    const LowerOptions *opt;
    Arena *arena;        /* the plan's */
    uint64_t home_bytes; /* of the residual stream at max_rows */
} Lowering;

/* A block with its act_quant nodes. Node order stays topological. */
typedef struct LowerBlock {
    InstanceBlock *block; /* a copy; weights and states are the source's */
    BlockRole role;
    DType *formats;    /* of each edge */
    uint64_t *before;  /* of each node: the nodes that must be covered first */
    uint64_t *readers; /* of each edge: the nodes that read it */
} LowerBlock;

typedef struct MatchVar {
    const char *name;
    uint32_t edge;
    bool made, read, inner;
} MatchVar;

/* One place where a rule fits. */
typedef struct Match {
    const Rule *rule;
    const FamilyPoint *point;
    uint64_t mask, before; /* nodes covered; nodes outside the mask that must come first */
    uint32_t node[RULE_MAX_NODES];
    uint32_t n_vars;
    MatchVar *vars;
    bool on_outputs;
    uint64_t weight_bytes, row_bytes, moved; /* moved: all bytes at max_rows */
} Match;

Status lower_no_memory(Err *err);
/* Rows that an edge has at most: outs for what an op on outputs makes, rows for the rest. */
uint32_t lower_edge_rows(const Lowering *l, const LowerBlock *b, uint32_t edge);
/* The rows that a step of the shape may have, as a point's `rows` counts them. A decode step wants logits of every
 * row. */
void lower_shape_rows(const StepShape *s, bool on_outputs, uint32_t *lo, uint32_t *hi);
/* Does a point's rows range hold the whole shape? */
bool lower_point_holds(const FamilyPoint *p, const StepShape *s, bool on_outputs);
/* Device bytes that a launch reads of a weight, whole. */
uint64_t lower_weight_bytes(const InstanceWeight *w);

/* The formats of a node's weights, edges and state, and its parameters that are off their defaults, for messages. */
void lower_say_formats(const LowerBlock *b, const InstanceNode *node, Str *out);

Status quantize_block(LowerBlock *out, const Lowering *l, const InstanceBlock *src, BlockRole role, Err *err);

/* A fixed name of a match: a constant of its point, max_blocks, block_tokens, VAR.width, [alias.]n, k, table.dims,
 * [alias.]PARAM (int or enum), a dim. point NULL: no constants. */
bool match_value(const Lowering *l, const LowerBlock *b, const Match *m, const FamilyPoint *point, const char *name,
                 int64_t *out);
/* All matches, by lowest node, then in the order of the rules. *out is malloc'd; its members belong to the arena. */
Status match_all(Match ***out, uint32_t *n, const Lowering *l, const LowerBlock *b, Err *err);

/* *steps is in the arena, in launch order. */
Status cover_block(const Match ***steps, uint32_t *n_steps, const Lowering *l, const LowerBlock *b, Match **matches,
                   uint32_t n_matches, Err *err);

/* A value's time and place. Steps are counted from 0; -1 is before the first and n_steps behind the last. Values that
 * share a place (alias) are one for placement. */
typedef struct BufferValue {
    uint64_t bytes;
    int32_t first, last; /* both inclusive */
    int32_t alias;       /* index of an earlier value whose place it takes over, or -1 */
    bool home;           /* lives at offset 0, where the residual stream has its place */
    uint64_t offset;     /* out */
} BufferValue;

/* Offsets for all values, so that no two that live at one time overlap; home_bytes at offset 0 are there in any case.
 * *bytes: the arena's size. Two home values at one time are refused. */
Status buffers_place(BufferValue *values, uint32_t n, uint64_t home_bytes, uint64_t *bytes, Err *err);

/* Where the edges and workspaces of a covered block live. */
typedef struct BlockBuffers {
    uint64_t *edge;      /* [n_edges]; UINT64_MAX: the edge has no buffer */
    uint64_t *workspace; /* [n_steps]; UINT64_MAX: none */
    uint64_t bytes;
} BlockBuffers;
Status buffers_block(BlockBuffers *out, const Lowering *l, const LowerBlock *b, const Match *const *steps,
                     uint32_t n_steps, Err *err);

/* Bytes of scratch that a match asks for at the shape's maxima. */
Status bind_workspace(const Lowering *l, const LowerBlock *b, const Match *m, uint64_t *bytes, Err *err);
Status bind_step(PlanStep *out, const Lowering *l, const LowerBlock *b, const Match *m, const BlockBuffers *buffers,
                 uint32_t step, Err *err);

/* Fills p->digest. */
Status plan_digest(Plan *p, Err *err);

/* The names that a step's expressions use, beside rows, outs and seqs. */
typedef struct PlanScope {
    uint32_t n;
    const char *const *names;
    const int64_t *values;
} PlanScope;
#endif
