/* The worked example of docs/src/add-a-model.md, through the circuit compiler: its files, as they stand on the page,
 * make the binary's library know one more architecture, and its configuration comes to what the page shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "circuit/plan.h"
#include "support/embedded.h"

/* Calls use(ctx, path, text) for each block ```LANG file=PATH of the page, and with path NULL for each ```text show. */
static void each_block(void (*use)(void *ctx, const char *path, const char *text), void *ctx)
{
    char *page = NULL, *rest = NULL, path[256];
    size_t len = 0;
    bool inside = false, wanted = false, is_file = false;
    Str text = STR_INIT;
    Err err;

    if (file_read(METRALE_SOURCE_DIR "/docs/src/add-a-model.md", 1 << 20, &page, &len, &err) != ST_OK)
        fail_msg("%s", err.msg);
    for (char *line = page; line && *line; line = rest) {
        rest = strchr(line, '\n');
        if (rest)
            *rest++ = '\0';
        if (strncmp(line, "```", 3) != 0) {
            if (wanted)
                str_addf(&text, "%s\n", line);
            continue;
        }
        inside = !inside;
        if (inside) {
            const char *at = strstr(line, " file=");
            is_file = at != NULL;
            wanted = is_file || strcmp(line, "```text show") == 0;
            snprintf(path, sizeof path, "%s", is_file ? at + 6 : "");
            str_clear(&text);
        } else if (wanted) {
            use(ctx, is_file ? path : NULL, str_c(&text));
            wanted = false;
        }
    }
    assert_true(str_ok(&text));
    str_release(&text);
    free(page);
}

typedef struct Example {
    Embedded files;
    json_t *config;
    Str shown; /* what the page shows of the instance */
    unsigned n_circuit_files;
} Example;

static void collect(void *ctx, const char *path, const char *text)
{
    Example *x = ctx;
    Err err;

    if (path == NULL) {
        str_adds(&x->shown, text);
    } else if (str_starts(path, "circuits/")) {
        embedded_set(&x->files, path, text);
        x->n_circuit_files++;
    } else if (str_ends(path, ".json") && json_parse(text, strlen(text), path, &x->config, &err) != ST_OK) {
        fail_msg("%s", err.msg);
    }
}

static void the_model_on_the_page_compiles_to_what_the_page_shows(void **state)
{
    Example x = {.shown = STR_INIT};
    CircuitLibrary *lib = NULL;
    Instance *in = NULL;
    Str report = STR_INIT;
    Err err;

    (void)state;
    if (embedded_add_dir(&x.files, "circuits", &err) != ST_OK)
        fail_msg("%s", err.msg);
    each_block(collect, &x);
    assert_int_equal(x.n_circuit_files, 3);
    assert_non_null(x.config);
    if (circuit_library_new(&lib, x.files.files, x.files.n, &err) != ST_OK)
        fail_msg("%s", err.msg);
    const InstanceSource src = {
        .name = "example/config.json", .meta = x.config, .kv_format = DT_BF16, .fallback = DT_NONE};
    if (instance_new(&in, lib, &src, &err) != ST_OK)
        fail_msg("%s", err.msg);
    instance_show(in, &report);

    unsigned n_lines = 0;
    char *shown = str_take(&x.shown), *rest = NULL;
    for (char *line = strtok_r(shown, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), n_lines++)
        if (strstr(str_c(&report), line) == NULL)
            fail_msg("the page shows a line that the report has not: %s\nThe report is\n%s", line, str_c(&report));
    assert_true(n_lines >= 4);

    free(shown);
    str_release(&report);
    instance_free(in);
    circuit_library_free(lib);
    json_decref(x.config);
    embedded_free(&x.files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_on_the_page_compiles_to_what_the_page_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
