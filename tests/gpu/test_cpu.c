/* test_cpu.c - the cpu backend runs each block of each launch once, in order, with its own scratch.
 *
 * Blocks write to plain memory that belongs to them alone: under the thread sanitizer these tests also prove that
 * launches are ordered and that workers share nothing. */
#include "core/thread.h"
#include "gpu/gpu.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
/* cmocka wants the headers above */
#include <cmocka.h>

static GpuBackend *make(unsigned n_threads)
{
    GpuBackend *b = NULL;
    Err err;
    if (gpu_cpu_new(&b, "test-class", n_threads, &err) != ST_OK)
        fail_msg("%s", err.msg);
    return b;
}

static void must(Status st, const Err *err)
{
    if (st != ST_OK)
        fail_msg("%s", err->msg);
}

static GpuKernel *get(GpuBackend *b, const KernelObject *obj)
{
    GpuKernel *k = NULL;
    Err err;
    must(gpu_kernel(b, obj, &k, &err), &err);
    return k;
}

static void launch(GpuBackend *b, GpuKernel *k, GpuDim grid, uint32_t smem, const KArg *args, uint32_t n_args)
{
    GpuLaunch l = {.grid = grid, .block = {1, 1, 1}, .smem = smem, .n_args = n_args, .args = args};
    Err err;
    must(gpu_launch(b, k, &l, &err), &err);
}

/* a: records KBlock *[nz][ny][nx], counts uint32_t *[nz][ny][nx] */
static void note_block(const KArg *a, const KBlock *b)
{
    KBlock *blocks = a[0].ptr;
    uint32_t *counts = a[1].ptr;
    size_t i = ((size_t)b->z * b->ny + b->y) * b->nx + b->x;
    blocks[i] = *b;
    counts[i]++;
}
static const KernelObject note_block_obj = {.entry = "note_block", .constants = "", .fn = note_block};

static void cpu__runs_every_block_of_the_grid_once(void **state)
{
    static const GpuDim shapes[] = {
        {1, 1, 1},  {2, 1, 1},  {3, 1, 1},   {1, 2, 1}, {1, 1, 2},   {5, 3, 2},    {7, 1, 5},    {64, 1, 1},
        {1, 64, 1}, {1, 1, 64}, {17, 13, 3}, {2, 2, 2}, {100, 7, 1}, {1000, 1, 3}, {4096, 1, 1}, {33, 2, 31},
    };
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        GpuBackend *b = make(threads);
        GpuKernel *k = get(b, &note_block_obj);
        for (int round = 0; round < 5; round++) {
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
                GpuDim g = shapes[s];
                size_t n = (size_t)g.x * g.y * g.z, i = 0;
                KBlock *blocks = calloc(n, sizeof *blocks);
                uint32_t *counts = calloc(n, sizeof *counts);
                assert_true(blocks && counts);
                launch(b, k, g, 0, (KArg[]){{.ptr = blocks}, {.ptr = counts}}, 2);
                for (uint32_t z = 0; z < g.z; z++)
                    for (uint32_t y = 0; y < g.y; y++)
                        for (uint32_t x = 0; x < g.x; x++, i++) {
                            assert_int_equal(counts[i], 1);
                            assert_true(blocks[i].x == x && blocks[i].y == y && blocks[i].z == z);
                            assert_true(blocks[i].nx == g.x && blocks[i].ny == g.y && blocks[i].nz == g.z);
                            assert_null(blocks[i].smem); /* none asked for */
                        }
                free(blocks);
                free(counts);
            }
        }
        gpu_free(b);
    }
}

/* a: bytes of smem, ok uint8_t *[nx] */
static void use_scratch(const KArg *a, const KBlock *b)
{
    size_t n = (size_t)a[0].i64;
    uint8_t *ok = a[1].ptr;
    uint8_t *s = b->smem, mark = (uint8_t)(b->x * 37 + 1);
    bool good = s && (uintptr_t)s % 64 == 0;

    if (good) {
        memset(s, mark, n);
        for (volatile int i = 0; i < 200; i++) /* time for somebody else to write into it */
            ;
        for (size_t i = 0; i < n; i++)
            good = good && s[i] == mark;
    }
    ok[b->x] = good;
}
static const KernelObject use_scratch_obj = {.entry = "use_scratch", .constants = "", .fn = use_scratch};

static void cpu__scratch_is_aligned_private_and_as_large_as_asked(void **state)
{
    static const uint32_t sizes[] = {1, 63, 64, 65, 1000, 4, 100000, 12, 300001};
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        GpuBackend *b = make(threads);
        GpuKernel *k = get(b, &use_scratch_obj);
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            uint8_t ok[40] = {0};
            launch(b, k, (GpuDim){40, 1, 1}, sizes[s], (KArg[]){{.i64 = sizes[s]}, {.ptr = ok}}, 2);
            for (int i = 0; i < 40; i++)
                assert_true(ok[i]);
        }
        gpu_free(b);
    }
}

/* a: dst uint64_t *[nx], src uint64_t *[nx]: dst[x] = src[x + 1 mod nx] + 1 */
static void step(const KArg *a, const KBlock *b)
{
    uint64_t *dst = a[0].ptr;
    const uint64_t *src = a[1].ptr;
    dst[b->x] = src[(b->x + 1) % b->nx] + 1;
}
static const KernelObject step_obj = {.entry = "step", .constants = "", .fn = step};

static void cpu__launches_run_in_order_ten_thousand_times(void **state)
{
    enum { N = 10000 };
    (void)state;
    for (unsigned threads = 1; threads <= 4; threads++) {
        GpuBackend *b = make(threads);
        GpuKernel *k = get(b, &step_obj);
        uint64_t v[2][16] = {{0}};
        for (int i = 0; i < N; i++) {
            uint32_t nx = i % 4 ? 16 : 1; /* one-block launches take another path */
            launch(b, k, (GpuDim){nx, 1, 1}, 0, (KArg[]){{.ptr = v[1]}, {.ptr = v[0]}}, 2);
            launch(b, k, (GpuDim){16, 1, 1}, 0, (KArg[]){{.ptr = v[0]}, {.ptr = v[1]}}, 2);
        }
        /* The same on paper, one after the other. */
        uint64_t w[2][16] = {{0}};
        for (int i = 0; i < N; i++) {
            uint32_t nx = i % 4 ? 16 : 1;
            for (uint32_t x = 0; x < nx; x++)
                w[1][x] = w[0][(x + 1) % nx] + 1;
            for (uint32_t x = 0; x < 16; x++)
                w[0][x] = w[1][(x + 1) % 16] + 1;
        }
        assert_memory_equal(v, w, sizeof v);
        gpu_free(b);
    }
}

static double cpu_ms(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return 1e3 * (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-3 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void cpu__idle_backend_uses_no_cpu(void **state)
{
    struct timespec settle = {.tv_nsec = 20000000}, nap = {.tv_nsec = 300000000};
    uint64_t v[2][16] = {{0}};
    (void)state;
    GpuBackend *b = make(0);
    launch(b, get(b, &step_obj), (GpuDim){16, 1, 1}, 0, (KArg[]){{.ptr = v[1]}, {.ptr = v[0]}}, 2);
    nanosleep(&settle, NULL);
    double start = cpu_ms();
    nanosleep(&nap, NULL);
    assert_true(cpu_ms() - start < 10); /* one spinning worker would take 300 ms */
    gpu_free(b);
}

typedef struct Loop {
    GpuBackend *b;
    uint64_t v[2][16];
} Loop;

static void *run_loop(void *arg)
{
    Loop *l = arg;
    GpuKernel *k = NULL;
    Err err;
    if (gpu_kernel(l->b, &step_obj, &k, &err) != ST_OK)
        return NULL;
    for (int i = 0; i < 2000; i++) {
        KArg args[2] = {{.ptr = l->v[(i + 1) % 2]}, {.ptr = l->v[i % 2]}};
        GpuLaunch g = {.grid = {16, 1, 1}, .block = {1, 1, 1}, .n_args = 2, .args = args};
        if (gpu_launch(l->b, k, &g, &err) != ST_OK)
            return NULL;
    }
    return NULL;
}

static void cpu__two_backends_work_side_by_side(void **state)
{
    Thread t;
    Err err;
    (void)state;
    Loop one = {.b = make(2)}, two = {.b = make(3)};
    must(thread_start(&t, "other", run_loop, &one, &err), &err);
    run_loop(&two);
    thread_join(t);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(one.v[0][i], 2000);
        assert_int_equal(two.v[0][i], 2000);
    }
    gpu_free(one.b);
    gpu_free(two.b);
}

static void cpu__memory_is_aligned_and_moves_bytes(void **state)
{
    static const size_t sizes[] = {1, 100, 256, 4097, (8 << 20) - 1, 8 << 20, (9 << 20) + 3};
    (void)state;
    GpuBackend *b = make(2);
    Err err;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        GpuBuf x, y;
        uint8_t *host = malloc(n), *back = calloc(1, n);
        assert_true(host && back);
        for (size_t j = 0; j < n; j++)
            host[j] = (uint8_t)(j * 31 + 7);
        must(gpu_mem_alloc(b, n, "x", &x, &err), &err);
        must(gpu_mem_alloc(b, n, "y", &y, &err), &err);
        assert_int_equal((uintptr_t)x.ptr % 256, 0);
        assert_int_equal((uintptr_t)y.ptr % 256, 0);
        assert_int_equal(x.bytes, n);
        must(gpu_mem_set(b, y.ptr, 0xab, n, &err), &err);
        assert_int_equal(((uint8_t *)y.ptr)[n - 1], 0xab);
        must(gpu_upload(b, x.ptr, host, n, &err), &err);
        must(gpu_copy(b, y.ptr, x.ptr, n, &err), &err);
        must(gpu_download(b, back, y.ptr, n, &err), &err);
        must(gpu_sync(b, &err), &err);
        assert_memory_equal(back, host, n);
        gpu_mem_free(b, &x);
        gpu_mem_free(b, &y);
        assert_null(x.ptr);
        assert_int_equal(x.bytes, 0);
        gpu_mem_free(b, &x); /* twice is fine */
        free(host);
        free(back);
    }
    GpuBuf none = {.ptr = &err, .bytes = 5};
    must(gpu_mem_alloc(b, 0, "nothing", &none, &err), &err);
    assert_true(none.ptr == NULL && none.bytes == 0);
    gpu_free(b);
}

static void cpu__too_much_memory_is_refused_by_name(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, (size_t)1 << 60};
    (void)state;
    GpuBackend *b = make(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        GpuBuf buf = {.bytes = 42};
        Err err;
        assert_int_equal(gpu_mem_alloc(b, sizes[i], "the KV pool", &buf, &err), ST_DEVMEM);
        assert_non_null(strstr(err.msg, "the KV pool"));
        assert_true(buf.ptr == NULL && buf.bytes == 42); /* left alone */
    }
    gpu_free(b);
}

static void cpu__memory_given_back_can_be_had_again(void **state)
{
    GpuFacts f;
    Err err;
    (void)state;
    GpuBackend *b = make(1);
    gpu_facts(b, &f);
    if (f.mem_total > UINT64_MAX / 2) {
        print_message("skipped: this machine does not say how much memory it has\n");
        gpu_free(b);
        skip();
    }
    /* Pages that nobody touches cost nothing, so most of the machine's memory can be asked for, again and again. */
    for (int i = 0; i < 8; i++) {
        GpuBuf big = {0}, more = {0};
        must(gpu_mem_alloc(b, f.mem_total / 4, "a quarter", &big, &err), &err);
        assert_int_equal(gpu_mem_alloc(b, f.mem_total - f.mem_total / 8, "the rest", &more, &err), ST_DEVMEM);
        gpu_mem_free(b, &big);
    }
    gpu_free(b);
}

static void cpu__kernel_without_code_is_refused_by_name(void **state)
{
    static const KernelObject gpu_only = {.entry = "only_on_gpus", .constants = ""};
    GpuKernel *k = NULL;
    Err err;
    (void)state;
    GpuBackend *b = make(1);
    assert_int_equal(gpu_kernel(b, &gpu_only, &k, &err), ST_DEVICE);
    assert_null(k);
    assert_non_null(strstr(err.msg, "only_on_gpus"));
    assert_true(get(b, &step_obj) == get(b, &step_obj));
    assert_true(get(b, &step_obj) != get(b, &note_block_obj));
    gpu_free(b);
}

static void cpu__endless_grid_is_refused(void **state)
{
    Err err;
    (void)state;
    GpuBackend *b = make(2);
    GpuLaunch l = {.grid = {UINT32_MAX, UINT32_MAX, UINT32_MAX}, .block = {1, 1, 1}};
    assert_int_equal(gpu_launch(b, get(b, &step_obj), &l, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "step"));
    gpu_free(b);
}

static void cpu__facts_name_the_class_and_the_machine(void **state)
{
    GpuFacts f;
    (void)state;
    GpuBackend *b = make(3);
    gpu_facts(b, &f);
    assert_string_equal(f.class_name, "test-class");
    assert_true(f.device[0] != 0);
    assert_int_equal(f.units, 3);
    assert_true(f.host_memory);
    assert_true(f.mem_free > 0 && f.mem_free <= f.mem_total);
    assert_false(gpu_has_graphs(b));
    gpu_free(b);
    gpu_free(NULL);
}

static void cpu__bad_construction_is_refused(void **state)
{
    GpuBackend *b = NULL;
    Err err;
    (void)state;
    assert_int_equal(gpu_cpu_new(&b, "a-class-name-that-is-far-too-long-to-be-one", 1, &err), ST_INVALID);
    assert_int_equal(gpu_cpu_new(&b, "avx2", 100000, &err), ST_INVALID);
    assert_non_null(strstr(err.msg, "100000"));
    assert_null(b);
}

static void cpu__events_measure_the_time_between_them(void **state)
{
    struct timespec nap = {.tv_nsec = 5000000};
    GpuEvent *from = NULL, *to = NULL;
    uint64_t ns = 0;
    Err err;
    (void)state;
    GpuBackend *b = make(1);
    must(gpu_event_record(b, &from, &err), &err);
    nanosleep(&nap, NULL);
    must(gpu_event_record(b, &to, &err), &err);
    must(gpu_event_elapsed_ns(b, from, to, &ns, &err), &err);
    assert_true(ns >= 5000000 && ns < 60000000000u);
    gpu_event_free(b, from);
    gpu_event_free(b, to);
    gpu_event_free(b, NULL);
    gpu_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu__runs_every_block_of_the_grid_once),
        cmocka_unit_test(cpu__scratch_is_aligned_private_and_as_large_as_asked),
        cmocka_unit_test(cpu__launches_run_in_order_ten_thousand_times),
        cmocka_unit_test(cpu__idle_backend_uses_no_cpu),
        cmocka_unit_test(cpu__two_backends_work_side_by_side),
        cmocka_unit_test(cpu__memory_is_aligned_and_moves_bytes),
        cmocka_unit_test(cpu__too_much_memory_is_refused_by_name),
        cmocka_unit_test(cpu__memory_given_back_can_be_had_again),
        cmocka_unit_test(cpu__kernel_without_code_is_refused_by_name),
        cmocka_unit_test(cpu__endless_grid_is_refused),
        cmocka_unit_test(cpu__facts_name_the_class_and_the_machine),
        cmocka_unit_test(cpu__bad_construction_is_refused),
        cmocka_unit_test(cpu__events_measure_the_time_between_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
