"""A Python file that makes a library an operator of PyTorch (``torch.library``).

The operator allocates its outputs and its scratch memory with PyTorch and launches in the current stream, so that it
may be recorded in a CUDA graph and traced by ``torch.compile``; its fake kernel computes shapes only.  The library lies
beside the file, with the suffix :data:`BESIDE`.  Sizes that are known at launch are read from the shapes of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.errors import UnsupportedError
from nautilus.core.index.strides import is_stride_param, row_major
from nautilus.core.types import FORMATS, integer_limits
from nautilus.cuda.host.workspace import workspace_sizes
from nautilus.cuda.names import module_names
from nautilus.export.frameworks.element_types import ctype
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
from nautilus.export.frameworks.torch_backward import TAKEN
from nautilus.export.library import Part, alignment, needs_workspace

BESIDE = ".kernels.so"  # a file with the suffix .so would be imported in the place of the module
_TENSOR = "torch.Tensor"
_TAKEN = TAKEN | {
    "torch", "ctypes", "Path", "scratch", "stream", "status", "bits", "integer", "tensor", "check", "stride",
    "LIBRARY", "REGISTERED", "operator", "no_gradient", "device", "launched", "current_stream",
}  # fmt: skip


def torch_prelude(names: Sequence[str]) -> str:
    """The beginning of a file that defines the operators ``names``, with what all of them use."""
    lines = [
        defined("operator", names, "of PyTorch, in ``torch.ops.nautilus``"),
        "",
        "import ctypes",
        "from pathlib import Path",
        "",
        "import torch",
        "",
        f'LIBRARY = ctypes.CDLL(str(Path(__file__).with_suffix("{BESIDE}").resolve()))',
        "REGISTERED = None  # a file that is imported again gives up what it has registered",
        'REGISTERED = torch.library.Library("nautilus", "FRAGMENT")',
        *_HELPERS.splitlines(),
        "",
        "",
    ]
    return "\n".join(lines)


def torch_name(module_name: str) -> str:
    """The name of the operator."""
    return function_name(module_name, _TAKEN)


def torch_operator(parts: Sequence[Part], contract: Sequence[str]) -> str:
    """The text of one operator, after :func:`torch_prelude`. ``contract``: comment lines about the kernel.

    Raises UnsupportedError for a module without inputs.
    """
    module = parts[0].module
    if not any(b.space is Space.INPUT for b in module.buffers):
        raise UnsupportedError("a torch operator without inputs", module.name)
    op = operator(module, _TAKEN)
    name = torch_name(module.name)
    lines = [
        *(line.replace("//", "#", 1) for line in contract),
        *_declared(op),
        "",
        "",
        "@operator",
        f"def {name}({parameters(op, _TENSOR)}) -> {returned(op, _TENSOR)}:",
        *_body(op, name, parts),
        "",
        "",
        f'@torch.library.register_fake("nautilus::{name}", lib=REGISTERED)',
        f"def _({parameters(op, _TENSOR)}) -> {returned(op, _TENSOR)}:",
        *sizes(op),
        *(f"    {op.names[b.name]} = {_allocated(op, b, f'{op.names[op.inputs[0].name]}.device')}" for b in op.outputs),
        f"    return {', '.join(op.names[b.name] for b in op.outputs)}",
        "",
    ]
    return "\n".join(lines)


_HELPERS = '''

def operator(kernel):
    """The operator that computes ``kernel`` on CUDA tensors. torch.library.custom_op takes more time than a launch."""
    name, tags = kernel.__name__, (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
    REGISTERED.define(name + torch.library.infer_schema(kernel, mutates_args=()), tags=tags)
    REGISTERED.impl(name, kernel, "CUDA")
    return getattr(torch.ops.nautilus, name).default


def no_gradient(name: str) -> None:
    """Makes a backward pass through an operator an error."""

    def backward(ctx, *_):
        raise RuntimeError(f"nautilus::{name} has no gradient; a spec {name}_backward beside it would give one")

    torch.library.register_autograd(f"nautilus::{name}", backward, lib=REGISTERED)


def current_stream(index: int) -> int:
    """The current stream of a device."""
    return torch.cuda.current_stream(index).cuda_stream


# the function that torch.compile calls makes no object
current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", current_stream)


def launched(launch, device: torch.device, *arguments) -> int:
    """The status of a launch in the current stream of ``device``."""
    if device.index == torch.cuda.current_device():
        return launch(*arguments, current_stream(device.index))
    with torch.cuda.device(device):
        return launch(*arguments, current_stream(device.index))


def check(
    name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: tuple, strides: tuple, alignment: int,
    device: torch.device
) -> None:
    """Raises ValueError, which names the tensor. ``strides``: None where the kernel takes any."""
    if tensor.device == device and tensor.dtype is dtype and tensor.shape == shape and tensor.stride() == strides:
        if not tensor.data_ptr() % alignment:
            return
    if tensor.device != device:
        raise ValueError(f"{name} is on {tensor.device}, but the first tensor is on {device}")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} has type {tensor.dtype} instead of {dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {list(tensor.shape)} instead of {list(shape)}")
    found = zip(shape, tensor.stride(), strides)
    if 0 not in shape and any(size > 1 and want not in (None, have) for size, have, want in found):
        raise ValueError(f"{name} has strides {tensor.stride()} instead of {strides}; call .contiguous()")
    if tensor.data_ptr() % alignment:
        raise ValueError(f"the address of {name} is no multiple of {alignment} bytes; call .clone()")


def stride(tensor: torch.Tensor, axis: int, multiple: int) -> int:
    """The stride of an axis; that of an axis of one element has no meaning, and is rounded to what the kernel needs."""
    found = tensor.stride(axis)
    return found if tensor.shape[axis] > 1 else -(-max(found, 1) // multiple) * multiple


def integer(name: str, value: int, least: int, most: int) -> int:
    """``value``, which C would cut to its type. Raises ValueError, which names the number."""
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}; allowed are {least} to {most}")
    return value


def bits(value: float, dtype: torch.dtype) -> int:
    """The bits of a 16-bit float."""
    return torch.tensor(value, dtype=dtype).view(torch.int16).item() & 0xFFFF'''


def _declared(op: Operator) -> Iterator[str]:
    names = module_names(op.module)
    pointers = ["ctypes.c_void_p"] * (len(op.inputs) + len(op.outputs))
    scalars = [f"ctypes.{ctype(p.dtype)}" for p in op.module.params]
    known = ["ctypes.c_int"] * len(workspace_sizes(op.module))
    yield f"LIBRARY.{names.workspace}.restype = ctypes.c_size_t"
    yield f"LIBRARY.{names.workspace}.argtypes = [{', '.join(known)}]"
    yield f"LIBRARY.{names.launch}.argtypes = [{', '.join([*pointers, *scalars, *['ctypes.c_void_p'] * 2])}]"


def _strides(op: Operator, tensors: Sequence[Buffer]) -> Iterator[str]:
    for p in op.module.params:
        if any(op.shown.get(p.name, "").startswith(f"stride({op.names[b.name]}, ") for b in tensors):
            yield f"    {op.names[p.name]} = {op.shown[p.name]}"


def _allocated(op: Operator, b: Buffer, device: str) -> str:
    shape = "".join(f"{text(op, n)}, " for n in b.array_shape)
    return f"torch.empty(({shape.rstrip()}), dtype=torch.{FORMATS[b.dtype].torch}, device={device})"


def _number(op: Operator, p: ScalarParam) -> str:
    """The argument of the library for a scalar or a size."""
    name = op.names[p.name]
    if p.dtype.is_half:
        return f"bits({name}, torch.{FORMATS[p.dtype].torch})"
    if not p.dtype.is_int:
        return name
    least, most = integer_limits(p.dtype) if p.most is None else (0, p.most)
    return f'integer("{p.name}", {name}, {least}, {most})'


def _body(op: Operator, name: str, parts: Sequence[Part]) -> Iterator[str]:
    first, own = op.names[op.inputs[0].name], module_names(op.module)
    yield f"    device = {first}.device"
    yield from sizes(op)
    yield from _strides(op, op.inputs)
    for b in op.inputs:
        shape = "".join(f"{text(op, n)}, " for n in b.array_shape).rstrip()
        free = b.array_strides is not None
        steps = b.array_strides if b.array_strides is not None else row_major(b.array_shape)
        wanted = "".join("None, " if free and is_stride_param(s) else f"{text(op, s)}, " for s in steps).rstrip()
        dtype = f"torch.{FORMATS[b.dtype].torch}"
        given = f'"{b.name}", {op.names[b.name]}, {dtype}, ({shape}), ({wanted}), {alignment(parts, b)}'
        yield f"    check({given}, device)"
    for b in op.outputs:
        yield f"    {op.names[b.name]} = {_allocated(op, b, 'device')}"
    yield from _strides(op, op.outputs)
    arguments = [f"{op.names[b.name]}.data_ptr()" for b in (*op.inputs, *op.outputs)]
    arguments += [_number(op, p) for p in op.module.params]
    room = "0"
    if needs_workspace(parts):
        known = ", ".join(op.names[s] for s in workspace_sizes(op.module))
        room = f"LIBRARY.{own.workspace}({known})"
        yield f"    scratch = torch.empty({room}, dtype=torch.uint8, device=device)"
        room = "scratch.data_ptr()"
    yield f"    status = launched(LIBRARY.{own.launch}, device, {', '.join(arguments)}, {room})"
    yield "    if status:"
    yield f'        raise RuntimeError(f"{name}: CUDA error {{status}}")'
    yield f"    return {', '.join(op.names[b.name] for b in op.outputs)}"
