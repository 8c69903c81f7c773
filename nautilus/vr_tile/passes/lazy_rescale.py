"""``lazy-rescale``: skips or delays the repair terms of rolling updates where the result permits it.

A reduction loop under a running maximum ``m`` multiplies its accumulators by ``t = exp2((m_old - m_new) * k)`` in every
iteration.  ``KernelPlan.rescale_policy`` selects one of these:

* ``always``: no change.
* ``skip``: a multiplication of a whole tile by a factor with fewer axes becomes ``mul_unless_one``: the same value
  bit for bit, which the levels below need not compute while the factor is 1 (the maximum did not change).
* ``lazy``: in addition, the reference is kept until it differs by more than ``lazy_bits`` in the exponent::

      m' = select((m_new - m_old) <= lazy_bits / k, m_old, m_new)

  ``m'`` replaces ``m_new`` everywhere.  A NaN (the difference of -inf and -inf) and an infinite distance select
  ``m_new``, so the reference is -inf if and only if the true maximum is.
* ``auto``: lazy where it is proved legal, else skip.

A reference that repairs no whole tile (a row sum alone) is not changed, because that would save nothing.

Lazy is legal under two conditions.

* No output depends on the references that were used.  ``vr_tile.analysis.invariance`` proves it, including the code
  after the loop; otherwise the pass raises ScheduleError (``lazy``) or keeps the references (``auto``).
* Nothing overflows.  Exponents are at most ``lazy_bits``, because ``m_new`` is at least every element of this block
  (the pass matches the exponent with the argument of the maximum) and ``m'`` is at most ``lazy_bits`` below it.  A
  value that is rounded to a narrower type is such an exponential, and ``2^lazy_bits`` fits that type.  The range of f32
  permits sums of 2^31 terms of ``2^64`` times the largest f16.  Operands with the exponent range of f32 (bf16) lose
  ``lazy_bits`` of their 127 binades of headroom.

Sources: conditional rescaling of FlashAttention-4, generalised; Neptune (arXiv 2510.08726, section 4) for the algebra.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from nautilus.core.certificate import Certificate
from nautilus.core.errors import ScheduleError
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.core.schedule import KernelPlan, Schedule
from nautilus.core.tiles import TileType
from nautilus.vr_tile.analysis.invariance import Forms
from nautilus.vr_tile.analysis.reference_bounds import drift_scale
from nautilus.vr_tile.analysis.rescale_certificate import certify
from nautilus.vr_tile.ir import ConstOp, ForOp, MapOp, TileKernel, TileModule, TileOp, Value, walk_ops
from nautilus.vr_tile.rewriting import Env, Peephole, rename


@dataclass(frozen=True, slots=True)
class LazyRescale(CertifyingPass[TileModule]):
    """Skip or delay repairs as the schedule selects."""

    schedule: Schedule | None = None

    name = "lazy-rescale"

    def derive(self, module: TileModule) -> tuple[TileModule, tuple[Certificate, ...]]:
        """The module with repairs changed, and certificates that its outputs do not depend on the references.

        Raises ScheduleError if the schedule selects ``lazy`` and it is not proved legal.
        """
        plans = {k.name: k for k in self.schedule.kernels} if self.schedule is not None else {}
        certificates: list[Certificate] = []
        kernels = tuple(_kernel(k, plans[k.name], certificates) if k.name in plans else k for k in module.kernels)
        return (module if kernels == module.kernels else replace(module, kernels=kernels)), tuple(certificates)


def _kernel(k: TileKernel, plan: KernelPlan, certificates: list[Certificate]) -> TileKernel:
    if plan.rescale_policy == "always":
        return k
    names = Peephole(k)
    body, at_top = k.body, []
    for family in families(k):
        repairs = _repairs(k, family)
        if not repairs:
            continue
        work = _Rewrite(names, family, repairs)
        if plan.rescale_policy != "skip":
            found = _threshold(k, family, plan.lazy_bits)
            if isinstance(found, float):
                work.limit = names.fresh(TileType(next(iter(family.values()))[1].type.dtype))
                at_top.append(ConstOp(work.limit, found))
                certificates += certify(k, {key: slot for key, (slot, _) in family.items()}, plan.lazy_bits)
            elif plan.rescale_policy == "lazy":
                raise ScheduleError(f"rescale_policy lazy: {found}", kernel=k.name)
        body = tuple(work.op(op) for op in body)
    return k if body == k.body and not at_top else replace(k, body=(*at_top, *body))


#: A loop (the name of its first result) -> the slot that carries the reference, and the next value of the reference.
Family = dict[str, tuple[int, Value]]


def families(k: TileKernel) -> list[Family]:
    """The running maxima, each with the consecutive loops that carry it."""
    out: list[Family] = []
    ends: dict[str, Family] = {}
    for op in walk_ops(k.body):
        for slot, (arg, init) in enumerate(op.carried if isinstance(op, ForOp) else ()):
            assert isinstance(op, ForOp)
            if not arg.type.dtype.is_float or not _is_running_maximum(op, arg, op.yields[slot]):
                continue
            family = ends.get(init.name)
            if family is None:
                out.append(family := {})
            family[op.results[0].name] = (slot, op.yields[slot])
            ends[op.results[slot].name] = family
    return out


def _is_running_maximum(op: ForOp, arg: Value, new: Value) -> bool:
    defs = {x.result.name: x for x in op.body if isinstance(x, MapOp)}
    return arg in maximum_of(defs, new) and arg != new


def maximum_of(defs: dict[str, MapOp], v: Value) -> list[Value]:
    """The values of which ``v`` is the maximum."""
    op = defs.get(v.name)
    if op is None or op.op != "max":
        return [v]
    return [x for a in op.args for x in maximum_of(defs, a)]


def _loops(k: TileKernel, family: Family) -> Iterator[tuple[ForOp, int, Value]]:
    for op in walk_ops(k.body):
        if isinstance(op, ForOp) and op.results and op.results[0].name in family:
            yield op, *family[op.results[0].name]


def _repairs(k: TileKernel, family: Family) -> dict[str, Value]:
    """Name of a product that repairs a carried tile -> its factor with fewer axes, in the loops of ``family``."""
    forms = Forms({key: slot for key, (slot, _) in family.items()})
    forms.block(k.body, final=False)
    out: dict[str, Value] = {}
    for loop, slot, new in _loops(k, family):
        old = loop.carried[slot][0].name
        carried = {arg for arg, _ in loop.carried}
        for op in loop.body:
            if not (isinstance(op, MapOp) and op.op == "mul" and carried & set(op.args)):
                continue
            for factor in op.args:
                f = forms.of(factor)
                moves = f.kind == "scale" and f.weight(old) == -f.weight(new.name) != 0
                if factor not in carried and moves and len(factor.type.axes) < len(op.result.type.axes):
                    out[op.result.name] = factor
    return out


def _threshold(k: TileKernel, family: Family, bits: int) -> float | str:
    """The permitted distance of a reference from the true maximum, or the reason why there is none."""
    forms = Forms({key: slot for key, (slot, _) in family.items()})
    forms.block(k.body)
    if forms.problems:
        return forms.problems[0]
    scale = 0.0
    for loop, slot, new in _loops(k, family):
        found = drift_scale(loop, slot, new, forms, bits)
        if isinstance(found, str):
            return found
        scale = max(scale, found)
    return bits / scale if scale > 0 else "no exponential is taken under the reference"


@dataclass(slots=True)
class _Rewrite:
    """The rewrite of one family's loops. ``limit``: the distance above which the reference changes (None: always)."""

    names: Peephole
    family: Family
    repairs: dict[str, Value]
    limit: Value | None = None
    env: dict[str, Value] = field(default_factory=dict)

    def op(self, op: TileOp) -> TileOp:
        if not isinstance(op, ForOp):
            return op
        if not op.results or op.results[0].name not in self.family:
            return replace(op, body=tuple(self.op(x) for x in op.body))
        slot, new = self.family[op.results[0].name]
        body: list[TileOp] = []
        env: Env = {}
        for x in op.body:
            body.append(self._marked(renamed_deep(x, env)))
            if self.limit is not None and isinstance(x, MapOp) and x.result == new:
                chosen, more = self._chosen(op.carried[slot][0], new, self.limit, x)
                body += more
                env = {new.name: chosen}
        yields = tuple(env.get(y.name, y) for y in op.yields)
        return replace(op, body=tuple(body), yields=yields)

    def _chosen(self, old: Value, new: Value, limit: Value, at: MapOp) -> tuple[Value, list[TileOp]]:
        """``select(new - old <= limit, old, new)``."""
        p = self.names
        p.out, p.span = [], at.span
        far = p.map("sub", (new, old))
        chosen = p.select(p.map("le", (far, limit)), old, new, f"{new.name}_used")
        return chosen, list(p.out)

    def _marked(self, op: TileOp) -> TileOp:
        """``op``, or ``mul_unless_one`` for a repair by a factor with fewer axes."""
        factor = self.repairs.get(op.result.name) if isinstance(op, MapOp) else None
        if factor is None or not isinstance(op, MapOp):
            return op
        (whole,) = (a for a in op.args if a != factor)
        if len(factor.type.axes) >= len(whole.type.axes):
            return op
        return replace(op, op="mul_unless_one", args=(whole, factor))


def renamed_deep(op: TileOp, env: Env) -> TileOp:
    """``op`` and the ops inside it with the values that they read renamed."""
    out = rename(op, env)
    if isinstance(out, ForOp) and env:
        yields = tuple(env.get(y.name, y) for y in out.yields)
        return replace(out, body=tuple(renamed_deep(x, env) for x in out.body), yields=yields)
    return out
