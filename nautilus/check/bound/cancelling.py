"""Outputs whose largest errors are without a bound, because terms cancel under a root, in a divisor or in a logarithm.

The relative error of ``1 / (x + y + z)`` is that of the sum, which is as large as the terms are in comparison with it.
The more elements an output has, the closer to 0 is the least of its sums, and a norm over all elements is that of the
few largest errors.  A figure from sampled elements then says nothing about all of them.  :func:`may_cancel` finds such
programs by their structure.  They are sampled at more elements, and where the largest errors decide, the figure is
stated without them: without a share of the elements, or, for an output of few elements, on most inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from nautilus.check.bound.bound import Bound
from nautilus.check.bound.errors import inexact
from nautilus.check.bound.probes import FEW
from nautilus.check.compare import norm, without_largest
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Param, Reduce, Var, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.frontend.spec import Spec

#: The share of elements, and of inputs, that a figure leaves out.
ELEMENTS: Final = 1 / 100
INPUTS: Final = 1 / 16
_LEAST: Final = 4  # elements that are left out, where the output has so many
_MARGIN: Final = 1.5  # of the figure
_DECIDES: Final = 2.0  # the figure with the largest errors, in units of that without them

#: Functions with a pole or a root at 0 of an argument, and its position.
_AT_ZERO: Final = {"div": 1, "rcp": 0, "log": 0, "log2": 0, "sqrt": 0, "rsqrt": 0, "cbrt": 0, "pow": 0}
#: Functions whose derivative is unbounded elsewhere.
_ELSEWHERE: Final = frozenset({"log1p", "tan", "asin", "acos", "acosh", "atanh"})
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
    known = _Known(program)
    nodes = [e for d in program.definitions for e in walk(d.expr) if isinstance(e, Op) and e.dtype.is_float]
    at_zero = (e.args[_AT_ZERO[e.op]] for e in nodes if e.op in _AT_ZERO)
    return any(not known.is_precise(x) for x in at_zero) or any(
        not known.is_exact(x) for e in nodes if e.op in _ELSEWHERE for x in e.args
    )


class _Known:
    """What is known about the values of a program, by the structure of its definitions."""

    def __init__(self, program: Spec) -> None:
        self.made = {d.name: d.expr for d in program.definitions}
        self.precise: dict[str, bool] = {}

    def is_exact(self, e: Expr) -> bool:
        """Whether no rounding lies between the inputs and ``e``."""
        return not any(inexact(n) or (isinstance(n, Load) and n.buffer in self.made) for n in walk(e))

    def is_precise(self, e: Expr) -> bool:
        """Whether the relative error of each element of ``e`` is a few roundings."""
        if self.is_exact(e):
            return True
        match e:
            case Load(buffer=name):
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
                return name in self.made and self.is_positive(self.made[name])
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


@dataclass(frozen=True, slots=True)
class Sample:
    """Errors of an output of ``size`` elements.

    ``errors``: for each choice of errors, those of the elements on each input.  ``values``: the output on each input.
    """

    errors: Sequence[Sequence[Array]]
    values: Sequence[Array]
    size: int

    @property
    def per_input(self) -> bool:
        """Whether the output has so few elements that inputs are left out instead of elements."""
        return self.size < FEW

    @property
    def share(self) -> float:
        """The share that is left out."""
        return INPUTS if self.per_input else max(ELEMENTS, min(1 / 2, _LEAST / self.size))

    def figures(self) -> tuple[float, float]:
        """The largest relative error of everything, and without what is left out."""
        found = [_both(e, self.values, self.share, self.per_input) for e in self.errors]
        return max(f[0] for f in found), max(f[1] for f in found)


def bound(samples: Sequence[Sample], unit: float) -> Bound | None:
    """The bound of an output without its largest errors, by the sample in which they are largest in comparison with
    the others; None where they decide in none."""
    found = [(s, *s.figures()) for s in samples]
    sample, full, rest = max(found, key=lambda f: f[1] / f[2] if f[2] > 0.0 else 0.0)
    if full <= _DECIDES * rest:
        return None
    stated = _MARGIN * rest + unit
    return Bound(stated, rare_inputs=sample.share) if sample.per_input else Bound(stated, left_out=sample.share)


def _both(errors: Sequence[Array], values: Sequence[Array], share: float, per_input: bool) -> tuple[float, float]:
    """The relative error of everything, and without a share of the elements or of the inputs."""
    if per_input:
        ratios = np.array([_ratio(e, x) for e, x in zip(errors, values, strict=True)])
        return float(ratios.max()), float(np.sort(ratios)[: len(ratios) - max(1, int(share * len(ratios)))].max())
    e, x = (np.concatenate([np.ravel(a) for a in arrays]) for arrays in (errors, values))
    return without_largest(e, x, 0.0), without_largest(e, x, share)


def _ratio(error: Array, values: Array) -> float:
    size = norm(values)
    return norm(error) / size if size > 0.0 and not np.isinf(error).any() else float("inf" if np.any(error) else 0)
