// A stand-in for libcuda.so.1 that writes its calls to standard output. It has the driver's own declarations, so that
// a call through a wrong declaration of a library is seen by what is written.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API extern "C" CUresult

static int kernels = 0;

API cuInit(unsigned) { return CUDA_SUCCESS; }
API cuCtxGetDevice(CUdevice* device) { *device = 0; return CUDA_SUCCESS; }
API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
    const int version = atoi(getenv("VERSION"));
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
    printf("launch %d grid %u %u %u block %u %u %u shared %u stream %zu%s first %llu\n",
           static_cast<int>(reinterpret_cast<size_t>(kernel)), c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
           c->blockDimY, c->blockDimZ, c->sharedMemBytes, reinterpret_cast<size_t>(c->hStream), early ? " early" : "",
           *static_cast<unsigned long long*>(arguments[0]));
    return CUDA_SUCCESS;
}
