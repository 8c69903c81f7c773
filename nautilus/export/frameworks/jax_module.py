"""A Python file that makes a library a function of JAX (``jax.ffi``), and the C++ text of its handler.

The handler is a typed foreign function of XLA: it takes the inputs and the results as buffers, whose types and shapes
it checks, and the scalars as attributes.  Scratch memory is one more result, which XLA allocates and the Python
function drops.  It launches in the stream of XLA, so that it may be part of a ``jax.jit``.  Arrays of JAX have no gaps,
so strides that are known at launch are those of their shapes.  The text includes the headers of the installed jaxlib.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.errors import ToolchainError
from nautilus.core.text.names import unused
from nautilus.core.types import FORMATS, DType
from nautilus.cuda.ctypes import interface_type
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.workspace import workspace_sizes
from nautilus.cuda.names import ModuleNames, module_names
from nautilus.export.frameworks.element_types import xla, xla_attribute
from nautilus.export.frameworks.halves import half_bits, half_helpers
from nautilus.export.frameworks.python_function import (
    Operator,
    defined,
    function_name,
    operator,
    parameters,
    returned,
    sizes,
    text,
)
from nautilus.export.frameworks.shapes import Shown, shown_by
from nautilus.export.frameworks.torch_module import BESIDE
from nautilus.export.library import Part, library_text, needs_workspace

_TENSOR = "jax.Array"
_TAKEN = frozenset({"jax", "numpy", "ctypes", "Path", "LIBRARY", "results", "call", "made"})

_HELPERS = """
using xla::ffi::AnyBuffer;
using xla::ffi::Error;

static Error check(const char* name, const AnyBuffer& b, xla::ffi::DataType type, int rank, const long long* shape) {
    char text[256];
    const auto found = b.dimensions();
    if (b.element_type() != type) {
        snprintf(text, sizeof text, "%s has another element type", name);
        return Error::InvalidArgument(text);
    }
    if (static_cast<int>(found.size()) != rank) {
        snprintf(text, sizeof text, "%s has %d axes instead of %d", name, static_cast<int>(found.size()), rank);
        return Error::InvalidArgument(text);
    }
    for (int n = 0; n < rank; ++n) {
        if (found[n] == shape[n]) continue;
        snprintf(text, sizeof text, "axis %d of %s has %lld elements instead of %lld", n, name,
                 static_cast<long long>(found[n]), shape[n]);
        return Error::InvalidArgument(text);
    }
    return Error::Success();
}

static long long size_of(const AnyBuffer& b, int axis) {
    const auto found = b.dimensions();
    return axis < static_cast<int>(found.size()) ? found[axis] : -1;
}

// The stride of an axis of a dense array; that of an axis of one element is rounded to what the kernel needs.
static long long stride_of(const AnyBuffer& b, int axis, long long multiple) {
    const auto found = b.dimensions();
    long long made = 1;
    for (int n = axis + 1; n < static_cast<int>(found.size()); ++n) made *= found[n];
    const bool one = axis < static_cast<int>(found.size()) && found[axis] == 1;
    return one ? ((made > 1 ? made : 1) + multiple - 1) / multiple * multiple : made;
}
"""


def headers() -> tuple[str, ...]:
    """Options of the C++ compiler for the headers of jaxlib. Raises ToolchainError that says what to install."""
    found = find_spec("jaxlib")
    for folder in map(Path, found.submodule_search_locations or ()) if found is not None else ():
        if (folder / "include" / "xla" / "ffi" / "api" / "ffi.h").is_file():
            return (f"-I{folder / 'include'}",)
    raise ToolchainError("jax", "the headers of jaxlib are missing; pip install jax")


def jax_text(parts: Sequence[Part], header: str) -> str:
    """The C++ text of the library with the handler ``NAME_jax``."""
    names, halves = module_names(parts[0].module), half_helpers(parts[0].module.params)
    helpers = [*_HELPERS.strip("\n").splitlines(), *halves]
    lines = [f"namespace {names.namespace} {{", *helpers, *_handler(parts, names)]
    return "\n".join(["#include <xla/ffi/api/ffi.h>", "", library_text(parts, header), *lines, ""])


def _handler(parts: Sequence[Part], names: ModuleNames) -> Iterator[str]:
    module = parts[0].module
    taken = {*names.arguments.values(), names.scratch, names.stream}
    own = [unused(word, taken, first=2) for word in ("inputs", "results", "failed", "shape", "result_code")]
    given, made, failed, shape, status = own
    tensors, shown = [b for b in module.buffers if b.space is not Space.TEMP], shown_by(module)
    scalars = [p for p in module.params if p.name not in shown]
    c, scope = names.arguments, names.namespace
    error, buffer = f"{scope}::Error", f"{scope}::AnyBuffer"
    listed = "".join(f", {xla_attribute(p.dtype)[0]} {c[p.name]}" for p in scalars)
    yield ""
    yield f"static Error call(cudaStream_t {names.stream}, xla::ffi::RemainingArgs {given},"
    yield f"                  xla::ffi::RemainingRets {made}{listed}) {{"
    inputs = [b for b in tensors if b.space is Space.INPUT]
    room = int(needs_workspace(parts))
    counts = f"{given}.size() != {len(inputs)} || {made}.size() != {len(tensors) - len(inputs) + room}"
    yield f'    if ({counts}) return {error}::InvalidArgument("{module.name}: another number of arrays");'
    for n, b in enumerate(tensors):
        place = n - len(inputs)
        value = f"{given}.get<{buffer}>({n}).value()" if place < 0 else f"*{made}.get<{buffer}>({place}).value()"
        yield f"    const {buffer} {c[b.name]} = {value};"
    for p in module.params:
        if p.name in shown:
            yield from _shown(p, shown[p.name], names)
    for b in tensors:
        extents = ", ".join([*(extent_text(e, c) for e in b.array_shape), "0"])
        yield "    {"
        yield f"        const long long {shape}[] = {{{extents}}};"
        call = f'check("{b.name}", {c[b.name]}, xla::ffi::{xla(b.dtype)}, {len(b.array_shape)}, {shape})'
        yield f"        const {error} {failed} = {scope}::{call};"
        yield f"        if (!{failed}.success()) return {failed};"
        yield "    }"
    arguments = [f"{c[b.name]}.untyped_data()" for b in tensors]
    for p in module.params:
        half = half_bits(p.dtype, c[p.name], scope)
        arguments.append(half if p.dtype.is_half else f"static_cast<{interface_type(p.dtype)}>({c[p.name]})")
    last = f"(*{made}.get<{buffer}>({len(tensors) - len(inputs)}).value()).untyped_data()" if room else "nullptr"
    yield f"    const int {status} = {names.launch}({', '.join([*arguments, last, names.stream])});"
    yield f'    if ({status}) return {error}::Internal("{module.name}: CUDA error " + std::to_string({status}));'
    yield f"    return {error}::Success();"
    yield "}"
    yield "}  // namespace"
    yield ""
    bound = "".join(f'.Attr<{xla_attribute(p.dtype)[0]}>("{p.name}")' for p in scalars)
    yield "#pragma GCC visibility push(default)"
    yield f"XLA_FFI_DEFINE_HANDLER_SYMBOL({handler_name(names)}, {names.namespace}::call,"
    yield "    xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<cudaStream_t>>().RemainingArgs().RemainingRets()"
    yield f"    {bound});"
    yield "#pragma GCC visibility pop"


def handler_name(names: ModuleNames) -> str:
    """The C name of the handler."""
    return f"{names.launch.removesuffix('_launch')}_jax"


def _shown(p: ScalarParam, place: Shown, names: ModuleNames) -> Iterator[str]:
    name, tensor = names.arguments[p.name], names.arguments[place.tensor.name]
    if place.is_stride:
        yield f"    const long long {name} = {names.namespace}::stride_of({tensor}, {place.axis}, {p.multiple});"
        return
    said = f"axis {place.axis} of {place.tensor.name} is missing or too long"
    yield f"    const long long {name} = {names.namespace}::size_of({tensor}, {place.axis});"
    yield f'    if ({name} < 0 || {name} > 2147483647) return {names.namespace}::Error::InvalidArgument("{said}");'


# ---- the Python file
def jax_prelude(names: Sequence[str]) -> str:
    """The beginning of a file that defines the functions ``names``, with what all of them use."""
    lines = [
        defined("function", names, "of JAX, foreign functions of XLA; they may be part of a ``jax.jit``"),
        "",
        "import ctypes",
        "from pathlib import Path",
        "",
        "import jax",
        "import numpy",
        "",
        f'LIBRARY = ctypes.CDLL(str(Path(__file__).with_suffix("{BESIDE}").resolve()))',
        "",
    ]
    return "\n".join(lines)


def jax_name(module_name: str) -> str:
    """The name of the function."""
    return function_name(module_name, _TAKEN)


def jax_function(parts: Sequence[Part], contract: Sequence[str]) -> str:
    """The text of one function, after :func:`jax_prelude`. ``contract``: comment lines about the kernel."""
    module = parts[0].module
    op, names = operator(module, _TAKEN), module_names(module)
    name, target = jax_name(module.name), f"nautilus_{module.name}"
    known = ["ctypes.c_int"] * len(workspace_sizes(module))
    lines = [
        *(line.replace("//", "#", 1) for line in contract),
        f"LIBRARY.{names.workspace}.restype = ctypes.c_size_t",
        f"LIBRARY.{names.workspace}.argtypes = [{', '.join(known)}]",
        f'jax.ffi.register_ffi_target("{target}", jax.ffi.pycapsule(LIBRARY.{handler_name(names)}), platform="CUDA")',
        "",
        "",
        f"def {name}({parameters(op, _TENSOR)}) -> {returned(op, _TENSOR)}:",
        *_body(op, target, needs_workspace(parts)),
        "",
    ]
    return "\n".join(lines)


def _body(op: Operator, target: str, room: bool) -> Iterator[str]:
    yield from sizes(op)
    results = [_result(op, b) for b in op.outputs]
    if room:
        known = ", ".join(op.names[s] for s in workspace_sizes(op.module))
        bytes_needed = f"LIBRARY.{module_names(op.module).workspace}({known})"
        results.append(f"jax.ShapeDtypeStruct(({bytes_needed},), jax.numpy.uint8)")
    yield f"    results = ({', '.join(results)},)"
    yield f'    call = jax.ffi.ffi_call("{target}", results, vmap_method="sequential")'
    given = [*(op.names[b.name] for b in op.inputs), *(_attribute(op, p) for p in op.given)]
    yield f"    made = call({', '.join(given)})"
    count = len(op.outputs)
    yield "    return made[0]" if count == 1 else f"    return tuple(made[:{count}])"


def _attribute(op: Operator, p: ScalarParam) -> str:
    """The argument of the call for a scalar; a narrow integer is refused where its type does not hold it."""
    number = op.names[p.name]
    if p.dtype.is_int and p.dtype.bits < DType.I32.bits:
        number = f"numpy.{FORMATS[p.dtype].raw}({number})"
    number = f"numpy.{xla_attribute(p.dtype)[1]}({number})"
    return f'**{{"{p.name}": {number}}}' if keyword.iskeyword(p.name) else f"{p.name}={number}"


def _result(op: Operator, b: Buffer) -> str:
    shape = "".join(f"{text(op, n)}, " for n in b.array_shape).rstrip()
    dtype = "bool_" if b.dtype is DType.BOOL else FORMATS[b.dtype].torch
    return f"jax.ShapeDtypeStruct(({shape}), jax.numpy.{dtype})"
