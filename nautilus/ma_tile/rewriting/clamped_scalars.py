"""Integer scalars in bounds and masks, clamped to a range in which sums with positions do not overflow.

The value of a scalar is not known, and ``j0 * 128 + j + window`` leaves 32 bits where the caller means that no window
ends.  An expression that has one value for all values of the scalar beyond a limit has that value at the limit too:
comparisons and minima are decided.  So expressions of which this is shown read a variable at the head of the kernel,
``min(window, limit)``, one with a limit below, or one with both.  Other expressions read the scalar.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import COMPARISONS, Expr, Op, Param, Ref, Var, children, replaced, rewrite, walk
from nautilus.core.index.linear import divided
from nautilus.core.index.linear_bounds import Ranges, bounds
from nautilus.core.ops import Kind, map_fields, regions
from nautilus.core.text.names import unused
from nautilus.core.types import DType
from nautilus.ma_tile.ir.async_ops import CONSUMER, LetOp
from nautilus.ma_tile.ir.ops import ForOp, MemKernel, MemOp, walk_ops
from nautilus.ma_tile.ir.traverse import expressions, rebuild
from nautilus.ma_tile.rewriting.renaming import chosen_ranges, known_ranges

#: The first limit is far beyond most positions, and three such numbers fit 32 bits; the second is beyond all positions.
_LIMITS = ((1 << 29), (1 << 31) - (1 << 19))


def with_clamped_scalars(kernel: MemKernel, grid: Ranges) -> MemKernel:
    """``kernel`` with variables for its scalars where it is shown that clamping changes nothing (module docstring).

    ``grid``: the ranges of its grid variables.
    """
    found = (n for op in walk_ops(kernel.body) for e in expressions(op) for n in walk(e))
    scalars = {n.name: n for n in found if isinstance(n, Param) and n.most is None and n.dtype is DType.I32}
    for p in scalars.values():
        kernel = _clamped(kernel, p, grid)
    return kernel


def _clamped(kernel: MemKernel, p: Param, grid: Ranges) -> MemKernel:
    axes = {a: (0, f.extent(a) - 1) for f in kernel.layouts.values() for a in f.axes}
    known: Ranges = {**axes, **known_ranges(kernel), **grid, **chosen_ranges(kernel)}
    near, far = (_sides(kernel, p, limit, known) for limit in _LIMITS)
    limit, (high, low) = (_LIMITS[0], near) if all(map(set.issuperset, near, far)) else (_LIMITS[1], far)
    taken = {CONSUMER, "block", *axes, *(name for name, _ in kernel.decode)}
    taken |= {op.var for op in walk_ops(kernel.body) if isinstance(op, ForOp | LetOp)}
    made, chosen = list[tuple[str, Expr]](), dict[Expr, Expr]()
    above, below = integer(-limit), integer(limit)
    for found, value in (
        (high & low, calc("max", calc("min", p, below), above)),
        (high - low, calc("min", p, below)),
        ((low - high) & _loop_bounds(kernel), calc("max", p, above)),
    ):
        if found:
            name = unused(f"{p.name}_clamped", taken)
            taken.add(name)
            made.append((name, value))
            chosen |= dict.fromkeys(found, Var(name))
    if not made:
        return kernel

    def rule(op: MemOp) -> tuple[MemOp, ...]:
        new: MemOp = map_fields(op, {Kind.EXPR: lambda e: replaced(e, p, chosen[e]) if e in chosen else e})
        return (new,)

    return replace(kernel, decode=(*kernel.decode, *made), body=rebuild(kernel.body, rule))


def _loop_bounds(kernel: MemKernel) -> set[Expr]:
    """Where a variable that may be as large as the scalar is not moved to another side of a comparison."""
    return {e for op in walk_ops(kernel.body) if isinstance(op, ForOp) for e in (op.lo, op.hi)}


def _sides(kernel: MemKernel, p: Param, limit: int, known: Ranges) -> tuple[set[Expr], set[Expr]]:
    """The expressions of ``kernel`` that have one value where ``p`` is ``limit`` or more, and -``limit`` or less."""
    return _constant_in(kernel, p, (limit, None), known), _constant_in(kernel, p, (None, -limit), known)


def _named(e: Expr, p: Param) -> Expr:
    """``e`` with a variable for ``p``, and one for each value in it."""
    return rewrite(e, lambda n: Var(p.name) if n == p else Var(f"%{n.name}") if isinstance(n, Ref) else None)


def _constant_in(kernel: MemKernel, p: Param, side: tuple[int | None, int | None], known: Ranges) -> set[Expr]:
    """The expressions of ``kernel`` with ``p`` that have one value for all values of it in ``side``."""
    out: dict[Expr, bool] = {}
    for e, ranges in _expressions(kernel.body, {**known, p.name: side}, p):
        out[e] = out.get(e, True) and _is_constant(_named(e, p), p.name, ranges)
    return {e for e, same in out.items() if same}


def _expressions(body: tuple[MemOp, ...], ranges: Ranges, p: Param) -> Iterator[tuple[Expr, Ranges]]:
    """The expressions of ``body`` with ``p``, and the ranges of the variables around them."""
    for op in body:
        yield from ((e, ranges) for e in expressions(op) if p in walk(e))
        inner = ranges
        if isinstance(op, ForOp):
            lo, hi = (bounds(divided(_named(e, p)), ranges) for e in (op.lo, op.hi))
            inner = {**ranges, op.var: (lo[0], None if hi[1] is None else hi[1] - 1)}
        for part in regions(op):
            yield from _expressions(part, inner, p)


def _is_constant(e: Expr, name: str, ranges: Ranges) -> bool:
    """Whether ``e`` has one value for all values of the variable ``name`` in its range."""
    if not any(isinstance(n, Var) and n.name == name for n in walk(e)):
        return True
    match e:
        case Op(op="select", args=(cond, a, b)) if (holds := _holds(cond, ranges)) is not None:
            return _is_constant(a if holds else b, name, ranges)
        case Op(op="min" | "max" as op, args=(a, b)) if (less := _holds(calc("le", a, b), ranges)) is not None:
            return _is_constant(a if less is (op == "min") else b, name, ranges)
        case Op(op=op) if op in COMPARISONS and _holds(e, ranges) is not None:
            return True
        case Op():
            return all(_is_constant(c, name, ranges) for c in children(e))
    return False


def _holds(cond: Expr, ranges: Ranges) -> bool | None:
    """Whether the comparison ``cond`` holds; None where that is not known."""
    if not isinstance(cond, Op) or cond.op not in COMPARISONS or not cond.args[0].dtype.is_int:
        return None
    low, high = bounds(divided(cond.args[0]) - divided(cond.args[1]), ranges)
    below, above = high is not None and high < 0, low is not None and low > 0
    match cond.op:
        case "lt" | "ge":
            first = True if below else False if low is not None and low >= 0 else None
            return first if cond.op == "lt" or first is None else not first
        case "le" | "gt":
            first = True if high is not None and high <= 0 else False if above else None
            return first if cond.op == "le" or first is None else not first
    return None if not (below or above) else cond.op == "ne"
