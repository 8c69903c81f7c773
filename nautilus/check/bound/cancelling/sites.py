"""Where a program applies a function of unbounded derivative to a value whose terms may cancel."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from nautilus.check.bound.cancelling.positions import unmarked
from nautilus.check.bound.exactness import inexact
from nautilus.core.expr.nodes import RELATIONAL, Const, Expr, Load, Op, Param, Reduce, Var, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.functions.record import Singular
from nautilus.core.text.expressions import parse_expr
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec

#: Functions whose results are as precise as their arguments, and those whose results are precise for all arguments.
_KEEP: Final = frozenset(
    {"mul", "div", "rcp", "neg", "abs", "cast", "narrow", "min", "max", "select", "sqrt", "rsqrt", "cbrt", "pow",
     "tanh", "erf", "sinh", "asinh", "atan", "expm1", "hypot"}
)  # fmt: skip
_PRECISE: Final = frozenset({"exp", "exp2", "exp10", "sigmoid", "cosh"})
_POSITIVE: Final = _PRECISE | {"abs", "sqrt", "rsqrt"}
_SIGN_OF_ALL: Final = frozenset({"add", "mul", "div", "min", "cast", "narrow", "rcp", "pow"})


def may_cancel(program: Spec) -> bool:
    """Whether ``program`` applies a function of unbounded derivative to a value whose terms may cancel."""
    known = Known(program)
    return any(known.is_site(e) for d in program.definitions for e in walk(d.expr))


def singular(e: Op) -> Singular | None:
    """The singular point of the function ``e``; that of a power depends on a constant exponent."""
    found = FUNCTIONS[e.op].singular
    if e.op != "pow" or not isinstance(exponent := e.args[1], Const):
        return found
    y = float(exponent.value)
    whole = y == int(y)
    return None if whole and y >= 0.0 else Singular("x", max(0.0, 1.0 - y), not whole)


def distance(at: Singular, e: Op) -> Expr:
    """The distance of the arguments of ``e`` from the point, as an expression in the params x, y; or an argument."""
    own = dict(zip("xyz", e.args, strict=False)).get(at.distance)
    return _parsed(at.distance) if own is None else own


@cache
def _parsed(text: str) -> Expr:
    return parse_expr(text, params=dict.fromkeys("xyz", DType.F32))


def comparisons(cond: Expr) -> Iterator[Op]:
    """The comparisons of floats by order in ``cond`` about which roundings may decide."""
    for e in unmarked(cond):
        if isinstance(e, Op) and e.op in RELATIONAL and e.args[0].dtype.is_float:
            yield e


class Known:
    """What is known about the values of a program, by the structure of its definitions."""

    def __init__(self, program: Spec) -> None:
        self.made = {d.name: d.expr for d in program.definitions}
        self.precise: dict[str, bool] = {}
        self.positive: dict[str, bool] = {}

    def is_site(self, e: Expr) -> bool:
        """Whether ``e`` has a singular point that an imprecise value may come close to."""
        match e:
            case Reduce(cond=cond):
                return cond is not None and self.decides(cond)
            case Op(op="select", args=(cond, _, _)):
                return e.dtype.is_float and self.decides(cond)
            case Op(args=args) if e.dtype.is_float and (at := singular(e)) is not None:
                own = distance(at, e)
                precise = self.is_precise(own) if own in args else all(map(self.is_exact, args))
                return not precise or self.is_quotient(e)
        return False

    def is_quotient(self, e: Expr) -> bool:
        """Whether ``e`` divides an imprecise value by a precise one that may be 0, where both may be 0 together."""
        if not isinstance(e, Op) or e.op != "div":
            return False
        x, y = e.args
        return self.is_precise(y) and not self.is_precise(x) and not self.is_positive(y)

    def decides(self, cond: Expr) -> bool:
        """Whether roundings may decide about ``cond``."""
        return any(not self.is_exact(x) for c in comparisons(cond) for x in c.args)

    def is_exact(self, e: Expr) -> bool:
        """Whether no rounding lies between the inputs and ``e``."""
        return not any(inexact(n) or (isinstance(n, Load) and n.buffer in self.made) for n in walk(e))

    def is_precise(self, e: Expr) -> bool:
        """Whether the relative error of each element of ``e`` is a few roundings."""
        if self.is_exact(e):
            return True
        match e:
            case Load(buffer=name):
                if name not in self.made:
                    return True  # an input, at a position that imprecise values may decide
                if name not in self.precise:
                    self.precise[name] = True  # of a recurrence, which has a bound of its own
                    self.precise[name] = self.is_precise(self.made[name])
                return self.precise[name]
            case Reduce(op="sum", body=x):
                return self.is_positive(x) and self.is_precise(x)
            case Reduce(body=x):
                return self.is_precise(x)
            case Op(op="add", args=args):
                return all(self.is_positive(x) and self.is_precise(x) for x in args)
            case Op(op=op, args=args):
                return op in _PRECISE or (op in _KEEP and all(self.is_precise(x) for x in args))
        return False

    def is_positive(self, e: Expr) -> bool:
        """Whether ``e`` is known to be no less than 0."""
        match e:
            case Const(value=value):
                return bool(value >= 0)
            case Var() | Param():
                return True
            case Load(buffer=name):
                if name not in self.made:
                    return False
                if name not in self.positive:
                    self.positive[name] = True  # the earlier values of a recurrence, by induction
                    self.positive[name] = self.is_positive(self.made[name])
                return self.positive[name]
            case Reduce(op="sum" | "prod" | "max" | "min", body=x):
                return self.is_positive(x)
            case Op(op="mul", args=(a, b)) if a == b:
                return True
            case Op(op="pow", args=(_, Const(value=n))) if n % 2 == 0:
                return True
            case Op(op="max", args=args):
                return any(map(self.is_positive, args))
            case Op(op="select", args=(_, a, b)):
                return self.is_positive(a) and self.is_positive(b)
            case Op(op=op, args=args):
                return op in _POSITIVE or (op in _SIGN_OF_ALL and all(map(self.is_positive, args)))
        return False
