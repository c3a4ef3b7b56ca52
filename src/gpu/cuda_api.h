/* cuda_api.h - the part of NVIDIA's driver API that the cuda backend calls, as a table of functions.
 *
 * The declarations are written down here, so that no CUDA header is needed to build and no CUDA library to start: types and
 * values are the driver API's stable ABI (CUDA Driver API reference, 13.0; the same since 12.4). A name with a version in it
 * (cuMemAlloc_v2) is the symbol that cuda.h gives the plain name; the plain symbol is an older function.
 *
 * The table is filled from libcuda.so.1, or by a test with functions of its own.
 *
 * Owns: the library's handle, never closed: the driver has threads of its own.   Thread: any. */
#ifndef METRALE_GPU_CUDA_API_H
#define METRALE_GPU_CUDA_API_H
#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NO_DEVICE = 100,

    CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz, at most */
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,

    CU_STREAM_NON_BLOCKING = 1,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    CU_EVENT_DISABLE_TIMING = 2,

    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

typedef struct CUlaunchAttribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        int programmatic_stream_serialization_allowed;
    } value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned grid[3], block[3], smem;
    CUstream stream;
    CUlaunchAttribute *attrs;
    unsigned n_attrs;
} CUlaunchConfig;

/* X(member, symbol, parameters) */
#define CUDA_API_MAP(X)                                                                                                \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(device_count, "cuDeviceGetCount", (int *n))                                                                      \
    X(device_get, "cuDeviceGet", (CUdevice * out, int ordinal))                                                        \
    X(device_name, "cuDeviceGetName", (char *out, int cap, CUdevice d))                                                \
    X(device_attribute, "cuDeviceGetAttribute", (int *out, int attribute, CUdevice d))                                 \
    X(device_pci, "cuDeviceGetPCIBusId", (char *out, int cap, CUdevice d))                                             \
    X(ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext * out, CUdevice d))                                           \
    X(ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice d))                                                       \
    X(ctx_set, "cuCtxSetCurrent", (CUcontext c))                                                                       \
    X(mem_alloc, "cuMemAlloc_v2", (CUdeviceptr * out, size_t bytes))                                                   \
    X(mem_free, "cuMemFree_v2", (CUdeviceptr p))                                                                       \
    X(mem_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total))                                              \
    X(mem_set, "cuMemsetD8Async", (CUdeviceptr dst, unsigned char byte, size_t n, CUstream s))                         \
    X(upload, "cuMemcpyHtoDAsync_v2", (CUdeviceptr dst, const void *src, size_t n, CUstream s))                        \
    X(download, "cuMemcpyDtoHAsync_v2", (void *dst, CUdeviceptr src, size_t n, CUstream s))                            \
    X(copy, "cuMemcpyDtoDAsync_v2", (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s))                          \
    X(host_alloc, "cuMemHostAlloc", (void **out, size_t bytes, unsigned flags))                                        \
    X(host_free, "cuMemFreeHost", (void *p))                                                                           \
    X(stream_create, "cuStreamCreate", (CUstream * out, unsigned flags))                                               \
    X(stream_sync, "cuStreamSynchronize", (CUstream s))                                                                \
    X(stream_destroy, "cuStreamDestroy_v2", (CUstream s))                                                              \
    X(event_create, "cuEventCreate", (CUevent * out, unsigned flags))                                                  \
    X(event_record, "cuEventRecord", (CUevent e, CUstream s))                                                          \
    X(event_sync, "cuEventSynchronize", (CUevent e))                                                                   \
    X(event_elapsed, "cuEventElapsedTime", (float *ms, CUevent from, CUevent to))                                      \
    X(event_destroy, "cuEventDestroy_v2", (CUevent e))                                                                 \
    X(module_load, "cuModuleLoadData", (CUmodule * out, const void *image))                                            \
    X(module_unload, "cuModuleUnload", (CUmodule m))                                                                   \
    X(module_function, "cuModuleGetFunction", (CUfunction * out, CUmodule m, const char *name))                        \
    X(func_load, "cuFuncLoad", (CUfunction f))                                                                         \
    X(func_get, "cuFuncGetAttribute", (int *out, int attribute, CUfunction f))                                         \
    X(func_set, "cuFuncSetAttribute", (CUfunction f, int attribute, int value))                                        \
    X(launch, "cuLaunchKernelEx", (const CUlaunchConfig *config, CUfunction f, void **args, void **extra))             \
    X(capture_begin, "cuStreamBeginCapture_v2", (CUstream s, int mode))                                                \
    X(capture_end, "cuStreamEndCapture", (CUstream s, CUgraph * out))                                                  \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (CUgraphExec * out, CUgraph g, unsigned long long flags))      \
    X(graph_upload, "cuGraphUpload", (CUgraphExec g, CUstream s))                                                      \
    X(graph_launch, "cuGraphLaunch", (CUgraphExec g, CUstream s))                                                      \
    X(graph_destroy, "cuGraphDestroy", (CUgraph g))                                                                    \
    X(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec g))                                                       \
    X(error_string, "cuGetErrorString", (CUresult r, const char **out))

typedef struct CudaApi {
#define X(member, symbol, parameters) CUresult(*member) parameters;
    CUDA_API_MAP(X)
#undef X
} CudaApi;

/* Fills the table from libcuda.so.1. ST_UNSUPPORTED when this machine has none, or one that is too old. */
Status cuda_api_load(CudaApi *out, Err *err);
#endif
