"""Arrays of the device that other libraries own: address, type, shape and strides.

An array offers DLPack (``__dlpack__``; dmlc/dlpack, dlpack.h) or the CUDA array interface
(``__cuda_array_interface__``; Numba documentation, "CUDA Array Interface (Version 3)").  DLPack comes first, because
the interface has no bfloat16.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from nautilus.core.errors import InputError
from nautilus.core.records import dataclass

_CUDA, _MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged
_LEGACY_STREAM = 1  # the legacy default stream in DLPack
_KINDS = {0: "i", 1: "u", 2: "f", 4: "b", 6: "B", 10: "e4m3", 12: "e5m2"}  # DLDataTypeCode; b: bfloat16, B: bool
_TORCH = {"torch.float8_e4m3fn": "e4m3", "torch.float8_e5m2": "e5m2"}


@dataclass(frozen=True, slots=True)
class View:
    """``kind``: i, u, f, B (bool), b (bfloat16), e4m3 or e5m2 (8-bit floats). ``strides``: in elements.

    ``bits``: of an element.
    """

    address: int
    kind: str
    bits: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int | None = None  # where it is known


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int), ("ndim", ctypes.c_int),
        ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def view(name: str, array: Any, stream: int = 0) -> View:
    """The view of ``array``, which is used in ``stream``. Raises InputError, naming the tensor, for another object.

    The array is not kept: the caller does that until the work in the stream has ended.
    """
    if hasattr(array, "__dlpack__"):
        return _dlpack(name, array, stream)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        what = type(array).__name__
        raise InputError(f"{name}: {what} has neither __dlpack__ nor __cuda_array_interface__")
    shape, code = tuple(interface["shape"]), str(interface["typestr"])
    item = int(code[2:])
    strides = interface.get("strides")
    steps = row_major(shape) if strides is None else tuple(s // item for s in strides)
    return View(int(interface["data"][0]), {"b": "B"}.get(code[1], code[1]), 8 * item, shape, steps)


def _dlpack(name: str, array: Any, stream: int) -> View:
    kind = array.__dlpack_device__()[0] if hasattr(array, "__dlpack_device__") else _CUDA
    if int(kind) not in (_CUDA, _MANAGED):
        raise InputError(f"{name}: the array is not in the memory of a CUDA device")
    own = _TORCH.get(str(getattr(array, "dtype", "")))
    try:
        shown = array.view(sys.modules["torch"].uint8) if own else array  # not all versions of PyTorch export 8 bits
        capsule = shown.__dlpack__(stream=stream or _LEGACY_STREAM)
    except Exception as error:  # each library raises errors of its own
        raise InputError(f"{name}: {error}") from error
    t = _Tensor.from_address(_pointer(capsule, b"dltensor"))  # the capsule frees the tensor when it is deleted
    shape = tuple(t.shape[n] for n in range(t.ndim))
    strides = tuple(t.strides[n] for n in range(t.ndim)) if t.strides else row_major(shape)
    code = own or (_KINDS.get(t.dtype.code, "?") if t.dtype.lanes == 1 else "?")
    return View((t.data or 0) + t.byte_offset, code, t.dtype.bits, shape, strides, t.device_id)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array without gaps, in elements."""
    out, step = list[int](), 1
    for n in reversed(shape):
        out.insert(0, step)
        step *= n
    return tuple(out)
