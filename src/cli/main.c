/* main.c - finds the subcommand and hands over. The only file that is not in a library. */
#include "cli/cli.h"
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* A standard descriptor that came closed is opened on /dev/null the wrong way round: the first file that a command
 * opened would get its number and be taken for standard input or written into, and whoever uses it still gets an error. */
static bool hold_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

/* A report that did not arrive is a failure: `metrale score ... > full-disk` must not look like a good one. */
static int flushed(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fputs("metrale: standard output could not be written; what it got is not complete\n", stderr);
    return 2;
}

int main(int argc, char **argv)
{
    char name[64];

    argp_err_exit_status = 2;
    if (!hold_standard_descriptors())
        return 2;
    if (argc < 2) {
        usage(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return flushed(0);
    }
    if (strcmp(argv[1], "--version") == 0)
        argv[1] = "version";
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            snprintf(name, sizeof name, "metrale %s", commands[i].name);
            argv[1] = name;
            return flushed(commands[i].run(argc - 1, argv + 1));
        }
    fprintf(stderr, "metrale: \"%s\" is no command; see metrale --help\n", argv[1]);
    return 2;
}
