"""VR-tile IR: the same work on whole tiles, in virtual registers; no memory scopes, no threads.

A tile is a function of *named axes*: ``f32[i: 128, j: 64]``.  Names carry the meaning: operands of
an elementwise operation broadcast by name, ``dot`` contracts an axis by name, a transpose is no
operation at all.  The order of the axes in a type is canonical (the kernel's axis order) and says
nothing about layout; layouts begin one level below.

The whole grammar::

    module := 'module' NAME { buffer* param* kernel* }                -- buffers, params as in Scalar IR
    kernel := 'kernel' NAME 'grid' '(' VAR ':' expr, ... ')' 'axes' '(' AXIS ':' size, ... ')' '{' op* '}'
    op     := value '=' 'const' number ':' type
            | value '=' 'index' expr ':' type                         -- integer/bool function of variables and axes
            | value '=' 'param' NAME ':' type
            | value '=' 'load' NAME '[' expr, ... ']' ['where' expr] ':' type   -- 0 where masked
            | value '=' OP value, ... ':' type                        -- elementwise (core.expr.nodes.OPS), cast, narrow
            | value '=' 'reduce' COMBINER value 'over' AXIS, ... ':' type
            | value '=' 'dot' value, value ['+' value] 'over' AXIS, ... ':' type   -- sum of products
            | 'store' NAME '[' expr, ... ']' ',' value ['where' expr]
            | value, ... '=' 'for' VAR 'in' expr '..' expr ['chain' NAME] 'carry' '(' value '=' value, ... ')'
              '{' op* 'yield' value, ... '}'
    type   := dtype [ '[' AXIS ':' size, ... ']' ]                    -- no brackets: a single element
    expr   := core.expr.nodes over grid/loop variables, tile axes (a Var named like the axis is the position
              inside the tile, 0-based), params and values (Ref); no Load

Meaning.  ``grid`` runs the body once per point, independently, in any order.  ``load`` reads the
element at the index for every point of the type's axes; a point whose ``where`` is false reads
nothing and is 0 (false).  ``store`` writes the points whose ``where`` holds, rounding once to the
buffer's storage type.  ``for`` runs its body for lo <= VAR < hi in order; a carried value enters
each iteration and ``yield`` gives its successor; with no iteration the results are the initial
values.  Loops of one ``chain`` walk disjoint ranges of one index space with bodies that differ in masks
only, so that they can share staging buffers and copies may be prefetched across the seams.  Each range
adjoins that of an earlier loop of the chain: mostly it begins where the last one ended, but the walk may
also start in the middle (``KernelPlan.iteration_order``).

``load`` gives the storage type; ``cast`` to the compute type is explicit.  ``dot`` takes two operands
of one storage or compute type and accumulates in that type's compute type, its result's (f32, f64, i32,
i64); its contracted axes occur in both operands and not in the result; every other axis of an operand
is in the result.

Invariants (``vr_tile.verify``): SSA (one definition, before its uses, scopes nest); one size per axis
name in a kernel (the ``axes`` list); result type of an elementwise operation is the union of its
operands' axes and ``core.expr.infer``'s type; masks are bool; carried types are constant; stores go to
outputs and temps; loads come from inputs, temps and outputs of earlier kernels, never from what the
kernel stores; a store's index uses every axis of its value; every op has a span.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from nautilus.core.buffers import Buffer, ScalarParam
from nautilus.core.expr.nodes import Expr
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.tiles import TileAxis, TileType

_SPAN = field(default=NO_SPAN, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value. Names start without ``%``; the text form adds it."""

    name: str
    type: TileType


@dataclass(frozen=True, slots=True)
class ConstOp:
    """Every element is ``value``."""

    result: Value
    value: int | float | bool
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class IndexOp:
    """An integer or bool function of variables, tile axes, params and values."""

    result: Value
    expr: Expr
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ParamOp:
    """A scalar argument."""

    result: Value
    param: str
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class LoadOp:
    """``result = buffer[index] where mask`` (0 where masked)."""

    result: Value
    buffer: str
    index: tuple[Expr, ...]
    mask: Expr | None = None
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class MapOp:
    """Elementwise ``op`` with broadcasting by axis name."""

    result: Value
    op: str
    args: tuple[Value, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ReduceOp:
    """``combiner`` over ``axes`` of ``arg``."""

    result: Value
    combiner: str
    arg: Value
    axes: tuple[str, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class DotOp:
    """``result = acc + sum over axes of a * b`` (acc None: 0)."""

    result: Value
    a: Value
    b: Value
    acc: Value | None
    axes: tuple[str, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class StoreOp:
    """``buffer[index] = value where mask``."""

    buffer: str
    index: tuple[Expr, ...]
    value: Value
    mask: Expr | None = None
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class ForOp:
    """``for var in lo..hi``; ``carried`` pairs body arguments with initial values."""

    results: tuple[Value, ...]
    var: str
    lo: Expr
    hi: Expr
    carried: tuple[tuple[Value, Value], ...]
    body: tuple[TileOp, ...]
    yields: tuple[Value, ...]
    chain: str | None = None
    span: Span = _SPAN


TileOp: TypeAlias = ConstOp | IndexOp | ParamOp | LoadOp | MapOp | ReduceOp | DotOp | StoreOp | ForOp


@dataclass(frozen=True, slots=True)
class GridAxis:
    """A launch dimension: ``0 <= var < extent``. The first varies slowest."""

    var: str
    extent: Expr


@dataclass(frozen=True, slots=True)
class TileKernel:
    """One launch on tiles. ``axes`` lists every tile axis in canonical order."""

    name: str
    grid: tuple[GridAxis, ...]
    axes: tuple[TileAxis, ...]
    body: tuple[TileOp, ...]
    span: Span = _SPAN


@dataclass(frozen=True, slots=True)
class TileModule:
    """A whole spec at the VR-tile level."""

    name: str
    buffers: tuple[Buffer, ...]
    params: tuple[ScalarParam, ...]
    kernels: tuple[TileKernel, ...]

    def buffer(self, name: str) -> Buffer:
        """The argument or temp called ``name``. Raises KeyError."""
        for b in self.buffers:
            if b.name == name:
                return b
        raise KeyError(name)


def operands(op: TileOp) -> tuple[Value, ...]:
    """SSA values that ``op`` reads directly (Refs inside index expressions are not listed here)."""
    match op:
        case MapOp(args=args):
            return args
        case ReduceOp(arg=arg):
            return (arg,)
        case DotOp(a=a, b=b, acc=acc):
            return (a, b) if acc is None else (a, b, acc)
        case StoreOp(value=value):
            return (value,)
        case ForOp(carried=carried):
            return tuple(init for _, init in carried)
        case _:
            return ()


def results(op: TileOp) -> tuple[Value, ...]:
    """SSA values that ``op`` defines."""
    match op:
        case StoreOp():
            return ()
        case ForOp(results=results):
            return results
        case _:
            return (op.result,)


def walk_ops(body: tuple[TileOp, ...]) -> Iterator[TileOp]:
    """Every op under ``body`` in program order, a loop before its body."""
    for op in body:
        yield op
        if isinstance(op, ForOp):
            yield from walk_ops(op.body)
