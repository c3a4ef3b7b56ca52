/* target.h - which kernel target serves a checkpoint: MODEL.toml [match] of every target of one class.
 * A named model's target (dims given) outranks the generic one of the architecture; among equals more matched dims win,
 * then the name. The quant directory is matched by the instance's dominant matrix format, `any` takes all. */
#ifndef METRALE_CIRCUIT_TARGET_H
#define METRALE_CIRCUIT_TARGET_H
#include "circuit/instance.h"
#include "core/str.h"
#include "kernels/registry.h"

/* *why (may be NULL) gets one sentence for the log. No match: ST_UNSUPPORTED, the message lists what exists for the
 * class. */
Status target_choose(const KernelTarget **out, const KernelRegistry *reg, const char *hw, const Instance *in, Str *why,
                     Err *err);

/* HARDWARE.toml [defaults] of a class as text values; *value is NULL when the class does not set it. Inherited classes
 * fall back to their parent. */
Status target_default(const KernelRegistry *reg, const char *hw, const char *lever, Str *value, bool *found, Err *err);

/* Sampling presets of the target's MODEL.toml: keys temperature, top_p, top_k, min_p; absent ones leave out's field as
 * it is. */
typedef struct SamplingPreset {
    double temperature, top_p, min_p;
    int64_t top_k;
} SamplingPreset;
Status target_sampling(const KernelRegistry *reg, const KernelTarget *t, SamplingPreset *out, Err *err);
#endif
