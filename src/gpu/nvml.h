/* nvml.h - the clocks of an NVIDIA GPU as they are now, by libnvidia-ml.so.1, which comes with the driver. The few
 * declarations that this takes are written down in nvml.c (NVML API reference, 13.0; stable since 11).
 * Owns: nothing; the library is opened and closed in the call.   Thread: any. */
#ifndef METRALE_GPU_NVML_H
#define METRALE_GPU_NVML_H
#include <stdint.h>

/* MHz of the multiprocessors and of the memory of the GPU at a PCI address ("0000:1b:00.0"). What cannot be known is left
 * as it is: without the library, both. */
void nvml_clocks(const char *pci, uint32_t *cores, uint32_t *memory);
#endif
