// The part of the CUDA runtime API that a printed launcher uses. Launches run at once, on fibers.
#ifndef NAUTILUS_CUDA_RUNTIME_H
#define NAUTILUS_CUDA_RUNTIME_H
#include <stddef.h>

typedef int cudaError_t;
typedef struct CUstream_st* cudaStream_t;
constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorMisalignedAddress = 716, cudaErrorNotSupported = 801;

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
constexpr unsigned long long cudaEnableDefault = 0;
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrCooperativeLaunch = 95 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaLaunchAttributeID { cudaLaunchAttributeNone, cudaLaunchAttributeCooperative = 2,
                             cudaLaunchAttributeProgrammaticStreamSerialization = 6 };

struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    struct {
        int programmaticStreamSerializationAllowed, cooperative;
    } val;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                             unsigned long long flags, cudaDriverEntryPointQueryResult* found);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared);

namespace host {

// What __launch_bounds__ and __cluster_dims__ of a kernel say.
struct Bounds {
    const void* kernel;
    const char* name;
    int threads, min_blocks, cluster;
    Bounds* next;
    Bounds(const void* kernel, const char* name, int threads, int min_blocks, int cluster);
};

void allow_shared(const void* kernel, int bytes);
// Runs `call` once for each thread of the grid.
void launch(const void* kernel, unsigned blocks, unsigned threads, size_t shared, bool dependent, bool cooperative,
            void (*call)(void*), void* arguments);

template <class F> void start(const void* kernel, unsigned blocks, unsigned threads, size_t shared, bool dependent, F f,
                              bool cooperative = false) {
    launch(kernel, blocks, threads, shared, dependent, cooperative, [](void* p) { (*(F*)p)(); }, &f);
}

}  // namespace host

template <class F> cudaError_t cudaFuncSetAttribute(F* kernel, cudaFuncAttribute, int bytes) {
    host::allow_shared((const void*)kernel, bytes);
    return cudaSuccess;
}

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(P...), A... a) {
    const bool dependent = c->numAttrs == 1 && c->attrs->id == cudaLaunchAttributeProgrammaticStreamSerialization &&
                           c->attrs->val.programmaticStreamSerializationAllowed;
    const bool cooperative = c->numAttrs == 1 && c->attrs->id == cudaLaunchAttributeCooperative && c->attrs->val.cooperative;
    host::start((const void*)kernel, c->gridDim.x, c->blockDim.x, c->dynamicSmemBytes, dependent, [=] { kernel(a...); },
                cooperative);
    return cudaGetLastError();
}

// The driver of one printed file: `main` reads inputs, calls `run` for each seed, writes outputs.
namespace host {
struct Arguments {
    void** buffers;
    void* workspace;
};
int main(int argc, char** argv, size_t workspace, int (*run)(Arguments));
}  // namespace host
#endif
