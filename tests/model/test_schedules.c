/* The same bits for a token alone, in a batch, in chunks, with any placement of its KV blocks: random schedules against solo runs.
 * Each round takes sequences of random lengths, cuts them into random chunks, mixes several sequences in a step and scatters their blocks over
 * the pools; every row's logits must equal the solo run's bit for bit. Blocks of a window that has passed on go to others at once. Whatever
 * belongs to nobody is NaN. */
#include "support/kv_poison.h"

enum { SEQS = 4, MAX_LEN = 96, POOL = 64, BLOCKS = (MAX_LEN + 15) / 16 };
static const ModelOptions options = {
    .max_rows = 48, .max_outs = 48, .max_seqs = SEQS, .max_len = MAX_LEN, .kv_blocks = POOL, .batch_invariant = true};

static uint32_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (uint32_t)(*s >> 33);
}

typedef struct Seq {
    int32_t ids[MAX_LEN], blocks[KV_MAX_GROUPS][BLOCKS], slot;
    uint32_t first[KV_MAX_GROUPS], n[KV_MAX_GROUPS]; /* blocks that it has: first .. n - 1 */
    uint32_t len, done;
    float *want; /* [len][vocab] */
} Seq;

/* Physical blocks of nobody, for each group. */
typedef struct Free {
    int32_t blocks[KV_MAX_GROUPS][POOL];
    uint32_t n[KV_MAX_GROUPS];
} Free;

/* Gives back, poisoned, what the next row of q does not see. */
static void recycle(OpenModel *m, Seq *q, Free *f)
{
    for (uint32_t g = 0; g < m->in->n_kv_groups; g++)
        for (; q->first[g] < q->n[g] && q->first[g] < kv_group_dead(m->in->kv_windows[g], q->done); q->first[g]++) {
            f->blocks[g][f->n[g]++] = q->blocks[g][q->first[g]];
            kv_poison_block(m, g, q->blocks[g][q->first[g]]);
        }
}

/* A free block, chosen at random, for each that q needs to have `tokens` tokens. */
static void hold(OpenModel *m, Seq *q, uint32_t tokens, Free *f, uint64_t *rnd)
{
    for (uint32_t g = 0; g < m->in->n_kv_groups; g++)
        for (; q->n[g] < kv_group_blocks(tokens); q->n[g]++) {
            assert_true(f->n[g] > 0); /* a pool as predicted is enough */
            uint32_t i = next_random(rnd) % f->n[g];
            q->blocks[g][q->n[g]] = f->blocks[g][i];
            f->blocks[g][i] = f->blocks[g][--f->n[g]];
        }
}

/* Takes up to `room` more tokens of sequence q into the step. */
static uint32_t take(Seq *q, uint32_t index, uint32_t room, uint32_t most, uint64_t *rnd, StepInput *in,
                     int32_t *tokens, int32_t *positions, int32_t *row_seq, int32_t *out_rows)
{
    uint32_t left = q->len - q->done, n = 1 + next_random(rnd) % most;
    n = n < left ? n : left;
    n = n < room ? n : room;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t p = q->done + i, r = in->rows + i;
        tokens[r] = q->ids[p];
        positions[r] = (int32_t)p;
        row_seq[r] = (int32_t)index;
        out_rows[in->outs + i] = (int32_t)r;
    }
    in->rows += n;
    in->outs += n;
    return n;
}

/* Slots and block tables of all groups. A dead block's entry leads to any block, here to poison if there is any. */
static void fill_kv(const OpenModel *m, const Seq *seqs, const uint32_t *who, const Free *f, const StepInput *in,
                    int32_t *slots, int32_t *table)
{
    for (uint32_t g = 0; g < m->in->n_kv_groups; g++)
        for (uint32_t s = 0; s < in->seqs; s++) {
            const Seq *q = &seqs[who[s]];
            int32_t *row = table + (g * in->seqs + s) * BLOCKS;
            memcpy(row, q->blocks[g], sizeof q->blocks[g]);
            for (uint32_t b = 0; b < q->first[g]; b++)
                row[b] = f->n[g] > 0 ? f->blocks[g][b % f->n[g]] : 0;
            for (int32_t r = in->seq_start[s]; r < in->seq_start[s + 1]; r++)
                slots[g * in->rows + (uint32_t)r] = row[in->positions[r] / 16] * 16 + in->positions[r] % 16;
        }
}

static void run_schedule(OpenModel *m, Seq *seqs, Free *f, uint64_t *rnd)
{
    uint32_t vocab = model_vocab(m->model);
    int32_t tokens[48], positions[48], slots[KV_MAX_GROUPS * 48], row_seq[48], out_rows[48], start[SEQS + 1],
        table[KV_MAX_GROUPS * SEQS * BLOCKS], state_slots[SEQS];
    float *got = malloc(sizeof(float) * 48 * vocab);
    uint32_t who[SEQS], took[SEQS];
    Err e;

    for (;;) {
        StepInput in = {.tokens = tokens,
                        .positions = positions,
                        .slots = slots,
                        .row_seq = row_seq,
                        .seq_start = start,
                        .block_table = table,
                        .out_rows = out_rows,
                        .state_slots = state_slots};
        uint32_t most = next_random(rnd) % 3 == 0 ? 1 : 20; /* a third of the steps are pure decode */
        for (uint32_t q = 0; q < SEQS; q++)
            recycle(m, &seqs[q], f);
        for (uint32_t q = 0; q < SEQS && in.rows < 48; q++) {
            if (seqs[q].done == seqs[q].len || next_random(rnd) % 4 == 0)
                continue;
            start[in.seqs] = (int32_t)in.rows;
            state_slots[in.seqs] = seqs[q].slot;
            who[in.seqs] = q;
            took[in.seqs] = take(&seqs[q], in.seqs, 48 - in.rows, most, rnd, &in, tokens, positions, row_seq, out_rows);
            hold(m, &seqs[q], seqs[q].done + took[in.seqs], f, rnd);
            in.seqs++;
        }
        if (in.rows == 0) {
            uint32_t left = 0;
            for (uint32_t q = 0; q < SEQS; q++)
                left += seqs[q].len - seqs[q].done;
            if (left == 0)
                break;
            continue;
        }
        start[in.seqs] = (int32_t)in.rows;
        fill_kv(m, seqs, who, f, &in, slots, table);
        if (model_step(m->model, &in, got, &e) != ST_OK)
            fail_msg("%s", e.msg);
        for (uint32_t s = 0, row = 0; s < in.seqs; s++)
            for (uint32_t i = 0; i < took[s]; i++, row++) {
                Seq *q = &seqs[who[s]];
                if (memcmp(got + (size_t)row * vocab, q->want + (size_t)(q->done + i) * vocab, sizeof(float) * vocab) !=
                    0)
                    fail_msg("sequence %u, token %u of %u: other bits than alone (step of %u rows, %u sequences)",
                             who[s], q->done + i, q->len, in.rows, in.seqs);
            }
        for (uint32_t s = 0; s < in.seqs; s++)
            seqs[who[s]].done += took[s];
    }
    free(got);
}

static void check_model(const char *path, const char *hw, DType kv, uint32_t window, uint64_t seed)
{
    if (!class_runs(hw))
        return;
    OpenModel m = open_poisoned(path, hw, kv, window, &options);
    uint32_t vocab = model_vocab(m.model);
    uint64_t rnd = seed;
    Solo *solo;
    Err e;

    assert_int_equal(solo_new(&solo, m.model, &e), ST_OK);
    for (int round = 0; round < 6; round++) {
        Seq seqs[SEQS] = {0};
        Free f = {0};
        for (uint32_t g = 0; g < m.in->n_kv_groups; g++)
            while (f.n[g] < model_memory(m.model)->groups[g].blocks) {
                f.blocks[g][f.n[g]] = (int32_t)f.n[g];
                f.n[g]++;
            }
        kv_poison_all(&m);
        for (uint32_t q = 0; q < SEQS; q++) {
            seqs[q].len = 1 + next_random(&rnd) % (MAX_LEN - 1);
            for (uint32_t i = 0; i < seqs[q].len; i++)
                seqs[q].ids[i] = (int32_t)(next_random(&rnd) % vocab);
            seqs[q].slot = (int32_t)((q + (uint32_t)round) % SEQS); /* where another one was in the last round */
            seqs[q].want = malloc(sizeof(float) * seqs[q].len * vocab);
            solo_reset(solo);
            for (uint32_t i = 0; i < seqs[q].len; i++) /* token by token: the decode plan */
                if (solo_append(solo, seqs[q].ids + i, 1, seqs[q].want + (size_t)i * vocab, &e) != ST_OK)
                    fail_msg("%s", e.msg);
        }
        kv_poison_all(&m);
        run_schedule(&m, seqs, &f, &rnd);
        for (uint32_t q = 0; q < SEQS; q++)
            free(seqs[q].want);
    }
    solo_free(solo);
    close_model(&m);
}

#define SCHEDULE_TEST(name, path, kv, window)                                                                          \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_model(path, "avx2", kv, window, 1);                                                                      \
        check_model(path, "avx512", kv, window, 2);                                                                    \
        for (const char *hw = NULL; (hw = next_gpu_class(hw)) != NULL;)                                                \
            check_model(path, hw, DT_BF16, window, 3);                                                                 \
    }
SCHEDULE_TEST(schedules__full_attention_bf16_kv_gives_solo_bits, "oracles/llama", DT_BF16, 0)
SCHEDULE_TEST(schedules__full_attention_f32_kv_gives_solo_bits, "oracles/qwen3", DT_F32, 0)
SCHEDULE_TEST(schedules__sliding_window_gives_solo_bits, "oracles/mistral", DT_BF16, 0)
SCHEDULE_TEST(schedules__window_over_block_borders_gives_solo_bits, "oracles/mistral", DT_F32, 35)
SCHEDULE_TEST(schedules__window_of_one_token_gives_solo_bits, "oracles/mistral", DT_BF16, 1)
SCHEDULE_TEST(schedules__biases_give_solo_bits, "oracles/qwen2", DT_BF16, 0)
SCHEDULE_TEST(schedules__q8_0_weights_give_solo_bits, "formats/gguf-q8_0-llama/model.gguf", DT_BF16, 0)
SCHEDULE_TEST(schedules__q4_0_weights_give_solo_bits, "formats/gguf-q4_0-llama/model.gguf", DT_BF16, 0)
SCHEDULE_TEST(schedules__q4_1_weights_give_solo_bits, "formats/gguf-q4_1-llama/model.gguf", DT_BF16, 0)
SCHEDULE_TEST(schedules__multipliers_give_solo_bits, "oracles/granite", DT_BF16, 0)
SCHEDULE_TEST(schedules__two_ropes_and_windows_give_solo_bits, "oracles/gemma3", DT_BF16, 0)
SCHEDULE_TEST(schedules__two_ropes_and_a_window_of_blocks_give_solo_bits, "oracles/gemma3", DT_F32, 32)
SCHEDULE_TEST(schedules__experts_by_softmax_give_solo_bits, "oracles/olmoe", DT_BF16, 0)
SCHEDULE_TEST(schedules__experts_renormalised_give_solo_bits, "oracles/qwen3_moe", DT_F32, 0)
SCHEDULE_TEST(schedules__dense_then_shared_experts_give_solo_bits, "oracles/glm4_moe", DT_BF16, 0)
SCHEDULE_TEST(schedules__experts_by_biased_sigmoids_give_solo_bits, "oracles/minimax_m2", DT_BF16, 0)
SCHEDULE_TEST(schedules__sinks_and_clamped_experts_give_solo_bits, "oracles/gpt_oss", DT_BF16, 0)
SCHEDULE_TEST(schedules__sinks_and_a_window_over_block_borders_give_solo_bits, "oracles/gpt_oss", DT_BF16, 45)
SCHEDULE_TEST(schedules__delta_nets_and_gated_attention_give_solo_bits, "oracles/qwen3_next", DT_BF16, 0)
SCHEDULE_TEST(schedules__delta_nets_behind_split_projections_give_solo_bits, "oracles/qwen3_5", DT_F32, 0)
SCHEDULE_TEST(schedules__delta_nets_with_experts_give_solo_bits, "oracles/qwen3_5_moe", DT_BF16, 0)
SCHEDULE_TEST(schedules__state_spaces_give_solo_bits, "oracles/nemotron_h", DT_BF16, 0)
SCHEDULE_TEST(schedules__latents_give_solo_bits, "oracles/deepseek_v3", DT_BF16, 0)
SCHEDULE_TEST(schedules__q4_0_experts_give_solo_bits, "formats/gguf-q4_0-qwen3moe/model.gguf", DT_BF16, 0)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules__full_attention_bf16_kv_gives_solo_bits),
        cmocka_unit_test(schedules__full_attention_f32_kv_gives_solo_bits),
        cmocka_unit_test(schedules__sliding_window_gives_solo_bits),
        cmocka_unit_test(schedules__window_over_block_borders_gives_solo_bits),
        cmocka_unit_test(schedules__window_of_one_token_gives_solo_bits),
        cmocka_unit_test(schedules__biases_give_solo_bits),
        cmocka_unit_test(schedules__q8_0_weights_give_solo_bits),
        cmocka_unit_test(schedules__q4_0_weights_give_solo_bits),
        cmocka_unit_test(schedules__q4_1_weights_give_solo_bits),
        cmocka_unit_test(schedules__multipliers_give_solo_bits),
        cmocka_unit_test(schedules__two_ropes_and_windows_give_solo_bits),
        cmocka_unit_test(schedules__two_ropes_and_a_window_of_blocks_give_solo_bits),
        cmocka_unit_test(schedules__experts_by_softmax_give_solo_bits),
        cmocka_unit_test(schedules__experts_renormalised_give_solo_bits),
        cmocka_unit_test(schedules__dense_then_shared_experts_give_solo_bits),
        cmocka_unit_test(schedules__experts_by_biased_sigmoids_give_solo_bits),
        cmocka_unit_test(schedules__sinks_and_clamped_experts_give_solo_bits),
        cmocka_unit_test(schedules__sinks_and_a_window_over_block_borders_give_solo_bits),
        cmocka_unit_test(schedules__delta_nets_and_gated_attention_give_solo_bits),
        cmocka_unit_test(schedules__delta_nets_behind_split_projections_give_solo_bits),
        cmocka_unit_test(schedules__delta_nets_with_experts_give_solo_bits),
        cmocka_unit_test(schedules__state_spaces_give_solo_bits),
        cmocka_unit_test(schedules__latents_give_solo_bits),
        cmocka_unit_test(schedules__q4_0_experts_give_solo_bits),
    };
    only_class = argc > 1 ? argv[1] : NULL;
    say_skipped_gpu_classes();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
