"""Access to PyTorch, an optional dependency that is imported only here and only on request."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nautilus.bench.peers.text import TYPES
from nautilus.bench.peers.translate import Function
from nautilus.core.numerics import Array, storage_numpy
from nautilus.core.records import dataclass
from nautilus.core.types import DType

Tensors: TypeAlias = tuple[Any, ...]

#: types without a numpy counterpart, and f8, with the integer type of the same width that transfers their bits
_BITS: Mapping[DType, str] = {d: "<i2" if d.is_half else "|u1" for d in DType if d.stored_as_bits}


def load_torch() -> Any:
    """The module torch, or the reason (str) why it cannot be used.

    Its convolutions compute f32 in f32, as a spec says, by the fastest algorithm that cuDNN finds while it warms up.
    """
    try:
        torch = importlib.import_module("torch")
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    except ImportError as error:
        return f"not installed: {error}"
    except Exception as error:  # a broken installation may raise any exception
        return f"torch cannot be imported: {error}"
    return torch


def on_gpu(torch: Any) -> str:
    """The reason why ``torch`` cannot use the GPU; empty if it can."""
    try:
        return "" if torch.cuda.is_available() else "torch finds no GPU"
    except Exception as error:
        return f"torch cannot use the GPU: {error}"


@dataclass(frozen=True)
class _Memory:
    """Device memory by the CUDA Array Interface; its owner keeps it alive."""

    __cuda_array_interface__: dict[str, Any]


def alias(torch: Any, address: int, dtype: DType, shape: Sequence[int], strides: Sequence[int] | None = None) -> Any:
    """A tensor over device memory that it does not own.  ``strides``: in elements; None: row-major.

    Raises RuntimeError where torch makes a copy.
    """
    kind = _BITS.get(dtype) or np.dtype(storage_numpy(dtype)).str
    steps = None if strides is None else tuple(s * dtype.bytes for s in strides)
    layout = {"shape": tuple(shape), "typestr": kind, "data": (address, False), "version": 3, "strides": steps}
    made = torch.as_tensor(_Memory(layout), device="cuda")
    if made.data_ptr() != address:
        raise RuntimeError("torch made a copy of device memory that it must share")
    return made.view(torch_type(torch, dtype)) if dtype in _BITS else made


def from_numpy(torch: Any, raw: Array, dtype: DType, device: str) -> Any:
    """A tensor with a copy of raw storage."""
    signed = raw.view(np.int16) if dtype.stored_as_bits and dtype.is_half else raw
    made = torch.from_numpy(np.asarray(signed, order="C")).to(device)
    return made.view(torch_type(torch, dtype)) if dtype in _BITS else made


def to_numpy(torch: Any, tensor: Any, dtype: DType) -> Array:
    """Raw storage of a tensor, on the host."""
    tensor = tensor.detach().contiguous()
    if dtype in _BITS:
        tensor = tensor.view(torch.int16 if dtype.is_half else torch.uint8)
    return np.asarray(tensor.cpu().numpy()).view(storage_numpy(dtype))


def torch_type(torch: Any, dtype: DType) -> Any:
    """The type of module ``torch`` for elements of ``dtype``."""
    return getattr(torch, TYPES[dtype].removeprefix("torch."))


def define(torch: Any, text: str, name: str) -> Callable[..., Any]:
    """The function ``name`` defined by the Python source ``text``."""
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<{name}>", "exec"), space)
    made: Callable[..., Any] = space[name]
    return made


def bound(torch: Any, function: Function, device: str) -> tuple[Callable[..., Tensors], Tensors]:
    """The function ``main``, and the values that its ``setup`` returns."""
    return define(torch, function.main, "main"), define(torch, function.setup, "setup")(device)
