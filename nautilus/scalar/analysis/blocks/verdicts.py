"""Whether a condition holds somewhere in a block, and whether it holds everywhere in it.

A block has some consecutive positions along each of a few axes.  A *verdict* is two conditions on blocks: the condition
holds for no element of the block unless ``possible`` does, and for all of them where ``certain`` does.  Both come from
three-valued logic over interval arithmetic:

* a value that varies along one axis has bounds, its least and greatest element, which the caller finds for each block;
* index variables have those of their positions, and sums, differences, ``abs``, ``min``, ``max``, choices and quotients
  of bounds are bounds again.  A sum with elements of tensors may wrap, so it is made in i64, and where it leaves its
  type nothing is known;
* ``f(i) == g(j)`` is possible where the intervals of both sides meet, and certain where both are one equal number;
  ``f(i) <= g(j)`` by the ends that decide;
* a condition of another form, such as an element ``mask[i, j]``, is asked for each element of the block.

Values of floats are compared only as they are stored, since results of arithmetic may be rounded in another way by
another kernel.  Comparisons are written so that NaN makes a block possible and not certain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import FALSE, TRUE, conjunction, negated
from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Op, Param, free_vars, loads, walk
from nautilus.core.records import dataclass
from nautilus.core.types import DType, integer_limits

Over = Callable[[str, Expr], Expr]  # combiner, element -> that of all elements of a block
_KEPT = frozenset({"cast", "narrow", "neg", "abs", "min", "max", "select"})  # every kernel gives the same bits
_MIRRORED = {"gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where the condition may hold for an element, and where it holds for all (module docstring)."""

    possible: Expr
    certain: Expr


UNDECIDED = Verdict(TRUE, FALSE)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The values of an expression in a block are between ``low`` and ``high`` where all of ``valid`` hold."""

    low: Expr
    high: Expr
    valid: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Verdicts on blocks.

    ``positions``: the first and the last position of a block along each of its axes; ``over``: a reduction over the
    elements of a block.
    """

    positions: Mapping[str, tuple[Expr, Expr]]
    over: Over

    def verdict(self, e: Expr) -> Verdict:
        """The verdict on condition ``e``."""
        if not self._moves(e):
            return Verdict(e, e)
        match e:
            case Op(op="and" | "or" as op, args=(a, b)):
                x, y = self.verdict(a), self.verdict(b)
                return Verdict(_logic(op, x.possible, y.possible), _logic(op, x.certain, y.certain))
            case Op(op="not", args=(a,)):
                x = self.verdict(a)
                return Verdict(negated(x.certain), negated(x.possible))
            case Op(op="select", args=(c, a, b)):
                return self._choice(*map(self.verdict, (c, a, b)))
            case Op(op=op, args=(a, b)) if op in COMPARISONS:
                found = self._comparison(op, a, b)
                if found is not None:
                    return found
        if not loads(e) or not _keeps_bits(e):
            return UNDECIDED
        return Verdict(self.over("any", e), self.over("all", e))

    def _choice(self, c: Verdict, a: Verdict, b: Verdict) -> Verdict:
        first, second = _logic("and", c.possible, a.possible), _logic("and", negated(c.certain), b.possible)
        held = _logic("or", negated(c.possible), a.certain), _logic("or", c.certain, b.certain)
        return Verdict(_logic("or", first, second), _logic("and", *held))

    def _comparison(self, op: str, a: Expr, b: Expr) -> Verdict | None:
        """The verdict from the bounds of both sides; None where they are not known."""
        if op in _MIRRORED:
            op, a, b = _MIRRORED[op], b, a
        x, y = self._bounds(_number(a)), self._bounds(_number(b))
        if x is None or y is None:
            return None
        x, y = _alike(x, y)
        valid = conjunction((*x.valid, *y.valid)) or TRUE
        if op in ("eq", "ne"):
            apart = _logic("or", calc("lt", x.high, y.low), calc("lt", y.high, x.low))
            same = _logic("and", calc("le", x.high, y.low), calc("le", y.high, x.low))
            possible, certain = (negated(apart), same) if op == "eq" else (negated(same), apart)
        else:
            possible = negated(calc("le" if op == "lt" else "lt", y.high, x.low))
            certain = calc(op, x.high, y.low)
        return Verdict(_logic("or", negated(valid), possible), _logic("and", valid, certain))

    def _moves(self, e: Expr) -> bool:
        return not free_vars(e).isdisjoint(self.positions)

    def _bounds(self, e: Expr) -> _Bounds | None:
        """Bounds of the number ``e``; None where they are not known."""
        if not _keeps_bits(e):
            return None
        if not self._moves(e):
            return _Bounds(e, e)
        values = any(n.range == (None, None) if isinstance(n, Param) else bool(loads(n)) for n in walk(e))
        if not values or len(free_vars(e) & self.positions.keys()) > 1:
            found = self._arithmetic(e, values)
            if found is not None or values:
                return found
        if len(free_vars(e) & self.positions.keys()) > 1:
            return None
        return _Bounds(self.over("min", e), self.over("max", e))

    def _arithmetic(self, e: Expr, values: bool) -> _Bounds | None:
        """Bounds of ``e`` from those of its arguments; ``values``: it may wrap."""
        if not isinstance(e, Op):
            name = next(iter(free_vars(e)))
            return None if loads(e) else _Bounds(*self.positions[name])
        if not e.dtype.is_int or (values and e.dtype is DType.I64):
            return None
        if e.op == "select":
            x, y = (self._bounds(a) for a in e.args[1:])
            return None if x is None or y is None else _hull(*_alike(x, y))
        found = [self._bounds(a) for a in e.args]
        sides = [x for x in found if x is not None]
        if len(sides) < len(found):
            return None
        made = _combined(e, [_wide(x) for x in sides] if values else sides)
        if made is None or not values:
            return made
        least, most = (Const(n, DType.I64) for n in integer_limits(e.dtype))
        fits = calc("le", least, made.low), calc("le", made.high, most)
        return _Bounds(made.low, made.high, (*made.valid, *fits))


def _combined(e: Op, args: list[_Bounds]) -> _Bounds | None:
    valid = tuple(c for x in args for c in x.valid)
    x, y = args[0], args[-1]
    match e.op, e.args[-1]:
        case "add", _:
            return _Bounds(_op("add", x.low, y.low), _op("add", x.high, y.high), valid)
        case "sub", _:
            return _Bounds(_op("sub", x.low, y.high), _op("sub", x.high, y.low), valid)
        case "neg", _:
            return _Bounds(_op("neg", x.high), _op("neg", x.low), valid)
        case (("min" | "max"), _):
            return _Bounds(_op(e.op, x.low, y.low), _op(e.op, x.high, y.high), valid)
        case "abs", _:
            low = _op("max", x.low, _op("max", _op("neg", x.high), Const(0, x.low.dtype)))
            return _Bounds(low, _op("max", _op("neg", x.low), x.high), valid)
        case "mul", Const(value=n):
            low, high = (x.low, x.high) if n >= 0 else (x.high, x.low)
            return _Bounds(_op("mul", low, y.low), _op("mul", high, y.low), valid)
        case "floordiv", Const(value=n) if n > 0:
            return _Bounds(_op("floordiv", x.low, y.low), _op("floordiv", x.high, y.low), valid)
    return None


def _hull(x: _Bounds, y: _Bounds) -> _Bounds:
    return _Bounds(_op("min", x.low, y.low), _op("max", x.high, y.high), (*x.valid, *y.valid))


def _wide(x: _Bounds) -> _Bounds:
    """``x`` in i64."""
    low, high = (e if e.dtype is DType.I64 else Op("cast", (e,), DType.I64) for e in (x.low, x.high))
    return _Bounds(low, high, x.valid)


def _alike(x: _Bounds, y: _Bounds) -> tuple[_Bounds, _Bounds]:
    """Both in one type."""
    return (x, y) if x.low.dtype is y.low.dtype else (_wide(x), _wide(y))


def _number(e: Expr) -> Expr:
    return Op("cast", (e,), DType.I32) if e.dtype is DType.BOOL else e


def _keeps_bits(e: Expr) -> bool:
    """Whether every kernel computes the same bits of ``e``."""
    return all(n.op in _KEPT for n in walk(e) if isinstance(n, Op) and n.dtype.is_float)


def _op(name: str, *args: Expr) -> Expr:
    return Op(name, args, args[0].dtype)


def _logic(op: str, a: Expr, b: Expr) -> Expr:
    none, all_ = (TRUE, FALSE) if op == "and" else (FALSE, TRUE)
    if all_ in (a, b):
        return all_
    return b if a == none else a if b == none or a == b else calc(op, a, b)
