/* nvml.c - see nvml.h. */
#include "gpu/nvml.h"
#include <dlfcn.h>
#include <string.h>

typedef struct nvmlDevice_st *nvmlDevice_t;
enum { NVML_SUCCESS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };

typedef struct Nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*device)(const char *pci, nvmlDevice_t *out);
    int (*clock)(nvmlDevice_t d, int kind, unsigned *mhz);
} Nvml;

static void find(void *lib, const char *name, void *to)
{
    void *f = dlsym(lib, name);
    memcpy(to, &f, sizeof f); /* POSIX: a data pointer may hold a function's address */
}

void nvml_clocks(const char *pci, uint32_t *cores, uint32_t *memory)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    nvmlDevice_t device;
    unsigned mhz;
    Nvml n;

    if (lib == NULL)
        return;
    find(lib, "nvmlInit_v2", &n.init);
    find(lib, "nvmlShutdown", &n.shutdown);
    find(lib, "nvmlDeviceGetHandleByPciBusId_v2", &n.device);
    find(lib, "nvmlDeviceGetClockInfo", &n.clock);
    if (n.init && n.shutdown && n.device && n.clock && n.init() == NVML_SUCCESS) {
        if (n.device(pci, &device) == NVML_SUCCESS) {
            if (n.clock(device, NVML_CLOCK_SM, &mhz) == NVML_SUCCESS)
                *cores = mhz;
            if (n.clock(device, NVML_CLOCK_MEM, &mhz) == NVML_SUCCESS)
                *memory = mhz;
        }
        n.shutdown();
    }
    dlclose(lib);
}
