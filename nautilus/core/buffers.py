"""What a kernel is given, which several levels share: tensors, numbers given at launch, and tensor maps."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from re import sub
from typing import Any

from nautilus.core.expr.nodes import Expr, Param, substitute, walk
from nautilus.core.index.sizes import Extent, as_extent, extent_value
from nautilus.core.index.strides import row_major
from nautilus.core.op_fields import DTYPE, EXPR, INTEGER, LITERAL, NAME, flag
from nautilus.core.ops import SPAN, FieldRole, Kind, declare, part
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.assembly import Reader, Syntax
from nautilus.core.text.expressions import format_expr
from nautilus.core.text.syntax import words
from nautilus.core.types import DType


class Space(enum.Enum):
    """The kind of a buffer: an argument, or a temporary of the module."""

    INPUT = "input"
    OUTPUT = "output"
    TEMP = "temp"
    LOCAL = "local"

    __hash__ = object.__hash__  # members are unique; that of Enum is a function of Python


def show_shape(shape: Sequence[Extent]) -> str:
    """The text of a shape, such as ``4, N, (M + 127) // 128``."""
    return ", ".join(str(e) if isinstance(e, int) else format_expr(e) for e in shape)


def _read_shape(r: Reader) -> tuple[Extent, ...]:
    return r.ts.list(lambda: as_extent(r.expr())) if r.ts.text != "]" else ()


#: a name is a runtime size
SHAPE = FieldRole(Kind.ATTRIBUTE, Syntax("[expr, ...]", show_shape, _read_shape))
SPACE = FieldRole(Kind.ATTRIBUTE, words({s.value: s for s in Space}))


@part("$space $name: $dtype[$shape]( of [$view_of])?( strides [$strides])?( = $initial)?( zero unless $support)?")
class Buffer:
    """A tensor in memory. ``shape`` in elements; an extent known only at launch is an expression of sizes.

    ``strides``: of the axes of ``shape`` (:mod:`nautilus.core.index.strides`); None: it is row-major.

    ``view_of``: ``array_shape``, where the indices of the module see the same elements in another shape; None: it is
    ``shape``.  ``initial``: the value of every element before the first kernel, which only Scalar IR has; None:
    undefined.

    ``support``: the condition without which an element is 0, over its place ``i0``, ``i1``, ...; only temps of Scalar
    IR have one, and products need no mask that it implies.  None: nothing is known.
    """

    name: str = declare(NAME)
    dtype: DType = declare(DTYPE)
    shape: tuple[Extent, ...] = declare(SHAPE)
    space: Space = declare(SPACE)
    span: Span = SPAN
    view_of: tuple[Extent, ...] | None = declare(SHAPE, default=None)
    strides: tuple[Extent, ...] | None = declare(SHAPE, default=None)
    initial: int | float | None = declare(LITERAL, default=None)
    support: Expr | None = declare(EXPR, default=None)

    def supported(self, index: Sequence[Expr]) -> Expr | None:
        """The condition without which the element at ``index`` is 0; None where nothing is known."""
        if self.support is None:
            return None
        return substitute(self.support, {f"i{n}": e for n, e in enumerate(index)})

    def stride(self, axis: int) -> Extent:
        """Elements between neighbours along ``axis``."""
        return row_major(self.shape)[axis] if self.strides is None else self.strides[axis]

    @property
    def aligned(self) -> bool:
        """Whether the address is a multiple of 16 bytes: without strides, or where a stride is promised to be.

        A tensor without axes may have any address.
        """
        found = (n for e in self.strides or () if not isinstance(e, int) for n in walk(e))
        promised = (isinstance(n, Param) and n.dtype is DType.I64 and n.multiple > 1 for n in found)
        whole = any(promised) or all(isinstance(e, int) for e in self.strides or ())
        return bool(self.shape) and whole

    @property
    def array_shape(self) -> tuple[Extent, ...]:
        """The shape of the array that a caller gives or gets."""
        return self.shape if self.view_of is None else self.view_of

    @property
    def array_strides(self) -> tuple[Extent, ...] | None:
        """The strides of the array that a caller gives or gets; 0 for an axis that the module does not have."""
        if self.strides is None or self.view_of is None:
            return self.strides
        out, left = list[Extent](), [*zip(self.shape, self.strides, strict=True)]
        for extent in self.view_of:
            out.append(left.pop(0)[1] if left and left[0][0] == extent else 0)
        return tuple(out)

    def without(self, axes: Collection[int]) -> Buffer:
        """This buffer without ``axes``, at which every index is 0."""
        kept = [n for n in range(len(self.shape)) if n not in axes]
        strides = None if self.strides is None else tuple(self.strides[n] for n in kept)
        return replace(self.viewed(tuple(self.shape[n] for n in kept)), strides=strides, support=None)

    def viewed(self, shape: tuple[Extent, ...]) -> Buffer:
        """This buffer, whose indices see its elements in ``shape``; it is row-major."""
        given = self.space in (Space.INPUT, Space.OUTPUT) and shape != self.array_shape
        support = self.support if shape == self.shape else None
        return replace(self, shape=shape, view_of=self.array_shape if given else None, support=support)


class HasBuffers:
    """A module of any level."""

    __slots__ = ()
    buffers: tuple[Buffer, ...]

    def buffer(self, name: str) -> Buffer:
        """The argument or temp called ``name``. Raises KeyError."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)


def extents(shape: Sequence[Extent], values: Mapping[str, Any]) -> tuple[int, ...]:
    """``shape``, or strides, with the numbers that ``values`` has for runtime sizes and strides."""
    return tuple(extent_value(e, lambda p: int(values[p.name])) for e in shape)


@part("param $name: $dtype( = $default)?( <= $most)?( >= $least)?( % $multiple)?( $device)?")
class ScalarParam:
    """A number given at launch, or a runtime size (:mod:`nautilus.core.index.sizes`).

    A runtime size is from ``least`` to ``most`` and a multiple of ``multiple``.  ``device``: kernels read it in the
    memory of the device.
    """

    name: str = declare(NAME)
    dtype: DType = declare(DTYPE)
    default: int | float | bool | None = declare(LITERAL, default=None)
    most: int | None = declare(INTEGER, default=None)
    span: Span = SPAN
    least: int = declare(INTEGER, default=0)
    multiple: int = declare(INTEGER, default=1)
    device: bool = declare(flag("device"), default=False)


@part("assume $condition")
class Fact:
    """A condition on numbers given at launch, which the launcher checks before it launches a kernel."""

    condition: Expr = declare(EXPR)
    span: Span = SPAN

    @property
    def said(self) -> str:
        """The fact as a spec says it."""
        return "assume " + sub(r"\bi64\b|(?<=\d)i64\b", "", format_expr(self.condition))


@dataclass(frozen=True, slots=True)
class TensorMap:
    """The tensor map of ``buffer`` that TMA copies read; axes innermost first.

    ``sizes`` and ``box`` are in elements, ``strides`` in bytes, of all axes but the innermost.  ``swizzle`` is in bytes
    (0: none); ``stream``: the elements are read once.  A runtime size of 0 counts as its divisor, because a map has
    no empty axis; nothing is copied along it.
    """

    name: str
    buffer: str
    dtype: DType
    sizes: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    box: tuple[int, ...]
    swizzle: int
    stream: bool = False

    def at(self, values: Mapping[str, int]) -> TensorMap:
        """The map at runtime sizes ``values``."""

        def filled(e: Extent) -> int:
            return extent_value(e, lambda p: int(values[p.name]) or (p.multiple if p.dtype is DType.I32 else 0))

        return replace(self, sizes=tuple(map(filled, self.sizes)), strides=tuple(map(filled, self.strides)))

    @property
    def promotion(self) -> str:
        """The granularity of L2 fetches (CUDA Driver API, CUtensorMapL2promotion)."""
        return "L2_128B" if self.stream else "L2_256B"
