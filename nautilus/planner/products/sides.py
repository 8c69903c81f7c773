"""Products of which a block would have a whole side, all rows or all columns, because of what shares their kernel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nautilus.core.schedule import KernelPlan
from nautilus.planner.products.dots import dot_of
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.derived_names import TILE
from nautilus.targets.limits import MMA_ROWS


def holds_side(plan: KernelPlan, defs: Sequence[Def]) -> bool:
    """Whether a block of ``plan`` has a whole side of a product because another one of ``defs`` lacks its axis.

    That is a reduction for each term of a product, such as the norm of a key, or another product on which no product
    depends.  Without it, blocks have tiles of that side; :data:`MMA_ROWS` elements are one tile anyway.
    """
    dots = {d.name: dot for d in defs if (dot := dot_of(d)) is not None}
    sides = {x for dot in dots.values() for x in (*dot.rows, *dot.columns)}
    held = {a.name for a in plan.axes if a.role == TILE and a.name in sides and a.tile > MMA_ROWS}
    reduced = {a.name for d in defs for a in d.red}
    for x in held - reduced:
        lacking = [d for d in defs if d.axis(x) is None]
        beside = [d for d in lacking if d.name in dots and not _leads_to(d.name, dots.keys(), defs)]
        rest = (d for d in lacking if d.name not in dots and d.is_reduction)
        along = [d for d in rest if reduced & {a.name for a in d.par}]
        if len(beside) + len(along) == len(lacking) > 0:
            return True
    return False


def _leads_to(name: str, ends: Collection[str], defs: Sequence[Def]) -> bool:
    """Whether another one of ``ends`` is computed from ``name`` within ``defs``, in the order of dependence."""
    made = {name}
    for d in defs:
        if not made.isdisjoint(ld.buffer for ld in d.reads()):
            made.add(d.name)
    return not (made - {name}).isdisjoint(ends)
