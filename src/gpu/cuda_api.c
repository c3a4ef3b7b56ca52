/* cuda_api.c - libcuda.so.1, found at run time; see the header. */
#include "gpu/cuda_api.h"
#include <dlfcn.h>
#include <string.h>

Status cuda_api_load(CudaApi *out, Err *err)
{
    static const struct {
        const char *name;
        size_t at;
    } symbols[] = {
#define X(member, symbol, parameters) {symbol, offsetof(CudaApi, member)},
        CUDA_API_MAP(X)
#undef X
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL)
        return err_set(err, ST_UNSUPPORTED, "this machine has no NVIDIA driver: libcuda.so.1 cannot be loaded");
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].name);
        if (f == NULL)
            return err_set(err, ST_UNSUPPORTED,
                           "libcuda.so.1 has no %s: install an NVIDIA driver of CUDA 12.4 or later", symbols[i].name);
        memcpy((char *)out + symbols[i].at, &f, sizeof f); /* POSIX: a data pointer may hold a function's address */
    }
    return ST_OK;
}
