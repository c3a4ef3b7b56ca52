/* file: bounds, atomic replacement, listings. Runs in a directory of its own, removed afterwards. */
#include "core/file.h"
#include "core/thread.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct Place {
    char dir[64];
} Place;

static int setup(void **state)
{
    Place *p = calloc(1, sizeof *p);
    if (p == NULL)
        return -1;
    strcpy(p->dir, "file-XXXXXX");
    *state = p;
    return mkdtemp(p->dir) != NULL && chdir(p->dir) == 0 ? 0 : -1;
}

static void remove_tree(const char *path)
{
    Arena *a = arena_new();
    DirEntry *e;
    size_t n;
    Err err;
    if (dir_list(path, a, &e, &n, &err) == ST_OK) {
        for (size_t i = 0; i < n; i++) {
            char *child = arena_printf(a, "%s/%s", path, e[i].name);
            if (e[i].is_dir && !e[i].is_link)
                remove_tree(child);
            else
                unlink(child);
        }
    }
    rmdir(path);
    arena_free(a);
}

static int teardown(void **state)
{
    Place *p = *state;
    if (chdir("..") != 0)
        return -1;
    remove_tree(p->dir);
    free(p);
    return 0;
}

static size_t count_entries(const char *path)
{
    Arena *a = arena_new();
    DirEntry *e;
    size_t n = 0;
    Err err;
    assert_int_equal(dir_list(path, a, &e, &n, &err), ST_OK);
    arena_free(a);
    return n;
}

static void file__what_is_written_is_read_back(void **state)
{
    static const char bytes[] = "a\0b\n";
    char *p = NULL;
    size_t len = 0;
    Err err;
    (void)state;
    assert_int_equal(file_write("x", bytes, 4, &err), ST_OK);
    assert_int_equal(file_read("x", 4, &p, &len, &err), ST_OK);
    assert_int_equal(len, 4);
    assert_memory_equal(p, bytes, 5); /* with the NUL behind */
    free(p);
    assert_int_equal(file_write("x", "", 0, &err), ST_OK);
    assert_int_equal(file_read("x", 0, &p, &len, &err), ST_OK);
    assert_int_equal(len, 0);
    assert_string_equal(p, "");
    free(p);
}

static void file_read__the_bound_is_exact(void **state)
{
    char *big = calloc(1, 200000), *p = NULL;
    size_t len = 0;
    Err err;
    (void)state;
    assert_int_equal(file_write("big", big, 200000, &err), ST_OK);
    assert_int_equal(file_read("big", 200000, &p, &len, &err), ST_OK);
    assert_int_equal(len, 200000);
    free(p);
    p = NULL;
    assert_int_equal(file_read("big", 199999, &p, &len, &err), ST_FORMAT);
    assert_null(p);
    assert_non_null(strstr(err.msg, "big: "));
    assert_non_null(strstr(err.msg, "199999"));
    free(big);
}

static void file_read__the_bound_holds_when_the_size_is_unknown(void **state)
{
    char *p = NULL;
    size_t len = 0;
    Err err;
    (void)state;
    /* The kernel says that this file has 0 bytes. */
    assert_int_equal(file_read("/proc/self/status", 1u << 20, &p, &len, &err), ST_OK);
    assert_true(len > 100);
    free(p);
    assert_int_equal(file_read("/proc/self/status", 100, &p, &len, &err), ST_FORMAT);
}

static void file_read__refuses_what_is_no_file(void **state)
{
    char *p = NULL;
    size_t len = 0;
    Err err;
    (void)state;
    assert_int_equal(file_read("absent", 10, &p, &len, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "absent: cannot open"));
    assert_int_equal(file_read(".", 10, &p, &len, &err), ST_IO);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(file_read("fifo", 10, &p, &len, &err), ST_IO); /* and does not wait for a writer */
    assert_null(p);
}

static void file_write__keeps_the_old_file_when_it_fails(void **state)
{
    char *p = NULL;
    size_t len = 0;
    Err err;
    (void)state;
    /* The target is a directory: everything succeeds up to the rename. */
    assert_int_equal(dir_make("target/inside", &err), ST_OK);
    assert_int_equal(file_write("target", "new", 3, &err), ST_IO);
    assert_true(dir_exists("target/inside"));
    assert_int_equal(count_entries("."), 1); /* no temporary file is left */
    assert_int_equal(file_write("no/such/dir/x", "new", 3, &err), ST_NOTFOUND);
    assert_int_equal(file_write("target/old", "old", 3, &err), ST_OK);
    assert_int_equal(file_read("target/old", 10, &p, &len, &err), ST_OK);
    assert_string_equal(p, "old");
    free(p);
}

static void file_write__does_not_write_into_the_old_file(void **state)
{
    char now[8] = {0};
    Err err;
    (void)state;
    assert_int_equal(file_write("x", "before", 6, &err), ST_OK);
    int fd = open("x", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(file_write("x", "after!", 6, &err), ST_OK);
    assert_int_equal(read(fd, now, 6), 6); /* who had it open still reads the old one */
    assert_string_equal(now, "before");
    close(fd);
    assert_int_equal(count_entries("."), 1);
}

static void file_write__steps_aside_for_a_temporary_that_exists(void **state)
{
    char name[64];
    Err err;
    (void)state;
    snprintf(name, sizeof name, "x.tmp-%ld-0", (long)getpid());
    assert_int_equal(file_write(name, "other", 5, &err), ST_OK);
    assert_int_equal(file_write("x", "mine", 4, &err), ST_OK);
    assert_true(file_exists(name));
    assert_true(file_exists("x"));
}

typedef struct Race {
    atomic_bool stop;
    char fill;
} Race;

enum { RACE_BYTES = 100000 };

static void *rewrite(void *arg)
{
    Race *r = arg;
    char *bytes = malloc(RACE_BYTES);
    Err err;
    if (bytes == NULL)
        return NULL;
    for (int i = 0; i < 40; i++) {
        memset(bytes, r->fill + i % 2, RACE_BYTES);
        if (file_write("raced", bytes, RACE_BYTES, &err) != ST_OK)
            break;
    }
    free(bytes);
    atomic_store(&r->stop, true);
    return NULL;
}

static void file_write__readers_see_all_or_nothing(void **state)
{
    Race one = {.fill = 'a'}, two = {.fill = 'x'};
    Thread a, b;
    Err err;
    (void)state;
    assert_int_equal(file_write("raced", "", 0, &err), ST_OK);
    assert_int_equal(thread_start(&a, "one", rewrite, &one, &err), ST_OK);
    assert_int_equal(thread_start(&b, "two", rewrite, &two, &err), ST_OK);
    while (!atomic_load(&one.stop) || !atomic_load(&two.stop)) {
        char *p = NULL;
        size_t len = 0;
        assert_int_equal(file_read("raced", RACE_BYTES, &p, &len, &err), ST_OK);
        assert_true(len == 0 || len == RACE_BYTES);
        for (size_t i = 1; i < len; i++)
            if (p[i] != p[0])
                fail_msg("byte %zu is of another version", i);
        free(p);
    }
    thread_join(a);
    thread_join(b);
    assert_int_equal(count_entries("."), 1);
}

static void file__existence_tells_files_from_directories(void **state)
{
    Err err;
    (void)state;
    assert_int_equal(file_write("f", "x", 1, &err), ST_OK);
    assert_int_equal(dir_make("d", &err), ST_OK);
    assert_true(file_exists("f"));
    assert_false(file_exists("d"));
    assert_false(file_exists("no"));
    assert_true(dir_exists("d"));
    assert_false(dir_exists("f"));
    assert_false(dir_exists("no"));
}

static void dir_make__makes_every_level_and_accepts_what_is_there(void **state)
{
    char cwd[4096], path[4200];
    Err err;
    (void)state;
    assert_int_equal(dir_make("a/b/c", &err), ST_OK);
    assert_int_equal(dir_make("a/b/c", &err), ST_OK);
    assert_int_equal(dir_make("a//d/", &err), ST_OK);
    assert_true(dir_exists("a/b/c") && dir_exists("a/d"));
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(path, sizeof path, "%s/abs/x", cwd);
    assert_int_equal(dir_make(path, &err), ST_OK);
    assert_true(dir_exists("abs/x"));
    assert_int_equal(file_write("a/f", "x", 1, &err), ST_OK);
    assert_int_equal(dir_make("a/f/g", &err), ST_IO);
    assert_true(strncmp(err.msg, "a/f: ", 5) == 0);
    assert_int_equal(dir_make("", &err), ST_IO);
}

static void dir_list__is_sorted_and_describes_links_by_their_target(void **state)
{
    Arena *a = arena_new();
    DirEntry *e = NULL;
    size_t n = 0;
    Err err;
    (void)state;
    assert_int_equal(file_write("b", "x", 1, &err), ST_OK);
    assert_int_equal(file_write(".hidden", "x", 1, &err), ST_OK);
    assert_int_equal(dir_make("B", &err), ST_OK);
    assert_int_equal(symlink("b", "to_file"), 0);
    assert_int_equal(symlink("B", "to_dir"), 0);
    assert_int_equal(symlink("nowhere", "to_nothing"), 0);
    assert_int_equal(dir_list(".", a, &e, &n, &err), ST_OK);
    static const DirEntry want[] = {
        {".hidden", .is_file = true},
        {"B", .is_dir = true},
        {"b", .is_file = true},
        {"to_dir", .is_dir = true, .is_link = true},
        {"to_file", .is_file = true, .is_link = true},
        {"to_nothing", .is_link = true},
    };
    assert_int_equal(n, sizeof want / sizeof want[0]);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(e[i].name, want[i].name);
        assert_int_equal(e[i].is_dir, want[i].is_dir);
        assert_int_equal(e[i].is_file, want[i].is_file);
        assert_int_equal(e[i].is_link, want[i].is_link);
    }
    assert_int_equal(dir_list("B", a, &e, &n, &err), ST_OK);
    assert_int_equal(n, 0);
    assert_int_equal(dir_list("absent", a, &e, &n, &err), ST_NOTFOUND);
    assert_non_null(strstr(err.msg, "absent"));
    arena_free(a);
}

static void dir_list__holds_more_entries_than_it_starts_with(void **state)
{
    Err err;
    (void)state;
    assert_int_equal(dir_make("many", &err), ST_OK);
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "many/%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        assert_true(fd >= 0);
        close(fd);
    }
    assert_int_equal(count_entries("many"), 100);
}

#define IN_A_DIRECTORY(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_A_DIRECTORY(file__what_is_written_is_read_back),
        IN_A_DIRECTORY(file_read__the_bound_is_exact),
        IN_A_DIRECTORY(file_read__the_bound_holds_when_the_size_is_unknown),
        IN_A_DIRECTORY(file_read__refuses_what_is_no_file),
        IN_A_DIRECTORY(file_write__keeps_the_old_file_when_it_fails),
        IN_A_DIRECTORY(file_write__does_not_write_into_the_old_file),
        IN_A_DIRECTORY(file_write__steps_aside_for_a_temporary_that_exists),
        IN_A_DIRECTORY(file_write__readers_see_all_or_nothing),
        IN_A_DIRECTORY(file__existence_tells_files_from_directories),
        IN_A_DIRECTORY(dir_make__makes_every_level_and_accepts_what_is_there),
        IN_A_DIRECTORY(dir_list__is_sorted_and_describes_links_by_their_target),
        IN_A_DIRECTORY(dir_list__holds_more_entries_than_it_starts_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
