/* log.c - a line is built in memory and written by one call, so that lines of several threads do not mix.
 *
 * Control characters inside a message become '?': what comes from a request or a file must not be able to forge a
 * line or to steer a terminal. */
#include "core/log.h"
#include "core/str.h"
#include <stdarg.h>
#include <stdlib.h>

static const char *level_name(LogLevel level)
{
    switch (level) {
    case LOG_DEBUG:
        return "debug";
    case LOG_INFO:
        return "info";
    case LOG_WARN:
        return "warning";
    case LOG_ERROR:
        return "error";
    }
    return "log";
}

void log_line(const Log *log, LogLevel level, const char *fmt, ...)
{
    Str line = STR_INIT;
    char *text = NULL;
    va_list ap;
    int n;

    if (log == NULL || level < log->min)
        return;
    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) { /* out of memory: the format alone still says what was going on */
        fprintf(log->out, "%s: %s\n", level_name(level), fmt);
        return;
    }
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    str_addf(&line, "%s: %s\n", level_name(level), text);
    fwrite(str_c(&line), 1, line.len, log->out);
    fflush(log->out);
    str_release(&line);
    free(text);
}
