"""Operands of a matrix state that are rows of a tensor of 16 bits, each times a number.

In a normalised operand, such as ``kn[t, d] = k[t, d] * rsqrt(sum[d](k[t, d] ** 2) + eps)``, only ``k`` has the rows
``d`` of the state.  What a step adds is ``k[t, d] * (r[t] * u[t, e])`` with the number ``r`` of each step, and a reader
sums ``q[t, d] * S`` and multiplies the result.  Then the elements of 16 bits are factors of the products of matrices,
and nothing of them is rounded.

Infinities.  Where ``k`` is infinite and ``kn`` is not, ``r`` is 0 or NaN, so that both forms give NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import number
from nautilus.core.expr.nodes import Expr, Load, Op, free_vars, substitute
from nautilus.core.expr.products import product_of, strip_conversions
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.states.matrix_states import Correction, MatrixState, Reader


@dataclass(frozen=True, slots=True)
class _Scaled:
    """The product of ``rows``, which have 16 bits, and ``scales``, which have no rows."""

    rows: tuple[Expr, ...]
    scales: tuple[Expr, ...]


def without_row_scales(defs: Mapping[str, Def], m: MatrixState) -> MatrixState:
    """``m`` with the numbers of steps in its operands outside of the products of matrices; ``defs``: what it reads."""
    rows = {a.name for a in m.rows}
    if (found := _parted(defs, m.x, rows)) is not None:
        x, scale = product_of(found.rows), product_of(found.scales)
        if m.correction is None:
            m = replace(m, x=x, scale=scale if m.scale is None else _times(scale, m.scale))
        else:
            factor = _times(scale, m.correction.factor)
            m = replace(m, x=x, u=_times(scale, m.u), correction=replace(m.correction, factor=factor))
    if m.correction is not None and (found := _parted(defs, m.correction.inside, rows)) is not None:
        factor = product_of((*found.scales, m.correction.factor))
        m = replace(m, correction=Correction(factor, product_of(found.rows)))
    members = tuple(_reader(defs, x, rows) if isinstance(x, Reader) else x for x in m.members)
    return replace(m, members=members)


def _reader(defs: Mapping[str, Def], r: Reader, rows: Collection[str]) -> Reader:
    found = _parted(defs, r.inside, rows)
    if found is None or (r.rest is not None and not r.finite):  # ``inside`` is a factor of the rest too
        return r
    parts = found.scales if r.outside is None else (*found.scales, r.outside)
    return replace(r, inside=product_of(found.rows), outside=product_of(parts))


def _parted(defs: Mapping[str, Def], e: Expr, rows: Collection[str]) -> _Scaled | None:
    """The parts of ``e``; None where they are no rows of 16 bits and numbers."""
    parts = _factors(defs, e)
    inside = tuple(f for f in parts if free_vars(f) & set(rows))
    outside = tuple(f for f in parts if not free_vars(f) & set(rows))
    short = all(isinstance(x, Load) and x.dtype.is_half for x in map(strip_conversions, inside))
    return _Scaled(inside, outside) if inside and outside and short else None


def _factors(defs: Mapping[str, Def], e: Expr) -> Sequence[Expr]:
    """The factors of ``e`` and of the elementwise definitions that it reads."""
    match e:
        case Op(op="mul", args=(a, b)):
            return [*_factors(defs, a), *_factors(defs, b)]
        case Op(op="div", args=(a, b)):
            return [*_factors(defs, a), Op("div", (number(1, e.dtype), b), e.dtype)]
        case Load(buffer=name, index=index) if (d := defs.get(name)) is not None and _is_plain(d):
            return _factors(defs, substitute(d.value, {a.name: i for a, i in zip(d.par, index, strict=True)}))
    return [e]


def _is_plain(d: Def) -> bool:
    """Whether ``d`` is an element of other tensors that is not rounded."""
    plain = d.op is None and d.scatter is None and d.guard is None and d.at is None
    return plain and d.buffer.space is Space.TEMP and d.buffer.dtype is d.value.dtype


def _times(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), a.dtype)
