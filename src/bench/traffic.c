/* traffic.c - see traffic.h. PlanStep has the bytes of weights at the plan's most rows and those of edges; what depends on
 * how many rows there are, and on how long the sequences are, is put right here. */
#include "bench/traffic.h"
#include "core/dtype.h"
#include "model/binding.h"
#include <math.h>
#include <string.h>

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

static double state_token_bytes(const InstanceState *s)
{
    double sum = 0;
    uint64_t part;

    for (uint32_t i = 0; i < s->n_parts; i++)
        if (dtype_row_bytes(s->format, (uint64_t)s->parts[i].heads * s->parts[i].width, &part))
            sum += (double)part;
    return sum;
}

/* Tokens that the rows of one sequence see, each counted once. */
static double tokens_seen(const StepLoad *l, double window)
{
    const double rows = (double)l->rows / l->seqs, all = l->first + rows;
    return window > 0 ? smaller(all, window - 1 + rows) : all;
}

/* Sum over the rows of one sequence of the tokens that each one sees. */
static double pairs_seen(const StepLoad *l, double window)
{
    const double n = (double)l->rows / l->seqs, first = l->first;
    const double grow = window > 0 ? smaller(n, window > first ? window - first : 0) : n; /* rows that see all before */

    return grow * first + grow * (grow + 1) / 2 + (n - grow) * window;
}

/* Of E experts, those that `rows` rows with k choices each are expected to need. */
static double experts_chosen(double experts, double k, double rows)
{
    return experts * (1 - pow(1 - k / experts, rows));
}

static void add_weights(Traffic *t, const Plan *p, const PlanBlock *b, const PlanStep *s, const InstanceNode *n,
                        const StepLoad *l, double *share)
{
    for (uint32_t i = 0; i < n->op->n_weights; i++) {
        const InstanceWeight *w = n->weight[i] < 0 ? NULL : &b->source->weights[n->weight[i]];
        double rows = s->on_outputs ? l->outs : l->rows, matrix, k = 1;

        if (w == NULL || w->vector)
            continue;
        matrix = (double)w->n * (double)w->k;
        if (w->experts > 0) {
            k = b->source->edges[n->in[1]].width;
            *share = experts_chosen(w->experts, k, rows) / smaller(k * p->shape.max_rows, w->experts);
            matrix *= k / w->experts;
        }
        if (n->op->kind != OP_EMBED)
            t->flops += 2 * rows * matrix;
    }
}

static void add_state(Traffic *t, const PlanBlock *b, const InstanceNode *n, const StepLoad *l)
{
    const InstanceState *s = n->state < 0 ? NULL : &b->source->states[n->state];
    const double window = node_param(n, "window"), heads = node_param(n, "n_heads");

    if (s == NULL)
        return;
    if (s->kind == STATE_RECURRENT) {
        t->states += 2 * state_token_bytes(s) * l->seqs;
        t->edges -= n->op->writes_state ? state_token_bytes(s) * l->rows : 0; /* PlanStep has it with the rows */
    } else if (n->op->reads_state) {
        t->states += state_token_bytes(s) * tokens_seen(l, window) * l->seqs;
        /* Scores, then values: of MLA both by latents, which all heads share. */
        double width = n->op->kind == OP_MLA_ATTENTION ? 2 * node_param(n, "latent_dim") + node_param(n, "rope_dim")
                                                       : 2 * node_param(n, "head_dim");
        t->flops += 2 * heads * width * pairs_seen(l, window) * l->seqs;
    }
}

Traffic traffic_of_launch(const Plan *p, const PlanBlock *b, const PlanStep *s, const StepLoad *load)
{
    Traffic t = {.edges = (double)s->edge_bytes_per_row * (s->on_outputs ? load->outs : load->rows)};
    double share = 1;

    for (uint32_t i = 0; i < s->n_nodes; i++)
        for (uint32_t k = 0; k < b->source->n_nodes; k++)
            if (strcmp(b->source->nodes[k].id, s->nodes[i]) == 0) {
                add_weights(&t, p, b, s, &b->source->nodes[k], load, &share);
                add_state(&t, b, &b->source->nodes[k], load);
            }
    t.weights = (double)s->weight_bytes * share;
    return t;
}

static void add_block(Traffic *sum, const Plan *p, const PlanBlock *b, const StepLoad *load)
{
    for (uint32_t i = 0; i < b->n_steps; i++) {
        Traffic t = traffic_of_launch(p, b, &b->steps[i], load);
        sum->weights += t.weights;
        sum->states += t.states;
        sum->edges += t.edges;
        sum->flops += t.flops;
    }
}

Traffic traffic_of_step(const Plan *p, const StepLoad *load)
{
    Traffic sum = {0};

    add_block(&sum, p, &p->stem, load);
    for (uint32_t l = 0; l < p->instance->n_layers; l++)
        add_block(&sum, p, &p->blocks[p->instance->layers[l].block], load);
    if (load->outs > 0)
        add_block(&sum, p, &p->head, load);
    return sum;
}
