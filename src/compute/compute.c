/* compute.c - the vendors that can be compiled for, and what their commands share. */
#include "compute/compute.h"
#include "compute/process.h"
#include <string.h>

static const ComputeTarget *const targets[] = {&compute_cpu, &compute_nvidia};

Status compute_find(const char *vendor, const ComputeTarget **out, Err *err)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i]->vendor, vendor)) {
            *out = targets[i];
            return ST_OK;
        }
    return err_set(err, ST_UNSUPPORTED, "no compiler for vendor '%s' is driven here: use one of %s, %s", vendor,
                   targets[0]->vendor, targets[1]->vendor);
}

void compute_args_add(ComputeArgs *c, const char *arg)
{
    if (!arg || c->failed) {
        c->failed = true;
        return;
    }
    if (c->len + 1 >= c->cap) { /* one stays free for the NULL */
        size_t cap = c->cap ? c->cap * 2 : 32;
        const char **items = ARENA_ARRAY(c->arena, const char *, cap);
        if (!items) {
            c->failed = true;
            return;
        }
        if (c->len)
            memcpy(items, c->items, c->len * sizeof *items);
        c->items = items;
        c->cap = cap;
    }
    c->items[c->len++] = arg;
    c->items[c->len] = NULL;
}

void compute_args_unit(ComputeArgs *c, const CompileUnit *u)
{
    for (size_t i = 0; i < u->n_flags; i++)
        compute_args_add(c, u->flags[i]);
    for (size_t i = 0; i < u->n_include_dirs; i++) {
        compute_args_add(c, "-I");
        compute_args_add(c, u->include_dirs[i]);
    }
    for (size_t i = 0; i < u->n_defines; i++)
        compute_args_add(c, arena_printf(c->arena, "-D%s", u->defines[i]));
}

const char *const *compute_args_take(ComputeArgs *c)
{
    return c->failed ? NULL : c->items;
}

Status compute_version(const char *program, const char *what, Arena *a, const char **identity, Err *err)
{
    const char *const argv[] = {program, "--version", NULL};
    Process p = {.argv = argv};
    Status st = process_run(&p, 1, 1, err);
    if (st == ST_OK && p.code != 0)
        st = err_set(err, ST_NOTFOUND, "%s '%s' does not run: install it or name another one", what, program);
    if (st == ST_OK) {
        *identity = str_ok(&p.output) ? arena_strdup(a, str_c(&p.output)) : NULL;
        if (!*identity)
            st = err_set(err, ST_NOMEM, "no memory for the version of %s", program);
    }
    str_release(&p.output);
    return st;
}
