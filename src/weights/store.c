/* store.c - which parser a path goes to, and what every store shares.
 *
 *   FILE.gguf                                        gguf
 *   folder with config.json                          safetensors
 *   folder without config.json, with one *.gguf      that file
 *   FILE.json (store_open_config only)               its object, and no tensors */
#include "weights/store.h"
#include "core/file.h"
#include "core/str.h"
#include "weights/tensors.h"

/* The only .gguf file of dir, joined, from a; NULL when there is none or more than one. */
static Status find_only_gguf(const char *dir, Arena *a, const char **path, Err *err)
{
    Status st = ST_OK;
    const char *only = NULL;
    size_t n, n_files = 0;
    DirEntry *entries;

    *path = NULL;
    TRY(dir_list(dir, a, &entries, &n, err));
    for (size_t i = 0; i < n; i++) {
        if (!entries[i].is_dir && str_ends(entries[i].name, ".gguf")) {
            only = entries[i].name;
            n_files++;
        }
    }
    if (n_files == 1 && (*path = arena_printf(a, "%s/%s", dir, only)) == NULL)
        st = err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir);
done:
    return st;
}

static Status open_folder(WeightStore **out, const char *dir, OpenMode mode, Err *err)
{
    Status st = ST_OK;
    Arena *a = arena_new();
    const char *config = a ? arena_printf(a, "%s/config.json", dir) : NULL, *gguf = NULL;

    if (config == NULL)
        TRY(err_set(err, ST_NOMEM, "%s: out of memory to open it; free some memory", dir));
    if (!file_exists(config))
        TRY(find_only_gguf(dir, a, &gguf, err));
    st = gguf ? gguf_open(out, gguf, mode, err) : safetensors_open(out, dir, mode, err);
done:
    arena_free(a);
    return st;
}

/* A bare config.json: its object, and no tensors. */
static Status open_config_file(WeightStore **out, const char *path, Err *err)
{
    Status st = ST_OK;
    FileStore *fs = NULL;

    TRY(file_store_new(&fs, STORE_SAFETENSORS, path, 0, err));
    TRY(config_read(path, &fs->meta, err));
    *out = &fs->base;
    fs = NULL;
done:
    store_free(fs ? &fs->base : NULL);
    return st;
}

Status store_open(WeightStore **out, const char *path, Err *err)
{
    WeightStore *s = NULL;
    Status st;

    if (dir_exists(path))
        st = open_folder(&s, path, OPEN_WEIGHTS, err);
    else if (!file_exists(path))
        st = err_set(err, ST_NOTFOUND, "%s: no such file or folder; check the path", path);
    else if (str_ends(path, ".gguf"))
        st = gguf_open(&s, path, OPEN_WEIGHTS, err);
    else
        st = err_set(err, ST_INVALID, "%s: is neither a folder nor a .gguf file; name the folder that holds it", path);
    if (st == ST_OK && store_count(s) == 0) {
        store_free(s);
        return err_set(err, ST_NOTFOUND, "%s: has no weights; download its *.safetensors or .gguf file", path);
    }
    if (st == ST_OK)
        *out = s;
    return st;
}

Status store_open_config(WeightStore **out, const char *path, Err *err)
{
    if (dir_exists(path))
        return open_folder(out, path, OPEN_METADATA, err);
    if (!file_exists(path))
        return err_set(err, ST_NOTFOUND, "%s: no such file or folder; check the path", path);
    if (str_ends(path, ".gguf"))
        return gguf_open(out, path, OPEN_METADATA, err);
    if (str_ends(path, ".json"))
        return open_config_file(out, path, err);
    return err_set(err, ST_INVALID, "%s: is neither a folder, a .gguf file nor a config.json; name one of these", path);
}

Status store_need(const WeightStore *s, const char *name, const TensorInfo **out, Err *err)
{
    const TensorInfo *t = store_find(s, name);

    if (t == NULL)
        return err_set(
            err, ST_NOTFOUND,
            "%s: tensor %.256s is missing; the checkpoint is incomplete or not of this architecture: download it "
            "again",
            s->path, name);
    if (t->dtype == DT_NONE)
        return err_set(
            err, ST_UNSUPPORTED,
            "%s: tensor %s is stored as %s, which this build does not compute with; use a checkpoint in another "
            "format",
            t->file, t->name, t->stored);
    *out = t;
    return ST_OK;
}
