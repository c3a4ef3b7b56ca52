/* loader.h - from a MODEL argument and the levers to everything that a command needs, in one place: the order of the start.
 *
 *   store -> circuit instance -> hardware class -> kernel target -> families -> backend -> model -> tokenizer
 *
 * Owns: all of it; loaded_close gives it back in reverse order.   Thread: main. */
#ifndef METRALE_CLI_LOADER_H
#define METRALE_CLI_LOADER_H
#include "circuit/target.h"
#include "cli/levers.h"
#include "core/log.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include <stdio.h>

typedef struct Loaded {
    Log log;
    char *path;     /* of the model; what `default` stands for is resolved */
    const char *hw; /* hardware class; registry memory */
    WeightStore *store;
    CircuitLibrary *lib;
    Instance *in;
    const KernelTarget *target;
    FamilySet *families;
    GpuBackend *gpu;
    Model *model;
    Tokenizer *tokenizer;
    json_t *tokenizer_config; /* tokenizer_config.json of a directory, or NULL */
    json_t *generation_config;
    json_t *chat_template; /* the template's text as a JSON string, or NULL when the checkpoint has none */
    FILE *trace;           /* --trace, or NULL */
    SamplingPreset preset;
} Loaded;

/* How far to go. Each level needs the ones before. */
typedef enum {
    LOAD_CIRCUIT,   /* metadata and tensor names: a bare config.json will do */
    LOAD_TOKENIZER, /* and text */
    LOAD_STORE,     /* weights can be read: the reference interpreter */
    LOAD_MODEL,     /* on the device */
} LoadLevel;

typedef struct LoadOptions {
    LoadLevel level;
    bool tokenizer;    /* with LOAD_MODEL and LOAD_STORE: text, too */
    bool text_if_any;  /* the same, where the checkpoint has a tokenizer at all */
    bool quiet;        /* warnings and errors only, unless the lever says otherwise */
    bool exact;        /* KV in f32 and inputs as they are, unless the levers say otherwise */
    bool any_class;    /* --hardware may name a class that the binary has no kernels for; LOAD_CIRCUIT only */
    uint32_t max_outs; /* 0: max_seqs */
    uint32_t max_seqs; /* 0: the lever */
    /* What a known workload needs, where neither flag nor variable says. 0: the lever. */
    uint32_t max_len, kv_tokens;
    Clock *clock; /* for model_times; NULL: nobody asks */
    /* Random weights when the MODEL is a bare config.json: cli/dummy_model.h says in what. NULL: such a MODEL is refused. */
    const char *dummy;
} LoadOptions;

/* Reads the environment and the class's defaults into levers. On failure *l is empty. */
Status loaded_open(Loaded *l, const char *model, Levers *levers, const LoadOptions *opt, Err *err);
void loaded_close(Loaded *l);

/* Can this machine run the target's class? If not, err says why. */
bool loader_class_runs(const KernelTarget *t, Err *err);
/* The class that a run uses: the lever's, checked, or among those in the registry the one of a GPU that is here, or the best
 * that this CPU can run. */
Status loader_class(const char **out, const KernelRegistry *reg, const char *wanted, Err *err);
/* The bounds of a model by the levers and the checkpoint: what loaded_open gives model_new, for reports and checks. */
Status loader_model_options(ModelOptions *out, const Instance *in, const Levers *levers, const LoadOptions *opt,
                            Err *err);
/* An instance of what `path` holds; store_open_config for a bare config. */
Status loader_instance(Instance **out, const CircuitLibrary *lib, WeightStore *store, DType kv_format, bool act_quant,
                       Err *err);
#endif
