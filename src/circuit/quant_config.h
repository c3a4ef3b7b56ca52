/* quant_config.h - what a checkpoint's configuration says about how its matrices are stored: quantization_config of
 * config.json (or of hf_quant_config.json, which the store puts there).
 *
 * Owns: nothing; all of it lives in the arena.   Thread: immutable after quant_config_read. */
#ifndef METRALE_CIRCUIT_QUANT_CONFIG_H
#define METRALE_CIRCUIT_QUANT_CONFIG_H
#include "circuit/instance.h"
#include "core/arena.h"
#include "core/quant.h"
#include "core/str.h"

/* The modules that targets name, in one scheme. */
typedef struct QuantRule {
    QuantScheme scheme;
    const char *const *targets; /* NULL: every linear */
    uint32_t n_targets;
} QuantRule;

typedef struct QuantConfig {
    const QuantRule *rules;
    uint32_t n_rules;
    const char *const *ignored; /* modules that stay in their own format */
    uint32_t n_ignored;
    bool experts_only;
} QuantConfig;

/* *out is NULL when the configuration names no quantisation. Unknown methods, algorithms, formats, bits and keys are
 * refused by name. */
Status quant_config_read(const QuantConfig **out, const InstanceSource *src, Arena *a, Err *err);
/* The scheme of a linear by its module's name; NULL: its own format. */
const QuantScheme *quant_config_find(const QuantConfig *q, const char *module, bool experts);
/* "e4m3/token", "e4m3/128", "e4m3/tensor" (one static scale), "e2m1/16"; "-" for nothing. */
void quant_input_say(const QuantInput *q, Str *out);
/* The format of the rows of a matrix [..][k]; DT_NONE: no format here has groups like these. */
DType quant_format(const QuantScheme *s, uint64_t k);
#endif
