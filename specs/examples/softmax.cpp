// Calls a library of nautilusc from C++, with neither nvcc nor the CUDA toolkit: the driver is all that it needs.
//
//     nautilusc specs/rowwise/softmax.naut -o libsoftmax.so --arch sm_80,sm_90a
//     nautilusc specs/rowwise/softmax.naut -o softmax.h --arch sm_80,sm_90a
//     g++ -std=c++17 -I. specs/examples/softmax.cpp ./libsoftmax.so -ldl -o softmax && ./softmax
#include "softmax.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

// Memory and a context, through the driver API. A program that uses the CUDA runtime has both already.
typedef unsigned long long Pointer;
template <class F> static F* function(const char* name) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    void* found = library ? dlsym(library, name) : nullptr;
    if (found) return reinterpret_cast<F*>(found);
    fprintf(stderr, "the CUDA driver is missing or has no %s\n", name);
    exit(3);
}
static void check(int status, const char* what) {
    if (!status) return;
    fprintf(stderr, "%s: CUDA error %d\n", what, status);
    exit(1);
}

int main() {
    const size_t rows = 16384, columns = 4096, bytes = rows * columns * 2;  // f16
    void* context = nullptr;
    check(function<int(unsigned)>("cuInit")(0), "opening the driver");
    check(function<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0), "opening a context");
    check(function<int(void*)>("cuCtxSetCurrent")(context), "opening a context");
    auto* const allocate = function<int(Pointer*, size_t)>("cuMemAlloc_v2");
    Pointer x = 0, y = 0, scratch = 0;
    check(allocate(&x, bytes), "allocating X");
    check(allocate(&y, bytes), "allocating Y");
    if (softmax_workspace()) check(allocate(&scratch, softmax_workspace()), "allocating the workspace");
    check(function<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2")(x, 0, bytes), "filling X");

    softmax_plan plan;  // checks and tensor maps once; a launch is then all that is left
    check(softmax_prepare(&plan, (void*)x, (void*)y, (void*)scratch, nullptr), "preparing");
    for (int n = 0; n < 3; ++n) check(softmax_launch_prepared(&plan, nullptr), "launching");
    check(function<int()>("cuCtxSynchronize")(), "running");

    std::vector<unsigned short> row(columns);
    check(function<int(void*, Pointer, size_t)>("cuMemcpyDtoH_v2")(row.data(), y, 2 * columns), "copying Y");
    printf("1 / %zu in f16 is 0x0c00; the first element is 0x%04x\n", columns, row[0]);
    return row[0] == 0x0c00 ? 0 : 1;
}
