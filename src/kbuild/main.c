/* main.c - metrale_kbuild, the build-time tool that turns the kernel tree into code. Only arguments are read here. */
#include "kbuild/build.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: metrale_kbuild --tree DIR --circuits DIR --abi DIR --cache DIR --out DIR [options]\n"
    "\n"
    "Checks the kernel tree, compiles the chosen targets and writes DIR/registry.c, DIR/libmetrale_kernels.a and\n"
    "DIR/registry.d below --out.\n"
    "\n"
    "  --tree DIR      the kernel tree\n"
    "  --circuits DIR  the circuits, whose TOML files are embedded too\n"
    "  --abi DIR       the directory of kernel_abi.h\n"
    "  --cache DIR     compiled artifacts, named by their content\n"
    "  --out DIR       the outputs\n"
    "  --jobs N        compilers at the same time (1)\n"
    "  --hw GLOB, --model GLOB, --quant GLOB\n"
    "                  which targets (all)\n"
    "  --cc CC         the C compiler (cc)\n"
    "  --nvcc PATH     the CUDA compiler (nvcc)\n"
    "  --skip          embed the files, build no target\n";

enum { O_TREE = 256, O_CIRCUITS, O_ABI, O_CACHE, O_OUT, O_JOBS, O_HW, O_MODEL, O_QUANT, O_CC, O_NVCC, O_SKIP, O_HELP };

/* 0: run; otherwise the exit status plus one. */
static int read_options(int argc, char **argv, BuildOptions *o)
{
    static const struct option longs[] = {
        {"tree", required_argument, NULL, O_TREE},   {"circuits", required_argument, NULL, O_CIRCUITS},
        {"abi", required_argument, NULL, O_ABI},     {"cache", required_argument, NULL, O_CACHE},
        {"out", required_argument, NULL, O_OUT},     {"jobs", required_argument, NULL, O_JOBS},
        {"hw", required_argument, NULL, O_HW},       {"model", required_argument, NULL, O_MODEL},
        {"quant", required_argument, NULL, O_QUANT}, {"cc", required_argument, NULL, O_CC},
        {"nvcc", required_argument, NULL, O_NVCC},   {"skip", no_argument, NULL, O_SKIP},
        {"help", no_argument, NULL, O_HELP},         {NULL, 0, NULL, 0},
    };
    const struct {
        int option;
        const char **to;
    } texts[] = {
        {O_TREE, &o->tree},       {O_CIRCUITS, &o->circuits}, {O_ABI, &o->abi},
        {O_CACHE, &o->cache},     {O_OUT, &o->out},           {O_HW, &o->hw},
        {O_MODEL, &o->model},     {O_QUANT, &o->quant},       {O_CC, &o->tools.cc},
        {O_NVCC, &o->tools.nvcc},
    };
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        char *end = NULL;
        if (c == O_HELP) {
            fputs(usage, stdout);
            return 1;
        }
        if (c == '?')
            return 3; /* getopt_long has said what is wrong */
        if (c == O_SKIP)
            o->skip = true;
        if (c == O_JOBS) {
            unsigned long n = strtoul(optarg, &end, 10);
            if (*end || n < 1 || n > 1024) {
                fprintf(stderr, "metrale_kbuild: --jobs %s: write a number from 1 to 1024\n", optarg);
                return 3;
            }
            o->jobs = (unsigned)n;
        }
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            if (texts[i].option == c)
                *texts[i].to = optarg;
    }
    if (optind < argc || !o->tree || !o->circuits || !o->abi || !o->cache || !o->out) {
        fputs("metrale_kbuild: --tree, --circuits, --abi, --cache and --out are needed, and nothing else without a "
              "dash\n",
              stderr);
        return 3;
    }
    return 0;
}

int main(int argc, char **argv)
{
    BuildOptions o = {.tools = {.cc = "cc", .nvcc = "nvcc"}, .jobs = 1, .log = stderr};
    BuildSummary s;
    Err err;
    int stop = read_options(argc, argv, &o);
    if (stop)
        return stop - 1;
    if (build_run(&o, &s, &err) != ST_OK) {
        fprintf(stderr, "metrale_kbuild: %s\n", err.msg);
        return 1;
    }
    printf("kernels: %zu targets, %zu artifacts, %zu compiled, %zu from cache\n", s.n_targets, s.n_artifacts,
           s.n_compiled, s.n_cached);
    return 0;
}
