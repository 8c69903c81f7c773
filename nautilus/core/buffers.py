"""What a kernel is given, which several levels share: tensors, numbers given at launch, and tensor maps."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from nautilus.core.expr.nodes import Param
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.types import DType

_SPAN = field(default=NO_SPAN, compare=False, repr=False)


class Space(enum.Enum):
    """The kind of a buffer: an argument, or a temporary of the module."""

    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in memory, row-major. ``shape`` in elements; a runtime extent is a Param."""

    name: str
    dtype: DType
    shape: tuple[int | Param, ...]
    space: Space
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ScalarParam:
    """A number given at launch, or a runtime size (``default`` None, dtype i32)."""

    name: str
    dtype: DType
    default: int | float | bool | None = None
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The tensor map of ``buffer`` that TMA copies read; axes innermost first.

    ``sizes`` and ``box`` are in elements, ``strides`` in bytes, of all axes but the innermost.  ``swizzle`` is in bytes
    (0: none); ``stream``: the elements are read once.
    """

    name: str
    buffer: str
    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    stream: bool = False

    @property
    def promotion(self) -> str:
        """The granularity of L2 fetches (CUDA Driver API, CUtensorMapL2promotion)."""
        return "L2_128B" if self.stream else "L2_256B"
