/* stop_signal.h - SIGTERM and SIGINT as something to wait for.
 *
 * Before stop_signal_arm they end the process at once, as by default: nothing is lost while a model loads. Afterwards
 * the first one only ends stop_signal_wait; the next one ends the process.
 * Owns: a thread. Make one a process, before any other thread: those made later inherit that they do not see the
 * signals.   Thread: the maker's. */
#ifndef METRALE_SERVER_STOP_SIGNAL_H
#define METRALE_SERVER_STOP_SIGNAL_H
#include "core/status.h"

typedef struct StopSignal StopSignal;
Status stop_signal_new(StopSignal **out, Err *err);
void stop_signal_free(StopSignal *s); /* NULL is fine; the signals stay blocked in this thread */
void stop_signal_arm(StopSignal *s);
void stop_signal_wait(StopSignal *s);
void stop_signal_raise(StopSignal *s); /* ends the wait as a signal does; any thread */
#endif
