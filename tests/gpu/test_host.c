/* test_host.c - memory limits as /proc and the cgroup trees tell them, and aligned buffers. */
#include "core/file.h"
#include "gpu/host.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the headers above */
#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

/* Writes root/path with its directories. */
static void plant(const char *root, const char *path, const char *text)
{
    char full[512];
    Err err;
    snprintf(full, sizeof full, "%s%s", root, path);
    *strrchr(full, '/') = 0;
    assert_int_equal(dir_make(full, &err), ST_OK);
    snprintf(full, sizeof full, "%s%s", root, path);
    assert_int_equal(file_write(full, text, strlen(text), &err), ST_OK);
}

static void host_memory__is_the_machines_without_limits(void **state)
{
    uint64_t total, available;
    (void)state;
    plant("plain", "/proc/meminfo", "MemTotal:        1048576 kB\nMemFree:  1 kB\nMemAvailable:     524288 kB\n");
    host_memory("plain", &total, &available);
    assert_int_equal(total, 1024 * MIB);
    assert_int_equal(available, 512 * MIB);
}

static void host_memory__takes_the_tightest_v2_limit_above(void **state)
{
    uint64_t total, available;
    (void)state;
    plant("v2", "/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
    plant("v2", "/proc/self/cgroup", "0::/slice/job\n");
    plant("v2", "/sys/fs/cgroup/slice/job/memory.max", "max\n");
    plant("v2", "/sys/fs/cgroup/slice/memory.max", "104857600\n");
    plant("v2", "/sys/fs/cgroup/slice/memory.current", "83886080\n");
    plant("v2", "/sys/fs/cgroup/slice/memory.stat", "anon 52428800\ninactive_file 31457280\n");
    host_memory("v2", &total, &available);
    assert_int_equal(total, 100 * MIB);
    assert_int_equal(available, 50 * MIB); /* 80 MiB in use, of which 30 are cold file pages */
}

static void host_memory__reads_v1_limits(void **state)
{
    uint64_t total, available;
    (void)state;
    plant("v1", "/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 10240 kB\n");
    plant("v1", "/proc/self/cgroup", "5:cpu:/\n4:memory:/job\n0::/\n");
    plant("v1", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* v1's word for none */
    plant("v1", "/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "209715200\n");
    plant("v1", "/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "104857600\n");
    host_memory("v1", &total, &available);
    assert_int_equal(total, 200 * MIB);
    assert_int_equal(available, 10 * MIB); /* the machine has less than the group may use */
}

static void host_memory__of_a_full_group_is_none(void **state)
{
    uint64_t total, available;
    (void)state;
    plant("full", "/proc/self/cgroup", "0::/\n");
    plant("full", "/sys/fs/cgroup/memory.max", "1048576\n");
    plant("full", "/sys/fs/cgroup/memory.current", "2097152\n");
    host_memory("full", &total, &available);
    assert_int_equal(total, MIB);
    assert_int_equal(available, 0);
}

static void host_memory__is_unbounded_where_nothing_is_known(void **state)
{
    uint64_t total, available;
    (void)state;
    plant("odd", "/proc/self/cgroup", "no colons\n:\n\n0:\n");
    host_memory("odd", &total, &available);
    assert_true(total == UINT64_MAX);
    assert_true(available == UINT64_MAX);
}

static void host_memory__of_this_machine_is_sane(void **state)
{
    uint64_t total, available;
    (void)state;
    host_memory("", &total, &available);
    assert_true(total >= 64 * MIB);
    assert_true(available > 0 && available <= total);
}

static void host_alloc__aligns_and_gives_all_bytes(void **state)
{
    static const size_t sizes[] = {1, 255, 256, 257, 4096, HOST_HUGE - 1, HOST_HUGE, HOST_HUGE + 1, 3 * HOST_HUGE + 5};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *p = host_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] < HOST_HUGE ? 256 : 2 * MIB), 0);
        p[0] = 1;
        p[sizes[i] - 1] = 1;
        host_free(p, sizes[i]);
    }
    assert_null(host_alloc(SIZE_MAX));
    assert_null(host_alloc(SIZE_MAX / 2 - 1));
    host_free(NULL, 0);
}

static void host_cpu_name__is_one_line(void **state)
{
    char name[96], tiny[4];
    (void)state;
    host_cpu_name(name, sizeof name);
    assert_true(name[0] != 0 && name[0] != ' ');
    assert_null(strchr(name, '\n'));
    host_cpu_name(tiny, sizeof tiny);
    assert_true(strlen(tiny) == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory__is_the_machines_without_limits),
        cmocka_unit_test(host_memory__takes_the_tightest_v2_limit_above),
        cmocka_unit_test(host_memory__reads_v1_limits),
        cmocka_unit_test(host_memory__of_a_full_group_is_none),
        cmocka_unit_test(host_memory__is_unbounded_where_nothing_is_known),
        cmocka_unit_test(host_memory__of_this_machine_is_sane),
        cmocka_unit_test(host_alloc__aligns_and_gives_all_bytes),
        cmocka_unit_test(host_cpu_name__is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
