"""``raise-exponents``: exponentials that are rounded to f16 or f8e4m3 use all of its range.

Under a running maximum, ``p = exp2((x - r) * k)`` is at most 1, and f16 holds it with 11 bits only above 2^-14: beside
one dominant element, all others are subnormal.  The pass adds a constant to the exponent::

    exp2(fma(x, k, r * -k))  ->  exp2(fma(x, k, fma(r, -k, n)))

so that p is at most 2^n, and subnormal only below 2^-(n + 14) times the largest.  It costs no instruction, because a
multiplication of a row becomes a multiply-add.  ``n + lazy_bits`` is at most 15: a lazy reference (``lazy-rescale``)
may be ``lazy_bits`` below the maximum, and 2^15 is the largest power of two in f16.  ``n`` is 7, 3 or 1, because rows
of a large reference round it, to at most ``n + 1`` (``guard-exponents``).  f8e4m3 has 4 bits above 2^-6 and ends at
448, so that ``n + lazy_bits`` is at most 8 for it: with ``n = 7``, elements down to 2^-13 of the largest have 4 bits.

Every value that depends on p then has a factor ``2^(w * n)``, where ``w`` is its weight by ``analysis.invariance``.
The factor cancels in ``sum(p * v) / sum(p)``.  Where it does not, the value is multiplied by ``2^(-w * n)``: before a
logarithm, and before a store.  Both multiplications are exact.  The pass applies only if every weight is known, and
if the maximum is proved to bound every exponent (``analysis.reference_bounds``).  Sums of 2^31 terms of ``2^15`` times
the largest f16 are in the range of f32; operands with the range of f32 lose 15 of their 127 binades of headroom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.tiles import TileType
from nautilus.core.types import DType
from nautilus.vr_tile.analysis.invariance import FIXED, Form, Forms, made
from nautilus.vr_tile.analysis.reference_bounds import drift_scale
from nautilus.vr_tile.analysis.references import Element, References
from nautilus.vr_tile.ir import ForOp, MapOp, StoreOp, TileKernel, TileModule, TileOp, Value, operands, walk_ops
from nautilus.vr_tile.passes.exponents.guard_exponents import RAISED
from nautilus.vr_tile.passes.lazy_rescale import Family, families
from nautilus.vr_tile.rewriting import Peephole, each_kernel

#: binary logarithm of the largest power of two in each type
_BITS: Mapping[DType, int] = {DType.F16: 15, DType.F8E4M3: 8}
_RAISED = "raised"


@dataclass(frozen=True, slots=True)
class RaiseExponents:
    """Raise the exponents of values that are rounded to f16 or f8e4m3."""

    schedule: Schedule | None = None

    name = "raise-exponents"

    def apply(self, module: TileModule) -> TileModule:
        """``module`` with exponentials of up to 2^15."""
        plans = {k.name: k for k in self.schedule.kernels} if self.schedule is not None else {}
        return each_kernel(module, lambda k: _kernel(k, plans.get(k.name)))


def _kernel(k: TileKernel, plan: KernelPlan | None) -> TileKernel:
    lazy = plan is not None and plan.rescale_policy in ("lazy", "auto")
    bits = plan.lazy_bits if plan is not None and lazy else 0
    raised: dict[str, Element] = {}
    for family in families(k):
        raised |= _exponentials(k, family, bits)
    most = min((_BITS[t] for t in _narrowed(k, set(raised))), default=0)
    if bits >= most:
        return k
    forms = Forms({}, free={name: made("scale", {_RAISED: 1.0}) for name in raised})
    logarithms = [op for op in walk_ops(k.body) if isinstance(op, MapOp) and op.op in _LOGARITHMS]
    forms.free |= {op.result.name: FIXED for op in logarithms}
    forms.block(k.body)
    stored = [op.value for op in walk_ops(k.body) if isinstance(op, StoreOp)]
    known = all(forms.of(v).kind in ("scale", "fixed") for v in (*stored, *(op.args[0] for op in logarithms)))
    if not known or any("repaired" in text for text in forms.problems):
        return k
    work = _Rewrite(raised, forms, max(n for n in RAISED if n + bits <= most))
    names = Peephole(k)
    body = tuple(x for op in k.body for x in work.stores(names, op))
    return Peephole(replace(k, body=body)).run(work.rule)


_LOGARITHMS = frozenset({"log", "log2"})


def _exponentials(k: TileKernel, family: Family, bits: int) -> dict[str, Element]:
    """The exponentials of elements minus the reference of ``family``; none where the maximum does not bound them."""
    forms = Forms({key: slot for key, (slot, _) in family.items()})
    forms.block(k.body)
    references = References(k)
    found: dict[str, Element] = {}
    for loop in walk_ops(k.body):
        if not (isinstance(loop, ForOp) and loop.results and loop.results[0].name in family):
            continue
        slot, new = family[loop.results[0].name]
        if isinstance(drift_scale(loop, slot, new, forms, bits), str):
            return {}
        for op in walk_ops(loop.body):
            if (e := references.element(op)) is not None:
                found[e.result.name] = e
    return found


def _narrowed(k: TileKernel, names: set[str]) -> frozenset[DType]:
    """The types of :data:`_BITS` to which ``names``, or selects of them, are rounded."""
    known, found = set(names), set[DType]()
    for op in walk_ops(k.body):
        if isinstance(op, MapOp) and any(v.name in known for v in operands(op)):
            if op.op == "narrow" and op.result.type.dtype in _BITS:
                found.add(op.result.type.dtype)
            if op.op == "select":
                known.add(op.result.name)
    return frozenset(found)


@dataclass(slots=True)
class _Rewrite:
    elements: Mapping[str, Element]
    forms: Forms
    bits: float
    rows: dict[str, Value] = field(default_factory=dict)

    def stores(self, p: Peephole, op: TileOp) -> Iterator[TileOp]:
        """``op``, whose stores have values without a factor."""
        if isinstance(op, ForOp):
            yield replace(op, body=tuple(x for inner in op.body for x in self.stores(p, inner)))
            return
        if isinstance(op, StoreOp) and (form := self.forms.of(op.value)) != FIXED:
            p.out, p.span = [], op.span
            op = replace(op, value=self.lowered(p, op.value, form))
            yield from p.out
        yield op

    def rule(self, p: Peephole, op: TileOp) -> Value | None:
        if isinstance(op, MapOp) and op.result.name in self.elements:
            e = self.elements[op.result.name]
            x, r = (p.env.get(v.name, v) for v in (e.x, e.reference))
            if r.name not in self.rows or not p.is_here(self.rows[r.name]):
                factor, number = (p.const(c, TileType(DType.F32)) for c in (-e.factor, self.bits))
                self.rows[r.name] = p.map("fma", [r, factor, number])
            k = p.const(e.factor * e.scale, TileType(DType.F32))
            return p.map("exp2", [p.map("fma", [x, k, self.rows[r.name]])])
        if isinstance(op, MapOp) and op.op in _LOGARITHMS:
            form = self.forms.of(op.args[0])
            return None if form == FIXED else p.map(op.op, [self.lowered(p, op.args[0], form)])
        return None

    def lowered(self, p: Peephole, v: Value, form: Form) -> Value:
        """``v`` without the factor of its form."""
        return p.map("mul", [v, p.const(2.0 ** (-form.weight(_RAISED) * self.bits), TileType(DType.F32))])
