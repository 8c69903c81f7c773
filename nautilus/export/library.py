"""The C++ text of a library: the kernels of one spec as machine code for several architectures, and their launcher.

The functions have the declarations of the header file.  Each architecture has kernels, plans and scratch memory of its
own; the library chooses by the device of the current context, and a plan begins with the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.cuda.host.driver_api import DECLARATIONS, DRIVER, code_table
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.launcher import PLAN_HEAD, argument_names, declarations, internal, plan_bytes
from nautilus.cuda.host.workspace import larger, workspace_bytes
from nautilus.cuda.names import module_names
from nautilus.export.forms import version
from nautilus.ma_tile.ir.ops import MemModule

_INCLUDES = ("dlfcn.h", "math.h", "pthread.h", "stddef.h", "stdio.h", "stdlib.h", "string.h")
_ROW = 64  # bytes of machine code in a line


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels for one architecture: their module and their cubin."""

    arch: str
    module: MemModule
    cubin: bytes


def library_plan_bytes(modules: Sequence[MemModule]) -> int:
    """Bytes of a plan of any of ``modules``."""
    return PLAN_HEAD + max(map(plan_bytes, modules))


def library_text(parts: Sequence[Part], header: str) -> str:
    """The C++ text of ``parts``, in the order in which they are tried. ``header``: lines of the leading comment."""
    names = module_names(parts[0].module)
    lines = [
        *header.splitlines(),
        *(f"#include <{name}>" for name in _INCLUDES),
        "",
        "typedef struct CUstream_st* cudaStream_t;",
        "",
        f"namespace {names.namespace} {{",
        *DECLARATIONS.splitlines(),
        "",
    ]
    for p in parts:
        lines += [f"namespace {p.arch} {{", *_image(p.cubin), *code_table(p.module, "image"), ""]
        lines += [*internal(p.module, DRIVER), "}  // namespace", ""]
    lines += [*_choice(parts), "}  // namespace", "", *_entry_points(parts), ""]
    return "\n".join(lines)


def _image(cubin: bytes) -> Iterator[str]:
    """The machine code as a string of octal digits, which compilers read much faster than a list of numbers."""
    yield "alignas(64) static const unsigned char image[] ="
    for n in range(0, len(cubin), _ROW):
        yield '    "' + "".join(f"\\{byte:03o}" for byte in cubin[n : n + _ROW]) + '"'
    yield "    ;"


def _choice(parts: Sequence[Part]) -> Iterator[str]:
    known = ", ".join(f"{{{version(p.arch)}, {str(p.arch.endswith('a')).lower()}}}" for p in parts)
    yield f"static const Architecture architectures[] = {{{known}}};"
    yield ""
    yield "static int chosen(cudaError_t* status) {"
    yield f'    return choose(architectures, {len(parts)}, "{", ".join(p.arch for p in parts)}", status);'
    yield "}"
    yield ""
    yield f"struct alignas({PLAN_HEAD}) Head {{ int architecture; }};"


def _entry_points(parts: Sequence[Part]) -> Iterator[str]:
    module = parts[0].module
    names, declared = module_names(module), declarations(module)
    given = ", ".join(argument_names(module))
    scope, visible = names.namespace, '__attribute__((visibility("default")))'
    size: Extent = 0
    for p in parts:
        size = larger(size, workspace_bytes(p.module))
    room = library_plan_bytes([p.module for p in parts])
    yield f'extern "C" {visible} {declared["workspace"]} {{ return {extent_text(size, names.arguments)}; }}'
    yield ""
    yield f'extern "C" {visible} {declared["plan_size"]} {{ return {room}; }}'
    yield ""
    yield f'extern "C" {visible} {declared["prepare"]} {{'
    yield "    int status = 0;"
    yield f"    {scope}::Head* head = static_cast<{scope}::Head*>(plan);"
    yield f"    head->architecture = {scope}::chosen(&status);"
    yield from _switch(
        f"{scope}::{p.arch}::prepare(reinterpret_cast<{scope}::{p.arch}::Plan*>(head + 1), {given}, {names.stream})"
        for p in parts
    )
    yield "    return status;"
    yield "}"
    yield ""
    yield f'extern "C" {visible} {declared["launch_prepared"]} {{'
    yield f"    const {scope}::Head* head = static_cast<const {scope}::Head*>(plan);"
    yield from _switch(
        f"{scope}::{p.arch}::launch(*reinterpret_cast<const {scope}::{p.arch}::Plan*>(head + 1), {names.stream})"
        for p in parts
    )
    yield f"    return {scope}::cudaErrorInvalidValue;"
    yield "}"
    yield ""
    yield f'extern "C" {visible} {declared["launch"]} {{'
    yield f"    alignas(64) unsigned char plan[{room}];"
    yield f"    const int status = {names.prepare}(plan, {given}, {names.stream});"
    yield f"    return status ? status : {names.launch_prepared}(plan, {names.stream});"
    yield "}"


def _switch(calls: Iterable[str]) -> Iterator[str]:
    """Lines that return what the call for the architecture of ``head`` returns."""
    yield "    switch (head->architecture) {"
    for n, call in enumerate(calls):
        yield f"    case {n}:"
        yield f"        return {call};"
    yield "    }"
