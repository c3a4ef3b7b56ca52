/* fail.c - how every command ends badly. */
#include "cli/cli.h"
#include <stdio.h>

int cli_fail(const Err *err)
{
    fprintf(stderr, "metrale: %s\n", err->msg);
    return 2;
}
