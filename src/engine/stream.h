/* stream.h - the engine's end of a Stream: token events of one request, for one reader.
 * Owns: the events; it has two owners, the reader (stream_free) and the engine (stream_release), and dies with the
 * second. Not: the sequence.   Thread: the functions here from the engine thread, those of engine.h from any. */
#ifndef METRALE_ENGINE_STREAM_H
#define METRALE_ENGINE_STREAM_H
#include "engine/engine.h"

/* room: events that it will ever get. n_top: most entries of TokenEvent.top. */
Status stream_new(Stream **out, uint32_t room, uint32_t n_top, void (*notify)(void *ctx), void *notify_ctx, Err *err);
/* Makes the event readable, then notifies. why: the sentence behind a last event; may be NULL. */
void stream_push(Stream *s, const TokenEvent *event, const char *why);
bool stream_cancelled(const Stream *s);
void stream_release(Stream *s); /* NULL is fine */
#endif
