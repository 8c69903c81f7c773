"""The error bound that the compiler states for a kernel.

The bound of an output is a relative Frobenius norm, ``|out - ref| / |ref|``, against the Spec in
float64.  Integers and bools are exact.  The model is of first order and uses the Spec alone.  ``u`` is the
unit roundoff of the compute type (2^-24 for f32):

* Every operation adds its own error to the errors of its operands (sums and differences: the root of their sum of
  squares; products and quotients: their sum).  Its own error is ``u`` where it is correctly rounded, else the ulps
  that its record in ``core.functions`` states for the call and, under ``--precision fast``, for its approximations
  (PTX ISA, "Floating point instructions": ``ex2.approx``, ``rcp.approx``, ...).
* A function multiplies its operands' errors by its record's ``condition``.  The factor of ``exp(x)`` is 16, because
  the model assumes that |x| is at most 16.
* A sum of ``n`` terms adds ``2 sqrt(n) u``, because rounding errors are independent and the blocked order of
  a kernel keeps partial sums short.
* Under ``--precision fast``, ``tanh`` and ``erf`` add 2^-11 and 2^-10 where all dependent outputs have 16 bits or
  fewer (``vr_tile.passes.hardware_math``).  ``sigmoid`` adds the error of ``exp2`` of an argument up to 16.
* Under ``--precision fast``, a computed f32 factor of a sum of products adds the unit roundoff of the 16-bit or 8-bit
  tensor that it is multiplied by.  Every cast in the spec adds the unit roundoff of its type.
* Under ``--precision fast``, a sum of products of 8-bit floats adds n 2^-14, with n at most 128: each wgmma loses up
  to 2^-13 of the partial sum, and the loss grows with the number n of accumulating MMAs (``ma_tile.ir.async_ops``).
* The total is doubled, except for the error of ``tanh`` and ``erf``, and the output adds its own unit roundoff once.

The model assumes inputs of ordinary size; ``check.reference`` measures the error for given inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod, sqrt

import numpy as np

from nautilus.core.expr.nodes import COMPARISONS, Const, Expr, Load, Op, Reduce, children, rewrite, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.types import DType
from nautilus.frontend.spec import Spec

U32 = 2.0**-24

#: function -> relative error of its approximation for narrow outputs under ``--precision fast``
_HARDWARE: Mapping[str, float] = {
    f.name: a.relative for f in FUNCTIONS.values() for a in f.approximations if a.narrow
}  # fmt: skip
_INEXACT = frozenset(f.name for f in FUNCTIONS.values() for a in f.approximations if a.form_error)
SHORT_DEPTH = 128  # accumulating wgmmas of 8-bit floats, as in ``ma_tile.ir.async_ops``
_RUNTIME = 65536  # terms of a sum over a size known only at launch


@dataclass(frozen=True, slots=True)
class Bound:
    """The bound of an output; ``relative`` is 0 for an exact output.

    ``ties``: the output has integers or bools that depend on computed floats.  ``hardware``: the part of ``relative``
    from hardware approximations of ``tanh`` and ``erf``.  ``form``: one of these also differs from the function over
    the reals.  ``short``: the output depends on wgmmas of 8-bit floats.
    """

    relative: float
    ties: bool = False
    hardware: float = 0.0
    short: bool = False
    form: bool = False

    @property
    def text(self) -> str:
        if self.relative == 0.0:
            return "exact" + (", but where computed numbers tie" if self.ties else "")
        return f"{self.relative:.1e}"


def unit(dtype: DType) -> float:
    """Unit roundoff of a float type."""
    return float(2.0 ** -(dtype.mantissa + 1))


def stated(spec: Spec, precision: str = "fast") -> dict[str, Bound]:
    """The bound of every output of ``spec``."""
    done: dict[bool, dict[str, float]] = {False: {}, True: {}}  # True: with hardware approximations
    out: dict[str, Bound] = {}
    for d in spec.definitions:
        for narrow in (False, True):
            done[narrow][d.name] = _Model(done[narrow], precision, narrow).of(d.expr)
        if not d.is_output:
            continue
        dtype = d.stored
        error = done[False][d.name]
        hardware = done[True][d.name] - error if is_narrow(dtype) else 0.0
        if dtype.is_float:
            rounding = unit(dtype) if dtype.mantissa < d.expr.dtype.mantissa else 0.0
            done[False][d.name] = done[True][d.name] = error + hardware + rounding
            short = precision == "fast" and any(_has_short_sum(x.expr) for x in spec.definitions)
            form = hardware > 0.0 and any(_has_inexact_form(x.expr) for x in spec.definitions)
            out[d.name] = Bound(2.0 * error + hardware + max(rounding, unit(dtype)), False, hardware, short, form)
        else:
            out[d.name] = Bound(0.0, ties=error > 0.0)
    return {t.name: out[t.name] for t in spec.outputs}


def is_narrow(dtype: DType) -> bool:
    """Whether rounding to ``dtype`` has at least the error of the hardware's approximations."""
    return dtype.is_float and dtype.bits <= 16


def header(spec: Spec, precision: str = "fast") -> tuple[str, ...]:
    """Lines for the kernel's header comment."""
    lines = ["Error bound, relative Frobenius norm against float64 (nautilus.frontend.error_bound):"]
    return (*lines, *(f"  {name}: {b.text}" for name, b in stated(spec, precision).items()))


class _Model:
    """Relative errors of the nodes of one definition; ``known`` contains those of earlier definitions."""

    def __init__(self, known: Mapping[str, float], precision: str, narrow: bool) -> None:
        self.known = known
        self.fast = precision == "fast"
        self.hardware = _HARDWARE if self.fast and narrow else {}
        self.done: dict[int, float] = {}

    def of(self, e: Expr) -> float:
        """The error of ``e``; children first, without recursion."""
        stack = [(e, False)]
        while stack:
            node, ready = stack.pop()
            if id(node) in self.done:
                continue
            kids = children(node)
            if kids and not ready:
                stack.append((node, True))
                stack.extend((k, False) for k in kids)
                continue
            self.done[id(node)] = self.node(node)
        return self.done[id(e)]

    def node(self, e: Expr) -> float:
        u = 0.0 if not e.dtype.is_float else unit(e.dtype.compute)
        match e:
            case Const(value=value) if e.dtype.is_float:
                return u if float(np.float32(value)) != float(value) else 0.0
            case Load(buffer=buffer):
                return self.known.get(buffer, 0.0)
            case Op(op="cast", args=(x,)):
                rounds = e.dtype.is_float and (not x.dtype.is_float or e.dtype.mantissa < x.dtype.mantissa)
                return self.done[id(x)] + (unit(e.dtype) if rounds and e.dtype.mantissa < 23 else 0.0)
            case Op(op=op, args=args):
                return self.operation(op, [self.done[id(a)] for a in args], u)
            case Reduce(op=op, body=body, axes=axes, cond=cond):
                terms = prod(a.extent if isinstance(a.extent, int) else _RUNTIME for a in axes)
                error = self.reduction(op, body, terms, u)
                # an error in a condition changes integer results; floats are assumed to be continuous
                decided = 0.0 if cond is None or e.dtype.is_float else self.done[id(cond)]
                return max(error, decided)
        return 0.0

    def operation(self, op: str, errors: list[float], u: float) -> float:
        if op in COMPARISONS:
            return max(errors)
        own = max(instruction_error(op, u, self.fast), self.hardware.get(op, 0.0))
        condition = FUNCTIONS[op].condition
        match op:
            case "add" | "sub":
                return sqrt(sum(e * e for e in errors)) + own
            case "mul" | "div" | "fma":
                return sum(errors) + own
        if condition > 1.0:
            return condition * (max(errors) + u) + own
        return max(errors) + own

    def reduction(self, op: str, body: Expr, terms: int, u: float) -> float:
        error = self.done[id(body)]
        match op:
            case "sum":
                short = min(terms, SHORT_DEPTH) * 2.0**-14 if _is_short(body) else 0.0
                return error + 2.0 * sqrt(terms) * u + (self.narrowing(body) + short if self.fast else 0.0)
            case "prod":
                return terms * error + 2.0 * sqrt(terms) * u
            case _:
                return error

    def narrowing(self, body: Expr) -> float:
        """Unit roundoff of the narrow tensor by which a computed factor of the product ``body`` is multiplied."""
        factors = _factors(body)
        narrow = [t for t in map(_stored, factors) if t is not None and t.is_float and t.bits <= 16]
        computed = any(_stored(f) is None and f.dtype.is_float for f in factors)
        computed |= any(t is DType.F32 for t in map(_stored, factors))
        return max(map(unit, narrow)) if narrow and computed else 0.0


@cache
def instruction_error(op: str, u: float, fast: bool) -> float:
    """The largest relative error of the forms of ``op`` in code where the unit roundoff is ``u``."""
    f = FUNCTIONS[op]
    if u < U32:
        return 2.0 * f.ulps[1] * u
    return 2.0 * u * max([f.ulps[0], *(a.ulps for a in f.approximations if fast)])


def _factors(body: Expr) -> list[Expr]:
    """The factors of ``body`` without constants."""
    factors: list[Expr] = []
    stack = [body]
    while stack:
        node = stack.pop()
        if isinstance(node, Op) and node.op in ("mul", "select", "neg"):
            stack.extend(node.args)
        elif not isinstance(node, Const):
            factors.append(node)
    return factors


def _is_short(body: Expr) -> bool:
    """Whether the sum of ``body`` may be computed by wgmmas of 8-bit floats."""
    stored = [_stored(f) for f in _factors(body)]
    return sum(d is not None and d.is_float8 for d in stored) > 1


def _has_short_sum(e: Expr) -> bool:
    return any(isinstance(x, Reduce) and x.op == "sum" and _is_short(x.body) for x in walk(e))


def _has_inexact_form(e: Expr) -> bool:
    """Whether ``--precision fast`` replaces a function in ``e`` by one that differs from it over the reals."""
    return any(isinstance(x, Op) and x.op in _INEXACT for x in walk(e))


def _stored(e: Expr) -> DType | None:
    """The storage type of a plain load, else None."""
    while isinstance(e, Op) and e.op == "cast":
        e = e.args[0]
    return e.dtype if isinstance(e, Load) else None


def approximated(spec: Spec) -> tuple[Spec, Spec]:
    """The spec with the error of every hardware approximation added: with a positive sign, and with varying signs."""

    def off(e: Expr, each: bool) -> Expr | None:
        if not (isinstance(e, Op) and e.op in _HARDWARE and e.dtype is DType.F32):
            return None
        size: Expr = Const(_HARDWARE[e.op], e.dtype)
        if each:  # the sign of a fast oscillation is pseudo-random, but a function of the argument as the error is
            phase = Op("sin", (Op("mul", (e.args[0], Const(54321.0, e.dtype)), e.dtype),), e.dtype)
            size = Op("mul", (size, Op("sign", (phase,), e.dtype)), e.dtype)
        return Op("add", (e, Op("mul", (e, size), e.dtype)), e.dtype)

    def changed(each: bool) -> Spec:
        return replace(
            spec, definitions=tuple(replace(d, expr=rewrite(d.expr, lambda e: off(e, each))) for d in spec.definitions)
        )

    return changed(False), changed(True)
