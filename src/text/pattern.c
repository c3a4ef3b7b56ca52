/* pattern.c - PCRE2 behind a small door.
 *
 * Patterns come from checkpoints, so a hostile one may try to run for ever: every match carries a step limit and a
 * heap limit. The JIT runs on a stack of its own of at most 1 MiB; a match that needs more is repeated by the
 * interpreter, whose memory is the bounded heap. Subjects are checked UTF-8, so PCRE2 need not check them at each of
 * thousands of calls. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    MAX_PATTERN_BYTES = 64 << 10,
    MATCH_STEPS = 20 * 1000 * 1000,
    MATCH_HEAP_KIB = 256 << 10,
    JIT_STACK_MIN = 32 << 10,
    JIT_STACK_MAX = 1 << 20,
};

struct Pattern {
    pcre2_code *code;
};

struct PatternScratch {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack; /* NULL: the JIT then has 32 KiB of the thread's stack */
};

Status pattern_new(Pattern **out, const char *text, size_t len, bool literal, const char *where, Err *err)
{
    *out = NULL;
    if (len == 0 || len > MAX_PATTERN_BYTES)
        return err_set(err, ST_FORMAT, "%s: a pattern must have 1 to %d bytes, this one has %zu", where,
                       MAX_PATTERN_BYTES, len);
    Pattern *p = calloc(1, sizeof *p);
    if (!p)
        return err_set(err, ST_NOMEM, "%s: out of memory", where);
    /* UCP and LITERAL exclude each other; a literal needs no character classes. */
    uint32_t options = literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    int code = 0;
    PCRE2_SIZE at = 0;
    p->code = pcre2_compile((PCRE2_SPTR)text, len, options, &code, &at, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(code, why, sizeof why);
        free(p);
        return err_set(err, ST_FORMAT, "%s: the pattern does not compile at byte %zu: %s", where, (size_t)at,
                       (const char *)why);
    }
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* without it the interpreter serves */
    *out = p;
    return ST_OK;
}

void pattern_free(Pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

PatternScratch *pattern_scratch_new(void)
{
    PatternScratch *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->data = pcre2_match_data_create(1, NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (!s->data || !s->limits) {
        pattern_scratch_free(s);
        return NULL;
    }
    pcre2_set_match_limit(s->limits, MATCH_STEPS);
    pcre2_set_heap_limit(s->limits, MATCH_HEAP_KIB);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->stack)
        pcre2_jit_stack_assign(s->limits, NULL, s->stack);
    return s;
}

void pattern_scratch_free(PatternScratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->limits);
    pcre2_jit_stack_free(s->stack);
    free(s);
}

Status pattern_next(const Pattern *p, PatternScratch *scratch, const char *s, size_t len, size_t from, bool *found,
                    size_t *start, size_t *end, Err *err)
{
    *found = false;
    int rc = pcre2_match(p->code, (PCRE2_SPTR)s, len, from, PCRE2_NO_UTF_CHECK, scratch->data, scratch->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, (PCRE2_SPTR)s, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, scratch->data,
                         scratch->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return ST_OK;
    if (rc < 0) {
        PCRE2_UCHAR why[160] = "";
        pcre2_get_error_message(rc, why, sizeof why);
        return err_set(err, rc == PCRE2_ERROR_NOMEMORY ? ST_NOMEM : ST_INVALID,
                       "the text cannot be split into words: a pattern of the tokenizer stopped with '%s'; shorten the "
                       "text or its longest run without a break",
                       (const char *)why);
    }
    PCRE2_SIZE *range = pcre2_get_ovector_pointer(scratch->data);
    if (range[0] > range[1]) /* \K inside a look-ahead can do that */
        return err_set(err, ST_UNSUPPORTED, "a pattern of the tokenizer sets a match's start behind its end (\\K)");
    *found = true;
    *start = range[0];
    *end = range[1];
    return ST_OK;
}
