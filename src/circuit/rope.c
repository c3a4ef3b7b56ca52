/* rope.c - the frequencies of rotary position embedding, by rule.
 *
 * Pair i of a head turns by position * f_i. The plain rule is f_i = theta^(-2i/d) (Su et al. 2021); the others change
 * f_i so that a model reaches further than it was trained:
 *
 *   linear   all pairs turn `factor` times slower.
 *   llama3   by wavelength w = 2 pi / f: short ones (w < original/high) stay, long ones (w > original/low) slow down
 *            by factor, those between are blended with s = (original/w - low) / (high - low).
 *   yarn     by number of turns over the original context: pair index of r turns is
 *            c(r) = d ln(original / (2 pi r)) / (2 ln theta); pairs up to c(beta_fast) stay, those from c(beta_slow) on
 *            slow down by factor, a straight ramp between. cos and sin are scaled by 0.1 ln(factor) + 1.
 *
 * GGUF files may carry a tensor of divisors instead (RopeSpec.factors_tensor); the loader applies it, since its bytes
 * are not here. All arithmetic is in double: the table is made once. */
#include "circuit/rope.h"
#include <math.h>

static const double pi = 3.14159265358979323846;

static bool positive(double v)
{
    return isfinite(v) && v > 0;
}

Status rope_validate(const RopeSpec *s, Err *err)
{
    if (s->dims == 0 || s->dims % 2 != 0)
        return err_set(err, ST_INVALID, "rope rotates %u elements of a head; the number must be even and above 0",
                       s->dims);
    if (!positive(s->theta) || s->theta <= 1)
        return err_set(err, ST_INVALID, "rope_theta is %g; it must be a finite number above 1", s->theta);
    if (s->kind == ROPE_DEFAULT)
        return ST_OK;
    if (!positive(s->factor))
        return err_set(err, ST_INVALID, "the rope scaling factor is %g; it must be a finite number above 0", s->factor);
    if (s->kind == ROPE_LINEAR)
        return ST_OK;
    if (!positive(s->original_max_position))
        return err_set(err, ST_INVALID, "original_max_position_embeddings is %g; it must be above 0",
                       s->original_max_position);
    if (s->kind == ROPE_LLAMA3) {
        if (!positive(s->low_freq_factor) || !positive(s->high_freq_factor) ||
            s->high_freq_factor <= s->low_freq_factor)
            return err_set(
                err, ST_INVALID,
                "rope low_freq_factor is %g and high_freq_factor is %g; they must be above 0 and the high one "
                "above the low one",
                s->low_freq_factor, s->high_freq_factor);
        return ST_OK;
    }
    if (!positive(s->beta_fast) || !positive(s->beta_slow) || s->beta_fast < s->beta_slow)
        return err_set(
            err, ST_INVALID,
            "rope beta_fast is %g and beta_slow is %g; they must be above 0 and beta_fast not below beta_slow",
            s->beta_fast, s->beta_slow);
    if (!isfinite(s->attention_factor) || s->attention_factor < 0)
        return err_set(err, ST_INVALID,
                       "the rope attention_factor is %g; it must be above 0, or left out for the formula",
                       s->attention_factor);
    return ST_OK;
}

static double llama3_frequency(const RopeSpec *s, double f)
{
    double turns = s->original_max_position * f / (2 * pi); /* original / wavelength */
    double smooth;

    if (turns > s->high_freq_factor)
        return f;
    if (turns < s->low_freq_factor)
        return f / s->factor;
    smooth = (turns - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1 - smooth) * f / s->factor + smooth * f;
}

/* The pair index, not whole, that makes `turns` turns over the original context. */
static double yarn_pair(const RopeSpec *s, double turns)
{
    return s->dims * log(s->original_max_position / (turns * 2 * pi)) / (2 * log(s->theta));
}

static void yarn_band(const RopeSpec *s, double *low, double *high)
{
    *low = yarn_pair(s, s->beta_fast);
    *high = yarn_pair(s, s->beta_slow);
    if (s->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, s->dims - 1.0);
    if (*low == *high) /* a band of no width would divide by zero */
        *high += 0.001;
}

Status rope_frequencies(const RopeSpec *spec, double *inv_freq, double *scale, Err *err)
{
    Status st = rope_validate(spec, err);
    double low = 0, high = 1;

    if (st != ST_OK)
        return st;
    *scale = 1;
    if (spec->kind == ROPE_YARN) {
        yarn_band(spec, &low, &high);
        if (spec->attention_factor > 0)
            *scale = spec->attention_factor;
        else if (spec->factor > 1)
            *scale = 0.1 * log(spec->factor) + 1;
    }
    for (uint32_t i = 0; i < spec->dims / 2; i++) {
        double f = pow(spec->theta, -2.0 * i / spec->dims);
        double ramp;

        switch (spec->kind) {
        case ROPE_DEFAULT:
            break;
        case ROPE_LINEAR:
            f /= spec->factor;
            break;
        case ROPE_LLAMA3:
            f = llama3_frequency(spec, f);
            break;
        case ROPE_YARN:
            ramp = fmin(fmax((i - low) / (high - low), 0), 1);
            f = f / spec->factor * ramp + f * (1 - ramp);
            break;
        }
        inv_freq[i] = f;
    }
    return ST_OK;
}
