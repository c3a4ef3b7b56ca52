/* registry.c - look-ups in the generated registry.
 *
 * Files are sorted by path, so they are found by bisection; targets are dozens and objects of a target too, and both are
 * looked up while a model is bound, never in a step: a scan is the right size. */
#include "kernels/registry.h"
#include <string.h>

const EmbeddedFile *registry_file(const KernelRegistry *r, const char *path)
{
    size_t lo = 0, hi = r->n_files;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(r->files[mid].path, path);
        if (c == 0)
            return &r->files[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

const KernelTarget *registry_target(const KernelRegistry *r, const char *name)
{
    for (size_t i = 0; i < r->n_targets; i++)
        if (!strcmp(r->targets[i].name, name))
            return &r->targets[i];
    return NULL;
}

const KernelObject *target_object(const KernelTarget *t, const char *entry, const char *constants)
{
    for (size_t i = 0; i < t->n_objects; i++)
        if (!strcmp(t->objects[i].entry, entry) && !strcmp(t->objects[i].constants, constants))
            return &t->objects[i];
    return NULL;
}
