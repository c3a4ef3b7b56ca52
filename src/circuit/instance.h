/* instance.h - a circuit applied to one checkpoint's configuration: every dim a number, every node concrete, every
 * weight named.
 *
 * A layer's block is straight-line code in SSA form: edges are values with one producer; `x` in and `x` out are two
 * edges. Layers with equal structure, formats and parameters share one InstanceBlock ("distinct layer").
 *
 * Owns: everything it points at (one arena).   Not: the weights' bytes.   Thread: immutable after instance_new. */
#ifndef METRALE_CIRCUIT_INSTANCE_H
#define METRALE_CIRCUIT_INSTANCE_H
#include "circuit/circuit.h"
#include "circuit/kv_group.h"
#include "circuit/rope.h"
#include "circuit/signature.h"
#include "core/dtype.h"
#include "core/json.h"
#include "core/quant.h"
#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TensorDesc {
    DType dtype; /* DT_NONE: a stored type that has no name here; `stored` says what */
    const char *stored;
    uint32_t n_dims;
    uint64_t dims[4]; /* slowest first */
} TensorDesc;

/* Where an instance comes from. find is NULL for a bare config: then every matrix has format `fallback` and every vector
 * the format that the config names (its dtype). */
typedef struct InstanceSource {
    const char *name;   /* file, for messages */
    const json_t *meta; /* config.json, or GGUF metadata */
    bool gguf;
    bool (*find)(void *ctx, const char *tensor, TensorDesc *out);
    /* Enumerates tensors, so that one that no node reads is refused by name; NULL when unknown. i from 0; NULL ends. */
    const char *(*tensor_at)(void *ctx, size_t i);
    void *ctx;
    DType kv_format; /* DT_F16, DT_BF16 or DT_F32 */
    /* Linears round their inputs as the configuration asks: act_quant nodes in front of them. Otherwise inputs stay as they
     * are, which is what the checkpoint's own values mean at their best. */
    bool act_quant;
    DType fallback; /* read only when find is NULL; DT_NONE: matrices too are as the config says */
} InstanceSource;

typedef struct InstanceEdge {
    const char *name; /* "h", "x.1": unique in the block */
    uint32_t width;   /* elements a row */
    int32_t producer; /* node index; -1: the block's input */
} InstanceEdge;

typedef struct InstanceNode {
    const char *id;   /* as in TOML, unique in the block */
    const char *role; /* linear's role, or "" */
    const OpDef *op;
    uint32_t in[OP_MAX_IN], out[OP_MAX_OUT]; /* edge indexes */
    int32_t weight[OP_MAX_WEIGHTS];          /* index into the block's weights; -1: absent optional one */
    double param[OP_MAX_PARAMS];             /* ints and enum indexes are exact in a double */
    int32_t state;                           /* index into the block's states, or -1 */
    int32_t table;                           /* index into Instance.ropes, or -1 */
} InstanceNode;

/* A weight slot of a block: what shape and stored format every layer of the block has there. */
typedef struct InstanceWeight {
    const char *name; /* "q", "attn_norm" */
    uint64_t n, k;    /* {n, k}; vectors: n = 1, k = length */
    uint32_t experts; /* 0: one matrix or vector; else n (of a vector k) is over all experts, expert by expert */
    bool vector;
    DType stored;
    QuantInput input; /* what the configuration asks of a linear's inputs, whether the circuit does it or not */
} InstanceWeight;

typedef struct InstanceStatePart {
    const char *name;      /* "k", "v" */
    uint32_t heads, width; /* elements a token, or a sequence = heads * width */
} InstanceStatePart;
typedef enum {
    STATE_PAGED,     /* kept for each token, in blocks */
    STATE_RECURRENT, /* one for each sequence, in a slot; a sequence's first row finds zeros. Always f32 */
} StateKind;
typedef struct InstanceState {
    const char *name; /* "kv" */
    StateKind kind;
    DType format;
    uint32_t window; /* of a paged one: tokens that it keeps, the last ones; 0: all */
    uint32_t n_parts;
    InstanceStatePart parts[4];
} InstanceState;

typedef struct InstanceBlock {
    const char *name; /* kind of layer: "full"; "stem", "head" */
    uint32_t n_nodes, n_edges, n_weights, n_states;
    const InstanceNode *nodes; /* in program order, which is a topological order (state order included) */
    const InstanceEdge *edges;
    const InstanceWeight *weights;
    const InstanceState *states;
    uint32_t in_edge,
        out_edge; /* the residual stream; for the stem in_edge is the token edge, for the head out_edge is logits */
} InstanceBlock;

typedef enum {
    ROWS_AS_STORED,
    ROWS_ROPE_INTERLEAVED, /* each head's rows are stored as pairs (2i, 2i+1) of what neox order has at (i, i +
                              head_dim/2): q and k of some GGUF files */
} RowOrder;

/* One of the tensors that a matrix is put together from. Its rows are of each group in turn: [groups][rows][k], or with
 * columns [groups][k][rows], whose rows are turned. */
typedef struct InstancePiece {
    const char *tensor;
    uint64_t rows;
    bool columns;
} InstancePiece;

/* Where a layer's weight slot finds its bytes: rows row, row + step, ... of the tensor (of a vector: elements). With
 * experts, expert e's rows begin `of` rows after those of expert e - 1, or are those of a tensor of its own. */
typedef struct InstanceBinding {
    const char
        *tensor; /* name in the store; of expert 0. Of a quantised weight: its module's, the scheme has suffixes */
    RowOrder order;
    uint32_t head_dim; /* for ROWS_ROPE_INTERLEAVED */
    uint64_t row;
    uint32_t step; /* 0 and 1: neighbours */
    uint64_t of;   /* rows of the whole tensor, with experts those of one; 0: the tensor is the slot and nothing else */
    bool flat;     /* stored with more dims or fewer; the elements in the order of the file */
    bool columns;  /* the tensor is stored as [k][of], with experts [experts][k][of]: row r of the slot is a column */
    const char *const *tensors; /* one for each expert; NULL: all are in `tensor` */
    const QuantScheme *quant;   /* codes and scales are in tensors of their own; NULL: the tensor is the weight */
    /* The rows of each group are those of every piece in turn, as floats of the weight's format. `tensor` is the first's. */
    const InstancePiece *pieces;
    uint32_t n_pieces; /* 0: the weight is in one tensor */
    uint64_t groups;
} InstanceBinding;

typedef struct InstanceLayer {
    uint32_t block;                  /* index into blocks */
    const InstanceBinding *bindings; /* one for each weight of the block */
    uint32_t state_base;             /* number of this layer's first state among all layers' states */
} InstanceLayer;

/* Tensors of the checkpoint that no node reads, and why that is right. */
typedef struct InstanceUnread {
    const char *because;
    uint32_t tensors;
} InstanceUnread;

typedef struct InstanceDim {
    const char *name;
    int64_t value;
} InstanceDim;

typedef struct Instance {
    const char *arch;       /* the circuit: circuits/<arch>.toml */
    const char *model_type; /* as the checkpoint says */
    const char *source;     /* InstanceSource.name */
    const InstanceDim
        *dims; /* sorted by name: hidden, n_layers, n_heads, n_kv_heads, head_dim, ffn, vocab, max_position ... */
    uint32_t n_dims;
    const InstanceBlock *blocks; /* distinct layers */
    uint32_t n_blocks;
    InstanceBlock stem, head;
    const InstanceBinding *stem_bindings, *head_bindings;
    const InstanceLayer *layers;
    uint32_t n_layers;
    const RopeSpec *ropes;
    uint32_t n_ropes;
    const InstanceUnread *unread;
    uint32_t n_unread;
    uint32_t n_states; /* over all layers */
    /* KV groups: the distinct windows of paged states, ascending, so that 0, all tokens, is first if any keeps those. States of one group
     * share a pool of block numbers, and each sequence has a block table for each group. At least one. */
    uint32_t n_kv_groups, kv_windows[KV_MAX_GROUPS];
    DType kv_format;
    bool act_quant; /* InstanceSource.act_quant */
    /* What the config says and the engine needs; -1 / 0 when it does not say. */
    int64_t bos_id;
    int64_t eos_ids[8];
    uint32_t n_eos;
} Instance;

Status instance_new(Instance **out, const CircuitLibrary *lib, const InstanceSource *src, Err *err);
void instance_free(Instance *in);
bool instance_dim(const Instance *in, const char *name, int64_t *value);
uint32_t instance_kv_group(const Instance *in, const InstanceState *s); /* of a paged state */
#endif
