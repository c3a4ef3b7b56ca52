/* fake_model.h - a StepRunner whose logits are a hash of the sequence's tokens and positions, as far back as each KV group's
 * window goes, read through the block tables from an integer KV memory that it writes at the step's slots. A wrong slot,
 * table, position or chunk, or a block that was recycled too early, changes the answer; fake_answer computes the same
 * answer without any of them. Each step is also checked for what a model may
 * rely on; the first fault is kept in `fault`. */
#ifndef METRALE_TESTS_ENGINE_FAKE_MODEL_H
#define METRALE_TESTS_ENGINE_FAKE_MODEL_H
#include "engine/step_runner.h"
#include "support/host_device.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FAKE_VOCAB = 61, FAKE_SLOTS = 64 };

static bool fake_ahead; /* of the fake models made from now on: the engine runs a step ahead of what it knows */

typedef struct FakeModel {
    StepRunner runner;
    HostDevice device;
    uint64_t *kv[KV_MAX_GROUPS]; /* [slots]: position + 1 and token, 0 before the first write */
    const int32_t *script;       /* not NULL: the token after position p is script[p] */
    ClockFake *clock;            /* not NULL: each step takes step_ns on it */
    uint64_t step_ns;
    uint32_t steps, fail_at;                 /* step number fail_at (from 1) fails; 0: none */
    float broken_logit;                      /* not 0: the first logit of each output */
    uint32_t rows, seqs, outs, seq_rows[64]; /* of the last step */
    uint32_t most_rows;
    int32_t slot_len[FAKE_SLOTS]; /* tokens that the state in each slot has seen */
    char fault[200];
} FakeModel;

static inline uint64_t fake_mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static inline float fake_logit(uint64_t h, uint32_t token)
{
    return (float)(fake_mix(fake_mix(h, token), 7) >> 40) / 4194304.0f; /* 0 to 4 */
}

static inline uint64_t fake_kv(int32_t position, int32_t token)
{
    return (uint64_t)(position + 1) << 32 | (uint32_t)token;
}

static inline void fake_fault(FakeModel *f, const char *what, long long value)
{
    if (f->fault[0] == '\0')
        snprintf(f->fault, sizeof f->fault, "step %u: %s: %lld", f->steps, what, value);
}

static inline const int32_t *fake_table(const FakeModel *f, const StepInput *s, uint32_t group, uint32_t seq)
{
    return s->block_table + ((size_t)group * s->seqs + seq) * ((f->runner.max_len + 15) / 16);
}

static inline uint64_t *fake_cell(const FakeModel *f, const StepInput *s, uint32_t group, uint32_t seq, int32_t p)
{
    return &f->kv[group][fake_table(f, s, group, seq)[p / 16] * 16 + p % 16];
}

/* The first position that a row sees. */
static inline int32_t fake_first(uint32_t window, int32_t position)
{
    return window > 0 && position >= (int32_t)window ? position - (int32_t)window + 1 : 0;
}

static inline void fake_check_group(FakeModel *f, const StepInput *s, uint32_t g)
{
    const KvGroup *k = &f->runner.groups[g];
    uint8_t *owner = calloc(k->blocks, 1);

    assert_non_null(owner);
    for (uint32_t q = 0; q < s->seqs; q++) {
        const int32_t *table = fake_table(f, s, g, q);
        const int32_t from = s->positions[s->seq_start[q]], to = s->positions[s->seq_start[q + 1] - 1];
        uint32_t held = 0;

        for (int32_t b = 0; b <= to / 16; b++)
            if (table[b] < 0 || table[b] >= (int32_t)k->blocks)
                fake_fault(f, "a block out of range", table[b]);
            else if (b >= fake_first(k->window, from) / 16) {
                held++;
                if (owner[table[b]]++)
                    fake_fault(f, "a block with two owners", table[b]);
            }
        if (k->window > 0 && held > kv_group_live(k->window, (uint32_t)(to - from + 1)))
            fake_fault(f, "more blocks of a window than kv_group_live says", held);
        for (int32_t r = s->seq_start[q]; r < s->seq_start[q + 1] && !f->fault[0]; r++) {
            const int32_t slot = s->slots[(size_t)g * s->rows + (uint32_t)r], at = s->positions[r];
            if (slot != table[at / 16] * 16 + at % 16)
                fake_fault(f, "a slot that the table does not lead to", slot);
        }
    }
    free(owner);
}

static inline void fake_check(FakeModel *f, const StepInput *s)
{
    const StepRunner *b = &f->runner;

    if (s->rows == 0 || s->rows > b->max_rows || s->seqs > b->max_seqs || s->outs > b->max_outs || s->outs > s->seqs)
        fake_fault(f, "counts out of bounds; rows", s->rows);
    if (s->seq_start[0] != 0 || s->seq_start[s->seqs] != (int32_t)s->rows)
        fake_fault(f, "sequences do not cover the rows", s->seq_start[s->seqs]);
    for (uint32_t q = 0; q < s->seqs; q++) {
        int32_t from = s->seq_start[q], to = s->seq_start[q + 1];
        if (from >= to)
            fake_fault(f, "a sequence without rows", q);
        for (int32_t r = from; r < to; r++) {
            int32_t at = s->positions[r];
            if (s->row_seq[r] != (int32_t)q || at != s->positions[from] + r - from || at < 0 ||
                at >= (int32_t)b->max_len || s->tokens[r] < 0 || s->tokens[r] >= (int32_t)b->vocab)
                fake_fault(f, "a bad row", r);
        }
        int32_t slot = s->state_slots[q];
        if (slot < 0 || slot >= (int32_t)b->max_seqs || slot >= FAKE_SLOTS)
            fake_fault(f, "a state slot out of range", slot);
        else {
            if (s->positions[from] != 0 && f->slot_len[slot] != s->positions[from])
                fake_fault(f, "a state slot that another sequence has moved on", slot);
            f->slot_len[slot] = s->positions[to - 1] + 1;
        }
    }
    for (uint32_t g = 0; g < b->n_groups; g++)
        fake_check_group(f, s, g);
    for (uint32_t o = 0; o < s->outs; o++)
        if (s->out_rows[o] < 0 || s->out_rows[o] >= (int32_t)s->rows || (o && s->out_rows[o] <= s->out_rows[o - 1]))
            fake_fault(f, "a bad output row", s->out_rows[o]);
}

static inline Status fake_run(void *ctx, const StepInput *s, float *logits, Err *err)
{
    FakeModel *f = ctx;

    f->steps++;
    f->rows = s->rows;
    f->seqs = s->seqs;
    f->outs = s->outs;
    f->most_rows = s->rows > f->most_rows ? s->rows : f->most_rows;
    for (uint32_t q = 0; q < s->seqs && q < 64; q++)
        f->seq_rows[q] = (uint32_t)(s->seq_start[q + 1] - s->seq_start[q]);
    if (f->clock)
        f->clock->ns += f->step_ns;
    fake_check(f, s);
    if (f->fault[0])
        return err_set(err, ST_INVALID, "%s", f->fault);
    if (f->steps == f->fail_at)
        return err_set(err, ST_DEVICE, "the fake device fell off at step %u", f->steps);

    for (uint32_t g = 0; g < f->runner.n_groups; g++)
        for (uint32_t r = 0; r < s->rows; r++)
            f->kv[g][s->slots[(size_t)g * s->rows + r]] = fake_kv(s->positions[r], s->tokens[r]);
    for (uint32_t o = 0; o < s->outs; o++) {
        uint32_t row = (uint32_t)s->out_rows[o], seq = (uint32_t)s->row_seq[row];
        uint64_t h = 1;
        for (uint32_t g = 0; g < f->runner.n_groups; g++)
            for (int32_t p = fake_first(f->runner.groups[g].window, s->positions[row]); p <= s->positions[row]; p++)
                h = fake_mix(h, *fake_cell(f, s, g, seq, p));
        for (uint32_t v = 0; v < f->runner.vocab; v++)
            logits[o * f->runner.vocab + v] =
                f->script ? (v == (uint32_t)f->script[s->positions[row]] ? 9.0f : 0.0f) : fake_logit(h, v);
        if (f->broken_logit != 0)
            logits[o * f->runner.vocab] = f->broken_logit;
    }
    return ST_OK;
}

static inline void fake_init_groups(FakeModel *f, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len,
                                    const KvGroup *groups, uint32_t n_groups)
{
    *f = (FakeModel){.runner = {.max_rows = max_rows,
                                .max_outs = max_rows < max_seqs ? max_rows : max_seqs,
                                .max_seqs = max_seqs,
                                .max_len = max_len,
                                .n_groups = n_groups,
                                .vocab = FAKE_VOCAB}};
    host_device_init(&f->device, &f->runner, fake_ahead, fake_run, f);
    for (uint32_t g = 0; g < n_groups; g++) {
        f->runner.groups[g] = groups[g];
        f->kv[g] = calloc(groups[g].blocks * 16u, sizeof(uint64_t));
        assert_non_null(f->kv[g]);
    }
}

/* One group that keeps all tokens. */
static inline void fake_init(FakeModel *f, uint32_t max_rows, uint32_t max_seqs, uint32_t max_len, uint32_t kv_blocks)
{
    fake_init_groups(f, max_rows, max_seqs, max_len, &(KvGroup){0, kv_blocks}, 1);
    f->runner.kv_blocks = kv_blocks;
}

/* Tokens that one sequence may have. */
static inline uint32_t fake_limit(const FakeModel *f)
{
    uint32_t limit = f->runner.max_len;

    for (uint32_t g = 0; g < f->runner.n_groups; g++) {
        uint32_t most = kv_group_tokens(f->runner.groups[g]);
        limit = most < limit ? most : limit;
    }
    return limit;
}

static inline void fake_release(FakeModel *f)
{
    assert_string_equal(f->fault, "");
    for (uint32_t g = 0; g < KV_MAX_GROUPS; g++)
        free(f->kv[g]);
    host_device_release(&f->device);
}

/* What a request is answered alone: tokens into out, room for max_len of them. Returns their number. */
static inline uint32_t fake_answer(const FakeModel *f, const GenRequest *r, int32_t *out, FinishReason *finish)
{
    const uint32_t limit = fake_limit(f);
    int32_t *all = calloc(limit + 1u, sizeof *all);
    float logits[FAKE_VOCAB];
    uint64_t scratch[FAKE_VOCAB];
    uint32_t n = r->n_prompt;
    SamplingParams p = r->sampling;
    Err err;

    assert_non_null(all);
    memcpy(all, r->prompt, n * sizeof *all);
    p.n_prompt = n;
    *finish = FINISH_NONE;
    while (*finish == FINISH_NONE) {
        uint64_t h = 1;
        for (uint32_t g = 0; g < f->runner.n_groups; g++)
            for (int32_t i = fake_first(f->runner.groups[g].window, (int32_t)n - 1); i < (int32_t)n; i++)
                h = fake_mix(h, fake_kv(i, all[i]));
        for (uint32_t v = 0; v < FAKE_VOCAB; v++)
            logits[v] = fake_logit(h, v);
        assert_int_equal(
            sampling_pick(&p, logits, FAKE_VOCAB, all, n, n - r->n_prompt, scratch, &all[n], 0, NULL, NULL, &err),
            ST_OK);
        out[n - r->n_prompt] = all[n];
        for (uint32_t i = 0; i < r->n_stop_ids && !r->ignore_eos; i++)
            if (r->stop_ids[i] == all[n])
                *finish = FINISH_STOP;
        n++;
        if (*finish == FINISH_NONE && (n == limit || n - r->n_prompt == r->max_tokens))
            *finish = FINISH_LENGTH;
    }
    free(all);
    return n - r->n_prompt;
}
#endif
