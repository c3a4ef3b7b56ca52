/* levers.h - every setting of a run, declared once: name, kind, bounds, help. From one row come the flag (--kv-dtype), the variable
 * (METRALE_KV_DTYPE), the HARDWARE.toml [defaults] key (kv_dtype), the --help line and the line of the ready log.
 * Flags win over variables, these over the class's defaults, these over the built-in value.
 * Owns: the texts of its values.   Thread: main only. */
#ifndef METRALE_CLI_LEVERS_H
#define METRALE_CLI_LEVERS_H
#include "core/log.h"
#include "core/status.h"
#include "kernels/registry.h"
#include <argp.h>
#include <stdbool.h>
#include <stdint.h>

/* X(ID, name, kind, built-in value, least, most or choices, help). Choices are separated by |. */
#define LEVER_MAP(X)                                                                                                   \
    X(HARDWARE, "hardware", TEXT, "", 0, 0, "", "hardware class to run on; the best this machine can run when empty")  \
    X(THREADS, "threads", INT, "0", 0, 1024, "", "CPU workers; 0: one for each CPU of the process")                    \
    X(KV_DTYPE, "kv_dtype", CHOICE, "bf16", 0, 0, "f16|bf16|f32", "format of the KV cache")                            \
    X(ACT_QUANT, "act_quant", CHOICE, "off", 0, 0, "off|config",                                                       \
      "inputs of linears: as they are, or rounded as the checkpoint's quantization asks (fp8, int8, nvfp4)")           \
    X(KV_TOKENS, "kv_tokens", INT, "16384", 0, 1 << 30, "",                                                            \
      "tokens that the KV cache holds for all sequences together; 0: as many as they can use and memory allows")       \
    X(MAX_LEN, "max_len", INT, "0", 0, 1 << 24, "",                                                                    \
      "longest sequence in tokens; 0: what the model was trained for, or the cache")                                   \
    X(MAX_ROWS, "max_rows", INT, "512", 1, 65536, "", "most tokens of one step: the prefill chunk")                    \
    X(MAX_SEQS, "max_seqs", INT, "8", 1, 1024, "", "most sequences that run at a time")                                \
    X(BATCH_INVARIANT, "batch_invariant", BOOL, "true", 0, 0, "",                                                      \
      "an answer never depends on its neighbours in the batch")                                                        \
    X(WGMMA_ATTENTION, "wgmma_attention", BOOL, "false", 0, 0, "",                                                     \
      "prompts' attention by wgmma on hopper: faster; has not been held to the reference on the card yet")             \
    X(TRACE, "trace", TEXT, "", 0, 0, "", "file that gets a line for every device call")                               \
    X(LOG_LEVEL, "log_level", CHOICE, "info", 0, 0, "debug|info|warn|error",                                           \
      "least important lines that are still printed")                                                                  \
    X(HOST, "host", TEXT, "127.0.0.1", 0, 0, "", "address that serve listens on")                                      \
    X(PORT, "port", INT, "8888", 0, 65535, "", "port that serve listens on; 0: any free one")                          \
    X(QUEUE, "queue", INT, "64", 1, 65536, "", "requests that may wait; one more is answered with 429")                \
    X(GRACE, "grace", INT, "30", 0, 3600, "", "seconds that running answers get at shutdown")

typedef enum {
#define X(id, name, kind, value, least, most, choices, help) LEVER_##id,
    LEVER_MAP(X)
#undef X
        LEVER_COUNT
} LeverId;

typedef enum { FROM_BUILTIN, FROM_CLASS, FROM_VARIABLE, FROM_FLAG } LeverOrigin;

typedef struct Levers {
    struct {
        char *text; /* NULL: not set; owned */
        LeverOrigin origin;
    } value[LEVER_COUNT];
    struct argp parser; /* an argp child whose options are the levers; its input is the Levers */
    struct argp_option options[LEVER_COUNT + 1];
    char flags[LEVER_COUNT][32];
} Levers;

void levers_init(Levers *l); /* all built-in; the parser is ready */
void levers_release(Levers *l);
/* Reads METRALE_*; a name that no lever declares is refused. Flags already set stay. */
Status levers_environment(Levers *l, char **environ, Err *err);
/* Takes HARDWARE.toml [defaults] of the class; a key that no lever declares is refused. */
Status levers_class(Levers *l, const KernelRegistry *reg, const char *hw, Err *err);

const char *lever_text(const Levers *l, LeverId id);
int64_t lever_int(const Levers *l, LeverId id);
bool lever_bool(const Levers *l, LeverId id);
LeverOrigin lever_origin(const Levers *l, LeverId id);
/* One line: "name=value (origin)" for each lever. */
void levers_log(const Levers *l, const Log *log);
#endif
