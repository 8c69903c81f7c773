"""The C++ text of a library: the kernels of one spec as machine code for several architectures, and their launcher.

The functions have the declarations of the header file.  Each architecture has kernels, variants, plans and scratch
memory of its own; the library chooses by the device of the current context, and a plan begins with the choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nautilus.core.buffers import Buffer
from nautilus.core.records import dataclass
from nautilus.cuda.host.choice import Choice, choosing
from nautilus.cuda.host.driver_api import DECLARATIONS, code_table, driver_api
from nautilus.cuda.host.launcher import PLAN_HEAD, argument_names, declarations, internal, parameters
from nautilus.cuda.host.workspace import ALIGNMENT, workspace_sizes
from nautilus.cuda.names import module_names
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.targets.records import version

_INCLUDES = ("dlfcn.h", "math.h", "pthread.h", "stddef.h", "stdio.h", "stdlib.h", "string.h")
_ROW = 64  # bytes of machine code in a line


@dataclass(frozen=True, slots=True)
class Part:
    """The kernels for one architecture: the variants among which a launch chooses, and their cubin."""

    arch: str
    choice: Choice
    cubin: bytes

    @property
    def module(self) -> MemModule:
        """The module with the name and the arguments of the public functions."""
        return self.choice.public


def library_plan_bytes(choices: Sequence[Choice]) -> int:
    """Bytes of a plan of any of ``choices``."""
    return PLAN_HEAD + max(c.plan_bytes for c in choices)


def needs_workspace(parts: Sequence[Part]) -> bool:
    """Whether a launch of some part needs scratch memory."""
    return any(p.choice.needs_workspace for p in parts)


def alignment(parts: Sequence[Part], b: Buffer) -> int:
    """The number of bytes of which the address of a tensor must be a multiple on every architecture."""
    free = all(b.name in {t.name for t in p.choice.checked()[0]} for p in parts)
    return b.dtype.bytes if free or not b.shape else ALIGNMENT


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
        lines += [f"namespace {p.arch} {{", *_part(p), "}  // namespace", ""]
    lines += [*_choice(parts), "}  // namespace", "", *_entry_points(parts), ""]
    return "\n".join(lines)


def _part(p: Part) -> Iterator[str]:
    """Lines with the kernels for one architecture, and the functions that choose among their variants."""
    yield from _image(p.cubin)
    yield from code_table(p.choice.hosts, "image")
    yield ""
    first = 0
    for module in p.choice.hosts:
        yield f"namespace {module_names(module).namespace} {{"
        yield from internal(module, driver_api(first), p.module.name)
        yield "}  // namespace"
        yield ""
        first += len(module.kernels)
    names, given = module_names(p.module), ", ".join(parameters(p.module))
    sized = ", ".join(f"int {names.arguments[name]}" for name in workspace_sizes(p.module))
    prepare = f"static int prepare(void* plan, {given}, cudaStream_t {names.stream})"
    launch = f"static int launch(const void* plan, cudaStream_t {names.stream})"
    functions = choosing(p.choice, f"static size_t workspace({sized})", prepare, launch)
    for lines in (functions.number, functions.workspace, functions.prepare, functions.launch):
        yield from lines
        yield ""


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
    given, sizes = ", ".join(argument_names(module)), [names.arguments[name] for name in workspace_sizes(module)]
    scope, visible = names.namespace, '__attribute__((visibility("default")))'
    room = library_plan_bytes([p.choice for p in parts])
    yield f'extern "C" {visible} {declared["workspace"]} {{'
    asked = [f"{scope}::{p.arch}::workspace({', '.join(sizes)})" for p in parts]
    yield f"    size_t most = {asked[0]};"
    for own in asked[1:]:
        yield f"    if (const size_t own = {own}; own > most) most = own;"
    yield "    return most;"
    yield "}"
    yield ""
    yield f'extern "C" {visible} {declared["plan_size"]} {{ return {room}; }}'
    yield ""
    yield f'extern "C" {visible} {declared["prepare"]} {{'
    yield "    int status = 0;"
    yield f"    {scope}::Head* head = static_cast<{scope}::Head*>(plan);"
    yield f"    head->architecture = {scope}::chosen(&status);"
    yield from _switch(f"{scope}::{p.arch}::prepare(head + 1, {given}, {names.stream})" for p in parts)
    yield "    return status;"
    yield "}"
    yield ""
    yield f'extern "C" {visible} {declared["launch_prepared"]} {{'
    yield f"    const {scope}::Head* head = static_cast<const {scope}::Head*>(plan);"
    yield from _switch(f"{scope}::{p.arch}::launch(head + 1, {names.stream})" for p in parts)
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
