"""What a kernel is given, which several levels share: tensors, numbers given at launch, and tensor maps."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nautilus.core.expr.nodes import Param
from nautilus.core.op_fields import DTYPE, LITERAL, NAME
from nautilus.core.ops import SPAN, FieldRole, Kind, declare, part
from nautilus.core.source import Span
from nautilus.core.text.assembly import Reader, Syntax
from nautilus.core.text.syntax import words
from nautilus.core.types import DType


class Space(enum.Enum):
    """The kind of a buffer: an argument, or a temporary of the module."""

    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"
    LOCAL = "local"


def _show_shape(shape: tuple[int | Param, ...]) -> str:
    return ", ".join(e.name if isinstance(e, Param) else str(e) for e in shape)


def _read_shape(r: Reader) -> tuple[int | Param, ...]:
    def extent() -> int | Param:
        at = r.ts.span()
        return Param(r.ts.name(), DType.I32, at) if r.ts.kind == "name" else r.ts.integer()

    return r.list(extent) if r.ts.text != "]" else ()


#: a name is a runtime size
SHAPE = FieldRole(Kind.ATTRIBUTE, Syntax("[(NUMBER | NAME), ...]", _show_shape, _read_shape))
SPACE = FieldRole(Kind.ATTRIBUTE, words({s.value: s for s in Space}))


@part("$space $name: $dtype[$shape]( of [$whole])?")
class Buffer:
    """A tensor in memory, row-major. ``shape`` in elements; a runtime extent is a Param.

    ``whole``: the shape of the array that a caller gives or gets, where the indices of the module see the same elements
    in another shape; None: it is ``shape``.
    """

    name: str = declare(NAME)
    dtype: DType = declare(DTYPE)
    shape: tuple[int | Param, ...] = declare(SHAPE)
    space: Space = declare(SPACE)
    span: Span = SPAN
    whole: tuple[int | Param, ...] | None = declare(SHAPE, default=None)

    @property
    def array_shape(self) -> tuple[int | Param, ...]:
        """The shape of the array that a caller gives or gets."""
        return self.shape if self.whole is None else self.whole

    def viewed(self, shape: tuple[int | Param, ...]) -> Buffer:
        """This buffer, whose indices see its elements in ``shape``."""
        given = self.space in (Space.INPUT, Space.OUTPUT) and shape != self.array_shape
        return replace(self, shape=shape, whole=self.array_shape if given else None)


def extents(shape: Sequence[int | Param], values: Mapping[str, Any]) -> tuple[int, ...]:
    """``shape`` with the numbers that ``values`` has for its runtime extents."""
    return tuple(int(values[e.name]) if isinstance(e, Param) else e for e in shape)


@part("param $name: $dtype( = $default)?")
class ScalarParam:
    """A number given at launch, or a runtime size (``default`` None, dtype i32)."""

    name: str = declare(NAME)
    dtype: DType = declare(DTYPE)
    default: int | float | bool | None = declare(LITERAL, default=None)
    span: Span = SPAN


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
