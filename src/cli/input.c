/* input.c - what a command is given besides its options: whole numbers and standard input. Neither is trusted: a number
 * that does not fit is no number, and input without an end is cut off with a sentence instead of taking all memory. */
#include "cli/cli.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cli_whole(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    size_t n = strspn(text, "0123456789");
    unsigned long long v;

    if (n == 0 || text[n] != '\0') /* no sign and no space, which strtoull would take */
        return false;
    errno = 0;
    v = strtoull(text, NULL, 10);
    if (errno != 0 || v < least || v > most)
        return false;
    *out = v;
    return true;
}

Status cli_stdin(Str *out, Err *err)
{
    char part[65536];
    size_t n;

    errno = 0;
    while ((n = fread(part, 1, sizeof part, stdin)) > 0) {
        if (n > CLI_MAX_INPUT - out->len)
            return err_set(err, ST_INVALID, "standard input: is longer than the %d MiB taken here; give it in parts",
                           CLI_MAX_INPUT >> 20);
        str_add(out, part, n);
        if (!str_ok(out))
            return err_set(err, ST_NOMEM, "out of memory for standard input");
    }
    return ferror(stdin) ? err_set(err, ST_IO, "standard input: %s", strerror(errno)) : ST_OK;
}

Status cli_stdin_line(Str *out, bool *more, Err *err)
{
    int c;

    str_clear(out);
    errno = 0;
    while ((c = getc(stdin)) != EOF && c != '\n') {
        if (c == '\0')
            return err_set(err, ST_INVALID, "standard input: a NUL byte; give it text");
        if (out->len == CLI_MAX_LINE)
            return err_set(err, ST_INVALID, "standard input: a line is longer than %d KiB; give it in parts",
                           CLI_MAX_LINE >> 10);
        str_addc(out, (char)c);
    }
    if (c == EOF && ferror(stdin))
        return err_set(err, ST_IO, "standard input: %s", strerror(errno));
    if (!str_ok(out))
        return err_set(err, ST_NOMEM, "out of memory for a line of standard input");
    *more = c != EOF || out->len > 0;
    return ST_OK;
}
