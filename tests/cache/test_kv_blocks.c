/* kv_blocks: all or nothing, no block with two owners, everything comes back. */
#include "cache/kv_blocks.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static KvBlocks *pool(uint32_t n)
{
    KvBlocks *kv = NULL;
    Err err;
    assert_int_equal(kv_blocks_new(&kv, n, &err), ST_OK);
    return kv;
}

static void kv_blocks__need_counts_whole_blocks_beyond_the_table(void **state)
{
    KvTable empty = {0}, three = {.n = 3};
    (void)state;
    assert_int_equal(kv_blocks_need(&empty, 0), 0);
    assert_int_equal(kv_blocks_need(&empty, 1), 1);
    assert_int_equal(kv_blocks_need(&empty, 16), 1);
    assert_int_equal(kv_blocks_need(&empty, 17), 2);
    assert_int_equal(kv_blocks_need(&three, 48), 0);
    assert_int_equal(kv_blocks_need(&three, 49), 1);
    assert_int_equal(kv_blocks_need(&three, 5), 0);
    assert_int_equal(kv_blocks_need(&empty, UINT32_MAX), UINT32_MAX / 16 + 1);
}

static void kv_blocks__take_is_all_or_nothing(void **state)
{
    KvBlocks *kv = pool(4);
    KvTable a = {0}, b = {0};
    Err err;
    (void)state;

    assert_int_equal(kv_blocks_take(kv, &a, 3 * 16, &err), ST_OK);
    assert_int_equal(kv_blocks_take(kv, &b, 16 + 1, &err), ST_BUSY);
    assert_non_null(strstr(err.msg, "2 KV blocks are needed and 1 of 4 are free"));
    assert_int_equal(b.n, 0);
    assert_int_equal(kv_blocks_available(kv), 1);
    assert_int_equal(kv_blocks_take(kv, &b, 16, &err), ST_OK);
    assert_int_equal(kv_blocks_take(kv, &a, 3 * 16, &err), ST_OK); /* it has them */
    assert_int_equal(kv_blocks_available(kv), 0);
    kv_blocks_give(kv, &a);
    assert_int_equal(kv_blocks_available(kv), 3);
    assert_null(a.blocks);
    assert_int_equal(a.n, 0);
    kv_blocks_give(kv, &a); /* an empty table gives nothing */
    assert_int_equal(kv_blocks_available(kv), 3);
    kv_blocks_give(kv, &b);
    kv_blocks_free(kv);
}

static void kv_blocks__recycled_blocks_serve_others_and_the_rest_keep_their_places(void **state)
{
    KvBlocks *kv = pool(4);
    KvTable a = {0}, b = {0};
    int32_t third, fourth;
    Err err;
    (void)state;
    assert_int_equal(kv_blocks_take(kv, &a, 4 * 16, &err), ST_OK);
    third = a.blocks[2];
    fourth = a.blocks[3];
    kv_blocks_recycle(kv, &a, 2);
    assert_int_equal(kv_blocks_available(kv), 2);
    kv_blocks_recycle(kv, &a, 1); /* they are gone already */
    assert_int_equal(kv_blocks_available(kv), 2);
    assert_true(a.n == 4 && a.blocks[2] == third && a.blocks[3] == fourth);
    assert_int_equal(kv_blocks_need(&a, 5 * 16), 1);
    assert_int_equal(kv_blocks_take(kv, &b, 16, &err), ST_OK);
    assert_int_equal(kv_blocks_take(kv, &a, 5 * 16, &err), ST_OK);
    assert_int_equal(kv_blocks_available(kv), 0);
    kv_blocks_give(kv, &a); /* what it still has, and nothing of b's */
    assert_int_equal(kv_blocks_available(kv), 3);
    kv_blocks_give(kv, &b);
    kv_blocks_free(kv);
}

static void kv_blocks__refuse_sizes_whose_slots_are_no_int32(void **state)
{
    KvBlocks *kv = NULL;
    Err err;
    (void)state;
    assert_int_equal(kv_blocks_new(&kv, 0, &err), ST_INVALID);
    assert_int_equal(kv_blocks_new(&kv, INT32_MAX / 16 + 1, &err), ST_INVALID);
    assert_null(kv);
    kv_blocks_free(NULL);
}

/* Against a model that is a plain array of owners. */
static void kv_blocks__random_schedules_never_share_or_lose_a_block(void **state)
{
    enum { BLOCKS = 37, TABLES = 9 };
    (void)state;
    for (int seed = 0; seed < 50; seed++) {
        KvBlocks *kv = pool(BLOCKS);
        KvTable t[TABLES] = {{0}};
        uint32_t tokens[TABLES] = {0}, first[TABLES] = {0};
        Err err;

        srand48(seed);
        for (int turn = 0; turn < 400; turn++) {
            int i = (int)(lrand48() % TABLES);
            uint32_t used = 0;
            int owner[BLOCKS];

            if (lrand48() % 4 == 0) {
                kv_blocks_give(kv, &t[i]);
                tokens[i] = first[i] = 0;
            } else if (lrand48() % 3 == 0) {
                uint32_t to = (uint32_t)lrand48() % (t[i].n + 2), n = t[i].n;
                kv_blocks_recycle(kv, &t[i], to);
                to = to < n ? to : n;
                first[i] = first[i] > to ? first[i] : to;
            } else {
                uint32_t want = tokens[i] + (uint32_t)(lrand48() % 100), free_before = kv_blocks_available(kv);
                uint32_t need = (want + 15) / 16 - (tokens[i] + 15) / 16;
                assert_int_equal(kv_blocks_need(&t[i], want), need);
                Status st = kv_blocks_take(kv, &t[i], want, &err);
                assert_int_equal(st, need <= free_before ? ST_OK : ST_BUSY);
                assert_int_equal(kv_blocks_available(kv), free_before - (st == ST_OK ? need : 0));
                if (st == ST_OK)
                    tokens[i] = want;
            }
            memset(owner, -1, sizeof owner);
            for (int k = 0; k < TABLES; k++) {
                assert_int_equal(t[k].n, (tokens[k] + 15) / 16);
                assert_int_equal(t[k].first, first[k]);
                for (uint32_t b = 0; b < first[k]; b++)
                    assert_int_equal(t[k].blocks[b], 0);
                for (uint32_t b = first[k]; b < t[k].n; b++) {
                    assert_in_range(t[k].blocks[b], 0, BLOCKS - 1);
                    assert_int_equal(owner[t[k].blocks[b]], -1);
                    owner[t[k].blocks[b]] = k;
                    used++;
                }
            }
            assert_int_equal(kv_blocks_available(kv), BLOCKS - used);
        }
        for (int k = 0; k < TABLES; k++)
            kv_blocks_give(kv, &t[k]);
        assert_int_equal(kv_blocks_available(kv), kv_blocks_total(kv));
        /* and the pool is still whole */
        assert_int_equal(kv_blocks_take(kv, &t[0], BLOCKS * 16, &err), ST_OK);
        kv_blocks_give(kv, &t[0]);
        kv_blocks_free(kv);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_blocks__need_counts_whole_blocks_beyond_the_table),
        cmocka_unit_test(kv_blocks__take_is_all_or_nothing),
        cmocka_unit_test(kv_blocks__recycled_blocks_serve_others_and_the_rest_keep_their_places),
        cmocka_unit_test(kv_blocks__refuse_sizes_whose_slots_are_no_int32),
        cmocka_unit_test(kv_blocks__random_schedules_never_share_or_lose_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
