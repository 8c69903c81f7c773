"""``split-positions``: computes functions of tile positions from a term of the thread and a term of the register.

The pass marks every ``index`` op of a tile position in a kernel whose consumers are warpgroups, where a thread has many
registers: the term of the thread is computed once, and the term of a register is a constant.

In every kernel, a quotient or a remainder of a position along one axis is computed from two digits of that position, if
the registers of a thread change only the higher one: with ``j = 8 * (j // 8) + j % 8`` and 56 = 8 * 7,
``(128 * j0 + j) // 56`` is ``(16 * j0 + j // 8) // 7``, which all threads share and the registers of a digit share too.
Places in a line and a column of an image are such positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TypeGuard

from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, rewrite, substitute, walk
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.ma_tile.analysis.consumers import has_warpgroups
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import IndexOp, MemKernel, MemModule, MemOp
from nautilus.ma_tile.ir.traverse import each_kernel, rebuild

_HIGH, _LOW = "{} high", "{} low"  # no axis has a name with a space


@dataclass(frozen=True, slots=True)
class SplitPositions:
    """The pass ``split-positions``, which has no options."""

    name = "split-positions"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` with functions of positions in two terms."""
        return each_kernel(module, _kernel)


def _kernel(kernel: MemKernel) -> MemKernel:
    always = has_warpgroups(kernel)

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        if isinstance(op, IndexOp):
            layout = kernel.layouts[op.result.layout]
            axes = {a.name: a.size for a in op.result.type.axes if a.name in layout.axes}
            expr = _by_digits(op.expr, axes, layout)
            if expr != op.expr or (always and free_vars(op.expr) & axes.keys()):
                return (replace(op, expr=expr, split=True),)
        return (op,)

    return replace(kernel, body=rebuild(kernel.body, rule))


def _by_digits(e: Expr, axes: Mapping[str, int], layout: FragLayout) -> Expr:
    """``e`` with quotients and remainders of positions along each of ``axes`` by digits, where that is possible."""
    for axis, size in axes.items():
        bases = sorted(_bases(layout, axis), reverse=True) if any(_divides(n, axis) for n in walk(e)) else []
        for base in bases:
            e = rewrite(e, partial(_in_digits, axis, size, base, frozenset(bases)))
    return e


def _divides(n: Expr, axis: str) -> TypeGuard[Op]:
    """Whether ``n`` is a quotient or a remainder, by a constant, of what depends on ``axis``."""
    return _divisor(n) is not None and axis in free_vars(n)


def _divisor(n: Expr) -> int | None:
    """The constant by which ``n`` divides, where it is a quotient or a remainder."""
    match n:
        case Op(op="floordiv" | "mod", args=(_, Const(value=by))):
            return int(by)
    return None


def _is_digit(n: Expr, axis: str, bases: frozenset[int]) -> bool:
    return _divides(n, axis) and isinstance(n.args[0], Var) and _divisor(n) in bases


def _bases(layout: FragLayout, axis: str) -> set[int]:
    """The numbers of positions by which registers step along ``axis`` while their lower digit stays."""
    steps = {m.stride for m in layout.reg if m.axis == axis and m.size > 1 and m.stride > 1}
    return {s for s in steps if layout.is_digit(axis, s)}


def _in_digits(axis: str, size: int, base: int, bases: frozenset[int], e: Expr) -> Expr | None:
    """The quotient or remainder ``e`` with ``base * high + low`` for ``axis``, where it divides nothing of ``low``.

    None for what has a digit to another one of ``bases``.
    """
    if not _divides(e, axis) or any(_is_digit(n, axis, bases - {base}) for n in walk(e)):
        return None
    high, low = Var(_HIGH.format(axis), DType.I32), Var(_LOW.format(axis), DType.I32)
    number = Const(base, DType.I32)
    whole = Op("add", (Op("mul", (high, number), DType.I32), low), DType.I32)
    made = simplify(substitute(e, {axis: whole}), {high.name: (0, -(-size // base) - 1), low.name: (0, base - 1)})
    if any(_divides(n, low.name) for n in walk(made)):
        return None
    position = Var(axis, DType.I32)
    digits = {high.name: "floordiv", low.name: "mod"}
    return substitute(made, {name: Op(op, (position, number), DType.I32) for name, op in digits.items()})
