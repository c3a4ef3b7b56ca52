/* instance_digest.c - what an instance is, as a list of facts: the digest hashes them, the diff compares them.
 *
 * A fact is a key ("node q: bias", "weight down", "state kv.k") and a value ("q_bias", "[576, 1536] q4_1", "3 x 64").
 * Facts speak of structure, formats and parameters only: no file, no tensor name, no token id. Parameters are compared as
 * f32, which is what kernels get, so that a checkpoint and its GGUF conversion, whose metadata is f32, are equal. */
#include "circuit/plan.h"
#include "core/hash.h"
#include <stdlib.h>
#include <string.h>

typedef void (*FactFn)(void *ctx, const char *key, const char *value);

typedef struct Facts {
    FactFn add;
    void *ctx;
    Str key, value;
    bool failed;
} Facts;

/* Hands on what stands in key and value, and clears both. */
static void fact_end(Facts *f)
{
    f->failed |= !str_ok(&f->key) || !str_ok(&f->value);
    f->add(f->ctx, str_c(&f->key), str_c(&f->value));
    str_clear(&f->key);
    str_clear(&f->value);
}

static void facts_release(Facts *f)
{
    str_release(&f->key);
    str_release(&f->value);
}

static void node_facts(Facts *f, const InstanceBlock *b, const InstanceNode *n)
{
    str_addf(&f->key, "node %s", n->id);
    str_addf(&f->value, "%s%s%s (", n->op->name, n->role[0] ? " " : "", n->role);
    for (uint32_t i = 0; i < n->op->n_in; i++)
        str_addf(&f->value, "%s%s", i ? ", " : "", b->edges[n->in[i]].name);
    str_adds(&f->value, ") ->");
    for (uint32_t i = 0; i < n->op->n_out; i++)
        str_addf(&f->value, " %s[%u]", b->edges[n->out[i]].name, b->edges[n->out[i]].width);
    fact_end(f);
    for (uint32_t i = 0; i < n->op->n_weights; i++) {
        if (n->weight[i] < 0)
            continue;
        str_addf(&f->key, "node %s: %s", n->id, n->op->weights[i].name);
        str_adds(&f->value, b->weights[n->weight[i]].name);
        fact_end(f);
    }
    for (uint32_t i = 0; i < n->op->n_params; i++) {
        const ParamDef *p = &n->op->params[i];

        str_addf(&f->key, "node %s: %s", n->id, p->name);
        if (p->type == PARAM_ENUM)
            str_adds(&f->value, p->names[(int)n->param[i]]);
        else
            str_addf(&f->value, "%.9g", p->type == PARAM_FLOAT ? (double)(float)n->param[i] : n->param[i]);
        fact_end(f);
    }
    if (n->state >= 0) {
        str_addf(&f->key, "node %s: state", n->id);
        str_adds(&f->value, b->states[n->state].name);
        fact_end(f);
    }
    if (n->table >= 0) {
        str_addf(&f->key, "node %s: table", n->id);
        str_addf(&f->value, "rope %d", n->table);
        fact_end(f);
    }
}

static void block_facts(Facts *f, const InstanceBlock *b)
{
    for (uint32_t i = 0; i < b->n_nodes; i++)
        node_facts(f, b, &b->nodes[i]);
    for (uint32_t i = 0; i < b->n_weights; i++) {
        const InstanceWeight *w = &b->weights[i];

        str_addf(&f->key, "weight %s", w->name);
        if (w->vector)
            str_addf(&f->value, "[%llu] %s", (unsigned long long)w->k, dtype_name(w->stored));
        else if (w->experts)
            str_addf(&f->value, "%u x [%llu, %llu] %s", w->experts, (unsigned long long)(w->n / w->experts),
                     (unsigned long long)w->k, dtype_name(w->stored));
        else
            str_addf(&f->value, "[%llu, %llu] %s", (unsigned long long)w->n, (unsigned long long)w->k,
                     dtype_name(w->stored));
        fact_end(f);
    }
    for (uint32_t i = 0; i < b->n_states; i++)
        for (uint32_t k = 0; k < b->states[i].n_parts; k++) {
            const InstanceState *s = &b->states[i];

            str_addf(&f->key, "state %s.%s", s->name, s->parts[k].name);
            str_addf(&f->value, "%u x %u %s%s", s->parts[k].heads, s->parts[k].width, dtype_name(s->format),
                     s->kind == STATE_RECURRENT ? " of a sequence" : "");
            if (s->window != 0)
                str_addf(&f->value, " of the last %u", s->window);
            fact_end(f);
        }
    str_adds(&f->key, "yields");
    str_adds(&f->value, b->edges[b->out_edge].name);
    fact_end(f);
}

static void rope_facts(Facts *f, const RopeSpec *r, uint32_t i)
{
    static const char *const kinds[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};

    str_addf(&f->key, "rope %u", i);
    str_addf(&f->value, "%s, %u dims, theta %.9g", kinds[r->kind], r->dims, (double)(float)r->theta);
    if (r->kind != ROPE_DEFAULT)
        str_addf(&f->value, ", factor %.9g", (double)(float)r->factor);
    if (r->kind == ROPE_LLAMA3)
        str_addf(&f->value, ", low %.9g, high %.9g", r->low_freq_factor, r->high_freq_factor);
    if (r->kind == ROPE_LLAMA3 || r->kind == ROPE_YARN)
        str_addf(&f->value, ", original %.9g", r->original_max_position);
    if (r->kind == ROPE_YARN)
        str_addf(&f->value, ", beta %.9g to %.9g%s, attention %.9g", r->beta_fast, r->beta_slow,
                 r->truncate ? "" : " not rounded", (double)(float)r->attention_factor);
    if (r->factors_tensor != NULL)
        str_adds(&f->value, ", divided by a tensor");
    fact_end(f);
}

/* What belongs to no block. */
static void general_facts(Facts *f, const Instance *in)
{
    for (uint32_t i = 0; i < in->n_dims; i++) {
        str_addf(&f->key, "dim %s", in->dims[i].name);
        str_addf(&f->value, "%lld", (long long)in->dims[i].value);
        fact_end(f);
    }
    for (uint32_t i = 0; i < in->n_ropes; i++)
        rope_facts(f, &in->ropes[i], i);
    str_adds(&f->key, "kv format");
    str_adds(&f->value, dtype_name(in->kv_format));
    fact_end(f);
}

/* ---- digest ------------------------------------------------------------------------------------------------------ */
static void hash_fact(void *ctx, const char *key, const char *value)
{
    hasher_add_str(ctx, key);
    hasher_add_str(ctx, value);
}

Status instance_digest(const Instance *in, char out[33], Err *err)
{
    Hasher *h = hasher_new();
    Facts f = {.add = hash_fact, .ctx = h};

    if (h == NULL)
        return err_set(err, ST_NOMEM, "%s: out of memory", in->source);
    general_facts(&f, in);
    hasher_add_str(h, "stem");
    block_facts(&f, &in->stem);
    for (uint32_t i = 0; i < in->n_blocks; i++) {
        hasher_add_str(h, "block");
        block_facts(&f, &in->blocks[i]);
    }
    hasher_add_str(h, "head");
    block_facts(&f, &in->head);
    for (uint32_t i = 0; i < in->n_layers; i++)
        hasher_add_u64(h, in->layers[i].block);
    hash_hex(hasher_value(h), out);
    hasher_free(h);
    facts_release(&f);
    return f.failed ? err_set(err, ST_NOMEM, "%s: out of memory", in->source) : ST_OK;
}

/* ---- diff -------------------------------------------------------------------------------------------------------- */
typedef struct Pair {
    char *key, *value;
} Pair;
typedef struct Pairs {
    Pair *items;
    size_t n, cap;
    bool failed;
} Pairs;

static void keep_fact(void *ctx, const char *key, const char *value)
{
    Pairs *p = ctx;
    Pair one;

    if (p->n == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 64;
        Pair *grown = realloc(p->items, cap * sizeof *grown);

        if (grown == NULL) {
            p->failed = true;
            return;
        }
        p->items = grown;
        p->cap = cap;
    }
    one = (Pair){.key = strdup(key), .value = strdup(value)};
    p->failed |= one.key == NULL || one.value == NULL;
    p->items[p->n++] = one;
}

static void pairs_release(Pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->items[i].key);
        free(p->items[i].value);
    }
    free(p->items);
}

static const char *pairs_find(const Pairs *p, const char *key)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->items[i].key, key) == 0)
            return p->items[i].value;
    return NULL;
}

/* Facts of a and b, then a line for each that differs. Running out of memory shows as a failed `out`. */
static void diff_facts(const char *where, const Pairs *a, const Pairs *b, Str *out)
{
    if (a->failed || b->failed) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < a->n; i++) {
        const char *other = pairs_find(b, a->items[i].key);

        if (other == NULL)
            str_addf(out, "%s%s: %s, only in the first\n", where, a->items[i].key, a->items[i].value);
        else if (strcmp(other, a->items[i].value) != 0)
            str_addf(out, "%s%s: %s, in the second %s\n", where, a->items[i].key, a->items[i].value, other);
    }
    for (size_t i = 0; i < b->n; i++)
        if (pairs_find(a, b->items[i].key) == NULL)
            str_addf(out, "%s%s: %s, only in the second\n", where, b->items[i].key, b->items[i].value);
}

static void diff_blocks(const char *where, const InstanceBlock *a, const InstanceBlock *b, Str *out)
{
    Pairs pa = {0}, pb = {0};
    Facts f = {.add = keep_fact, .ctx = &pa};

    block_facts(&f, a);
    f.ctx = &pb;
    block_facts(&f, b);
    pa.failed |= f.failed;
    diff_facts(where, &pa, &pb, out);
    facts_release(&f);
    pairs_release(&pa);
    pairs_release(&pb);
}

/* "layers 0-3, 8: ", those that pair the same two blocks as layer `first`. */
static void say_layers(const Instance *a, const Instance *b, uint32_t n, uint32_t first, Str *out)
{
    bool any = false;

    str_adds(out, "layers ");
    for (uint32_t i = first; i < n; i++) {
        uint32_t to = i;

        if (a->layers[i].block != a->layers[first].block || b->layers[i].block != b->layers[first].block)
            continue;
        while (to + 1 < n && a->layers[to + 1].block == a->layers[first].block &&
               b->layers[to + 1].block == b->layers[first].block)
            to++;
        str_addf(out, to > i ? "%s%u-%u" : "%s%u", any ? ", " : "", i, to);
        any = true;
        i = to;
    }
    str_adds(out, ": ");
}

void instance_diff(const Instance *a, const Instance *b, Str *out)
{
    uint32_t n = a->n_layers < b->n_layers ? a->n_layers : b->n_layers;
    Pairs pa = {0}, pb = {0};
    Facts f = {.add = keep_fact, .ctx = &pa};

    general_facts(&f, a);
    f.ctx = &pb;
    general_facts(&f, b);
    pa.failed |= f.failed;
    diff_facts("", &pa, &pb, out);
    facts_release(&f);
    pairs_release(&pa);
    pairs_release(&pb);

    diff_blocks("stem: ", &a->stem, &b->stem, out);
    for (uint32_t i = 0; i < n; i++) {
        Str where = STR_INIT;
        bool seen = false;

        for (uint32_t k = 0; k < i && !seen; k++)
            seen = a->layers[k].block == a->layers[i].block && b->layers[k].block == b->layers[i].block;
        if (seen)
            continue;
        say_layers(a, b, n, i, &where);
        diff_blocks(str_c(&where), &a->blocks[a->layers[i].block], &b->blocks[b->layers[i].block], out);
        str_release(&where);
    }
    diff_blocks("head: ", &a->head, &b->head, out);
}
