"""``split-sums``: a sum of matrix products over one domain becomes one sum for each product.

``sum_k(a_ik * b_kj + c_ik * d_kj)`` is ``sum_k(a_ik * b_kj) + sum_k(c_ik * d_kj)``.  Matrix units compute each of the
two and not their common form, whose element is no product.  The pass rewrites a sum whose every term is a product of
factors with a parallel axis of their own on either side, unless threads compute it in the order of the memory
(:func:`~nautilus.scalar.analysis.contractions.dense.multiplies_lanes`).  Beside a product of many rows and columns, a
term may also be one for the rows, for the columns or for neither, as in ``sum_k(a_ik * b_kj + c_j)``: its sum costs
little.  Sums may be associated again (``grammar/README.md``, "Numbers"), so the result has the error of two sums.
Where a term is inf or NaN, both forms are.

A factor of a sum is a factor of each of its terms where that makes matrix products of terms that were none, as in
``sum_d(q_id * (k_jd + t[j - i, d]))``.  It is finite for certain, or because ``assume`` promises it: an infinite one
gives inf beside a sum, and NaN beside terms of both signs.

A term for one side leaves a sum over pairs of rows too, where that saves :data:`SAVED` evaluations: the logarithms of
the deviations in ``sum_d(((x_nd - m_kd) / s_kd) ** 2 + log(s_kd))`` are one sum for each ``k``.

Matrix instructions multiply 8-bit integers, and a zero point makes a wider one::

    sum_k((x_ik - z) * w_jk) = sum_k(x_ik * w_jk) - sum_k(z * w_jk)

Integers wrap, so both sides are equal.  Such a sum is split where one of its terms is a matrix product of 8-bit
integers, which is large, and the others are sums for the rows, for the columns or for neither.

An expectation of logarithms of probabilities has terms that are the same for a whole row, such as its maximum, which
are known after the row was read once::

    sum_v(p_v * (x_v - m - log(z))) = sum_v(p_v * x_v) - (m + log(z)) * sum_v(p_v)

Entropies and divergences of long rows of 16-bit elements then read memory once.  The terms of the right side may be
larger than those of the left side, by what the elements of a row have in common: their roundings in f32 are far below
the last place of the elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import Axis, Const, Expr, Load, Op, Reduce, Var, free_vars, loads, rewrite
from nautilus.core.expr.products import (
    factors,
    matrix_product,
    matrix_products,
    product_of,
    signed_terms,
    strip_lossless_conversions,
)
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.contractions.dense import multiplies_lanes
from nautilus.scalar.analysis.contractions.promises import Fenced, Promises, finite_inputs
from nautilus.scalar.analysis.contractions.terms import MOST_TERMS
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.definitions import size as size_of
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.factor import certainly_finite, inner_sum, with_inner_sum
from nautilus.scalar.rewriting import find_defs, fresh_name

LONG = 16384  # elements of a row that a block does not hold beside others
FEW = 32  # rows or columns; beside fewer, one more read of the other matrix costs more than products without MMAs
SAVED = 1 << 27  # evaluations of a term that take longer than the launch of a kernel for its sums


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
            defs = find_defs(program)
            d = defs.get(name)
            parts = None if d is None else products(d, finite) or _row_terms(d, defs)
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
    if d.op != "sum":
        return None
    if d.value.dtype.is_int:
        return _byte_products(d)
    found = signed_terms(d.value)
    several = 1 < len(found) <= MOST_TERMS
    if several and all(_is_matrix_product(d, e) for e, _ in found):
        return None if multiplies_lanes(d) else tuple(found)
    if several and d.guard is None:
        found.sort(key=lambda x: not _is_large_product(d, x[0]))
        large = [e for e, _ in found if _is_large_product(d, e)]
        if large and all(_is_for_one_side(d, e, large[0]) for e, _ in found[len(large) :]):
            return tuple(found)
    if several and d.guard is None and (pairs := _beside_pairs(d, found)):
        return pairs
    if len(found) == 1 and not _is_matrix_product(d, d.value):
        found = _distributed(d.value, finite)
        if 1 < len(found) <= MOST_TERMS and any(_is_matrix_product(d, e) for e, _ in found):
            return tuple(found)
    return None


def _beside_pairs(d: Def, found: list[tuple[Expr, bool]]) -> tuple[tuple[Expr, bool], ...] | None:
    """The terms ``found``, of which the first one is for pairs of rows and the others lack an axis of many rows."""
    long = {a.name for a in d.par if (n := size_of(a)) is not None and n >= FEW}
    pairs = [x for x in found if long <= free_vars(x[0])]
    others = [x for x in found if x not in pairs]
    known = all(size_of(a) for a in d.axes)
    many = known and prod(size_of(a) or 0 for a in d.axes) >= SAVED
    return (*pairs, *others) if many and len(long) > 1 and len(pairs) == 1 and others else None


def _row_terms(d: Def, defs: Mapping[str, Def]) -> tuple[tuple[Expr, bool], ...] | None:
    """The terms of ``d`` that vary along a long row, and those that reductions of the row give; None for other sums."""
    if d.op != "sum" or d.value.dtype is not DType.F32 or len(d.red) != 1 or (size_of(d.red[0]) or LONG) < LONG:
        return None
    parts = factors(d.value)
    sums = [x for x in parts if signed_terms(x)[1:]]
    others = [x for x in parts if x not in sums]
    if len(sums) != 1 or not others:
        return None
    row = d.red[0].name
    terms = signed_terms(sums[0])
    varying = [(e, negative) for e, negative in terms if row in free_vars(e)]
    fixed = [(e, negative) for e, negative in terms if row not in free_vars(e)]
    ends = [x for e, _ in fixed for ld in loads(e) if (x := defs.get(ld.buffer)) is not None and x.is_reduction]
    if not varying or not ends or not all(_is_short_element(e, row) for e, _ in varying):
        return None
    return tuple((product_of([*others, _sum_of(part)]), False) for part in (varying, fixed))


def _is_short_element(e: Expr, row: str) -> bool:
    """Whether ``e`` is an element of at most 16 bits along ``row``, times numbers that are the same for the row."""
    found = factors(e)
    if isinstance(e, Op) and e.op == "div":
        found = [*factors(e.args[0]), Op("rcp", (e.args[1],), e.dtype)]
    moving = [strip_lossless_conversions(f) for f in found if row in free_vars(f)]
    return len(moving) == 1 and isinstance(moving[0], Load) and moving[0].dtype.bits <= 16


def _sum_of(terms: Sequence[tuple[Expr, bool]]) -> Expr:
    """The sum of ``terms``, each with whether it is subtracted; one that is not comes first where there is one."""
    (first, negative), *rest = sorted(terms, key=lambda x: x[1])
    return _total([first, *(e for e, _ in rest)], negative, [n for _, n in rest])


def _byte_products(d: Def) -> tuple[tuple[Expr, bool], ...] | None:
    """The terms of ``d`` if one of them, which is the first here, is a large product of matrices of 8-bit integers."""
    choices = [signed_terms(f) for f in factors(d.value)]
    if d.guard is not None or not 1 < prod(map(len, choices)) <= MOST_TERMS:
        return None
    chosen = list(product(*choices))
    found = [(product_of([e for e, _ in c]), sum(negative for _, negative in c) % 2 == 1) for c in chosen]
    found.sort(key=lambda x: not _is_byte_product(d, x[0]))
    small = all(not p.shared for e, _ in found[1:] for p in matrix_products(factors(e), [a.name for a in d.par]))
    return tuple(found) if small and _is_byte_product(d, found[0][0]) else None


def _is_byte_product(d: Def, e: Expr) -> bool:
    """Whether ``e`` is a product of two 8-bit elements, and perhaps of numbers, with many rows and many columns."""
    parts = [strip_lossless_conversions(f) for f in factors(e) if free_vars(f)]
    if len(parts) != 2 or not all(isinstance(f, Load) and f.dtype.is_int and f.dtype.bits == 8 for f in parts):
        return False
    found = matrix_product(product_of(parts), [a.name for a in d.par])
    if found is None or not found.shared.issuperset(a.name for a in d.red):
        return False
    return all(_extent(d.par, axes) >= FEW for axes in (found.rows, found.columns))


def _extent(axes: tuple[Axis, ...], names: frozenset[str]) -> float:
    """The product of the extents, of which those known at launch count as many."""
    return prod(float("inf") if (n := size_of(a)) is None else n for a in axes if a.name in names)


def _distributed(e: Expr, finite: frozenset[str]) -> list[tuple[Expr, bool]]:
    """The terms of a product of one sum and factors that are finite; none for any other expression."""
    parts = factors(e)
    sums = [x for x in parts if signed_terms(x)[1:]]
    others = [x for x in parts if x not in sums]
    if len(sums) != 1 or not all(_is_finite(x, finite) for x in others):
        return []
    return [(product_of([*others, x]), negative) for x, negative in signed_terms(sums[0])]


def _is_finite(e: Expr, finite: frozenset[str]) -> bool:
    """Whether ``e`` is a finite number where the inputs ``finite`` are."""
    read = rewrite(e, lambda n: Const(1.0, n.dtype) if isinstance(n, Load) and n.buffer in finite else None)
    return certainly_finite(read)


def _is_matrix_product(d: Def, e: Expr) -> bool:
    """Whether two factors of ``e`` have parallel axes that the other one has not, and share all reduced ones."""
    found = matrix_products(factors(e), [a.name for a in d.par])
    return any(p.shared.issuperset(a.name for a in d.red) for p in found)


def _is_large_product(d: Def, e: Expr) -> bool:
    """Whether ``e`` is a matrix product with many rows and many columns."""
    found = matrix_product(e, [a.name for a in d.par])
    if found is None or not found.shared.issuperset(a.name for a in d.red):
        return False
    return all(_extent(d.par, axes) >= FEW for axes in (found.rows, found.columns))


def _is_for_one_side(d: Def, e: Expr, product: Expr) -> bool:
    """Whether the sum of ``e`` is one for the rows of the matrix ``product``, for its columns or for neither."""
    found = matrix_product(product, [a.name for a in d.par])
    return found is not None and any(free_vars(e).isdisjoint(side) for side in (found.rows, found.columns))


def _split(program: Program, d: Def, parts: tuple[tuple[Expr, bool], ...], certificates: list[Certificate]) -> Program:
    (first, negative), *rest = parts
    raw = inner_sum(program, d, first)
    added: list[Def] = []
    read: list[Expr] = [_element(raw)]
    for e, _ in rest:
        if (times := _repeated(d, e)) is not None:
            read.append(times)
            continue
        name = fresh_name(program, f"{d.name}_term", [x.name for x in (*added, raw)])
        par = tuple(a for a in raw.par if _is_matrix_product(d, e) or a.name in free_vars(e))
        buffer = replace(raw.buffer, name=name, shape=tuple(a.extent for a in par))
        added.append(replace(raw, name=name, buffer=buffer, par=par, value=e))
        read.append(_element(added[-1]))
    sums = [Reduce("sum", d.red, d.guard, e, e.dtype, d.span) for e, _ in parts]
    signs = [n for _, n in rest]
    before = Reduce("sum", d.red, d.guard, d.value, d.value.dtype, d.span)
    after = _total(list(sums), negative, signs)
    proof = "a sum of sums is the sum of all terms, in any order"
    certificates.append(Certificate("split-sums", d.name, before, after, (), (), (), proof, d.span))
    return with_inner_sum(program, d, raw, _total(read, negative, signs), added)


def _element(d: Def) -> Expr:
    return Load(d.name, tuple(Var(a.name) for a in d.par), d.buffer.dtype, d.span)


def _repeated(d: Def, e: Expr) -> Expr | None:
    """The sum of ``e`` over the domain of ``d`` as a product, where ``e`` is the same at all of its points."""
    count = prod(n if (n := size_of(a)) is not None else 0 for a in d.red)
    alike = d.guard is None and not free_vars(e) & {a.name for a in d.red}
    times = Const(float(count) if e.dtype.is_float else count, e.dtype)
    return product_of([e, times]) if alike and 0 < count < 2**31 else None


def _total(sums: list[Expr], negative: bool, signs: list[bool]) -> Expr:
    total: Expr = Op("neg", (sums[0],), sums[0].dtype) if negative else sums[0]
    for e, minus in zip(sums[1:], signs, strict=True):
        total = Op("sub" if minus else "add", (total, e), e.dtype)
    return total
