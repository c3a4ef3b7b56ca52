/* log.h - leveled lines on one stream. A Log is passed, never global; NULL drops everything.
 * Thread: any; a line is written whole. */
#ifndef METRALE_CORE_LOG_H
#define METRALE_CORE_LOG_H
#include <stdio.h>

typedef enum { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR } LogLevel;
typedef struct Log {
    FILE *out;
    LogLevel min;
} Log;

void log_line(const Log *log, LogLevel level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The level is tested before the arguments are evaluated. */
#define LOG_AT(log, level, ...)                                                                                        \
    do {                                                                                                               \
        if ((log) && (level) >= (log)->min)                                                                            \
            log_line((log), (level), __VA_ARGS__);                                                                     \
    } while (0)
#define log_debug(log, ...) LOG_AT(log, LOG_DEBUG, __VA_ARGS__)
#define log_info(log, ...)  LOG_AT(log, LOG_INFO, __VA_ARGS__)
#define log_warn(log, ...)  LOG_AT(log, LOG_WARN, __VA_ARGS__)
#define log_error(log, ...) LOG_AT(log, LOG_ERROR, __VA_ARGS__)
#endif
