"""The C header of a kernel: the declarations of its host functions, and the contract as comments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from nautilus.core.buffers import Space
from nautilus.cuda.host.launcher import declarations
from nautilus.cuda.host.workspace import ALIGNMENT
from nautilus.cuda.module import CudaModule
from nautilus.cuda.names import allocate, module_names
from nautilus.cuda.text.wrapping import wrapped
from nautilus.ma_tile.ir.ops import MemModule

_MEANING = {
    "workspace": "Bytes of scratch memory on the device that a launch needs; 0: it may be null.",
    "launch": "Checks the arguments and launches the kernels in the stream.",
    "plan_size": "Bytes of a plan. Its address is a multiple of 64.",
    "prepare": "Fills a plan: checks the arguments, encodes the tensor maps, clears the tile counter in the stream.",
    "launch_prepared": "Launches the kernels of a plan, as often as is wanted, and does nothing else.",
}


def header_file(said: Sequence[str], module: MemModule, size: int) -> str:
    """The header of ``module``. ``said``: its :func:`contract`; ``size``: bytes of a plan, also in a library."""
    names = module_names(module)
    guard = f"{names.launch}_H".upper()
    own = allocate((f"{module.name}_plan",), (names.plan_size, names.namespace))[f"{module.name}_plan"]
    lines = [
        *said,
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdbool.h>",
        "#include <stddef.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "typedef struct CUstream_st* cudaStream_t;  // as in cuda_runtime.h; CUstream is the same type",
        "",
        "// Room for a plan, where it is not allocated with the size that is asked for.",
        "typedef struct {",
        "#ifdef __cplusplus",
        f"    alignas(64) unsigned char bytes[{size}];",
        "#else",
        f"    _Alignas(64) unsigned char bytes[{size}];",
        "#endif",
        f"}} {own};",
        "",
    ]
    for name, declared in declarations(module).items():
        lines += [f"// {_MEANING[name]}", f"{declared};", ""]
    return wrapped("\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""]))


def contract(cuda: CudaModule, module: MemModule, free: Sequence[str] = ()) -> list[str]:
    """Lines: the comment of the ``.cu`` file without its schedule, and what a caller must keep.

    ``free``: the tensors whose addresses need no more than the size of their elements.
    """
    comment = takewhile(lambda line: line.startswith("//"), cuda.text.splitlines())
    strided = any(b.strides is not None for b in module.buffers if b.space is not Space.TEMP)
    layout = "Tensors without strides are row-major." if strided else "Tensors are row-major."
    return [
        *takewhile(lambda line: not line.startswith("// schedule"), comment),
        "// Each function that returns int returns the first CUDA error, and 0 where there is none.",
        f"// {layout} They lie on the device, and their addresses are multiples of {ALIGNMENT} bytes.",
        *([f"// The addresses of {', '.join(free)} are multiples of the size of an element only."] if free else []),
        "// Outputs overlap neither inputs nor other outputs. Launches that may overlap have a workspace each.",
        "",
    ]
