/* json.c - jansson behind a bounded door.
 *
 * jansson parses by recursion and takes a NUL byte for the end of the input, so the raw bytes are looked over first:
 * the depth of brackets outside of strings is counted, without a stack, and a NUL is refused. This needs no valid
 * JSON; text that is malformed in other ways is left to jansson, which also refuses invalid UTF-8, duplicate keys,
 * text behind the value and "\u0000" (values are read as C strings above).
 * Python writes Infinity where JSON has no word for it. Outside of strings it is read as 1.79e308, which has as many
 * letters and is within 1% of the largest double; NaN stays an error.
 * Columns count characters, the first one is 1; jansson reports where the offending token ends. */
#include "core/json.h"
#include <stdlib.h>
#include <string.h>

#define JSON_DEPTH_MAX 512
#define JSON_STR_(x)   #x
#define JSON_STR(x)    JSON_STR_(x)

#define JSON_INFINITY "Infinity"
enum { JSON_INFINITY_LEN = sizeof JSON_INFINITY - 1 };

typedef struct Place {
    size_t line, col;
} Place;

/* NULL, or what keeps the text from jansson: a NUL byte, or the bracket that nests too deep. *at is then its place.
 * *infinity is where that word first stands outside of strings, or len. */
static const char *json_unfit(const char *text, size_t len, Place *at, size_t *infinity)
{
    size_t depth = 0;
    bool in_string = false;

    *at = (Place){.line = 1, .col = 0};
    *infinity = len;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (((unsigned char)c & 0xc0) != 0x80)
            at->col++;
        if (c == '\0')
            return "a NUL byte; remove it";
        if (c == '\n') {
            at->line++;
            at->col = 0;
        }
        if (in_string) {
            if (c == '\\' && i + 1 < len && (text[i + 1] == '"' || text[i + 1] == '\\')) {
                i++; /* the escaped byte neither ends the string nor escapes another */
                at->col++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == 'I' && *infinity == len && len - i >= JSON_INFINITY_LEN &&
                   memcmp(text + i, JSON_INFINITY, JSON_INFINITY_LEN) == 0) {
            *infinity = i;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_DEPTH_MAX)
                return "nested deeper than " JSON_STR(JSON_DEPTH_MAX) " levels; flatten the document";
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return NULL;
}

/* A copy in which every Infinity outside of strings, the first of them at `at`, is a number. NULL: no memory. */
static char *json_finite(const char *text, size_t len, size_t at)
{
    char *copy = malloc(len);
    bool in_string = false;

    if (copy == NULL)
        return NULL;
    memcpy(copy, text, len);
    for (size_t i = at; i < len; i++) { /* `at` is outside of a string */
        if (in_string && copy[i] == '\\')
            i++;
        else if (copy[i] == '"')
            in_string = !in_string;
        else if (!in_string && len - i >= JSON_INFINITY_LEN && memcmp(copy + i, JSON_INFINITY, JSON_INFINITY_LEN) == 0)
            memcpy(copy + i, "1.79e308", JSON_INFINITY_LEN);
    }
    return copy;
}

Status json_parse(const char *text, size_t len, const char *name, json_t **out, Err *err)
{
    json_error_t e;
    Place at;
    size_t infinity;
    const char *unfit = json_unfit(text, len, &at, &infinity);
    char *copy = NULL;
    json_t *root;

    if (unfit != NULL)
        return err_set(err, ST_FORMAT, "%s:%zu:%zu: %s", name, at.line, at.col, unfit);
    if (infinity < len) {
        copy = json_finite(text, len, infinity);
        if (copy == NULL)
            return err_set(err, ST_NOMEM, "%s: out of memory", name);
    }
    root = json_loadb(copy != NULL ? copy : text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &e);
    free(copy);
    if (root == NULL) {
        Status st = json_error_code(&e) == json_error_out_of_memory ? ST_NOMEM : ST_FORMAT;
        return err_set(err, st, "%s:%d:%d: %s", name, e.line > 0 ? e.line : 1, e.column > 0 ? e.column : 1, e.text);
    }
    *out = root;
    return ST_OK;
}

json_t *json_at(const json_t *root, const char *dotted)
{
    const json_t *at = root;
    json_t *found;

    for (;;) {
        size_t n = strcspn(dotted, ".");

        found = json_object_getn(at, dotted, n);
        if (found == NULL || dotted[n] == '\0')
            return found;
        at = found;
        dotted += n + 1;
    }
}
