/* kernel_table.h - the kernel handles that a host-side backend has given out: one for each object, alive until the
 * backend is freed.
 *
 * Owns: the handles.   Does not own: the objects (static data of the registry).   Thread: the backend's caller. */
#ifndef METRALE_GPU_KERNEL_TABLE_H
#define METRALE_GPU_KERNEL_TABLE_H
#include "gpu/gpu.h"

struct GpuKernel {
    const KernelObject *obj;
    GpuKernel *inner;    /* trace: the wrapped backend's handle of obj; NULL elsewhere */
    void *function;      /* cuda: the driver's function; NULL elsewhere */
    uint32_t smem_limit; /* cuda: bytes of dynamic shared memory that a launch may have as the function is set now */
    GpuKernel *next;
};

typedef struct KernelTable {
    GpuKernel *first;
} KernelTable;

/* The handle of obj, made on first use. Looked up at start only, so a list will do. */
Status kernel_table_get(KernelTable *t, const KernelObject *obj, GpuKernel **out, Err *err);
void kernel_table_release(KernelTable *t);

#endif
