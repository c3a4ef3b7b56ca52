/* normalize.c - Unicode forms by utf8proc, case mapping, and the small textual steps.
 *
 * Text that is pure ASCII is already in every Unicode normal form, which is the common case and costs one scan. */
#include "text/normalize.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/utf8.h"

enum { MAX_STEPS = 32, MAX_NESTING = 16, MAX_TEXT = 1 << 30 };

typedef enum { NORM_FORM, NORM_LOWERCASE, NORM_STRIP, NORM_PREPEND, NORM_REPLACE } NormKind;

struct NormStep {
    NormKind kind;
    int form;         /* NORM_FORM: options of utf8proc_map */
    bool left, right; /* NORM_STRIP */
    Pattern *pattern; /* NORM_REPLACE */
    char *text;       /* NORM_PREPEND, NORM_REPLACE: what is put in; owned */
    size_t len;
};

void normalizer_release(Normalizer *nz)
{
    for (size_t i = 0; i < nz->n; i++) {
        pattern_free(nz->step[i].pattern);
        free(nz->step[i].text);
    }
    free(nz->step);
    *nz = (Normalizer){0};
}

/* The new step, zeroed; NULL with err set when there is no room. */
static NormStep *add_step(Normalizer *nz, NormKind kind, Err *err)
{
    if (nz->n == MAX_STEPS) {
        err_set(err, ST_UNSUPPORTED, "normalizer: more than %d steps", MAX_STEPS);
        return NULL;
    }
    if (nz->n == nz->cap) {
        size_t cap = nz->cap ? nz->cap * 2 : 4;
        NormStep *grown = realloc(nz->step, cap * sizeof *grown);
        if (!grown) {
            err_set(err, ST_NOMEM, "normalizer: out of memory");
            return NULL;
        }
        nz->step = grown;
        nz->cap = cap;
    }
    NormStep *step = &nz->step[nz->n++];
    *step = (NormStep){.kind = kind};
    return step;
}

static Status keep_text(NormStep *step, const json_t *spec, const char *key, Err *err)
{
    const json_t *v = json_object_get(spec, key);
    if (!json_is_string(v))
        return err_set(err, ST_FORMAT, "normalizer: \"%s\" must be a string", key);
    step->len = json_string_length(v);
    step->text = malloc(step->len + 1);
    if (!step->text)
        return err_set(err, ST_NOMEM, "normalizer: out of memory");
    memcpy(step->text, json_string_value(v), step->len + 1);
    return ST_OK;
}

static Status add_replace(Normalizer *nz, const json_t *spec, Err *err)
{
    const json_t *pattern = json_object_get(spec, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"), *literal = json_object_get(pattern, "String");
    const json_t *text = regex ? regex : literal;
    if (!json_is_string(text))
        return err_set(err, ST_FORMAT,
                       "normalizer: the \"pattern\" of Replace must be {\"Regex\": text} or {\"String\": text}");
    NormStep *step = add_step(nz, NORM_REPLACE, err);
    if (!step)
        return ST_NOMEM;
    Status st = pattern_new(&step->pattern, json_string_value(text), json_string_length(text), !regex,
                            "normalizer Replace", err);
    return st != ST_OK ? st : keep_text(step, spec, "content", err);
}

static Status add_json(Normalizer *nz, const json_t *spec, int depth, Err *err)
{
    static const struct {
        const char *name;
        int options;
    } forms[] = {
        {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
        {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
        {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
        {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
    };
    const json_t *type = json_object_get(spec, "type");
    if (!json_is_string(type))
        return err_set(err, ST_FORMAT, "normalizer: every step must be an object with a string \"type\"");
    const char *name = json_string_value(type);
    NormStep *step;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(name, forms[i].name) == 0) {
            step = add_step(nz, NORM_FORM, err);
            if (!step)
                return ST_NOMEM;
            step->form = forms[i].options;
            return ST_OK;
        }
    if (strcmp(name, "Lowercase") == 0)
        return add_step(nz, NORM_LOWERCASE, err) ? ST_OK : ST_NOMEM;
    if (strcmp(name, "Strip") == 0) {
        step = add_step(nz, NORM_STRIP, err);
        if (!step)
            return ST_NOMEM;
        step->left = !json_is_false(json_object_get(spec, "strip_left"));
        step->right = !json_is_false(json_object_get(spec, "strip_right"));
        return ST_OK;
    }
    if (strcmp(name, "Prepend") == 0) {
        step = add_step(nz, NORM_PREPEND, err);
        return step ? keep_text(step, spec, "prepend", err) : ST_NOMEM;
    }
    if (strcmp(name, "Replace") == 0)
        return add_replace(nz, spec, err);
    if (strcmp(name, "Sequence") == 0) {
        const json_t *list = json_object_get(spec, "normalizers");
        if (!json_is_array(list) || depth >= MAX_NESTING)
            return err_set(err, ST_FORMAT,
                           "normalizer: a Sequence needs the list \"normalizers\", nested at most %d deep",
                           MAX_NESTING);
        for (size_t i = 0; i < json_array_size(list); i++) {
            Status st = add_json(nz, json_array_get(list, i), depth + 1, err);
            if (st != ST_OK)
                return st;
        }
        return ST_OK;
    }
    return err_set(err, ST_UNSUPPORTED,
                   "normalizer: the kind \"%s\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, "
                   "Replace and Sequence are)",
                   name);
}

Status normalizer_add_json(Normalizer *nz, const json_t *spec, Err *err)
{
    return add_json(nz, spec, 0, err);
}

static bool is_ascii(const Str *s)
{
    for (size_t i = 0; i < s->len; i++)
        if ((unsigned char)s->p[i] >= 0x80)
            return false;
    return true;
}

static Status run_form(const NormStep *step, const Str *in, Str *out, Err *err)
{
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)str_c(in), (utf8proc_ssize_t)in->len, &mapped,
                                      (utf8proc_option_t)step->form);
    if (n < 0)
        return err_set(err, n == UTF8PROC_ERROR_NOMEM ? ST_NOMEM : ST_INVALID, "the text cannot be normalised: %s",
                       utf8proc_errmsg(n));
    str_add(out, mapped, (size_t)n);
    free(mapped);
    return ST_OK;
}

static void run_lowercase(const Str *in, Str *out)
{
    for (size_t i = 0; i < in->len;) {
        uint32_t cp = 0;
        char buf[4];
        int n = utf8_decode(in->p + i, in->len - i, &cp);
        if (n <= 0)
            break; /* cannot be: the text was checked */
        i += (size_t)n;
        if (cp == 0x130) { /* the one letter whose lower case is two characters (SpecialCasing.txt) */
            str_add(out, "i\xcc\x87", 3);
            continue;
        }
        n = utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), buf);
        str_add(out, buf, (size_t)n);
    }
}

static bool is_space(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (cp >= 9 && cp <= 13) || cp == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL ||
           c == UTF8PROC_CATEGORY_ZP;
}

static void run_strip(const NormStep *step, const Str *in, Str *out)
{
    size_t from = 0, to = 0;
    bool seen = false;
    for (size_t i = 0; i < in->len;) {
        uint32_t cp = 0;
        int n = utf8_decode(in->p + i, in->len - i, &cp);
        if (n <= 0)
            break;
        if (!is_space(cp)) {
            if (!seen)
                from = i;
            seen = true;
            to = i + (size_t)n;
        }
        i += (size_t)n;
    }
    if (!seen) /* all white space: stripping one side is enough to empty it */
        from = to = step->left || step->right ? in->len : 0;
    size_t start = step->left ? from : 0, end = step->right ? to : in->len;
    if (start < end)
        str_add(out, in->p + start, end - start);
}

static Status run_replace(const NormStep *step, PatternScratch *scratch, const Str *in, Str *out, Err *err)
{
    Status st = ST_OK;
    size_t done = 0, from = 0;
    while (from <= in->len) {
        bool found;
        size_t start, end;
        TRY(pattern_next(step->pattern, scratch, str_c(in), in->len, from, &found, &start, &end, err));
        if (!found)
            break;
        if (start < done)
            start = done;
        if (end < start)
            end = start;
        str_add(out, in->p + done, start - done);
        str_add(out, step->text, step->len);
        done = from = end;
        if (out->len > MAX_TEXT)
            return err_set(err, ST_INVALID, "the text grows over 1 GiB when it is normalised; send less text");
        if (start == end) {
            uint32_t cp;
            int n = from < in->len ? utf8_decode(in->p + from, in->len - from, &cp) : 1;
            from += n > 0 ? (size_t)n : 1;
        }
    }
    str_add(out, str_c(in) + done, in->len - done);
done:
    return st;
}

Status normalizer_run(const Normalizer *nz, PatternScratch *scratch, const char *text, size_t len, Str *out, Err *err)
{
    Status st = ST_OK;
    Str in = STR_INIT;
    str_clear(out);
    str_add(out, text, len);
    for (size_t i = 0; i < nz->n && str_ok(out); i++) {
        const NormStep *step = &nz->step[i];
        if ((step->kind == NORM_FORM && is_ascii(out)) || out->len == 0)
            continue; /* Prepend leaves empty text empty, too */
        Str swap = in;
        in = *out;
        *out = swap;
        str_clear(out);
        switch (step->kind) {
        case NORM_FORM:
            TRY(run_form(step, &in, out, err));
            break;
        case NORM_LOWERCASE:
            run_lowercase(&in, out);
            break;
        case NORM_STRIP:
            run_strip(step, &in, out);
            break;
        case NORM_PREPEND:
            str_add(out, step->text, step->len);
            str_add(out, in.p, in.len);
            break;
        case NORM_REPLACE:
            TRY(run_replace(step, scratch, &in, out, err));
            break;
        }
    }
    if (!str_ok(out) || in.failed)
        TRY(err_set(err, ST_NOMEM, "out of memory while normalising text"));
done:
    str_release(&in);
    return st;
}
