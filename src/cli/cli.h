/* cli.h - the subcommands. Each gets argv with argv[0] = "metrale NAME" and returns the exit status: 0 done, 1 a check found faults,
 * 2 bad input or a failure, with one sentence on stderr. */
#ifndef METRALE_CLI_CLI_H
#define METRALE_CLI_CLI_H
#include "core/status.h"
#include "core/str.h"
#include <stdbool.h>
#include <stdint.h>

/* X(name, one line of help) in the order of `metrale --help`. */
#define COMMAND_MAP(X)                                                                                                 \
    X(serve, "serve a model over HTTP (OpenAI API)")                                                                   \
    X(run, "answer a prompt, or chat, in the terminal")                                                                \
    X(bench, "time prefill and decode, in this process")                                                               \
    X(score, "compare logits with a golden file")                                                                      \
    X(check, "validate a checkpoint: every key, every tensor, every value")                                            \
    X(perplexity, "perplexity of a text")                                                                              \
    X(circuit, "what a model's circuit is, how a class runs it, what a class lacks")                                   \
    X(kernels, "list, show, check and explain kernel targets")                                                         \
    X(tokenize, "text to token ids, and back")                                                                         \
    X(template, "messages to the prompt that a model's chat template makes")                                           \
    X(version, "version, classes and targets of this binary")

#define X(name, help) int cmd_##name(int argc, char **argv);
COMMAND_MAP(X)
#undef X

/* Takes arg as the command's one MODEL; a second one ends the command with a usage error. */
struct argp_state;
void cli_one_model(struct argp_state *state, const char **model, char *arg);

/* Prints "metrale: SENTENCE" to stderr and returns 2. */
int cli_fail(const Err *err);

/* The number that text says in decimal digits and nothing else; false, and *out as it was, when it says none from least
 * to most. */
bool cli_whole(const char *text, uint64_t least, uint64_t most, uint64_t *out);

enum { CLI_MAX_INPUT = 256 << 20, CLI_MAX_LINE = 1 << 20 }; /* bytes */
/* All of standard input, behind what out has. */
Status cli_stdin(Str *out, Err *err);
/* Its next line without the newline; *more is false when there was none. */
Status cli_stdin_line(Str *out, bool *more, Err *err);
#endif
