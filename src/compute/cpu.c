/* cpu.c - C kernels to objects, by the host's C compiler.
 *
 * The flags are those of HARDWARE.toml and KERNEL.toml and no others: how a class is compiled is data. The entry's name gets
 * the instance as a suffix (kernel_abi.h), so that objects of one source with other constants link side by side. */
#include "compute/compute.h"

static Status identify(const Toolchain *tc, Arena *a, const char **identity, Err *err)
{
    return compute_version(tc->cc, "the C compiler", a, identity, err);
}

static Status command(const Toolchain *tc, const CompileUnit *u, Arena *a, const char *const **argv, Err *err)
{
    ComputeArgs c = {.arena = a};
    compute_args_add(&c, tc->cc);
    compute_args_unit(&c, u);
    compute_args_add(&c, arena_printf(a, "-DMETRALE_INSTANCE=%s", u->instance));
    compute_args_add(&c, "-c");
    compute_args_add(&c, u->source);
    compute_args_add(&c, "-o");
    compute_args_add(&c, u->out);
    *argv = compute_args_take(&c);
    return *argv ? ST_OK : err_set(err, ST_NOMEM, "no memory for the command that compiles %s", u->label);
}

static const char *symbol(const CompileUnit *u, const char *entry, Arena *a)
{
    return arena_printf(a, "%s__%s", entry, u->instance);
}

const ComputeTarget compute_cpu = {
    .vendor = "cpu",
    .artifact_ext = ".o",
    .is_image = false,
    .compiler = "a C compiler (--cc)",
    .identify = identify,
    .command = command,
    .symbol = symbol,
};
