"""Memory of the device for outputs, and the current stream, from the library that the inputs belong to."""

from __future__ import annotations

import sys
from math import prod
from typing import Any

from nautilus.core.types import FORMATS, DType
from nautilus.runtime.device import check


class DeviceArray:
    """A row-major array for callers whose library this module does not know; freed with the object.

    It offers ``__cuda_array_interface__``; 16-bit floats without a numpy type and 8-bit floats are unsigned integers.
    """

    def __init__(self, shape: tuple[int, ...], dtype: DType, driver: Any) -> None:
        self.shape, self.dtype, self._driver = shape, dtype, driver
        self.bytes = prod(shape) * dtype.bytes
        self._address = int(check(driver, driver.cuMemAlloc(max(16, self.bytes)), f"allocating {self.bytes} bytes"))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        kind = {"float": "f", "int": "i", "uint": "u", "bool": "b"}[FORMATS[self.dtype].kind]
        code = f"{'|' if self.dtype.bytes == 1 else '<'}{'u' if self.dtype.stored_as_bits else kind}{self.dtype.bytes}"
        return {"shape": self.shape, "typestr": code, "data": (self._address, False), "strides": None, "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            self._driver.cuMemFree(self._address)


def _library(like: Any) -> Any:
    """The module of the library that ``like`` belongs to, where it is one that this module knows; else None."""
    root = type(like).__module__.partition(".")[0]
    return sys.modules.get(root) if root in ("torch", "cupy") else None


def empty(shape: tuple[int, ...], dtype: DType, like: Any, driver: Any) -> Any:
    """A new row-major array, on the device of ``like`` and of its library."""
    library = _library(like)
    if library is None:
        return DeviceArray(shape, dtype, driver)
    if library.__name__ == "torch":
        return library.empty(shape, dtype=getattr(library, FORMATS[dtype].torch), device=like.device)
    raw = FORMATS[dtype].raw
    return library.empty(shape, dtype=raw)


def stream_of(like: Any) -> int:
    """The handle of the current stream of the library of ``like``; 0, the legacy default stream, for others."""
    library = _library(like)
    if library is None:
        return 0
    if library.__name__ == "torch":
        return int(library.cuda.current_stream(like.device).cuda_stream)
    return int(library.cuda.get_current_stream().ptr)
