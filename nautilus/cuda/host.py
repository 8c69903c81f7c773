"""The ``extern "C"`` host launcher at the end of a ``.cu`` file, for nvcc only.

``int NAME_launch(inputs..., outputs..., scalars..., void* workspace, cudaStream_t stream)`` launches every
kernel in order and returns the first CUDA error (0: none).  ``size_t NAME_workspace(void)`` gives
the bytes of scratch memory that ``workspace`` must point to (0: it may be null).  The endings keep a
spec called ``main`` or ``printf`` from redefining what C calls so.
"""

from __future__ import annotations

from math import prod

from nautilus.core.expr import Const
from nautilus.core.types import DType
from nautilus.cuda.ctypes import memory_type
from nautilus.cuda.writer import sanitize
from nautilus.memory import ops as ma
from nautilus.scalar.ops import Buffer, Space

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
    """Name of the ``__global__`` function: unlike any buffer's, and unlike the host launcher's."""
    return sanitize(f"{module.name}__{kernel.name}")


def launcher(module: ma.MemModule) -> str:
    """Text of the host part."""
    launch, scratch = sanitize(f"{module.name}_launch"), sanitize(f"{module.name}_workspace")
    offsets, size = workspace_offsets(module)
    args: list[str] = []
    params: list[str] = []
    for b in module.buffers:
        c = sanitize(b.name)
        if b.space is Space.TEMP:
            at = f"static_cast<char*>(workspace) + {offsets[b.name]}"
            args.append(f"reinterpret_cast<{memory_type(b.dtype)}*>({at})")
            continue
        const = "const " if b.space is Space.INPUT else ""
        params.append(f"{const}void* {c}")
        args.append(f"static_cast<{const}{memory_type(b.dtype)}*>({c})")
    for p in module.params:
        params.append(f"{scalar_type(p.dtype)} {sanitize(p.name)}")
        args.append(sanitize(p.name))
    listed = ", ".join(args)
    lines = [
        "#ifndef __CUDACC_RTC__",
        "#include <cuda_runtime.h>",
        "",
        f'extern "C" size_t {scratch}(void) {{ return {size}; }}',
        "",
        f'extern "C" int {launch}({", ".join([*params, "void* workspace", "cudaStream_t stream"])}) {{',
        "    (void)workspace;",
        "    cudaError_t status = cudaSuccess;",
    ]
    for k in module.kernels:
        lines += _launch(k, kernel_symbol(module, k), listed)
    lines += ["    return status;", "}", "#endif", ""]
    return "\n".join(lines)


def _launch(k: ma.MemKernel, kernel: str, args: str) -> list[str]:
    smem = k.smem_bytes
    assert isinstance(k.blocks, Const), "runtime sizes are refused above the MA-tile level"
    lines = []
    if smem > 48 * 1024:
        attribute = f"cudaFuncAttributeMaxDynamicSharedMemorySize, {smem}"
        lines += [
            f"    status = cudaFuncSetAttribute({kernel}, {attribute});",
            "    if (status != cudaSuccess) return status;",
        ]
    return [
        *lines,
        f"    {kernel}<<<{k.blocks.value}, {32 * k.warps}, {smem}, stream>>>({args});",
        "    status = cudaGetLastError();",
        "    if (status != cudaSuccess) return status;",
    ]
