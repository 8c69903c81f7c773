"""The C++ text that makes a library a module of apache-tvm-ffi: ``tvm_ffi.load_module("k.so").k(A, B, C)``.

The function is in destination-passing style: its arguments are the inputs, the outputs and the scalars that no tensor
shows; it writes the outputs and returns nothing.  Sizes and strides that are known at launch are read from the
tensors, which come as DLPack from any framework.  It launches in the stream of the environment
(``TVMFFIEnvGetStream``).  Scratch memory is one more argument, a tensor of bytes, or the environment allocates it.
Wrong arguments are errors of tvm-ffi that name the tensor.  The text includes the C headers of apache-tvm-ffi, and the
library is linked with its library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.errors import ToolchainError
from nautilus.core.index.strides import is_stride_param, row_major
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.cuda.ctypes import interface_type
from nautilus.cuda.host.extents import extent_text
from nautilus.cuda.host.workspace import workspace_sizes
from nautilus.cuda.names import ModuleNames, module_names
from nautilus.export.frameworks.element_types import dlpack
from nautilus.export.frameworks.halves import half_bits, half_helpers
from nautilus.export.frameworks.shapes import Shown, shown_by
from nautilus.export.library import Part, library_text, needs_workspace

_HELPERS = """
static int refuse(const char* kind, const char* format, ...) {
    char text[512];
    va_list given;
    va_start(given, format);
    vsnprintf(text, sizeof text, format, given);
    va_end(given);
    TVMFFIErrorSetRaisedFromCStr(kind, text);
    return -1;
}

// A tensor of DLPack with `rank` axes; null after an error.
static const DLTensor* tensor_at(const char* name, const TVMFFIAny& given, int rank) {
    const DLTensor* t = nullptr;
    if (given.type_index == kTVMFFIDLTensorPtr) t = static_cast<const DLTensor*>(given.v_ptr);
    if (given.type_index == kTVMFFITensor) t = TVMFFITensorGetDLTensorPtr(given.v_obj);
    if (!t) {
        refuse("TypeError", "%s is no tensor", name);
    } else if (t->ndim != rank) {
        refuse("ValueError", "%s has %d axes instead of %d", name, t->ndim, rank);
        t = nullptr;
    }
    return t;
}

static long long dense_stride(const DLTensor* t, int axis) {
    long long found = 1;
    for (int n = axis + 1; n < t->ndim; ++n) found *= t->shape[n];
    return found;
}

// The stride of an axis; that of an axis of one element has no meaning, and is rounded to what the kernel needs.
static long long stride_of(const DLTensor* t, int axis, long long multiple) {
    const long long found = t->strides ? t->strides[axis] : dense_stride(t, axis);
    if (t->shape[axis] > 1) return found;
    return ((found > 1 ? found : 1) + multiple - 1) / multiple * multiple;
}

// `strides`: -1 where the kernel takes any.
static int check(const char* name, const DLTensor* t, int code, int bits, const long long* shape,
                 const long long* strides, const DLTensor* first) {
    const bool bytes = code == kDLBool && t->dtype.code == kDLUInt;
    if ((t->dtype.code != code && !bytes) || t->dtype.bits != bits || t->dtype.lanes != 1)
        return refuse("TypeError", "%s has another element type: code %d with %d bits instead of code %d with %d bits",
                      name, t->dtype.code, t->dtype.bits, code, bits);
    bool empty = false;
    for (int n = 0; n < t->ndim; ++n) {
        if (t->shape[n] != shape[n])
            return refuse("ValueError", "axis %d of %s has %lld elements instead of %lld", n, name,
                          static_cast<long long>(t->shape[n]), shape[n]);
        empty = empty || shape[n] == 0;
    }
    for (int n = 0; n < t->ndim && !empty; ++n)
        if (strides[n] >= 0 && shape[n] > 1 && stride_of(t, n, 1) != strides[n])
            return refuse("ValueError", "axis %d of %s has stride %lld instead of %lld", n, name, stride_of(t, n, 1),
                          strides[n]);
    if (t->device.device_type != kDLCUDA && t->device.device_type != kDLCUDAManaged)
        return refuse("ValueError", "%s is not in the memory of a CUDA device", name);
    if (t->device.device_id != first->device.device_id)
        return refuse("ValueError", "%s is on another device than the first tensor", name);
    return 0;
}

static void* data_of(const DLTensor* t) { return static_cast<char*>(t->data) + t->byte_offset; }

static int size_of(const char* name, const DLTensor* t, int axis, int* size) {
    if (t->shape[axis] > 2147483647)
        return refuse("ValueError", "axis %d of %s is too long: %lld", axis, name,
                      static_cast<long long>(t->shape[axis]));
    *size = static_cast<int>(t->shape[axis]);
    return 0;
}

template <class T>
static int number_at(const char* name, const TVMFFIAny& given, T* value) {
    switch (given.type_index) {
    case kTVMFFIInt:
    case kTVMFFIBool:
        *value = static_cast<T>(given.v_int64);
        if (static_cast<T>(0.5) == static_cast<T>(0) && static_cast<int64_t>(*value) != given.v_int64)
            return refuse("ValueError", "%s is %lld, which its type cannot hold", name,
                          static_cast<long long>(given.v_int64));
        return 0;
    case kTVMFFIFloat:
        if (static_cast<T>(0.5) == static_cast<T>(0)) break;
        *value = static_cast<T>(given.v_float64);
        return 0;
    }
    return refuse("TypeError", "%s is no number of its type", name);
}
"""


@dataclass(frozen=True, slots=True)
class Headers:
    """Where the headers and the library of an installed apache-tvm-ffi are."""

    include: tuple[Path, ...]
    library: Path

    @property
    def included(self) -> tuple[str, ...]:
        """Options of the C++ compiler."""
        return tuple(f"-I{folder}" for folder in self.include)

    @property
    def linked(self) -> tuple[str, ...]:
        """Options of the linker."""
        return (f"-L{self.library}", "-ltvm_ffi")


def headers() -> Headers:
    """The installed ones. Raises ToolchainError that says what to install."""
    found = find_spec("tvm_ffi")
    for folder in map(Path, found.submodule_search_locations or ()) if found is not None else ():
        include = (folder / "include", folder / "3rdparty" / "dlpack" / "include")
        if (include[0] / "tvm" / "ffi" / "c_api.h").is_file():
            return Headers(tuple(i for i in include if i.is_dir()), folder / "lib")
    raise ToolchainError("tvm-ffi", "the headers of apache-tvm-ffi are missing; pip install 'nautilusc[ffi]'")


def tvm_ffi_text(parts: Sequence[Part], header: str) -> str:
    """The C++ text of the library with the function ``__tvm_ffi_NAME``, by which apache-tvm-ffi calls it."""
    module = parts[0].module
    names, halves = module_names(module), half_helpers(module.params)
    includes = ["#include <stdarg.h>", "#include <tvm/ffi/c_api.h>", "#include <tvm/ffi/extra/c_env_api.h>", ""]
    lines = [f"namespace {names.namespace} {{", *_HELPERS.strip("\n").splitlines(), *halves, "}  // namespace", ""]
    return "\n".join([*includes, library_text(parts, header), *lines, *_function(parts, names), ""])


@dataclass(frozen=True, slots=True)
class _Locals:
    """Names of the function's own variables, which no argument has."""

    given: str
    count: str
    result: str
    room: str
    owner: str
    length: str
    status: str
    shape: str
    steps: str
    extra: str


def _locals(names: ModuleNames) -> _Locals:
    taken = {*names.arguments.values(), names.scratch, names.stream}
    made = []
    words = ("given", "count", "result", "room", "owner", "bytes", "code", "shape", "steps", "extra")
    for word in words:
        made.append(unused(word, taken, first=2))
        taken.add(made[-1])
    return _Locals(*made)


def _function(parts: Sequence[Part], names: ModuleNames) -> Iterator[str]:
    own, scope, module = _locals(names), names.namespace, parts[0].module
    tensors = [b for b in module.buffers if b.space is not Space.TEMP]
    shown = shown_by(module)
    scalars = [p for p in module.params if p.name not in shown]
    count, word = len(tensors) + len(scalars), module.name
    listed = ", ".join([*(b.name for b in tensors), *(p.name for p in scalars)])
    visible = '__attribute__((visibility("default")))'
    yield f'extern "C" {visible} int __tvm_ffi_{_identifier(names)}('
    yield f"    void*, const TVMFFIAny* {own.given}, int32_t {own.count}, TVMFFIAny* {own.result}) {{"
    yield f"    if ({own.count} != {count} && {own.count} != {count + 1})"
    told = f'"{word} takes {count} arguments ({listed}) and perhaps scratch memory, but got %d"'
    yield f'        return {scope}::refuse("TypeError", {told}, {own.count});'
    for n, b in enumerate(tensors):
        at = f'{scope}::tensor_at("{b.name}", {own.given}[{n}], {len(b.array_shape)})'
        yield f"    const DLTensor* {names.arguments[b.name]} = {at};"
        yield f"    if (!{names.arguments[b.name]}) return -1;"
    for p in module.params:
        yield from _param(p, shown, names, f"{own.given}[{len(tensors) + scalars.index(p)}]" if p in scalars else "")
    for b in tensors:
        yield from _check(b, tensors[0], own, names)
    yield from _launch(parts, tensors, count, own, names)


def _identifier(names: ModuleNames) -> str:
    return names.launch.removesuffix("_launch")


def _param(
    p: ScalarParam, shown: dict[str, Shown], names: ModuleNames, given: str
) -> Iterator[str]:  # fmt: skip
    name, scope = names.arguments[p.name], names.namespace
    if p.name not in shown:
        yield f"    {'float' if p.dtype.is_half else interface_type(p.dtype)} {name};"
        yield f'    if ({scope}::number_at("{p.name}", {given}, &{name})) return -1;'
        return
    b, axis = shown[p.name].tensor, shown[p.name].axis
    if shown[p.name].is_stride:
        yield f"    const long long {name} = {scope}::stride_of({names.arguments[b.name]}, {axis}, {p.multiple});"
    else:
        yield f"    int {name};"
        yield f'    if ({scope}::size_of("{b.name}", {names.arguments[b.name]}, {axis}, &{name})) return -1;'


def _check(b: Buffer, first: Buffer, own: _Locals, names: ModuleNames) -> Iterator[str]:
    """The checks of one tensor; C++ has no arrays without elements, so both have one more."""
    code, bits = dlpack(b.dtype)
    steps = b.array_strides if b.array_strides is not None else row_major(b.array_shape)
    wanted = ["-1" if b.array_strides is not None and is_stride_param(s) else extent_text(s, names.arguments)
              for s in steps]  # fmt: skip
    shape = [extent_text(e, names.arguments) for e in b.array_shape]
    name, start = names.arguments[b.name], names.arguments[first.name]
    yield "    {"
    yield f"        const long long {own.shape}[] = {{{', '.join([*shape, '0'])}}};"
    yield f"        const long long {own.steps}[] = {{{', '.join([*wanted, '0'])}}};"
    call = f'check("{b.name}", {name}, {code}, {bits}, {own.shape}, {own.steps}, {start})'
    yield f"        if ({names.namespace}::{call}) return -1;"
    yield "    }"


def _launch(
    parts: Sequence[Part], tensors: Sequence[Buffer], count: int, own: _Locals, names: ModuleNames
) -> Iterator[str]:  # fmt: skip
    scope, first, module = names.namespace, names.arguments[tensors[0].name], parts[0].module
    yield f"    int {own.status};"
    yield f"    if (!{scope}::current_device(&{own.status}) && {own.status} != {first}->device.device_id)"
    told = f'"the tensors are on device %d, but device %d is current", {first}->device.device_id, {own.status}'
    yield f'        return {scope}::refuse("ValueError", {told});'
    yield f"    void* {own.room} = nullptr;"
    yield f"    TVMFFIObjectHandle {own.owner} = nullptr;"
    sizes = ", ".join(names.arguments[s] for s in workspace_sizes(module))
    if needs_workspace(parts):
        yield f"    int64_t {own.length} = static_cast<int64_t>({names.workspace}({sizes}));"
        yield f"    if ({own.count} == {count + 1}) {{"
        yield f'        const DLTensor* {own.extra} = {scope}::tensor_at("scratch memory", {own.given}[{count}], 1);'
        yield f"        if (!{own.extra}) return -1;"
        yield f"        const long long {own.shape}[] = {{{own.length}}}, {own.steps}[] = {{1}};"
        call = f'check("scratch memory", {own.extra}, kDLUInt, 8, {own.shape}, {own.steps}, {first})'
        yield f"        if ({scope}::{call}) return -1;"
        yield f"        {own.room} = {scope}::data_of({own.extra});"
        yield f"    }} else if ({own.length}) {{"
        like = f"nullptr, {first}->device, 1, {{kDLUInt, 8, 1}}, &{own.length}, nullptr, 0"
        yield f"        DLTensor {own.extra} = {{{like}}};"
        yield f"        if (TVMFFIEnvTensorAlloc(&{own.extra}, &{own.owner})) return -1;"
        yield f"        {own.room} = {scope}::data_of(TVMFFITensorGetDLTensorPtr({own.owner}));"
        yield "    }"
    arguments = [f"{scope}::data_of({names.arguments[b.name]})" for b in tensors]
    for p in module.params:
        name = names.arguments[p.name]
        arguments.append(half_bits(p.dtype, name, scope) if p.dtype.is_half else name)
    stream = f"static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, {first}->device.device_id))"
    yield f"    {own.status} = {names.launch}({', '.join(arguments)}, {own.room},"
    yield f"        {stream});"
    yield f"    if ({own.owner}) TVMFFIObjectDecRef({own.owner});"
    yield f'    if ({own.status}) return {scope}::refuse("RuntimeError", "{module.name}: CUDA error %d", {own.status});'
    yield f"    *{own.result} = TVMFFIAny();"
    yield "    return 0;"
    yield "}"
