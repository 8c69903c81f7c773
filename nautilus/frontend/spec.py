"""The Spec: a ``.naut`` file with resolved names, ranks, ranges and types.

Grammar (expressions are :mod:`nautilus.core.expr.nodes`)::

    spec       := name inputs scalars outputs dims definition* assumption* -- definitions in dependence order
    tensor     := name dtype [size, ...] strides? -- size: int, or Param(name, I32) if runtime; else row-major
    scalar     := name dtype default?
    dim        := name value? bound?            -- value None: known only at launch, at most `bound`
    assumption := 'assume' expr                -- about sizes and scalars, or a promise about inputs
    definition := name dtype? [axis: extent, ...] = expr    -- total over its axes

Invariants (established by :mod:`nautilus.frontend.semantics.check`):

* functions are expanded, consts and fixed dims are numbers, every reduction is one of
  ``sum prod max min any all`` (``mean``, ``argmax``, ``argmin`` are desugared);
* axes are unique within a definition: a reduction's axis never shares a name with an axis of the
  definition or of another reduction in it (clashes get ``_1``, ``_2``, ...);
* ``Load.buffer`` names an input, an *earlier* definition or one of the own recurrence; every output has exactly one
  definition and its axes' extents equal the output's shape;
* the definitions of a recurrence (:class:`Recurrence`) are consecutive, in the order in which one step computes them:
  each read of one of them is of an earlier step, or of an earlier one of the same step;
* a definition with a written element type has ``dtype`` set and its ``expr`` is a ``cast`` to it.
  An untyped one (``dtype`` None) holds ``expr``'s compute type.  An output's ``expr`` is *not*
  wrapped: it has a compute type and is rounded once, at the store, to ``dtype`` (the declared
  type); a read of an output gives the rounded value, so inlining one inserts that cast;
* every ``Op`` obeys the typing rules of :mod:`nautilus.core.expr.nodes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from nautilus.core.expr.nodes import SPAN, Axis, Expr, Load, Param, walk
from nautilus.core.index.sizes import Extent, extent_value
from nautilus.core.index.strides import is_stride_param
from nautilus.core.records import dataclass
from nautilus.core.source import Span
from nautilus.core.text.expressions import format_expr
from nautilus.core.types import DType
from nautilus.frontend.sizes import samples

if TYPE_CHECKING:
    from nautilus.core.errors import Diagnostic

Size: TypeAlias = "int | Param"  # of a tensor


def extent_at(extent: Extent, sizes: Mapping[str, int]) -> int:
    """A size as a number; ``sizes`` has those known only at launch."""
    return extent_value(extent, lambda p: sizes[p.name])


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output array; a size is an int, or a Param of type i32 (runtime dim).

    ``strides`` None: row-major; else one for each axis (:mod:`nautilus.core.index.strides`).
    """

    name: str
    dtype: DType
    shape: tuple[Size, ...]
    span: Span = SPAN
    strides: tuple[Extent, ...] | None = None


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number that is given at launch; ``default`` None: it must be given."""

    name: str
    dtype: DType
    default: float | int | bool | None
    span: Span = SPAN


@dataclass(frozen=True, slots=True)
class Dim:
    """A named size. ``value`` None: known only at launch (a Param of this name), at most ``bound``.

    ``sample``: the value at which tools run the spec, where ``value`` is None; None: any.  Facts say that the size
    is at least ``least`` and a multiple of ``multiple``.  ``device``: kernels read the size in the memory of the
    device, and the host knows its bound only.
    """

    name: str
    value: int | None
    bound: int | None = None
    span: Span = SPAN
    sample: int | None = None
    least: int = 0
    multiple: int = 1
    device: bool = False


@dataclass(frozen=True, slots=True)
class Assumption:
    """``condition`` holds for all values of ``axes`` at which its reads are inside of their tensors.

    With reads it is a promise about inputs; without them the launcher checks it, and ``axes`` is empty.
    """

    axes: tuple[Axis, ...]
    condition: Expr
    span: Span = SPAN

    @property
    def said(self) -> str:
        """The fact as text."""
        return f"assume {format_expr(self.condition)}"

    @property
    def promised(self) -> bool:
        """Whether it is a promise about the contents of tensors."""
        return any(isinstance(n, Load) for n in walk(self.condition))


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What makes a definition part of a recurrence, whose steps run one after another along one index.

    ``members``: the definitions of the recurrence in the order of one step.  ``axis``: the position of the index of
    the steps among the axes of this definition; it has one extent in all of them.  ``reverse``: from the last index
    to the first.  Each read of a member has ``index + distance`` at the member's position of the steps; the distance is
    a constant, and below 0, or above 0 in reverse, or 0 where the member is earlier in ``members``.  The conditions
    around a read of an earlier step leave out every step before the first one.
    """

    members: tuple[str, ...]
    axis: int
    reverse: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """``name[axes] = expr`` at every index; see the module docstring for ``dtype`` and rounding."""

    name: str
    dtype: DType | None
    axes: tuple[Axis, ...]
    expr: Expr
    is_output: bool
    span: Span = SPAN
    recurrence: Recurrence | None = None

    @property
    def shape(self) -> tuple[Size, ...]:
        """The extents of the axes, in order."""
        return tuple(n for a in self.axes if isinstance(n := a.extent, int | Param))

    @property
    def stored(self) -> DType:
        """The element type that a reader of this definition loads."""
        return self.expr.dtype if self.dtype is None else self.dtype


@dataclass(frozen=True)
class Spec:
    """A checked specification; ``warnings`` are its diagnostics, none of which is an error.

    ``family``: a hash that is independent of sizes (:mod:`nautilus.frontend.family`); empty without a text.
    """

    name: str
    inputs: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...]
    outputs: tuple[Tensor, ...]
    dims: tuple[Dim, ...]
    definitions: tuple[Definition, ...]
    facts: tuple[Assumption, ...] = ()
    warnings: tuple[Diagnostic, ...] = field(default=(), compare=False, repr=False)
    family: str = field(default="", compare=False, repr=False)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Inputs and outputs by name."""
        return {t.name: t for t in (*self.inputs, *self.outputs)}

    def definition(self, name: str) -> Definition:
        """The definition of ``name``. Raises KeyError where there is none."""
        for d in self.definitions:
            if d.name == name:
                return d
        raise KeyError(name)

    @property
    def stride_params(self) -> tuple[Param, ...]:
        """The strides that are known only at launch, in the order of the tensors."""
        found = (s for t in (*self.inputs, *self.outputs) for s in t.strides or ())
        return tuple(s for s in found if is_stride_param(s))

    @property
    def launch_dims(self) -> tuple[Dim, ...]:
        """Runtime dims that the host knows at launch."""
        return tuple(d for d in self.runtime_dims if not d.device)

    @property
    def runtime_dims(self) -> tuple[Dim, ...]:
        """The dims whose value is known only at launch, in order of declaration."""
        return tuple(d for d in self.dims if d.value is None)

    def samples(self, default: int) -> dict[str, int]:
        """A value for each runtime dim: the one that tools are given, else one near ``default`` that is allowed."""
        return samples(self.dims, self.facts, default)
