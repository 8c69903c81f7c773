"""The ``extern "C"`` host launcher at the end of a ``.cu`` file, for nvcc only.

``int NAME_launch(inputs..., outputs..., scalars..., void* workspace, cudaStream_t stream)`` launches every
kernel in order and returns the first CUDA error (0: none).  ``size_t NAME_workspace(void)`` gives
the bytes of scratch memory that ``workspace`` must point to (0: it may be null).  The suffixes keep a
spec called ``main`` or ``printf`` from redefining a C function.
"""

from __future__ import annotations

from math import prod

from nautilus.core.buffers import Buffer, Space, TensorMap
from nautilus.core.expr.nodes import Const
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.ctypes import memory_type
from nautilus.cuda.names import allocate, module_names
from nautilus.cuda.ops.tile_scheduler import uses_counter
from nautilus.cuda.tensor_maps import kernel_maps
from nautilus.ma_tile.ir import ops as ma

_ALIGN = 256


def buffer_bytes(b: Buffer) -> int:
    """Size of a buffer in bytes (constant shapes)."""
    return prod(s for s in b.shape if isinstance(s, int)) * b.dtype.bytes


def workspace_offsets(module: ma.MemModule) -> tuple[dict[str, int], int]:
    """Byte offset of every temp in the workspace, and the workspace's size."""
    offsets: dict[str, int] = {}
    end = 0
    for b in module.buffers:
        if b.space is Space.TEMP:
            offsets[b.name] = end
            end += -(-buffer_bytes(b) // _ALIGN) * _ALIGN
    return offsets, end


def scalar_type(dtype: DType) -> str:
    """C type of a scalar argument."""
    return "bool" if dtype is DType.BOOL else memory_type(dtype)


def kernel_symbol(module: ma.MemModule, kernel: ma.MemKernel) -> str:
    """Name of the ``__global__`` function."""
    return module_names(module).kernels[kernel.name]


def launcher(module: ma.MemModule) -> str:
    """Text of the host part."""
    names = module_names(module)
    offsets, size = workspace_offsets(module)
    size += _ALIGN * any(uses_counter(k) for k in module.kernels)
    args: list[str] = []
    params: list[str] = []
    for b in module.buffers:
        c = names.arguments[b.name]
        if b.space is Space.TEMP:
            at = f"static_cast<char*>(workspace) + {offsets[b.name]}"
            args.append(f"reinterpret_cast<{memory_type(b.dtype)}*>({at})")
            continue
        const = "const " if b.space is Space.INPUT else ""
        params.append(f"{const}void* {c}")
        args.append(f"static_cast<{const}{memory_type(b.dtype)}*>({c})")
    for p in module.params:
        params.append(f"{scalar_type(p.dtype)} {names.arguments[p.name]}")
        args.append(names.arguments[p.name])
    listed = ", ".join(args)
    lines = [
        "#ifndef __CUDACC_RTC__",
        "#include <cuda_runtime.h>",
        "",
        f'extern "C" size_t {names.workspace}(void) {{ return {size}; }}',
        "",
        f'extern "C" int {names.launch}({", ".join([*params, "void* workspace", "cudaStream_t stream"])}) {{',
        "    (void)workspace;",
        "    cudaError_t status = cudaSuccess;",
    ]
    if any(kernel_maps(module, k) for k in module.kernels):
        lines[2:2] = _ENCODE.splitlines()
    for k in module.kernels:
        inner = _launch(module, k, listed)
        lines += ["    {", *("    " + line for line in inner), "    }"] if kernel_maps(module, k) else inner
    lines += ["    return status;", "}", "#endif", ""]
    return "\n".join(lines)


#: Encodes one tensor map: the driver's function is looked up through the runtime, so that no -lcuda is needed.
_ENCODE = """#include <cuda.h>
#include <string.h>

typedef CUresult (*EncodeTiled)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static cudaError_t encode_map(TensorMap* map, CUtensorMapDataType type, int rank, const void* base,
                              const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion) {
    static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "a tensor map has 128 bytes");
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    const char* name = "cuTensorMapEncodeTiled";
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
    if (status != cudaSuccess) return status;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
    CUtensorMap made;
    const CUresult result = reinterpret_cast<EncodeTiled>(function)(
        &made, type, rank, const_cast<void*>(base), sizes, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) return cudaErrorInvalidValue;
    memcpy(map, &made, sizeof made);
    return cudaSuccess;
}
"""


def _encode(m: TensorMap, name: str, base: str) -> list[str]:
    def array(kind: str, values: tuple[int, ...]) -> str:
        return f"const {kind} {{name}}[] = {{{{{', '.join(map(str, values)) or '0'}}}}};"

    kind = FORMATS[m.dtype].tensor_map
    swizzle = f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle}B" if m.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE"
    return [
        f"    TensorMap {name};",
        "    {",
        *(
            "        " + array(kind, values).format(name=label)
            for label, kind, values in (
                ("sizes", "cuuint64_t", m.sizes),
                ("strides", "cuuint64_t", m.strides),
                ("box", "cuuint32_t", m.box),
            )
        ),
        f"        status = encode_map(&{name}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {len(m.sizes)}, {base},",
        f"                            sizes, strides, box, {swizzle}, CU_TENSOR_MAP_L2_PROMOTION_{m.promotion});",
        "    }",
        "    if (status != cudaSuccess) return status;",
    ]


def _dependent_launch(k: ma.MemKernel, kernel: str, args: str) -> list[str]:
    """A programmatic dependent launch (CUDA Runtime API, cudaLaunchKernelEx)."""
    assert isinstance(k.blocks, Const)
    return [
        "    {",
        "        cudaLaunchAttribute attribute = {};",
        "        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;",
        "        attribute.val.programmaticStreamSerializationAllowed = 1;",
        "        cudaLaunchConfig_t config = {};",
        f"        config.gridDim = {k.blocks.value};",
        f"        config.blockDim = {32 * k.warps};",
        f"        config.dynamicSmemBytes = {k.smem_bytes};",
        "        config.stream = stream;",
        "        config.attrs = &attribute;",
        "        config.numAttrs = 1;",
        f"        status = cudaLaunchKernelEx(&config, {kernel}, {args});",
        "    }",
    ]


def _launch(module: ma.MemModule, k: ma.MemKernel, args: str) -> list[str]:
    smem, kernel = k.smem_bytes, kernel_symbol(module, k)
    assert isinstance(k.blocks, Const), "runtime sizes are refused above the MA-tile level"
    offsets, lines = workspace_offsets(module)[0], list[str]()
    arguments = module_names(module).arguments
    maps = kernel_maps(module, k)
    names = allocate((m.name for m in maps), arguments.values())
    for m in maps:
        base = arguments[m.buffer]
        if m.buffer in offsets:
            base = f"static_cast<char*>(workspace) + {offsets[m.buffer]}"
        lines += _encode(m, names[m.name], base)
        args += f", {names[m.name]}"
    if uses_counter(k):
        at = f"static_cast<char*>(workspace) + {workspace_offsets(module)[1]}"
        lines += [
            f"    status = cudaMemsetAsync({at}, 0, sizeof(u32), stream);",
            "    if (status != cudaSuccess) return status;",
        ]
        args += f", reinterpret_cast<u32*>({at})"
    if smem > 48 * 1024:
        attribute = f"cudaFuncAttributeMaxDynamicSharedMemorySize, {smem}"
        lines += [
            f"    status = cudaFuncSetAttribute({kernel}, {attribute});",
            "    if (status != cudaSuccess) return status;",
        ]
    if k.pdl:
        return [*lines, *_dependent_launch(k, kernel, args), "    if (status != cudaSuccess) return status;"]
    return [
        *lines,
        f"    {kernel}<<<{k.blocks.value}, {32 * k.warps}, {smem}, stream>>>({args});",
        "    status = cudaGetLastError();",
        "    if (status != cudaSuccess) return status;",
    ]
