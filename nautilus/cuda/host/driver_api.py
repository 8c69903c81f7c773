"""The host text of a library: the launcher over the CUDA driver API, without a header of CUDA.

The text declares what it uses of ``cuda.h`` (CUDA Driver API; the numbers are part of its binary interface), and
``libcuda.so.1`` is opened at the first call, so that a library links and loads on a machine without a driver.  Kernels
are loaded once for each device (cuLibraryLoadData), and a plan holds their handles, so that a launch looks nothing up.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.cuda.host.api import ATTRIBUTES, Api, Start
from nautilus.cuda.host.co_residency import CoResidency
from nautilus.cuda.names import module_names
from nautilus.ma_tile.ir import ops as ma
from nautilus.targets.limits import SMEM_WITHOUT_OPT_IN

DECLARATIONS = """typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef u16 f16;
typedef u16 bf16;
struct alignas(64) TensorMap { u64 opaque[16]; };

// ---- what the launcher uses of cuda.h and of cuda_runtime.h
typedef int CUresult;
typedef CUresult cudaError_t;
typedef u32 cuuint32_t;
typedef u64 cuuint64_t;
typedef TensorMap CUtensorMap;
enum {
    CUDA_SUCCESS = 0, cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9,
    cudaErrorInsufficientDriver = 35, cudaErrorNoBinary = 209, cudaErrorMisalignedAddress = 716,
    cudaErrorNotSupported = 801
};
enum CUtensorMapDataType {
    CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_DATA_TYPE_UINT32,
    CU_TENSOR_MAP_DATA_TYPE_INT32, CU_TENSOR_MAP_DATA_TYPE_UINT64, CU_TENSOR_MAP_DATA_TYPE_INT64,
    CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
    CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle {
    CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
struct LaunchAttribute {
    int id, unused;
    int value[16];
};
struct LaunchConfig {
    u32 grid[3], block[3], shared;
    cudaStream_t stream;
    LaunchAttribute* attributes;
    u32 count;
};
typedef CUresult (*EncodeTiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

struct Driver {
    CUresult status;
    CUresult (*init)(unsigned);
    CUresult (*current_device)(int*);
    CUresult (*attribute)(int*, int, int);
    CUresult (*load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned);
    CUresult (*kernel)(void**, void*, const char*);
    CUresult (*set_attribute)(int, int, void*, int);
    CUresult (*launch)(const LaunchConfig*, void*, void**, void**);
    CUresult (*function)(void**, void*);
    CUresult (*occupancy)(int*, void*, int, size_t);
    CUresult (*clear)(u64, unsigned char, size_t, cudaStream_t);
    EncodeTiled encode;
};
static Driver the_driver;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

static void open_driver() {
    Driver& d = the_driver;
    d.status = cudaErrorInsufficientDriver;
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "the CUDA driver is missing: %s\\n", dlerror());
        return;
    }
    const struct { const char* name; void** target; } functions[] = {
        {"cuInit", (void**)&d.init}, {"cuCtxGetDevice", (void**)&d.current_device},
        {"cuDeviceGetAttribute", (void**)&d.attribute}, {"cuLibraryLoadData", (void**)&d.load},
        {"cuLibraryGetKernel", (void**)&d.kernel}, {"cuKernelSetAttribute", (void**)&d.set_attribute},
        {"cuLaunchKernelEx", (void**)&d.launch}, {"cuMemsetD8Async", (void**)&d.clear},
        {"cuKernelGetFunction", (void**)&d.function},
        {"cuOccupancyMaxActiveBlocksPerMultiprocessor", (void**)&d.occupancy},
        {"cuTensorMapEncodeTiled", (void**)&d.encode},
    };
    for (const auto& f : functions) {
        *f.target = dlsym(library, f.name);
        if (*f.target) continue;
        fprintf(stderr, "the CUDA driver has no %s; version 12.0 or newer is needed\\n", f.name);
        return;
    }
    d.status = d.init(0);
}

static const Driver& driver() {
    pthread_once(&driver_once, open_driver);
    return the_driver;
}

// The device of the current context.
static cudaError_t current_device(int* device) {
    if (driver().status != CUDA_SUCCESS) return driver().status;
    return driver().current_device(device);
}

static cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
    return driver().clear((u64)p, (unsigned char)value, bytes, stream);
}

static EncodeTiled find_encode() { return driver().encode; }

// `number`: of an attribute of the launch that is 1; 0: it has none.
static cudaError_t start(void* kernel, u32 blocks, u32 threads, u32 shared, int number, void** arguments,
                         cudaStream_t stream) {
    LaunchAttribute attribute = {number, 0, {1}};
    const LaunchConfig config = {
        {blocks, 1, 1}, {threads, 1, 1}, shared, stream, number ? &attribute : nullptr, number ? 1u : 0u
    };
    return driver().launch(&config, kernel, arguments, nullptr);
}

// The machine code for one architecture, and its kernels on each device that has loaded it.
static const int max_devices = 64;
struct Kernel {
    const char* name;
    int shared;
};
struct Code {
    const void* image;
    int count;
    const Kernel* kernels;
    void** handles;  // of each device, `count`
    bool loaded[max_devices];
};
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t load(Code* code, int device) {
    void* library = nullptr;
    cudaError_t status = driver().load(&library, code->image, nullptr, nullptr, 0, nullptr, nullptr, 0);
    for (int n = 0; n < code->count && status == CUDA_SUCCESS; ++n) {
        void** handle = &code->handles[device * code->count + n];
        status = driver().kernel(handle, library, code->kernels[n].name);
        if (status != CUDA_SUCCESS || !code->kernels[n].shared) continue;
        status = driver().set_attribute(8, code->kernels[n].shared, *handle, device);  // dynamic shared memory
    }
    if (status == CUDA_SUCCESS) __atomic_store_n(&code->loaded[device], true, __ATOMIC_RELEASE);
    return status;
}

// The handles of the kernels of `code` on the device of the current context.
static cudaError_t open_kernels(Code* code, void* const** kernels) {
    int device = 0;
    cudaError_t status = current_device(&device);
    if (status != CUDA_SUCCESS) return status;
    if (device >= max_devices) return cudaErrorNotSupported;
    if (!__atomic_load_n(&code->loaded[device], __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&loading);
        if (!code->loaded[device]) status = load(code, device);
        pthread_mutex_unlock(&loading);
    }
    *kernels = code->handles + device * code->count;
    return status;
}

// One architecture of the library: `exact`, it runs on this version only, else on later ones of the same major version.
struct Architecture {
    int version;
    bool exact;
};

// The first of `count` architectures that runs on the current device; -1 with `status` where there is none.
static int choose(const Architecture* known, int count, const char* listed, cudaError_t* status) {
    int device = 0, major = 0, minor = 0;
    *status = current_device(&device);
    if (*status == CUDA_SUCCESS) *status = driver().attribute(&major, 75, device);
    if (*status == CUDA_SUCCESS) *status = driver().attribute(&minor, 76, device);
    if (*status != CUDA_SUCCESS) return -1;
    const int have = 10 * major + minor;
    for (int n = 0; n < count; ++n) {
        const bool runs = known[n].exact ? known[n].version == have
                                         : known[n].version / 10 == major && known[n].version <= have;
        if (runs) return n;
    }
    fprintf(stderr, "the library has kernels for %s, but the GPU is sm_%d\\n", listed, have);
    *status = cudaErrorNoBinary;
    return -1;
}
"""


def _launch(s: Start) -> list[str]:
    given = ", ".join(f"(void*)&{a}" for a in s.arguments)
    attribute = ATTRIBUTES[s.attribute][2] if s.attribute else 0
    numbers = f"{s.blocks}, {s.threads}, {s.shared}, {attribute}"
    return [
        "    {",
        f"        void* arguments[] = {{{given}}};",
        f"        status = start(plan.kernel_handles[{s.number}], {numbers}, arguments, {s.stream});",
        "    }",
    ]


def code_table(modules: Sequence[ma.MemModule], image: str) -> list[str]:
    """Lines that declare the kernels of a cubin, which is in the C array ``image``."""
    rows = [
        f'{{"{module_names(module).kernels[k.name]}", {k.smem_bytes if k.smem_bytes > SMEM_WITHOUT_OPT_IN else 0}}}'
        for module in modules
        for k in module.kernels
    ]
    return [
        f"static const Kernel kernels[] = {{{', '.join(rows)}}};",
        f"static void* handles[max_devices * {len(rows)}];",
        f"static Code code = {{{image}, {len(rows)}, kernels, handles, {{}}}};",
    ]


_ASKED = """static bool is_co_resident(void* kernel, int device, int blocks, int threads, size_t shared) {
    int supported = 0, multiprocessors = 0, each = 0;
    void* function = nullptr;
    cudaError_t status = driver().attribute(&supported, 95, device);  // cooperative launch
    if (status == CUDA_SUCCESS) status = driver().attribute(&multiprocessors, 16, device);
    if (status == CUDA_SUCCESS) status = driver().function(&function, kernel);
    if (status == CUDA_SUCCESS) status = driver().occupancy(&each, function, threads, shared);
    return status == CUDA_SUCCESS && supported && (long long)each * multiprocessors >= blocks;
}"""
_HANDLES = """    void* const* kernels = nullptr;
    if (open_kernels(&code, &kernels) != cudaSuccess) return false;"""


def driver_api(first: int) -> Api:
    """The calls of a module whose kernels begin at ``first`` in the table of the code."""
    own = "plan->kernel_handles"
    return Api(
        find_encode="",
        allow_shared=lambda kernel, size: [],
        launch=_launch,
        co_residency=CoResidency("current_device", _ASKED, lambda number, _: f"kernels[{first + number}]", _HANDLES),
        plan_fields=("void* const* kernel_handles",),
        open=(
            f"    status = open_kernels(&code, &{own});",
            "    if (status != cudaSuccess) return status;",
            *([f"    {own} += {first};"] if first else []),
        ),
    )
