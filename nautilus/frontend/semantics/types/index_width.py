"""The width of integer expressions of indices.

An expression of index variables, sizes, integer scalars and literals has its exact value.  Its type is i32; where the
ranges of its variables permit a value outside i32, the operation and all that is computed from it are i64 (and wrap
there).  Elements of tensors, results of reductions and casts to a narrower type are values of their type: arithmetic
with them wraps in the promoted type, as :mod:`typed` gives it.

The ranges are those of the sizes, and of the facts about integer scalars, which the launcher checks; conditions do not
narrow them.  A variable may go beyond its size by the margin of a tile, because the last tile of a kernel computes such
positions before it discards them; an exponent and a number of bits by which something is shifted may not, since nearly
all powers of such a position would be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product

from nautilus.core.expr.conditions import all_conjuncts
from nautilus.core.expr.nodes import (
    COMPARISONS,
    Const,
    Expr,
    Op,
    Param,
    Reduce,
    Var,
    children,
    rewrite,
    walk,
    with_children,
)
from nautilus.core.index.linear import excess
from nautilus.core.index.sizes import Extent, at_most
from nautilus.core.records import dataclass
from nautilus.core.source import NO_SPAN, Span
from nautilus.core.types import DType, holds, integer_limits, promote
from nautilus.frontend.semantics import typed
from nautilus.frontend.semantics.types.narrow_comparisons import in_i32

Range = tuple[int, int]  # inclusive
_MARGIN = 1023  # positions beyond the last one of a size


def exact_indices(e: Expr, axes: Mapping[str, Extent], scalars: Mapping[str, Range] | None = None) -> Expr:
    """``e`` with i64 operations where an expression of indices may leave i32.

    ``axes`` gives the extents of the free variables, ``scalars`` the ranges of scalars of which facts are known.  Nodes
    that do not change are kept.
    """
    return _Widener(axes, scalars or {}).expr(e)


def scalar_ranges(facts: Iterable[Expr]) -> dict[str, Range]:
    """The ranges of the integer scalars that ``facts`` compare with numbers."""
    out: dict[str, Range] = {}
    for c in (part for fact in facts for part in all_conjuncts(fact)):
        d = excess(c)
        if d is None or len(d.terms) != 1:
            continue
        ((p, slope),) = d.terms.items()
        if not isinstance(p, Param) or p.most is not None or abs(slope) != 1:
            continue
        least, most = out.get(p.name, integer_limits(p.dtype))
        is_equation = isinstance(c, Op) and c.op == "eq"
        if slope == 1 or is_equation:
            most = min(most, -d.const * slope)
        if slope == -1 or is_equation:
            least = max(least, -d.const * slope)
        if least <= most:
            out[p.name] = least, most
    return out


@dataclass(frozen=True, slots=True)
class _Values:
    """The values that an expression of indices may have; ``wraps``: it may leave i64, so that it has any of i64."""

    range: Range
    wraps: bool = False


class _Widener:
    """One expression: the extents of its variables, and what is already rewritten."""

    def __init__(self, axes: Mapping[str, Extent], scalars: Mapping[str, Range]) -> None:
        self.scalars = scalars
        self.last = {name: at_most(extent) - 1 for name, extent in axes.items()}
        self.done: dict[int, tuple[Expr, Expr]] = {}  # by id; the node is kept alive
        self.known: dict[tuple[int, int], tuple[Expr, _Values | None]] = {}  # by id and margin

    def expr(self, e: Expr) -> Expr:
        found = self.done.get(id(e))
        if found is None:
            found = self.done[id(e)] = (e, self._expr(e))
        return found[1]

    def _expr(self, e: Expr) -> Expr:
        if isinstance(e, Reduce):
            self.last.update({a.name: at_most(a.extent) - 1 for a in e.axes})
        old = children(e)
        new = tuple(self.expr(c) for c in old)
        changed = any(a is not b for a, b in zip(old, new, strict=True))
        match e:
            case Reduce(op=op, axes=axes, span=span) if changed:
                return Reduce(op, axes, None if e.cond is None else new[0], new[-1], new[-1].dtype, span)
            case Op(op="cast", dtype=dtype) if changed and new[0].dtype is dtype:
                return new[0]
            case Op(op="cast" | "narrow"):
                return with_children(e, new) if changed else e
            case Op(op="select", span=span) if changed:
                return typed.select(new[0], new[1], new[2], span)
            case Op(op=op, span=span) if changed and op in COMPARISONS:
                return self._narrow(op, new, span) or typed.compare(op, new[0], new[1], span)
            case Op(op=op, dtype=dtype, span=span) if dtype.is_int:
                t = promote(new[0].dtype, new[-1].dtype)
                plain = Op(op, tuple(typed.coerce(a, t) for a in new), t, span) if changed else e
                made = self.range(plain)
                if t is DType.I64 or made is None or _within(made, DType.I32):
                    return plain
                return Op(op, tuple(typed.coerce(a, DType.I64) for a in new), DType.I64, span)
        return with_children(e, new) if changed else e

    def _narrow(self, op: str, args: tuple[Expr, ...], span: Span) -> Expr | None:
        """A comparison in i32 that says the same as one in i64 of expressions of indices; None where there is none."""
        if all(a.dtype is not DType.I64 for a in args) or not all(map(self._is_exact, args)):
            return None
        made = in_i32(op, args[0], args[1], self._fits)
        if made is None:
            return None
        return rewrite(made, lambda n: replace(n, span=span) if isinstance(n, Op) and n.span is NO_SPAN else None)

    def _is_exact(self, e: Expr) -> bool:
        """Whether ``e`` is an expression of indices of which no part wraps in i64."""
        found = (self.values(n) for n in walk(e) if n.dtype.is_int)
        return all(v is not None and not v.wraps for v in found)

    def _fits(self, e: Expr) -> bool:
        """Whether all integers in ``e`` are i32 and stay within it."""
        return all(self._stays(n) for n in walk(e) if n.dtype.is_int)

    def _stays(self, e: Expr) -> bool:
        found = self.range(e)
        return e.dtype is DType.I32 and found is not None and _within(found, DType.I32)

    def range(self, e: Expr, margin: int = _MARGIN) -> Range | None:
        """The least and the greatest value of an expression of indices; None for one of anything else."""
        found = self.values(e, margin)
        return None if found is None else found.range

    def values(self, e: Expr, margin: int = _MARGIN) -> _Values | None:
        """The values of an expression of indices; None for one of anything else.

        ``margin``: how far variables may go beyond their sizes.
        """
        found = self.known.get((id(e), margin))
        if found is None:
            found = self.known[id(e), margin] = (e, self._values(e, margin))
        return found[1]

    def _values(self, e: Expr, margin: int) -> _Values | None:
        exact = self._range(e, margin)
        if exact is None:
            return None
        return _Values(exact) if _within(exact, DType.I64) else _Values(integer_limits(DType.I64), wraps=True)

    def _range(self, e: Expr, margin: int) -> Range | None:
        match e:
            case Const(value=value, dtype=dtype) if dtype.is_int:
                return int(value), int(value)
            case Var(name=name):
                return (0, self.last[name] + margin) if name in self.last else None
            case Param(most=most) if most is not None:
                return 0, most
            case Param(name=name, dtype=dtype) if dtype.is_int and (name in self.scalars or dtype is not DType.I64):
                return self.scalars.get(name) or integer_limits(dtype)
            case Op(op="cast", args=(a,), dtype=dtype) if dtype.is_int and a.dtype is DType.BOOL:
                return 0, 1
            case Op(op="cast", args=(a,), dtype=dtype) if a.dtype.is_int and holds(dtype, a.dtype):
                return self.range(a, margin)
            case Op(op="select", args=(_, a, b), dtype=dtype) if dtype.is_int:
                return _hull(self.range(a, margin), self.range(b, margin))
            case Op(op=op, args=args) if op in _RANGES:
                margins = (margin, 0 if op in ("pow", "shift_left") else margin)
                found = [self.range(a, m) for a, m in zip(args, margins, strict=False)]
                given = [r for r in found if r is not None]
                return _RANGES[op](*given) if len(given) == len(found) else None
        return None


def _within(r: Range, dtype: DType) -> bool:
    least, most = integer_limits(dtype)
    return least <= r[0] and r[1] <= most


def _hull(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _corners(f: Callable[[int, int], int], a: Range, b: Range) -> Range:
    values = [f(x, y) for x, y in product(a, b)]
    return min(values), max(values)


def _quotient(a: Range, b: Range) -> Range:
    """``a // b``; the divisor 0, which gives no value, is left out."""
    parts = [(max(b[0], 1), b[1]), (b[0], min(b[1], -1))]
    made = [_corners(lambda x, y: x // y, a, part) for part in parts if part[0] <= part[1]]
    return (min(lo for lo, _ in made), max(hi for _, hi in made)) if made else (0, 0)


def _remainder(a: Range, b: Range) -> Range:
    return min(0, b[0] + 1), max(0, b[1] - 1)


def _power(a: Range, n: Range) -> Range:
    """The range of a power from the magnitudes of ``a``, for both signs; beyond i64 where the exponent is large."""
    top = max(abs(a[0]), abs(a[1]), 1)
    most = top ** min(max(n[1], 0), 64)
    return (0 if a[0] >= 0 else -most), most


def _both_bits(a: Range, b: Range) -> Range:
    """``a & b``, which is at most every operand that is not negative."""
    tops = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(tops)) if tops else (_bits(a, b)[0], max(a[1], b[1]))


def _bits(a: Range, b: Range) -> Range:
    """``a | b`` and ``a ^ b``: no more bits than the operands have."""
    width = max(x.bit_length() if x >= 0 else (~x).bit_length() for r in (a, b) for x in r)
    return (0 if a[0] >= 0 and b[0] >= 0 else -(1 << width)), (1 << width) - 1


def _shifted(a: Range, n: Range) -> Range:
    """``a << n``, which is 0 where ``n`` is no number of bits."""
    lo, hi = _corners(lambda x, k: x << k, a, (min(max(n[0], 0), 63), min(max(n[1], 0), 63)))
    return (lo, hi) if n[0] >= 0 and n[1] < 64 else (min(lo, 0), max(hi, 0))


_RANGES: Mapping[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: _corners(lambda x, y: x * y, a, b),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0 if a[0] <= 0 <= a[1] else min(map(abs, a)), max(map(abs, a))),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "floordiv": _quotient,
    "mod": _remainder,
    "pow": _power,
    "bit_and": _both_bits,
    "bit_or": _bits,
    "bit_xor": _bits,
    "bit_not": lambda a: (~a[1], ~a[0]),
    "shift_left": _shifted,
    "shift_right": lambda a, n: (min(a[0], 0), max(a[1], -1)),
}
