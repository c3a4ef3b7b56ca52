/* chat.h - OpenAI-style messages to a prompt, and to tokens that no message can forge.
 *
 * Owns: the parsed template. Thread: immutable once made; any number of threads may render at once.
 *
 * Rules: a control token is recognised only where the template itself (or bos_token, eos_token) spells it, never in
 * text that came from messages, tools or extra values. The template decides about BOS, as in Transformers; where the
 * prompt would begin with two, one is left. */
#ifndef METRALE_TEXT_CHAT_H
#define METRALE_TEXT_CHAT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json.h"
#include "core/status.h"
#include "core/str.h"
#include "text/spans.h"
#include "text/tokenizer.h"

typedef struct ChatTemplate ChatTemplate;

/* ST_FORMAT with row and column when the template does not parse; there is no substitute. */
Status chat_template_new(ChatTemplate **out, const char *source, size_t len, const char *name, Err *err);
void chat_template_free(ChatTemplate *c); /* NULL is fine */

/* The template text in a tokenizer_config.json value "chat_template": a string, or a list of {name, template} of which
 * "tool_use" is taken when tools are wanted and it exists, else "default". Borrowed; NULL when there is none. */
const char *chat_template_source(const json_t *chat_template, bool tools);

typedef struct ChatInput {
    const json_t *messages; /* a list of {role, content, tool_calls, ...}, not empty */
    const json_t *tools;    /* a list, or NULL */
    const json_t *extra;    /* an object of further template variables (chat_template_kwargs), or NULL */
    bool add_generation_prompt;
    bool trust_user_text; /* whole-string parsing: control tokens also where a user spells them, for comparisons */
    bool has_time;        /* strftime_now exists only then */
    int64_t time_s;       /* seconds since 1970 in the wanted time zone */
} ChatInput;

/* Appends the prompt to out, and to user the ranges of it that are not the template's own.
 * Content that is null or missing is the empty string; a list of parts is the parts' texts with newlines between them;
 * parts that are not text are refused. Arguments of tool calls that are JSON text are given to the template as objects,
 * unless it is made for text.
 * ST_INVALID names the message, or carries the text of raise_exception. t gives bos_token and eos_token; NULL:
 * neither. */
Status chat_render(const ChatTemplate *c, const Tokenizer *t, const ChatInput *input, Str *out, TextSpans *user,
                   Err *err);

/* chat_render, then tokens, appended to out. */
Status chat_encode(const ChatTemplate *c, const Tokenizer *t, const ChatInput *input, TokenList *out, Err *err);
#endif
