"""Emission of VR-tile ops with inferred types and fresh names, for the lowering and the passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nautilus.core.expr.infer import result_dtype
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.tiles import TileAxis, TileType
from nautilus.core.types import DType
from nautilus.vr_tile.ir import ConstOp, DotOp, MapOp, ReduceOp, ScanOp, TileOp, Value


class Emitter:
    """A block under construction (``out``). ``axes``: the kernel's tile axes in canonical order."""

    def __init__(self, axes: Mapping[str, TileAxis]) -> None:
        self.axes = axes
        self.order = {name: i for i, name in enumerate(axes)}
        self.out: list[TileOp] = []
        self.span: Span = NO_SPAN
        self.types: dict[str, TileType] = {}
        self._names: dict[str, int] = {}

    def fresh(self, t: TileType, hint: str = "") -> Value:
        """A new value of type ``t``, named after ``hint`` or numbered."""
        while True:
            n = self._names.get(hint, 0)
            self._names[hint] = n + 1
            name = str(n) if not hint else f"{hint}_{n}" if n else hint
            if name not in self.types:
                break
        self.types[name] = t
        return Value(name, t)

    def type(self, dtype: DType, names: Iterable[str]) -> TileType:
        """The tile type over the axes ``names``, in canonical order."""
        chosen = sorted({n for n in names if n in self.axes}, key=self.order.__getitem__)
        return TileType(dtype, tuple(self.axes[n] for n in chosen))

    def emit(self, op: TileOp) -> None:
        """Append ``op`` to the block."""
        self.out.append(op)

    def const(self, value: int | float | bool, t: TileType, hint: str = "") -> Value:
        """A tile of type ``t`` whose elements are ``value``."""
        v = self.fresh(t, hint)
        self.emit(ConstOp(v, value, self.span))
        return v

    def map(self, op: str, args: Sequence[Value], dtype: DType | None = None, hint: str = "") -> Value:
        """An elementwise op; ``dtype`` is required for cast and narrow only."""
        dtype = result_dtype(op, [a.type.dtype for a in args], dtype)
        v = self.fresh(self.type(dtype, [n for a in args for n in a.type.names]), hint)
        self.emit(MapOp(v, op, tuple(args), self.span))
        return v

    def reduce(self, combiner: str, arg: Value, axes: Sequence[str]) -> Value:
        """``arg`` reduced by ``combiner`` over those of ``axes`` that it has."""
        over = tuple(n for n in arg.type.names if n in axes)
        v = self.fresh(self.type(arg.type.dtype, set(arg.type.names) - set(over)))
        self.emit(ReduceOp(v, combiner, arg, over, self.span))
        return v

    def scan(self, combiner: str, arg: Value, axes: tuple[str, str], reverse: bool, exclusive: bool) -> Value:
        """Running results along the first of ``axes``, which the second one numbers."""
        names = {axes[1] if n == axes[0] else n for n in arg.type.names}
        v = self.fresh(self.type(arg.type.dtype, names))
        self.emit(ScanOp(v, combiner, arg, *axes, reverse, exclusive, self.span))
        return v

    def recurrence(self, rest: Value, by: Value, axis: str, reverse: bool, hint: str = "") -> Value:
        """The states of a linear recurrence along ``axis`` with the factors ``by``."""
        v = self.fresh(rest.type, hint)
        self.emit(ScanOp(v, "sum", rest, axis, axis, reverse, False, self.span, by))
        return v

    def states(
        self, rest: Value, factors: Sequence[Value], places: Sequence[int], axis: str, states: str, reverse: bool,
        hint: str = "",
    ) -> Value:  # fmt: skip
        """The states of a linear recurrence along ``axis`` that need each other, with ``factors`` at ``places``."""
        v = self.fresh(rest.type, hint)
        self.emit(
            ScanOp(v, "sum", rest, axis, axis, reverse, False, self.span, None, states, tuple(factors), tuple(places))
        )
        return v

    def dot(
        self, a: Value, b: Value, acc: Value | None, axes: Sequence[str], hint: str = "", mask: Value | None = None,
        terms: int | None = None, dtype: DType | None = None,
    ) -> Value:  # fmt: skip
        """The sum of ``a * b`` over ``axes`` where ``mask`` holds, plus ``acc``; ``terms``: as in a dot.

        ``dtype``: the type of the sum, if that is not the compute type of the operands.
        """
        names = {*a.type.names, *b.type.names} - set(axes)
        v = self.fresh(self.type(dtype or a.type.dtype.compute, names), hint)
        ordered = tuple(n for n in self.axes if n in axes)
        self.emit(DotOp(v, a, b, acc, ordered, mask, terms=terms, span=self.span))
        return v

    def select(self, cond: Value, a: Value, b: Value, hint: str = "") -> Value:
        """``a`` where ``cond`` holds, ``b`` elsewhere."""
        return self.map("select", (cond, a, b), a.type.dtype, hint)

    def spread(self, v: Value, names: Iterable[str], hint: str = "") -> Value:
        """``v`` broadcast to every axis of ``names``, by a select between ``v`` and ``v``."""
        missing = self.type(DType.BOOL, set(names) - set(v.type.names))
        if not missing.axes:
            return v
        return self.select(self.const(True, missing), v, v, hint)
