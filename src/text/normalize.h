/* normalize.h - the normaliser steps of tokenizer.json.
 * Owns: its steps. Thread: immutable once built. */
#ifndef METRALE_TEXT_NORMALIZE_H
#define METRALE_TEXT_NORMALIZE_H
#include <stdbool.h>
#include <stddef.h>

#include "core/json.h"
#include "core/status.h"
#include "core/str.h"
#include "text/pattern.h"

typedef struct NormStep NormStep;

typedef struct Normalizer {
    NormStep *step;
    size_t n, cap;
} Normalizer;

void normalizer_release(Normalizer *nz);

/* Appends the steps of a "normalizer" value (not null): NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and
 * Sequences of them. Others are ST_UNSUPPORTED, by name. */
Status normalizer_add_json(Normalizer *nz, const json_t *spec, Err *err);

/* out (cleared first) gets the normalised form of text[0..len), which is valid UTF-8. */
Status normalizer_run(const Normalizer *nz, PatternScratch *scratch, const char *text, size_t len, Str *out, Err *err);
#endif
