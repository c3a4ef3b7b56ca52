/* rope.h - rotary frequencies by rule. Pure arithmetic in double.
 *   default:  f_i = theta^(-2i/d)
 *   linear:   f_i / factor
 *   llama3:   three bands by wavelength: unchanged below original/high, / factor above original/low, blended between
 *             (Llama 3.1 release notes)
 *   yarn:     NTK-by-parts ramp between beta_fast and beta_slow, cos and sin scaled by 0.1 ln(factor) + 1 or by
 *             attention_factor (Peng et al. 2023, YaRN) */
#ifndef METRALE_CIRCUIT_ROPE_H
#define METRALE_CIRCUIT_ROPE_H
#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN } RopeKind;

typedef struct RopeSpec {
    RopeKind kind;
    uint32_t dims; /* rotated elements of a head; even */
    double theta, factor;
    double low_freq_factor, high_freq_factor;      /* llama3 */
    double original_max_position;                  /* llama3, yarn */
    double beta_fast, beta_slow, attention_factor; /* yarn; attention_factor 0: by the formula */
    bool truncate;                                 /* yarn: band edges rounded to whole pairs (the default) */
    const char *factors_tensor;                    /* GGUF rope_freqs: f_i is divided by its element i; NULL for none */
} RopeSpec;

/* Refuses what the formulas cannot take, so that no table ever holds a NaN. */
Status rope_validate(const RopeSpec *spec, Err *err);
/* inv_freq[dims/2]; *scale multiplies cos and sin. */
Status rope_frequencies(const RopeSpec *spec, double *inv_freq, double *scale, Err *err);
#endif
