/* kv_group: the arithmetic of windows against counting positions one by one. */
#include "circuit/kv_group.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint32_t first_seen(uint32_t window, uint32_t position)
{
    return window > 0 && position >= window ? position - window + 1 : 0;
}

static void kv_group__dead_blocks_are_those_that_no_later_row_sees(void **state)
{
    (void)state;
    for (uint32_t window = 0; window < 70; window++)
        for (uint32_t at = 0; at < 200; at++) {
            uint32_t seen = first_seen(window, at), dead = 0;
            while ((dead + 1) * 16 <= seen)
                dead++;
            assert_int_equal(kv_group_dead(window, at), dead);
        }
    assert_int_equal(kv_group_dead(0, UINT32_MAX), 0);
    assert_int_equal(kv_group_dead(UINT32_MAX, UINT32_MAX - 1), 0);
}

static void kv_group__live_is_the_most_that_a_step_touches(void **state)
{
    (void)state;
    for (uint32_t window = 1; window < 70; window++)
        for (uint32_t rows = 1; rows < 40; rows++) {
            uint64_t most = 0;
            for (uint32_t at = 0; at < 200; at++) {
                uint64_t held = (at + rows - 1) / 16 - first_seen(window, at) / 16 + 1;
                most = held > most ? held : most;
            }
            assert_int_equal(kv_group_live(window, rows), most);
        }
    assert_int_equal(kv_group_live(UINT32_MAX, UINT32_MAX), (UINT32_MAX * UINT64_C(2) + 13) / 16 + 1);
}

/* However the rows of a step are spread over its sequences. */
static void kv_group__pool_holds_what_all_sequences_can_need(void **state)
{
    (void)state;
    for (uint32_t window = 1; window < 70; window += 3)
        for (uint32_t seqs = 1; seqs < 5; seqs++)
            for (uint32_t rows = seqs; rows < 60; rows += 7)
                for (uint32_t first = 1; first + seqs - 1 <= rows; first++) {
                    uint64_t need = kv_group_live(window, first); /* the others share the rest evenly */
                    for (uint32_t q = 1; q < seqs; q++)
                        need += kv_group_live(window, (rows - first) / (seqs - 1));
                    assert_true(kv_group_pool(window, 1000000, seqs, rows) >= need);
                    assert_true(kv_group_pool(window, 1000000, 1, rows) == kv_group_live(window, rows));
                }
    assert_int_equal(kv_group_pool(0, 77, 4, 64), 77);
    assert_int_equal(kv_group_pool(128, 77, 64, 64), 77);
    assert_int_equal(kv_group_pool(128, 1000, 4, 64), (4 * 141 + 64) / 16 + 4);
    assert_int_equal(kv_group_pool(UINT32_MAX, 77, UINT32_MAX, UINT32_MAX), 77);
}

static void kv_group__sequence_is_bounded_by_a_pool_that_it_fills(void **state)
{
    (void)state;
    assert_int_equal(kv_group_tokens((KvGroup){0, 10}), 160);
    assert_int_equal(kv_group_tokens((KvGroup){128, 9}), UINT32_MAX);
    assert_int_equal(kv_group_tokens((KvGroup){128, 8}), 128);
    assert_int_equal(kv_group_tokens((KvGroup){0, UINT32_MAX}), UINT32_MAX);
    for (uint32_t window = 1; window < 70; window++)
        for (uint32_t blocks = (uint32_t)kv_group_live(window, 1); blocks < 12; blocks++) {
            uint32_t rows = kv_group_rows((KvGroup){window, blocks}, 500);
            assert_true(kv_group_live(window, rows) <= blocks && (kv_group_live(window, rows + 1) > blocks));
        }
    assert_int_equal(kv_group_rows((KvGroup){0, 1}, 500), 500);
    assert_int_equal(kv_group_rows((KvGroup){128, 1}, 500), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_group__dead_blocks_are_those_that_no_later_row_sees),
        cmocka_unit_test(kv_group__live_is_the_most_that_a_step_touches),
        cmocka_unit_test(kv_group__pool_holds_what_all_sequences_can_need),
        cmocka_unit_test(kv_group__sequence_is_bounded_by_a_pool_that_it_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
