/* kernel_table.c - handles of kernel objects as a linked list; see the header. */
#include "gpu/kernel_table.h"
#include <stdlib.h>

Status kernel_table_get(KernelTable *t, const KernelObject *obj, GpuKernel **out, Err *err)
{
    for (GpuKernel *k = t->first; k; k = k->next) {
        if (k->obj == obj) {
            *out = k;
            return ST_OK;
        }
    }
    GpuKernel *k = malloc(sizeof *k);
    if (!k)
        return err_set(err, ST_NOMEM, "Out of host memory for the handle of kernel %s.", obj->entry);
    *k = (GpuKernel){.obj = obj, .next = t->first};
    t->first = k;
    *out = k;
    return ST_OK;
}

void kernel_table_release(KernelTable *t)
{
    while (t->first) {
        GpuKernel *k = t->first;
        t->first = k->next;
        free(k);
    }
}
