"""The error bound that the compiler states for a kernel.

The bound of an output is a relative Frobenius norm, ``|out - ref| / |ref|``, against the Spec in
float64.  Integers and bools are exact.  The model, first order, from the Spec alone, with ``u`` the
unit roundoff of the compute type (2^-24 for f32):

* every operation adds its own error on top of its operands' (sums and differences: their root of squares;
  products and quotients: their sum): ``u`` where it is correctly rounded, else the ulps that its record in
  ``core.functions`` states for the call and, under ``--precision fast``, for its approximations (PTX ISA,
  "Floating point instructions": ``ex2.approx``, ``rcp.approx``, ...);
* a function multiplies its operands' errors by its record's ``condition``: ``exp(x)`` turns an error of ``x``
  relative to ``x`` into 16 times as much, because |x| is taken as 16;
* a sum of ``n`` terms adds ``2 sqrt(n) u``: rounding errors are independent, and the blocked order of
  a kernel keeps partial sums short;
* under ``--precision fast``, ``tanh`` and ``erf`` that only outputs of 16 bits or fewer depend on add 2^-11 and
  2^-10 (``vr_tile.passes.hardware_math``), and ``sigmoid`` what ``exp2`` of an argument up to 16 adds;
* a computed f32 factor that meets a 16-bit or 8-bit tensor inside a product-sum adds that type's
  unit roundoff (``--precision fast`` only), and so does every cast that the user wrote;
* a sum of products of 8-bit floats adds n 2^-14, n at most 128 (``--precision fast`` only): warpgroup products
  lose up to 2^-13 of the partial sum at each, which grows along a chain of n (``ma_tile.ir.async_ops``);
* all of this but the error of ``tanh`` and ``erf`` is doubled, and the output adds its own unit roundoff once.

The model takes inputs of ordinary size; what given inputs do is measured (``check.reference``).
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

#: what ``--precision fast`` makes of functions for narrow outputs, relative
_HARDWARE: Mapping[str, float] = {
    f.name: a.relative for f in FUNCTIONS.values() for a in f.approximations if a.narrow
}  # fmt: skip
_INEXACT = frozenset(f.name for f in FUNCTIONS.values() for a in f.approximations if a.form_error)
SHORT_DEPTH = 128  # ``ma_tile.ir.async_ops`` has the same number, for the same reason
_RUNTIME = 65536  # terms of a sum over a size known only at launch


@dataclass(frozen=True, slots=True)
class Bound:
    """``relative`` is 0 for an exact output; ``ties``: integers or bools that computed floats decide.

    ``hardware`` is the part of ``relative`` that hardware approximations of ``tanh`` and ``erf`` have; ``form``: some
    of these differ from the function over the reals too; ``short``: warpgroup products of 8-bit floats are among what
    the output is computed from.
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
    done: dict[bool, dict[str, float]] = {False: {}, True: {}}  # with hardware approximations: True
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
    """An output type whose own rounding is as coarse as the hardware's approximations."""
    return dtype.is_float and dtype.bits <= 16


def header(spec: Spec, precision: str = "fast") -> tuple[str, ...]:
    """Lines for the kernel's header comment."""
    lines = ["Error bound, relative Frobenius norm against float64 (nautilus.frontend.error_bound):"]
    return (*lines, *(f"  {name}: {b.text}" for name, b in stated(spec, precision).items()))


class _Model:
    """Relative errors of the nodes of one definition; ``known`` has those of earlier definitions."""

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
                # a condition on computed numbers picks other integers; floats are taken as continuous
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
        """Unit roundoff of the narrow tensor that a computed factor of the product ``body`` meets."""
        factors = _factors(body)
        narrow = [t for t in map(_stored, factors) if t is not None and t.is_float and t.bits <= 16]
        computed = any(_stored(f) is None and f.dtype.is_float for f in factors)
        computed |= any(t is DType.F32 for t in map(_stored, factors))
        return max(map(unit, narrow)) if narrow and computed else 0.0


@cache
def instruction_error(op: str, u: float, fast: bool) -> float:
    """The largest relative error of the forms in which code computes ``op`` where the unit roundoff is ``u``."""
    f = FUNCTIONS[op]
    if u < U32:
        return 2.0 * f.ulps[1] * u
    return 2.0 * u * max([f.ulps[0], *(a.ulps for a in f.approximations if fast)])


def _factors(body: Expr) -> list[Expr]:
    """What is multiplied in ``body``, constants left out."""
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
    """The sum of ``body`` may be made of warpgroup products of 8-bit floats."""
    stored = [_stored(f) for f in _factors(body)]
    return sum(d is not None and d.is_float8 for d in stored) > 1


def _has_short_sum(e: Expr) -> bool:
    return any(isinstance(x, Reduce) and x.op == "sum" and _is_short(x.body) for x in walk(e))


def _has_inexact_form(e: Expr) -> bool:
    """Whether ``--precision fast`` computes a function in ``e`` by a form that is another function over the reals."""
    return any(isinstance(x, Op) and x.op in _INEXACT for x in walk(e))


def _stored(e: Expr) -> DType | None:
    """The storage type of a plain read, else None."""
    while isinstance(e, Op) and e.op == "cast":
        e = e.args[0]
    return e.dtype if isinstance(e, Load) else None


def approximated(spec: Spec) -> tuple[Spec, Spec]:
    """The spec with what the hardware approximates off by its error: upwards, and in a direction of its own each."""

    def off(e: Expr, each: bool) -> Expr | None:
        if not (isinstance(e, Op) and e.op in _HARDWARE and e.dtype is DType.F32):
            return None
        size: Expr = Const(_HARDWARE[e.op], e.dtype)
        if each:  # the sign of a fast oscillation: as good as random, and a function of the argument as the error is
            phase = Op("sin", (Op("mul", (e.args[0], Const(54321.0, e.dtype)), e.dtype),), e.dtype)
            size = Op("mul", (size, Op("sign", (phase,), e.dtype)), e.dtype)
        return Op("add", (e, Op("mul", (e, size), e.dtype)), e.dtype)

    def changed(each: bool) -> Spec:
        return replace(
            spec, definitions=tuple(replace(d, expr=rewrite(d.expr, lambda e: off(e, each))) for d in spec.definitions)
        )

    return changed(False), changed(True)
