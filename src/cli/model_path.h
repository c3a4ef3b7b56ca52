/* model_path.h - what a MODEL argument stands for on this machine. */
#ifndef METRALE_CLI_MODEL_PATH_H
#define METRALE_CLI_MODEL_PATH_H
#include "core/status.h"

/* `default` is the model that `./dev setup` fetches, ${XDG_CACHE_HOME:-$HOME/.cache}/metrale/models/SmolLM2-135M-Instruct.Q4_1.gguf; anything else is a
 * path. *out is malloc'd. ST_NOTFOUND when nothing is there. */
Status model_path(const char *model, char **out, Err *err);
#endif
