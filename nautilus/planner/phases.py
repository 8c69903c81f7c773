"""Phases: the loops of a kernel over its shared axis in order, and the definitions that need no loop between them.

A definition joins the loop of its operands if every running result that it reads has a repair term.  Otherwise it is
computed in the next loop, which recomputes its block-wise operands.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.errors import ScheduleError
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Expr, Load, Op, loads, rewrite
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.axes import Unified
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, points
from nautilus.scalar.analysis.repair.records import Refusal, Running
from nautilus.scalar.analysis.repair.terms import derive

Phases = tuple[tuple[str, ...], ...]

MANY = 32  # terms of a reduction that cost more to compute again than an element in memory


@dataclass(frozen=True, slots=True)
class _Loop:
    """The shared loop over axis ``name``; ``private``: the axes of loops inside it."""

    unified: Unified
    name: str
    private: frozenset[str]

    @property
    def defs(self) -> tuple[Def, ...]:
        return self.unified.defs


def phases(unified: Unified, loop: str | None, private: frozenset[str]) -> Phases:
    """The phases of a kernel (module docstring) with the shared loop ``loop``, if it has one.

    ``private``: the axes of loops inside the shared one.  Raises ScheduleError where a loop would be computed twice.
    """
    if loop is None:
        return tuple((d.name,) for d in unified.defs)
    g = _Loop(unified, loop, private)
    at: dict[str, int] = {}  # definition -> the loop that computes it first, or that it follows
    running: dict[str, frozenset[str]] = {}  # block-wise definitions -> running results that they contain
    for d in g.defs:
        at[d.name], running[d.name] = _place(g, d, at, running)
    last = max(at.values())
    out: list[tuple[str, ...]] = []
    for w in range(last + 1):
        members = _computed_in(g, w, at)
        if members:
            out.append(members)
        out.extend((d.name,) for d in g.defs if at[d.name] == w and d.axis(g.name) is None)
    return tuple(out)


def passes(unified: Unified, loop: str, found: Phases) -> int:
    """How often ``found`` run the loop over its axis."""
    return sum(any(unified.get(name).axis(loop) is not None for name in phase) for phase in found)


def _place(g: _Loop, d: Def, at: dict[str, int], running: dict[str, frozenset[str]]) -> tuple[int, frozenset[str]]:
    along = d.axis(g.name) is not None
    earliest = 1 if along else 0
    open_: set[str] = set()
    for ld in d.reads():
        if ld.buffer not in at:
            continue
        p = g.unified.get(ld.buffer)
        if p.axis(g.name) is None:  # complete after loop at[p]; readable in the next loop
            need = at[p.name] + 1 if along else at[p.name]
        elif any(a.name == g.name for a in p.red):
            need = at[p.name]
            if along:
                open_.add(p.name)
        else:
            need = at[p.name]
            open_ |= running[p.name]
        earliest = max(earliest, need)
    open_ = {r for r in open_ if at[r] == earliest}
    if not along or not open_:
        return earliest, frozenset()
    if d.is_reduction and any(a.name == g.name for a in d.red) and _repairable(g, d, open_):
        return earliest, frozenset()
    if not d.is_reduction and d.guard is None and _only_feeds_reductions(g, d):
        return earliest, frozenset(open_)
    return earliest + 1, frozenset()


def _only_feeds_reductions(g: _Loop, d: Def) -> bool:
    """Whether block-wise ``d`` may have running values: only later reductions of the shared loop read it."""
    readers = [r for r in g.defs if any(ld.buffer == d.name for ld in r.reads())]
    return (
        d.buffer.space.value == "temp"
        and bool(readers)
        and all(any(a.name == g.name for a in r.red) and _repairable(g, r, None) for r in readers)
    )


def _inlined(g: _Loop, e: Expr, stop: set[str]) -> Expr:
    """``e`` with block-wise elementwise definitions replaced by their values."""

    def rule(n: Expr) -> Expr | None:
        if isinstance(n, Load) and n.buffer not in stop:
            d = next((x for x in g.defs if x.name == n.buffer), None)
            if d is not None and not d.is_reduction and d.guard is None and d.axis(g.name) is not None:
                value = _inlined(g, d.value, stop)
                return value if value.dtype is n.dtype else Op("narrow", (value,), n.dtype)
        return None

    return rewrite(e, rule)


def _repairable(g: _Loop, d: Def, open_: set[str] | None) -> bool:
    value, guard = _inlined(g, d.value, set()), tuple(_inlined(g, c, set()) for c in conjuncts(d.guard))
    reads: Sequence[Load] = tuple(dict.fromkeys(ld for e in (value, *guard) for ld in loads(e)))
    running = []
    for ld in reads:
        p = next((x for x in g.defs if x.name == ld.buffer), None)
        if p is None or not any(a.name == g.name for a in p.red) or p.op is None:
            continue
        if open_ is None or p.name in open_:
            running.append(Running(ld, p.op, _inlined(g, p.value, set()), conjuncts(p.guard)))
    assert d.op is not None
    return not isinstance(derive(value, guard, d.op, running, frozenset({g.name})), Refusal)


def _computed_in(g: _Loop, w: int, at: dict[str, int]) -> tuple[str, ...]:
    """The definitions that loop ``w`` computes: its own, and their block-wise operands again."""
    need = {d.name for d in g.defs if at[d.name] == w and d.axis(g.name) is not None}
    own = set(need)
    for d in reversed(g.defs):
        if d.name in need:
            for ld in d.reads():
                p = next((x for x in g.defs if x.name == ld.buffer), None)
                if p is not None and any(a.name == g.name for a in p.par):
                    need.add(p.name)
    for name in need - own:
        d = g.unified.get(name)
        if any(a.name in g.private for a in d.axes) or _compares_all(d):
            raise ScheduleError(f"{name} is too expensive to compute twice")
    return tuple(d.name for d in g.defs if d.name in need)


def _compares_all(d: Def) -> bool:
    """Whether each element of ``d`` is a reduction of :data:`MANY` terms or more that matrix units do not compute.

    Such are ranks. An element in memory costs less than the same terms again.
    """
    return d.is_reduction and points(d.red) >= MANY and not multiplies_matrices(d)
