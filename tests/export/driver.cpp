// A stand-in for libcuda.so.1 that writes its calls to standard output. It has the driver's own declarations, so that
// a call through a wrong declaration of a library is seen by what is written.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API extern "C" CUresult
#undef cuEventElapsedTime  // its newer form is not in drivers before CUDA 12.8

static int kernels = 0;

API cuInit(unsigned) { return CUDA_SUCCESS; }
API cuDriverGetVersion(int* version) { *version = 13000; return CUDA_SUCCESS; }
API cuGetErrorName(CUresult status, const char** name) {
    *name = status == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : nullptr;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API cuDeviceGetName(char* name, int size, CUdevice) { snprintf(name, size, "a stand-in"); return CUDA_SUCCESS; }
API cuDeviceTotalMem(size_t* bytes, CUdevice) { *bytes = 5ull << 30; return CUDA_SUCCESS; }
API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = reinterpret_cast<CUcontext>(1);
    return CUDA_SUCCESS;
}
API cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
API cuCtxGetCurrent(CUcontext* context) { *context = reinterpret_cast<CUcontext>(1); return CUDA_SUCCESS; }
API cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice* device) { *device = 0; return CUDA_SUCCESS; }
API cuCtxSynchronize() { return CUDA_SUCCESS; }
API cuModuleLoadData(CUmodule* module, const void* code) {
    *module = reinterpret_cast<CUmodule>(1);
    printf("module %s\n", memcmp(code, "\177ELF", 4) == 0 ? "ELF" : static_cast<const char*>(code));
    return CUDA_SUCCESS;
}
API cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    *function = reinterpret_cast<CUfunction>(9);
    printf("function %s\n", name);
    return CUDA_SUCCESS;
}
API cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
API cuFuncSetAttribute(CUfunction, CUfunction_attribute attribute, int value) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    printf("shared %d\n", value);
    return CUDA_SUCCESS;
}
API cuMemAlloc(CUdeviceptr* p, size_t bytes) {
    *p = reinterpret_cast<CUdeviceptr>(aligned_alloc(256, (bytes + 255) / 256 * 256));
    return CUDA_SUCCESS;
}
API cuMemFree(CUdeviceptr p) { free(reinterpret_cast<void*>(p)); return CUDA_SUCCESS; }
API cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    memcpy(reinterpret_cast<void*>(to), from, bytes);
    return CUDA_SUCCESS;
}
API cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    memcpy(to, reinterpret_cast<void*>(from), bytes);
    return CUDA_SUCCESS;
}
API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
    memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    return CUDA_SUCCESS;
}
API cuMemsetD8(CUdeviceptr p, unsigned char value, size_t count) {
    memset(reinterpret_cast<void*>(p), value, count);
    return CUDA_SUCCESS;
}
API cuMemsetD32(CUdeviceptr p, unsigned value, size_t count) {
    for (size_t n = 0; n < count; ++n) reinterpret_cast<unsigned*>(p)[n] = value;
    return CUDA_SUCCESS;
}
API cuStreamCreate(CUstream* stream, unsigned) { *stream = reinterpret_cast<CUstream>(4); return CUDA_SUCCESS; }
API cuStreamSynchronize(CUstream) { return CUDA_SUCCESS; }
API cuStreamDestroy(CUstream) { return CUDA_SUCCESS; }
API cuStreamBeginCapture(CUstream, CUstreamCaptureMode) { return CUDA_SUCCESS; }
API cuStreamEndCapture(CUstream, CUgraph* graph) { *graph = reinterpret_cast<CUgraph>(1); return CUDA_SUCCESS; }
API cuGraphInstantiate(CUgraphExec* made, CUgraph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(1);
    return CUDA_SUCCESS;
}
API cuGraphLaunch(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
API cuEventCreate(CUevent* event, unsigned) { *event = reinterpret_cast<CUevent>(1); return CUDA_SUCCESS; }
API cuEventRecord(CUevent, CUstream) { return CUDA_SUCCESS; }
API cuEventElapsedTime(float* milliseconds, CUevent, CUevent) { *milliseconds = 2.5f; return CUDA_SUCCESS; }
API cuEventDestroy(CUevent) { return CUDA_SUCCESS; }
API cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                   unsigned shared, CUstream stream, void** arguments, void**) {
    printf("launch %d grid %u %u %u block %u %u %u shared %u stream %zu first %llu\n",
           static_cast<int>(reinterpret_cast<size_t>(function)), x, y, z, a, b, c, shared,
           reinterpret_cast<size_t>(stream), *static_cast<unsigned long long*>(arguments[0]));
    return CUDA_SUCCESS;
}
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const int version = atoi(getenv("VERSION") ? getenv("VERSION") : "90");
    if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
        *value = atoi(getenv("MULTIPROCESSORS") ? getenv("MULTIPROCESSORS") : "132");
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) {
        *value = !getenv("ALONE");
        return CUDA_SUCCESS;
    }
    if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) {
        *value = 232448;
        return CUDA_SUCCESS;
    }
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? version / 10 : version % 10;
    return CUDA_SUCCESS;
}
API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                      unsigned) {
    *library = reinterpret_cast<CUlibrary>(1);
    const bool elf = memcmp(code, "\177ELF", 4) == 0;
    printf("load %s\n", elf ? "ELF" : static_cast<const char*>(code));
    return CUDA_SUCCESS;
}
API cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char* name) {
    *kernel = reinterpret_cast<CUkernel>(static_cast<size_t>(++kernels));
    printf("kernel %d %s\n", kernels, name);
    return CUDA_SUCCESS;
}
API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_ERROR_INVALID_VALUE;
    printf("shared %d %d\n", static_cast<int>(reinterpret_cast<size_t>(kernel)), value);
    return CUDA_SUCCESS;
}
API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return CUDA_SUCCESS;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads, size_t shared) {
    printf("occupancy %d %d %zu\n", static_cast<int>(reinterpret_cast<size_t>(function)), threads, shared);
    *blocks = atoi(getenv("RESIDENT") ? getenv("RESIDENT") : "1");
    return CUDA_SUCCESS;
}
API cuMemsetD8Async(CUdeviceptr p, unsigned char value, size_t count, CUstream) {
    printf("clear %llu %d %zu\n", p, value, count);
    return CUDA_SUCCESS;
}
API cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                           const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                           const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                           CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
    memset(map, 7, sizeof *map);
    printf("map %d %zu swizzle %d promotion %d steps %u:", type, reinterpret_cast<size_t>(base), swizzle, promotion, steps[0]);
    for (unsigned n = 0; n < rank; ++n) printf(" %llu/%u", static_cast<unsigned long long>(sizes[n]), box[n]);
    for (unsigned n = 1; n < rank; ++n) printf(" +%llu", static_cast<unsigned long long>(strides[n - 1]));
    printf("\n");
    return CUDA_SUCCESS;
}
API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction kernel, void** arguments, void**) {
    const bool early = c->numAttrs == 1 &&
                       c->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                       c->attrs->value.programmaticStreamSerializationAllowed == 1;
    const bool together =
        c->numAttrs == 1 && c->attrs->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && c->attrs->value.cooperative == 1;
    printf("launch %d grid %u %u %u block %u %u %u shared %u stream %zu%s%s first %llu\n",
           static_cast<int>(reinterpret_cast<size_t>(kernel)), c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
           c->blockDimY, c->blockDimZ, c->sharedMemBytes, reinterpret_cast<size_t>(c->hStream), early ? " early" : "",
           together ? " together" : "",
           *static_cast<unsigned long long*>(arguments[0]));
    return CUDA_SUCCESS;
}
