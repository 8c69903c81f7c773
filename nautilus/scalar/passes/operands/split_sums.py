"""``split-sums``: a sum of matrix products over one domain becomes one sum for each product.

``sum_k(a_ik * b_kj + c_ik * d_kj)`` is ``sum_k(a_ik * b_kj) + sum_k(c_ik * d_kj)``.  Matrix units compute each of the
two and not their common form, whose element is no product.  The pass rewrites a sum whose every term is a product of
factors with a parallel axis of their own on either side.  Sums may be associated again (``grammar/README.md``,
"Numbers"), so the result has the error of two sums.  Where a term is inf or NaN, both forms are.

A factor of a sum is a factor of each of its terms where that makes matrix products of terms that were none, as in
``sum_d(q_id * (k_jd + t[j - i, d]))``.  It is finite for certain, or because ``assume`` promises it: an infinite one
gives inf beside a sum, and NaN beside terms of both signs.

A product of integers less their zero points, ``sum_k((x_ik - z) * w_kj)``, is ``sum_k(x_ik * w_kj) - sum_k(z * w_kj)``,
whose first sum has operands of 8 bits; integers wrap in the same way in both.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Reduce, Var, free_vars, rewrite
from nautilus.core.expr.products import factors, matrix_products, product_of, strip_conversions
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.promises import Fenced, Promises, finite_inputs
from nautilus.scalar.analysis.contractions.terms import MOST_TERMS
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.value_range import Ranges
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import certainly_finite, inner_sum, with_inner_sum
from nautilus.scalar.rewriting import find_defs, fresh_name

_NARROW = 8  # bits of integers that are operands of matrix units


@dataclass(frozen=True, slots=True)
class SplitSums(CertifyingPass[Program]):
    """Split every sum of matrix products.  ``spec``: the Spec, whose promises say which inputs are finite."""

    spec: Promises | None = None

    name = "split-sums"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with a sum for each product, and a certificate for each sum that was split."""
        certificates: list[Certificate] = []
        finite = finite_inputs(self.spec)
        for name in [k.name for k in program.kernels]:
            d = find_defs(program).get(name)
            parts = None if d is None else products(d, finite)
            if d is not None and parts is not None:
                program = _split(program, d, parts, certificates)
        return program, tuple(certificates)


def fenced(program: Program, spec: Promises | None) -> tuple[Fenced, ...]:
    """The sums of ``program`` that have matrix products if factors of sums in their terms are finite."""
    known = finite_inputs(spec)
    out = []
    for d in find_defs(program).values():
        floats = {ld.buffer for ld in d.reads() if program.buffer(ld.buffer).space is Space.INPUT and ld.dtype.is_float}
        if products(d, known) is None and products(d, known | floats) is not None:
            one = [name for name in sorted(floats - known) if products(d, known | {name}) is not None]
            out.append(Fenced(d.name, tuple(one[:1] or sorted(floats - known)), d.span))
    return tuple(out)


def products(d: Def, finite: frozenset[str] = frozenset()) -> tuple[tuple[Expr, bool], ...] | None:
    """The terms of ``d`` with whether they are subtracted; None unless there are several matrix products.

    ``finite``: the inputs that are promised to be finite.
    """
    if d.op != "sum" or not (d.value.dtype.is_float or d.value.dtype.is_int):
        return None
    if d.value.dtype.is_int:
        found = [] if _has_bytes(d) else _expanded(d.value)
        several = 1 < len(found) <= MOST_TERMS
        return tuple(found) if several and any(_is_narrow_product(d, e) for e, _ in found) else None
    found = _terms(d.value, False)
    several = 1 < len(found) <= MOST_TERMS
    if several and all(_is_matrix_product(d, e) for e, _ in found):
        return tuple(found)
    if len(found) == 1 and not _is_matrix_product(d, d.value):
        found = _distributed(d.value, finite)
        if 1 < len(found) <= MOST_TERMS and any(_is_matrix_product(d, e) for e, _ in found):
            return tuple(found)
    return None


def _distributed(e: Expr, finite: frozenset[str]) -> list[tuple[Expr, bool]]:
    """The terms of a product of one sum and factors that are finite; none for any other expression."""
    parts = factors(e)
    sums = [x for x in parts if len(_terms(x, False)) > 1]
    others = [x for x in parts if x not in sums]
    if len(sums) != 1 or len(others) != len(parts) - 1 or not all(_is_finite(x, finite) for x in others):
        return []
    return [(product_of([*others, x]), negative) for x, negative in _terms(sums[0], False)]


def _expanded(e: Expr) -> list[tuple[Expr, bool]]:
    """The terms of a product of sums of integers, of which every order of operations has the same bits."""
    out: list[tuple[Expr, bool]] = []
    for part in factors(e):
        terms = _terms(part, False)
        pairs = ((x, y) for x in out for y in terms) if out else (((None, False), y) for y in terms)
        out = [(y if x is None else product_of((x, y)), a != b) for (x, a), (y, b) in pairs]
        if len(out) > MOST_TERMS:
            return []
    return out


def _has_bytes(d: Def) -> bool:
    """Whether 8 bits hold every factor of ``d``, so that the computed ones are operands too."""
    ranges = Ranges({}, d.axes, d.guard)
    found = [ranges.of(x) for x in factors(d.value)]
    return all(lo >= low and hi <= high for lo, hi in found for low, high in [(-128, 127) if lo < 0 else (0, 255)])


def _is_narrow_product(d: Def, e: Expr) -> bool:
    """Whether ``e`` is a matrix product of elements of at most 8 bits, as they are in memory."""
    operands = (strip_conversions(x) for x in factors(e))
    return _is_matrix_product(d, e) and all(isinstance(x, Load) and x.dtype.bits <= _NARROW for x in operands)


def _is_finite(e: Expr, finite: frozenset[str]) -> bool:
    """Whether ``e`` is a finite number where the inputs ``finite`` are."""
    read = rewrite(e, lambda n: Const(1.0, n.dtype) if isinstance(n, Load) and n.buffer in finite else None)
    return certainly_finite(read)


def _terms(e: Expr, negative: bool) -> list[tuple[Expr, bool]]:
    match e:
        case Op(op="add" | "sub" as name, args=(a, b)):
            return _terms(a, negative) + _terms(b, negative != (name == "sub"))
        case Op(op="neg", args=(a,)):
            return _terms(a, not negative)
    return [(e, negative)]


def _is_matrix_product(d: Def, e: Expr) -> bool:
    """Whether two factors of ``e`` have parallel axes that the other one has not, and share all reduced ones."""
    found = matrix_products(factors(e), [a.name for a in d.par])
    return any(p.shared.issuperset(a.name for a in d.red) for p in found)


def _split(program: Program, d: Def, parts: tuple[tuple[Expr, bool], ...], certificates: list[Certificate]) -> Program:
    (first, negative), *rest = parts
    raw = inner_sum(program, d, first)
    added: list[Def] = []
    for e, _ in rest:
        name = fresh_name(program, f"{d.name}_term", [x.name for x in (*added, raw)])
        added.append(_over_own_axes(replace(raw, name=name, buffer=replace(raw.buffer, name=name), value=e)))
    loads = [Load(x.name, tuple(Var(a.name) for a in x.par), x.buffer.dtype, d.span) for x in (raw, *added)]
    sums = [Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e, _ in parts]
    signs = [n for _, n in rest]
    before = Reduce("sum", d.red, d.guard, d.value, d.value.dtype, d.span)
    after = _total(list(sums), negative, signs)
    proof = "a sum of sums is the sum of all terms, in any order"
    certificates.append(Certificate("split-sums", d.name, before, after, (), (), (), proof, d.span))
    return with_inner_sum(program, d, raw, _total(list(loads), negative, signs), added)


def _over_own_axes(d: Def) -> Def:
    """``d`` without the parallel axes on which it does not depend, such as rows in a sum of weights alone."""
    own = free_vars(d.value) | (frozenset() if d.guard is None else free_vars(d.guard))
    kept = [k for k, a in enumerate(d.par) if a.name in own]
    shape = tuple(d.buffer.shape[k] for k in kept)
    return replace(d, par=tuple(d.par[k] for k in kept), buffer=replace(d.buffer, shape=shape))


def _total(sums: list[Expr], negative: bool, signs: list[bool]) -> Expr:
    total: Expr = Op("neg", (sums[0],), sums[0].dtype) if negative else sums[0]
    for e, minus in zip(sums[1:], signs, strict=True):
        total = Op("sub" if minus else "add", (total, e), e.dtype)
    return total
