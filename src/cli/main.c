/* main.c - finds the subcommand and hands over. The only file that is not in a library. */
#include "cli/cli.h"
#include <argp.h>
#include <stdio.h>
#include <string.h>

typedef struct Command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} Command;

static const Command commands[] = {
#define X(name, help) {#name, cmd_##name, help},
    COMMAND_MAP(X)
#undef X
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void usage(FILE *out)
{
    fputs("usage: metrale COMMAND [ARGUMENTS]    (metrale COMMAND --help)\n\n", out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    fputs("\nMODEL is a directory with config.json and safetensors, a .gguf file, or `default`.\n", out);
}

int main(int argc, char **argv)
{
    char name[64];

    argp_err_exit_status = 2;
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0)
        argv[1] = "version";
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            snprintf(name, sizeof name, "metrale %s", commands[i].name);
            argv[1] = name;
            return commands[i].run(argc - 1, argv + 1);
        }
    fprintf(stderr, "metrale: \"%s\" is no command; see metrale --help\n", argv[1]);
    return 2;
}
