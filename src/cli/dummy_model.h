/* dummy_model.h - a whole model of random weights from a config.json: every tensor that its circuit names.
 *
 * format is one of
 *   config       as the configuration says: quantization_config, or else its dtype
 *   fp8-block    as if it had a quantization_config of fp8 in blocks of 128 x 128; also: fp8/128
 *   nvfp4        the same of ModelOpt's NVFP4
 *   bf16, q8_0.. every matrix in this format, what the configuration says of quantisation left out
 *
 * Quantisers leave the head and routers as they are, whether or not the configuration lists them; fp8-block and nvfp4 also
 * leave matrices of less than 128 rows.
 *
 * Values are normal with sigma 0.02, also after dequantisation. Norms scale by about 1, decays and steps of recurrent layers
 * lie in the range that they are initialised to: routing spreads and states neither vanish nor grow.
 *
 * Owns: nothing.   Thread: main. */
#ifndef METRALE_CLI_DUMMY_MODEL_H
#define METRALE_CLI_DUMMY_MODEL_H
#include "circuit/instance.h"
#include "weights/store.h"

#define DUMMY_FORMATS "config (what it says), fp8-block, nvfp4, or a format of all matrices such as bf16 or q8_0"

/* name: of the file, for messages. config is copied. */
Status dummy_model_new(WeightStore **out, const CircuitLibrary *lib, const json_t *config, const char *name,
                       const char *format, Err *err);
#endif
