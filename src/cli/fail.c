/* fail.c - how commands end badly: with a sentence, or over a second MODEL. */
#include "cli/cli.h"
#include <argp.h>
#include <stdio.h>

int cli_fail(const Err *err)
{
    fprintf(stderr, "metrale: %s\n", err->msg);
    return 2;
}

void cli_one_model(struct argp_state *state, const char **model, char *arg)
{
    if (*model)
        argp_error(state, "one MODEL, please; \"%s\" is one too many", arg);
    *model = arg;
}
