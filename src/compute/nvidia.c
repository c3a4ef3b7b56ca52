/* nvidia.c - CUDA C to cubins, by nvcc: machine code for exactly the class's arch, so that a start compiles nothing.
 *
 * A cubin is a module of its own, so entries keep their names (extern "C"). ptxas is asked to talk (-v), because a kernel
 * that spills registers to memory is slow in a way that no test sees: it is an error unless its point says why.
 * What ptxas says, for each entry (CUDA Binary Utilities, "ptxas info"):
 *
 *     ptxas info    : Function properties for rms_norm_rows
 *         0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads */
#include "compute/compute.h"
#include <stdlib.h>
#include <string.h>

static Status identify(const Toolchain *tc, Arena *a, const char **identity, Err *err)
{
    return compute_version(tc->nvcc, "the CUDA compiler", a, identity, err);
}

static Status command(const Toolchain *tc, const CompileUnit *u, Arena *a, const char *const **argv, Err *err)
{
    ComputeArgs c = {.arena = a};
    compute_args_add(&c, tc->nvcc);
    compute_args_add(&c, "-cubin");
    compute_args_add(&c, arena_printf(a, "-arch=%s", u->arch));
    compute_args_add(&c, "-Xptxas");
    compute_args_add(&c, "-v");
    compute_args_unit(&c, u);
    compute_args_add(&c, u->source);
    compute_args_add(&c, "-o");
    compute_args_add(&c, u->out);
    *argv = compute_args_take(&c);
    return *argv ? ST_OK : err_set(err, ST_NOMEM, "no memory for the command that compiles %s", u->label);
}

static bool may_spill(const CompileUnit *u, const char *entry, size_t len)
{
    for (size_t i = 0; i < u->n_may_spill; i++)
        if (strlen(u->may_spill[i]) == len && !memcmp(u->may_spill[i], entry, len))
            return true;
    return false;
}

/* The number in front of `words` within the line, 0 when they are not there. */
static unsigned long number_before(const char *line, size_t len, const char *words)
{
    const char *at = memmem(line, len, words, strlen(words));
    const char *p = at;
    while (p && p > line && p[-1] >= '0' && p[-1] <= '9')
        p--;
    return at && p < at ? strtoul(p, NULL, 10) : 0;
}

static Status accept(const CompileUnit *u, const char *output, Err *err)
{
    static const char head[] = "Function properties for ";
    const char *entry = NULL;
    size_t entry_len = 0;
    for (const char *line = output; *line;) {
        size_t len = strcspn(line, "\n");
        const char *at = memmem(line, len, head, sizeof head - 1);
        if (at) {
            entry = at + sizeof head - 1;
            entry_len = (size_t)(line + len - entry);
        } else if (entry) {
            unsigned long stores = number_before(line, len, " bytes spill stores");
            unsigned long loads = number_before(line, len, " bytes spill loads");
            if ((stores || loads) && !may_spill(u, entry, entry_len))
                return err_set(err, ST_INVALID,
                               "%s: '%.*s' spills registers for %s (%lu bytes stored, %lu loaded): use fewer "
                               "registers, or say why "
                               "in its point: spills = \"...\"",
                               u->label, (int)entry_len, entry, u->arch, stores, loads);
        }
        line += len + (line[len] == '\n');
    }
    return ST_OK;
}

static const char *symbol(const CompileUnit *u, const char *entry, Arena *a)
{
    (void)u;
    return arena_strdup(a, entry);
}

const ComputeTarget compute_nvidia = {
    .vendor = "nvidia",
    .artifact_ext = ".cubin",
    .is_image = true,
    .compiler = "nvcc (--nvcc)",
    .identify = identify,
    .command = command,
    .accept = accept,
    .symbol = symbol,
};
