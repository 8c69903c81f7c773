"""The C header of a kernel: the declarations of its host functions, and the contract as comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def contract(texts: Mapping[str, CudaModule], module: MemModule, free: Sequence[str] = ()) -> list[str]:
    """Lines: the comments of the ``.cu`` files without their schedules, and what a caller must keep.

    ``texts``: by their architectures, in the order in which a library tries them. ``free``: the tensors whose addresses
    need no more than the size of their elements.
    """
    strided = any(b.strides is not None for b in module.buffers if b.space is not Space.TEMP)
    layout = "Tensors without strides are row-major." if strided else "Tensors are row-major."
    return [
        *_comment({arch: _about(text.text) for arch, text in texts.items()}),
        "// Each function that returns int returns the first CUDA error, and 0 where there is none.",
        f"// {layout} They lie on the device, and their addresses are multiples of {ALIGNMENT} bytes.",
        *([f"// The addresses of {', '.join(free)} are multiples of the size of an element only."] if free else []),
        "// Outputs overlap neither inputs nor other outputs. Launches that may overlap have a workspace each.",
        "",
    ]


def _about(text: str) -> list[str]:
    """The comment at the beginning of ``text`` without its schedule."""
    comment = takewhile(lambda line: line.startswith("//"), text.splitlines())
    return [*takewhile(lambda line: not line.startswith("// schedule"), comment)]


def _comment(about: Mapping[str, Sequence[str]]) -> list[str]:
    """The comments of all architectures: what they share once, and then what each says of its own."""
    archs = [*about]
    first = about[archs[0]][0].replace(f" for {archs[0]}, ", f" for {', '.join(archs)}, ")
    rests = [lines[1:] for lines in about.values()]
    shared = [lines[0] for lines in takewhile(lambda lines: len(set(lines)) == 1, zip(*rests, strict=False))]
    own = [rest[len(shared) :] for rest in rests]
    if not any(own):
        return [first, *shared]
    if shared[-1:] != ["//"]:
        shared.append("//")
    return [first, *shared, *(line for arch, rest in zip(archs, own, strict=True) for line in (f"// on {arch}", *rest))]
