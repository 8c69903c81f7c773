"""``factor``: factors and divisors that do not depend on the summed axes leave the sum.

``sum_j(x_j * f / g)`` is ``sum_j(x_j) * f / g`` where ``f`` and ``g`` do not depend on ``j``.  Over an
empty domain the left side is 0 whatever ``f`` and ``g`` are, while the right side can be ``0 / 0``.
So, unless the factors are finite for certain:

* the domain is proved to hold a point everywhere (no guard, or one whose closed form is ``true``); or
* the result is ``select(c, sum * f / g, 0)`` with ``c`` the closed form of "some j passes the guard"
  (:mod:`nautilus.scalar.analysis.domains`); or
* an auxiliary ``any`` over the guard alone says so, where there is no closed form; or over its other alternatives,
  where the first one has a closed form.

A divisor leaves the sum only if it is not 0, or if a factor of the element is 0 wherever it is: ``x_j / 0`` is NaN
where ``x_j`` is 0, and elements of both signs make inf - inf, but the sum of all ``x_j`` divided by 0 is infinite.
:mod:`nautilus.scalar.analysis.value_range` proves either: the range of the divisor excludes 0, or the quotient of the
two has a bound, as that of an element by the sum of all has.

The exponential of a difference from a logarithm has a divisor, ``exp(x - log(z)) = exp(x) / z``, which leaves the sum
by the same rule where ``z`` is not negative: probabilities that subtract the logarithm of a sum of exponentials are
those of a softmax.

A divisor that stays in the sum does not hide a product of matrices: ``sum_j(a_ij * b_jk / g_j)`` becomes
``sum_j(a_ij * (b_jk / g_j))``, and ``sum_j(b_jk / g_ij)`` becomes ``sum_j((1 / g_ij) * b_jk)`` where ``1 / g_ij`` is
proved not to overflow.

Factors that are read leave :data:`CHAIN` sums in a row, and the next one over their elements keeps its own.  In a chain
of normalised products, ``y = A x; x = y / norm(y)`` step after step, the sums would else grow without bound, and so
would the factors that each of them takes from all sums before it.  A function between two sums ends a chain, as the
exponential of a softmax does.

The sum keeps its name where it is a temp, and its readers take the factor; an output's sum moves into
a temp of its own.  Only floats: integer division does not distribute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from types import MappingProxyType
from typing import Final

from nautilus.core.buffers import Buffer, Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import (
    Const,
    Expr,
    Load,
    Op,
    Param,
    Reduce,
    Var,
    children,
    free_vars,
    identity,
    loads,
    rewrite,
    substitute,
    walk,
)
from nautilus.core.expr.products import (
    factors,
    matrix_products,
    product_of,
    signed_terms,
    strip_conversions,
    strip_lossless_conversions,
)
from nautilus.core.expr.structural import LOGARITHMS
from nautilus.core.functions.intervals import magnitude
from nautilus.core.index.simplify import TRUE
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.domains import first_alternative, nonempty
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.passes.inline import replace_reads
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of

_LEAST_DIVISOR = 2.0**-100  # the inverse of a divisor is not near the end of f32


CHAIN: Final = 2  # sums in a row that factors leave


@dataclass(frozen=True, slots=True)
class Factor(CertifyingPass[Program]):
    """Take invariant factors out of every sum; ``schedule.factor`` False: none."""

    schedule: Schedule | None = None

    name = "factor"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with sums of what varies only, and a certificate for each sum."""
        certificates: list[Certificate] = []
        if self.schedule is None or self.schedule.factor:
            defs = find_defs(program)
            bare: dict[str, int] = {}  # the sums that a factor which is read has left, by how many in a row
            for name in [k.name for k in program.kernels]:
                if (found := defs.get(name)) is None:
                    continue
                d, copied = _with_logarithms(found, defs)
                split = split_sum(d, defs, bare)
                if split is None:
                    continue
                certificates += copied
                if split.up or split.down:
                    program = _take_out(program, d, split, certificates)
                    if any(map(loads, (*split.up, *split.down))) and d.buffer.space is Space.TEMP:
                        bare[d.name] = 1 + _before(d, bare)
                else:
                    program = _with_element(program, d, split, certificates)
                defs = find_defs(program)
        return program, tuple(certificates)


@dataclass(frozen=True, slots=True)
class Split:
    """A sum's element as ``varying * product(up) / product(down)``; ``up``, ``down`` are invariant."""

    varying: Expr
    up: tuple[Expr, ...]
    down: tuple[Expr, ...]

    def around(self, total: Expr) -> Expr:
        """The factors applied to ``total``."""
        for f in self.up:
            total = Op("mul", (total, f), total.dtype)
        for g in self.down:
            total = Op("div", (total, g), total.dtype)
        return total


def _before(d: Def, bare: Mapping[str, int]) -> int:
    """The sums in a row that a factor has left and whose last one is a factor of ``d``'s element."""
    read = (x for x in map(strip_conversions, quotient(d.value)[0]) if isinstance(x, Load))
    return max((bare.get(x.buffer, 0) for x in read), default=0)


def split_sum(d: Def, defs: Mapping[str, Def], bare: Mapping[str, int] = MappingProxyType({})) -> Split | None:
    """The invariant factors of ``d``'s element, or None where there is nothing to take out and it stays as it is.

    ``bare``: the sums that a factor which is read has left, by how many in a row.
    """
    if d.op != "sum" or not d.value.dtype.is_float:
        return None
    names = {a.name for a in d.red}
    ranges = Ranges(defs, d.axes, d.guard)
    up, down = _without_logarithms(*quotient(d.value), names, ranges)
    up = [f for f in up if not (isinstance(f, Const) and f.value == 1.0)]
    again = _before(d, bare) >= CHAIN
    fixed_up = tuple(f for f in up if not free_vars(f) & names and not (again and loads(f)))
    moving = [f for f in up if f not in fixed_up]
    fixed_down = tuple(g for g in down if not (again or free_vars(g) & names) and divides(g, moving, ranges))
    below = [g for g in down if g not in fixed_down]
    if not (moving or below):
        return None
    product = _matrix_product(moving, below, d, ranges) if below else None
    hidden = product is not None and not any(matrix_products(factors(d.value), [a.name for a in d.par]))
    if not (fixed_up or fixed_down or hidden):
        return None
    if product is None:
        product = _product(moving, d.value.dtype)
        for g in below:
            product = Op("div", (product, g), product.dtype)
    return Split(product, fixed_up, fixed_down)


def _matrix_product(moving: Sequence[Expr], below: Sequence[Expr], d: Def, ranges: Ranges) -> Expr | None:
    """The product of ``moving`` over that of ``below`` as one of matrices; None where it is none.

    A divisor stands under a factor that has its axes, a computed one if there is one; else it is a factor ``1 / g``.
    """
    parts = list(moving)
    for g in below:
        fits = [k for k, f in enumerate(parts) if free_vars(g) <= free_vars(f)]
        fits.sort(key=lambda k: isinstance(strip_conversions(parts[k]), Load))
        if fits:
            parts[fits[0]] = Op("div", (parts[fits[0]], g), g.dtype)
        elif magnitude(ranges.of(g))[0] >= _LEAST_DIVISOR:
            parts.append(Op("div", (Const(1.0, g.dtype), g), g.dtype))
        else:
            return None
    found = any(matrix_products(parts, [a.name for a in d.par]))
    return product_of(parts) if found else None


def divides(g: Expr, moving: Sequence[Expr], ranges: Ranges) -> bool:
    """Whether ``g`` is not 0, unless one of the factors ``moving`` is 0 as well (module docstring)."""
    low, high = ranges.of(g)
    if low > 0.0 or high < 0.0:
        return True
    quotients = (ranges.of(Op("div", (strip_lossless_conversions(x), g), g.dtype)) for x in moving)
    return any(isfinite(low) and isfinite(high) for low, high in quotients)


def quotient(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """The operands of a product, above and below its division bars; a sign is the factor -1."""
    match e:
        case Op(op="mul", args=(a, b)):
            (u, d), (v, f) = quotient(a), quotient(b)
            return u + v, d + f
        case Op(op="div", args=(a, b)):
            (u, d), (v, f) = quotient(a), quotient(b)
            return u + f, d + v
        case Op(op="neg", args=(a,)):
            u, d = quotient(a)
            return [*u, Const(-1.0, e.dtype)], d
        case Op(op="rcp", args=(a,)):
            u, d = quotient(a)
            return d or [Const(1.0, e.dtype)], u
    return [e], []


def _without_logarithms(
    up: Sequence[Expr], down: Sequence[Expr], names: Collection[str], ranges: Ranges
) -> tuple[list[Expr], list[Expr]]:
    """The factors ``up`` over ``down``, where subtracted logarithms of invariants in exponents are divisors."""
    above, below = list[Expr](), list(down)
    for f in up:
        if not (isinstance(f, Op) and f.op in LOGARITHMS):
            above.append(f)
            continue
        terms = signed_terms(f.args[0])
        taken = [e for e, less in terms if less and _is_logarithm(e, f) and not free_vars(e).intersection(names)]
        left = Op(f.op, (_sum([x for x in terms if x[0] not in taken], f.dtype),), f.dtype, f.span)
        divisors = [z for e in taken for z in children(e)]
        if taken and all(ranges.of(z)[0] >= 0.0 and divides(z, [left], ranges) for z in divisors):
            above.append(left)
            below += divisors
        else:
            above.append(f)
    return above, below


def _with_logarithms(d: Def, defs: Mapping[str, Def]) -> tuple[Def, list[Certificate]]:
    """``d`` with the logarithms in place of loads in exponents, and a certificate if there are any.

    Such a load is of an output that is not rounded, as a ``logsumexp`` that is stored for a backward pass.
    """
    copies: dict[Expr, Expr] = {}
    for f in quotient(d.value)[0] if d.op == "sum" else []:
        for e, _ in signed_terms(f.args[0]) if isinstance(f, Op) and f.op in LOGARITHMS else []:
            made = defs.get(e.buffer) if isinstance(e, Load) and e.dtype is DType.F32 else None
            if made is None or made.op is not None or made.guard is not None or made.at is not None:
                continue
            if made.value.dtype is DType.F32 and any(_is_logarithm(x, f) for x, _ in signed_terms(made.value)):
                copies[e] = substitute(made.value, {a.name: i for a, i in zip(made.par, children(e), strict=True)})
    if not copies:
        return d, []
    value = rewrite(d.value, copies.get)
    bindings = tuple((f"{ld.buffer}[...]", e) for ld, e in copies.items() if isinstance(ld, Load))
    proof = "each element is defined so, at every index"
    return replace(d, value=value), [Certificate("inline", d.name, d.value, value, bindings, (), (), proof, d.span)]


def _is_logarithm(e: Expr, exponential: Expr) -> bool:
    """Whether ``e`` is a logarithm to the base of ``exponential``."""
    return isinstance(e, Op) and isinstance(exponential, Op) and e.op == LOGARITHMS[exponential.op]


def _sum(terms: Sequence[tuple[Expr, bool]], dtype: DType) -> Expr:
    total: Expr | None = None
    for e, negative in sorted(terms, key=lambda x: x[1]):  # a difference rather than a sum with a negation
        if total is None:
            total = Op("neg", (e,), dtype) if negative else e
        else:
            total = Op("sub" if negative else "add", (total, e), dtype)
    return Const(0.0, dtype) if total is None else total


def _product(factors: Sequence[Expr], dtype: DType) -> Expr:
    """The product of ``factors``; a square where each occurs an even number of times, which has half the operations."""
    count = Counter(factors)
    if len(factors) > 2 and all(n % 2 == 0 for n in count.values()):
        root = _product([f for f, n in count.items() for _ in range(n // 2)], dtype)
        return Op("mul", (root, root), dtype)
    total: Expr | None = None
    for f in factors:
        total = f if total is None else Op("mul", (total, f), dtype)
    return Const(1.0, dtype) if total is None else total


def certainly_finite(e: Expr) -> bool:
    """Whether ``e`` is finite whatever the inputs are: it has no tensor, and no scalar of floats, which may be inf."""
    return all(
        (isinstance(n, Param) and n.dtype.is_int) or (isinstance(n, Const) and abs(n.value) < float("inf")) or _tame(n)
        for n in walk(e)
    )


def _tame(n: Expr) -> bool:
    """Whether ``n`` is an operation that keeps numbers of usual magnitude finite."""
    return isinstance(n, Op) and n.op in ("neg", "mul", "add", "sub", "cast", "abs", "min", "max")


def _take_out(program: Program, d: Def, split: Split, certificates: list[Certificate]) -> Program:
    raw = inner_sum(program, d, split.varying)
    finite = all(certainly_finite(f) for f in split.up) and not split.down
    cond, others = TRUE if finite else nonempty(d), None
    added: list[Def] = []
    if cond is None:
        cond, others = first_alternative(d)
    if cond is None or (cond != TRUE and others is not None):
        auxiliary = _any(program, replace(d, guard=others), raw.name)
        added.append(auxiliary)
        found = Load(auxiliary.name, _index(auxiliary), DType.BOOL, d.span)
        cond = found if cond is None else calc("or", cond, found)
    load = Load(raw.name, _index(raw), raw.buffer.dtype, d.span)
    zero = identity("sum", d.value.dtype)
    value = split.around(load)
    if cond != TRUE:
        value = Op("select", (cond, value, zero), value.dtype, d.span)
    holds = Reduce("any", d.red, d.guard, TRUE, DType.BOOL, d.span) if added else cond  # what the load of it means
    certificates.append(_certificate(d, split, holds, finite, bool(added)))
    return with_inner_sum(program, d, raw, value, added)


def _with_element(program: Program, d: Def, split: Split, certificates: list[Certificate]) -> Program:
    certificates.append(_certificate(d, split, TRUE, True, False))
    made = kernel_of(replace(d, value=split.varying))
    return replace(program, kernels=tuple(made if k.name == d.name else k for k in program.kernels))


def inner_sum(program: Program, d: Def, value: Expr) -> Def:
    """The sum of ``value`` over the domain of ``d``: a temp that has the name of ``d``, if ``d`` is a temp as well."""
    name = d.name if d.buffer.space is Space.TEMP else fresh_name(program, f"{d.name}_acc")
    return replace(d, name=name, buffer=replace(d.buffer, name=name, space=Space.TEMP), value=value)


def with_inner_sum(program: Program, d: Def, raw: Def, value: Expr, added: Sequence[Def]) -> Program:
    """``program`` where ``d`` is ``value``, which reads the sum ``raw`` (:func:`inner_sum`) and the defs ``added``.

    Readers of a temp take its value.
    """
    kernels: list[Kernel] = []
    for k in program.kernels:
        if k.name != d.name:
            kernels.append(k)
            continue
        kernels += [kernel_of(x) for x in (*added, raw)]
        if raw.name != d.name:
            kernels.append(kernel_of(replace(d, red=(), op=None, value=value, guard=None)))
    new = [x.buffer for x in (*added, raw) if x.name != d.name]
    out = replace(program, buffers=(*program.buffers, *new), kernels=tuple(kernels))
    if raw.name != d.name:
        return out
    return replace_reads(out, replace(d, red=(), op=None, value=value, guard=None), skip=(raw.name,))


def _index(d: Def) -> tuple[Expr, ...]:
    return tuple(Var(a.name) for a in d.par)


def _any(program: Program, d: Def, name: str) -> Def:
    """Whether any point passes the guard of ``d``, over the axes that the guard depends on."""
    assert d.guard is not None
    par = tuple(a for a in d.par if a.name in free_vars(d.guard))
    fresh = fresh_name(program, f"{name}_any")
    buffer = Buffer(fresh, DType.BOOL, tuple(a.extent for a in par), Space.TEMP, d.span)
    return Def(fresh, buffer, par, d.red, "any", TRUE, d.guard, d.span)


def _certificate(d: Def, split: Split, cond: Expr, finite: bool, auxiliary: bool) -> Certificate:
    before = Reduce("sum", d.red, d.guard, d.value, d.value.dtype, d.span)
    after = split.around(Reduce("sum", d.red, d.guard, split.varying, d.value.dtype, d.span))
    if cond != TRUE:
        after = Op("select", (cond, after, identity("sum", d.value.dtype)), d.value.dtype, d.span)
    bindings = (
        *((f"factor {k}", f) for k, f in enumerate(split.up)),
        *((f"divisor {k}", g) for k, g in enumerate(split.down)),
    )
    if finite:
        proof = "the factors are finite, so an empty sum stays 0"
    elif cond == TRUE:
        proof = "the domain is never empty"
    else:
        proof = "the select is on " + ("an any over the same domain" if auxiliary else "the domain not being empty")
    names = ", ".join(a.name for a in d.red)
    notes = (f"the factors do not depend on {names}",)
    return Certificate("factor", d.name, before, after, bindings, (cond,), notes, proof, d.span)
