"""Sharing one axis of the tiles of a block between its consumers.

Each consumer runs the kernel on its own part of one tile axis: the axis shrinks to that part, and wherever
an expression names it, the position in the whole tile is ``consumer * part + position``.  Every consumer
has its own copy of a value that does not vary along the axis.

A product that is contracted along the axis is the sum of one product for each part, all of which every consumer
computes: ``dot %q, %k over r`` becomes ``dot %q_0, %k_0 over r`` and ``dot %q_1, %k_1 + … over r``.  Its operands are
loads, or computed from loads by elementwise work.  :attr:`Own.parts` names their parts, because the part of a consumer,
as which another product may read the tensor, is one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Var, free_vars, substitute
from nautilus.core.index.simplify import Ranges, simplify
from nautilus.core.records import dataclass
from nautilus.core.tiles import TileAxis, TileType
from nautilus.ma_tile.ir.async_ops import CONSUMER
from nautilus.vr_tile import ir as vr
from nautilus.vr_tile.analysis.computed_from import computed_from
from nautilus.vr_tile.ir import TileKernel, Value

LEAVES = vr.LoadOp | vr.ConstOp | vr.IndexOp | vr.ParamOp  # ops without operands among values


@dataclass(frozen=True, slots=True)
class Own:
    """The work of one consumer. ``parts``: value of a part -> that of the consumer's own part, and the number."""

    kernel: TileKernel
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    dots: Mapping[str, str] = field(default_factory=dict)  # dot of a part -> the dot whose part it is


def split_axis(kernel: TileKernel, axis: str, consumers: int) -> Own:
    """The work of one of ``consumers`` consumers in ``kernel``.

    Nothing may be combined along ``axis`` but in products of tensors (:func:`is_contraction_of_tensors`).
    """
    part = next(a.size for a in kernel.axes if a.name == axis) // consumers
    axes = tuple(TileAxis(a.name, part) if a.name == axis else a for a in kernel.axes)
    named, ranges = {a.name: a for a in axes}, {axis: (0, part - 1)}
    numbers: tuple[Expr, ...] = (Var(CONSUMER), *map(integer, range(consumers)))
    of, *parts = (
        _Split(named, {axis: simplify(calc("add", calc("mul", n, part), Var(axis)))}, ranges) for n in numbers
    )
    work = _Own(of, axis, parts, kernel)
    body = work.block(kernel.body)
    return Own(replace(kernel, axes=axes, body=body), work.found, work.dots)


def is_contraction_of_tensors(kernel: TileKernel, op: vr.TileOp) -> bool:
    """Whether ``op`` is a product over one axis of operands that are loaded, or computed from loads elementwise."""
    if not isinstance(op, vr.DotOp) or len(op.axes) != 1 or op.mask is not None:
        return False
    defs = {v.name: x for x in vr.walk_ops(kernel.body) for v in vr.results(x)}
    return all(_is_computed_from_loads(v, defs) for v in (op.a, op.b))


def _is_computed_from_loads(v: Value, defs: Mapping[str, vr.TileOp]) -> bool:
    op = defs.get(v.name)
    if isinstance(op, vr.MapOp):
        return all(_is_computed_from_loads(a, defs) for a in op.args)
    return isinstance(op, LEAVES)


class _Split:
    def __init__(self, axes: Mapping[str, TileAxis], env: Mapping[str, Expr], ranges: Ranges) -> None:
        self.axes, self.env, self.ranges = axes, env, ranges

    def block(self, body: tuple[vr.TileOp, ...]) -> tuple[vr.TileOp, ...]:
        return tuple(map(self.op, body))

    def value(self, v: Value) -> Value:
        return Value(v.name, TileType(v.type.dtype, tuple(self.axes[a.name] for a in v.type.axes)))

    def expr(self, e: Expr) -> Expr:
        return e if self.env.keys().isdisjoint(free_vars(e)) else simplify(substitute(e, self.env), self.ranges)

    def mask(self, e: Expr | None) -> Expr | None:
        return None if e is None else self.expr(e)

    def op(self, op: vr.TileOp) -> vr.TileOp:
        v = self.value
        match op:
            case vr.ConstOp() | vr.ParamOp():
                return replace(op, result=v(op.result))
            case vr.IndexOp():
                return replace(op, result=v(op.result), expr=self.expr(op.expr))
            case vr.LoadOp():
                index = tuple(map(self.expr, op.index))
                return replace(op, result=v(op.result), index=index, mask=self.mask(op.mask))
            case vr.StoreOp():
                return replace(op, value=v(op.value), index=tuple(map(self.expr, op.index)), mask=self.mask(op.mask))
            case vr.MapOp():
                return replace(op, result=v(op.result), args=tuple(map(v, op.args)))
            case vr.ReduceOp():
                return replace(op, result=v(op.result), arg=v(op.arg))
            case vr.ScanOp():
                by, factors = None if op.by is None else v(op.by), tuple(map(v, op.factors))
                return replace(op, result=v(op.result), arg=v(op.arg), by=by, factors=factors)
            case vr.DotOp():
                acc = None if op.acc is None else v(op.acc)
                return replace(op, result=v(op.result), a=v(op.a), b=v(op.b), acc=acc)
            case vr.ForOp():
                carried = tuple((v(arg), v(init)) for arg, init in op.carried)
                results, yields = tuple(map(v, op.results)), tuple(map(v, op.yields))
                return replace(op, results=results, carried=carried, body=self.block(op.body), yields=yields)


class _Own(_Split):
    """The kernel as ``of`` rewrites it, with sums of products of ``parts`` for contractions along ``axis``."""

    def __init__(self, of: _Split, axis: str, parts: list[_Split], kernel: TileKernel) -> None:
        super().__init__(of.axes, of.env, of.ranges)
        self.axis, self.parts = axis, parts
        dots = [op for op in vr.walk_ops(kernel.body) if isinstance(op, vr.DotOp) and axis in op.axes]
        self.divided = _computed_along(kernel, axis, [v for op in dots for v in (op.a, op.b)])
        self.found: dict[str, tuple[str, int]] = {}
        self.dots: dict[str, str] = {}

    def block(self, body: tuple[vr.TileOp, ...]) -> tuple[vr.TileOp, ...]:
        out: list[vr.TileOp] = []
        for op in body:
            if isinstance(op, vr.DotOp) and self.axis in op.axes:
                out += self.products(op)
                continue
            if isinstance(op, LEAVES | vr.MapOp) and op.result.name in self.divided:
                out += self.apart(op)
            out.append(self.op(op))
        return tuple(out)

    def named(self, v: Value, n: int) -> Value:
        """Part ``n`` of the whole value ``v``."""
        return self.value(replace(v, name=f"{v.name}_part_{n}"))

    def apart(self, op: vr.LoadOp | vr.ConstOp | vr.IndexOp | vr.ParamOp | vr.MapOp) -> list[vr.TileOp]:
        """``op`` for each of the parts."""
        out: list[vr.TileOp] = []
        for n, part in enumerate(self.parts):
            result = replace(op.result, name=f"{op.result.name}_part_{n}")
            self.found[result.name] = (op.result.name, n)
            own = replace(op, result=result)
            if isinstance(own, vr.MapOp):
                args = (replace(a, name=f"{a.name}_part_{n}") if a.name in self.divided else a for a in own.args)
                own = replace(own, args=tuple(args))
            out.append(part.op(own))
        return out

    def products(self, op: vr.DotOp) -> list[vr.TileOp]:
        """The product as a sum of products of parts, the last one by its own name."""
        out: list[vr.TileOp] = []
        acc, last = None if op.acc is None else self.value(op.acc), len(self.parts) - 1
        for n in range(len(self.parts)):
            result = self.value(op.result) if n == last else self.named(op.result, n)
            self.dots[result.name] = op.result.name
            out.append(replace(op, result=result, a=self.named(op.a, n), b=self.named(op.b, n), acc=acc))
            acc = result
        return out


def _computed_along(kernel: TileKernel, axis: str, values: list[Value]) -> frozenset[str]:
    """The names of ``values``, and of those with ``axis`` that they are computed from."""
    defs = {v.name: op for op in vr.walk_ops(kernel.body) for v in vr.results(op)}
    along = computed_from(values, defs, lambda v, op: axis in v.type.names and isinstance(op, vr.MapOp))
    return frozenset(v.name for v, _ in along if axis in v.type.names)
