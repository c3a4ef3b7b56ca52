/* cuda.h - the cuda backend over a given table of driver functions: for tests, which bring their own. Everyone else calls
 * gpu_cuda_new and gpu_cuda_can_run of gpu.h.   Thread: as gpu.h. */
#ifndef METRALE_GPU_CUDA_H
#define METRALE_GPU_CUDA_H
#include "gpu/cuda_api.h"
#include "gpu/gpu.h"

/* The first device of arch's compute capability. ST_UNSUPPORTED with the reason when there is none. */
Status cuda_find_device(const CudaApi *api, const char *arch, CUdevice *out, Err *err);
/* api is copied. */
Status cuda_new_with(GpuBackend **out, const CudaApi *api, const char *class_name, const char *arch, Err *err);

#endif
