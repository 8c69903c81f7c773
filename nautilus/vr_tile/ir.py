"""VR-tile IR: the computation on whole tiles in virtual registers, without memory scopes and threads.

A tile is a function of *named axes*: ``f32[i: 128, j: 64]``.  Names carry the meaning: operands of
an elementwise operation broadcast by name, ``dot`` contracts an axis by name, a transpose is no
operation at all.  The order of the axes in a type is canonical (the kernel's axis order) and says
nothing about layout; layouts begin one level below.

The grammar derives from the declarations of the ops: ``vr_tile.text.grammar``.

Meaning.  ``grid`` runs the body once per point, independently, in any order.  ``load`` reads the
element at the index for every point of the type's axes; a point whose ``where`` is false reads
nothing and is 0 (false).  ``store`` writes the points whose ``where`` holds, rounding once to the
buffer's storage type.  ``for`` runs its body for lo <= VAR < hi in order; a carried value enters
each iteration and ``yield`` gives its successor; with no iteration the results are the initial
values.  Loops of one ``chain`` iterate over disjoint ranges of one index space with bodies that differ in masks
only, so that they can share staging buffers and copies may be prefetched across loop boundaries.  Each range adjoins
that of an earlier loop of the chain; the iteration order may start in the middle (``KernelPlan.iteration_order``).

``scan`` gives running results: element ``t`` along the new axis combines the elements of the operand up to position
``t``, from it on (``reverse``), or without it (``exclusive``: the first one is the identity).

``load`` gives the storage type; ``cast`` to the compute type is explicit.  ``dot`` takes two operands
of one storage or compute type and accumulates in that type's compute type, its result's (f32, f64, i32,
i64); its contracted axes occur in both operands and not in the result; every other axis of an operand
is in the result.  The axes of its mask are axes of its operands.  Where the mask is false an operand is 0, so that the
mask decides only about products with inf and NaN.  ``recompute-masked`` replaces masks, which no lower level has.
``parts 2`` permits products of f32 operands in two parts of tf32 each (``core.functions.parts``), with the error that
is stated there.  ``parts 3`` means products of three parts of bf16 each, which ``store-parts`` makes.

Invariants (``vr_tile.verify``): SSA (one definition, before its uses, scopes nest); one size per axis
name in a kernel (the ``axes`` list); result type of an elementwise operation is the union of its
operands' axes and ``core.expr.infer``'s type; masks are bool; carried types are constant; stores go to
outputs and temps; a kernel may overwrite what an earlier one stored if none has loaded it; loads come
from inputs, temps and outputs of earlier kernels, and so do loop bounds, at positions made of variables; a store's
index uses every axis of its value; every op has a span.

A kernel loads what it stores itself only in a *recurrence*: inside of a ``for`` that stores it.  The element was then
stored at the same grid point by an op that ran earlier, and it is stored once.  Such a load stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from nautilus.core.buffers import Buffer, Fact, HasBuffers, ScalarParam
from nautilus.core.common_ops import CommonConst, CommonFor, CommonIndex, CommonMap, CommonParam, CommonScan
from nautilus.core.expr.nodes import Expr
from nautilus.core.op_fields import (
    AXES,
    COMBINER,
    EXPR,
    EXPRS,
    INTEGER,
    NAME,
    OPERAND,
    READ_MEMORY,
    REGION,
    TILE_AXES,
    TYPE,
    UNWRITTEN,
    WRITE_MEMORY,
)
from nautilus.core.ops import RESULT, SPAN, FieldRole, Kind, Level, declaration, declare, op, part, walk
from nautilus.core.source import Span
from nautilus.core.text import syntax
from nautilus.core.text.modules import BUFFERS, FACTS, PARAMS, kernels
from nautilus.core.tiles import TileAxis, TileType


@part("$type")
class Value:
    """An SSA value. Names start without ``%``; the text form adds it."""

    name: str = declare(UNWRITTEN)
    type: TileType = declare(TYPE)


#: the ops of this IR
VR = Level("vr-tile", "value", Value)


@op(VR)
class ConstOp(CommonConst[Value]):
    """Every element is ``value``."""


@op(VR)
class IndexOp(CommonIndex[Value]):
    """An integer or bool function of variables, tile axes, params and values."""


@op(VR)
class ParamOp(CommonParam[Value]):
    """A scalar argument."""


@op(VR, "load $buffer[$index]( where $mask)?")
class LoadOp:
    """``result = buffer[index] where mask`` (0 where masked)."""

    result: Value = declare(RESULT)
    buffer: str = declare(READ_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    mask: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN


@op(VR)
class MapOp(CommonMap[Value]):
    """Elementwise ``op`` with broadcasting by axis name."""


@op(VR, "reduce $combiner $arg over $axes")
class ReduceOp:
    """``combiner`` over ``axes`` of ``arg``."""

    result: Value = declare(RESULT)
    combiner: str = declare(COMBINER)
    arg: Value = declare(OPERAND)
    axes: tuple[str, ...] = declare(AXES)
    span: Span = SPAN


@op(VR)
class ScanOp(CommonScan[Value]):
    """Running results of ``combiner`` along ``axis`` of ``arg``, or the states of a linear recurrence."""


@op(VR, "dot $a, $b( + $acc)? over $axes( where $mask)?( parts $parts)?( terms $terms)?")
class DotOp:
    """``result = acc + sum over axes of a * b`` (acc None: 0), without the products whose ``mask`` is false.

    ``parts``: the number of parts that an operand may have, 2 of tf32 or 3 of bf16.  ``terms``: the number of products
    along the only axis of ``axes`` after which an operand is 0; None: unknown.
    """

    result: Value = declare(RESULT)
    a: Value = declare(OPERAND)
    b: Value = declare(OPERAND)
    acc: Value | None = declare(OPERAND)
    axes: tuple[str, ...] = declare(AXES)
    mask: Value | None = declare(OPERAND, default=None)
    parts: int | None = declare(INTEGER, default=None)
    terms: int | None = declare(INTEGER, default=None)
    span: Span = SPAN


@op(VR, "store $buffer[$index], $value( where $mask)?( atomic $combiner)?")
class StoreOp:
    """``buffer[index] = value where mask``.

    ``combiner``: ``buffer[index] combiner= value where mask`` instead, of which any number may meet at one element.
    """

    buffer: str = declare(WRITE_MEMORY)
    index: tuple[Expr, ...] = declare(EXPRS)
    value: Value = declare(OPERAND)
    mask: Expr | None = declare(EXPR, default=None)
    span: Span = SPAN
    combiner: str | None = declare(COMBINER, default=None)


@op(VR)
class ForOp(CommonFor[Value, "TileOp"]):
    """``for var in lo..hi``; ``carried`` pairs body arguments with initial values."""


#: an op that computes one value and has no body
ValueOp: TypeAlias = ConstOp | IndexOp | ParamOp | LoadOp | MapOp | ReduceOp | ScanOp | DotOp
TileOp: TypeAlias = ValueOp | StoreOp | ForOp
VR.close(TileOp)


@part("$var: $extent")
class GridAxis:
    """A launch dimension: ``0 <= var < extent``. The first varies slowest."""

    var: str = declare(NAME)
    extent: Expr = declare(EXPR)


GRID = FieldRole(Kind.ATTRIBUTE, syntax.listed(syntax.part(GridAxis, "grid")))


@part("kernel $name grid($grid)( spread $spread)?( team $team)? axes($axes) {$body}")
class TileKernel:
    """One launch on tiles. ``axes`` lists every tile axis in canonical order.

    ``spread``: over how many blocks of a cluster MA-tile IR spreads the warps of a block.  ``team``: how many points of
    the last grid axis, which has as many, run each op before the next one.
    """

    name: str = declare(NAME)
    grid: tuple[GridAxis, ...] = declare(GRID)
    axes: tuple[TileAxis, ...] = declare(TILE_AXES)
    body: tuple[TileOp, ...] = declare(REGION)
    span: Span = SPAN
    spread: int = declare(INTEGER, default=1)
    team: int = declare(INTEGER, default=1)


@part("module $name {$buffers $params $facts $kernels}")
class TileModule(HasBuffers):
    """A whole spec at the VR-tile level."""

    name: str = declare(NAME)
    buffers: tuple[Buffer, ...] = declare(BUFFERS)
    params: tuple[ScalarParam, ...] = declare(PARAMS)
    kernels: tuple[TileKernel, ...] = declare(kernels(TileKernel))
    facts: tuple[Fact, ...] = declare(FACTS, default=())


def operands(op: TileOp) -> tuple[Value, ...]:
    """SSA values that ``op`` reads directly in front of its body (references in index expressions are not listed)."""
    found = declaration(type(op)).operands(op)
    return found[: len(op.carried)] if isinstance(op, ForOp) else found


def results(op: TileOp) -> tuple[Value, ...]:
    """SSA values that ``op`` defines."""
    return declaration(type(op)).results(op)


def expressions(op: TileOp) -> tuple[Expr, ...]:
    """The index expressions of ``op`` itself."""
    return declaration(type(op)).expressions(op)


def stored_by(body: tuple[TileOp, ...]) -> frozenset[str]:
    """The buffers that ops under ``body`` store to."""
    return frozenset(op.buffer for op in walk(body) if isinstance(op, StoreOp))


def walk_ops(body: tuple[TileOp, ...]) -> Iterator[TileOp]:
    """Every op under ``body`` in program order, a loop before its body."""
    return walk(body)


def combined_axes(kernel: TileKernel) -> frozenset[str]:
    """The axes along which ``kernel`` combines elements: in reductions, scans and dots."""
    found = set[str]()
    for o in walk(kernel.body):
        match o:
            case ReduceOp(axes=axes) | DotOp(axes=axes):
                found.update(axes)
            case ScanOp(axis=axis, states=states):
                found.update((axis,) if states is None else (axis, states))
            case _:
                pass
    return frozenset(found)
