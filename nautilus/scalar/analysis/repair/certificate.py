"""Certificates of repair terms: the two equations that make a repair term legal, as data.

* rule ``rolling-update`` (``split-k-update`` between chunks): ``f(x, new) = t(f(x, old), old, new)``;
* rule ``distribute``: ``t(a (+) b) = t(a) (+) t(b)`` for the accumulator's combiner.

Both sides are over variables.  The bindings give the expressions of ``x0..`` and ``c0..``; ``old0..`` and
``new0..`` are two values of each running reduction; ``a`` and ``b`` are accumulated values.  A checker can construct
both sides from the bindings ``f`` (over ``r0..``) and ``t`` (over ``a``).  The conditions are properties of references.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.certificate import Certificate
from nautilus.core.expr.nodes import COMBINERS, Const, Op, Var, substitute, walk
from nautilus.core.types import DType
from nautilus.scalar.analysis.repair.records import Repair

_REASONS = {"reset": "reset: no element that an extremum bounds is equal to one beyond it"}


def certify(subject: str, repair: Repair, rule: str = "rolling-update") -> tuple[Certificate, Certificate]:
    """The certificates of ``repair`` for accumulator ``subject``."""
    dtype = repair.f.dtype
    count = len(repair.references)
    kinds = {n.name: n.dtype for n in walk(repair.f) if isinstance(n, Var)}
    old, new = (
        {f"r{k}": Var(f"{when}{k}", kinds.get(f"r{k}", dtype)) for k in range(count)} for when in ("old", "new")
    )
    a, b = Var("a", dtype), Var("b", dtype)
    conditions = [*repair.domain]
    for k, value in enumerate(repair.references):
        if value == 1.0:
            zero = Const(0.0, dtype)
            conditions += [Op("ne", (v[f"r{k}"], zero), DType.BOOL) for v in (old, new)]
    both = Op(COMBINERS[repair.combiner].binary, (a, b), dtype)
    shared = Certificate(
        rule=rule,
        subject=subject,
        before=substitute(repair.f, new),
        after=substitute(repair.t, {"a": substitute(repair.f, old)}),
        bindings=(("f", repair.f), ("t", repair.t), *repair.symbols),
        conditions=tuple(conditions),
        notes=repair.conditions,
        proof=_REASONS.get(repair.mode, f"{repair.mode}: f separates into a part of x and a part of r"),
    )
    split = replace(both, args=(repair.t, substitute(repair.t, {"a": b})))
    distributes = replace(
        shared,
        rule="distribute",
        before=substitute(repair.t, {"a": both}),
        after=split,
        bindings=(("t", repair.t), ("combined", both)),
        proof=f"t is a {repair.mode}, the combiner is {repair.combiner}",
    )
    return shared, distributes
