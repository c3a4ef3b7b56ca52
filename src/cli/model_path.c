/* model_path.c - see model_path.h. */
#include "cli/model_path.h"
#include "core/file.h"
#include "core/str.h"
#include <stdlib.h>
#include <string.h>

static const char default_file[] = "metrale/models/SmolLM2-135M-Instruct.Q4_1.gguf";

Status model_path(const char *model, char **out, Err *err)
{
    Status st = ST_OK;
    Str path = STR_INIT;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool named = strcmp(model, "default") == 0;

    if (!named)
        str_adds(&path, model);
    else if (cache && *cache)
        str_addf(&path, "%s/%s", cache, default_file);
    else if (home && *home)
        str_addf(&path, "%s/.cache/%s", home, default_file);
    else
        TRY(err_set(err, ST_NOTFOUND,
                    "the default model lies under $XDG_CACHE_HOME or $HOME/.cache, and neither variable is set"));
    if (!file_exists(str_c(&path)) && !dir_exists(str_c(&path)))
        TRY(err_set(err, ST_NOTFOUND,
                    named ? "%s: the default model is not there; `./dev setup` fetches it"
                          : "%s: no such model; MODEL is a directory, a .gguf file or `default`",
                    str_c(&path)));
    *out = str_take(&path);
    if (*out == NULL)
        TRY(err_set(err, ST_NOMEM, "out of memory for a path"));
done:
    str_release(&path);
    return st;
}
