"""Which tensors follow the steps of a recurrence, and which of their axes are independent.

A tensor *follows* the steps along one of its axes where its elements at a step need no later step.  Its first steps
then are those of a shorter recurrence.  An axis is *independent* where the elements of a recurrence at one position
need none at another position (:func:`nautilus.scalar.analysis.states.recurrences.independent`), and where a definition
that reads recurrences reads the same elements of them at all positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.expr.nodes import Load, Var, free_vars, walk
from nautilus.core.records import dataclass
from nautilus.frontend.semantics.recurrence import distance
from nautilus.frontend.spec import Definition, Spec
from nautilus.scalar.analysis.states.recurrences import independent


@dataclass(frozen=True, slots=True)
class Along:
    """How a tensor follows a recurrence: its ``axis`` of the steps (None: it does not), and its independent axes."""

    axis: int | None
    total: int
    reverse: bool
    free: frozenset[int]


def following(spec: Spec) -> dict[str, Along]:
    """For each definition that needs a recurrence, how it follows its steps.  Sizes are numbers."""
    found: dict[str, Along] = {}
    for d in spec.definitions:
        if d.name in found:
            continue
        group = [m for m in spec.definitions if d.recurrence is not None and m.name in d.recurrence.members] or [d]
        for m, made in zip(group, _group(group, found), strict=True):
            if made is not None:
                found[m.name] = made
    return found


def _group(group: Sequence[Definition], found: Mapping[str, Along]) -> list[Along | None]:
    """How the members of a recurrence, or one definition, follow the steps."""
    if group[0].recurrence is None:
        return [_reader(group[0], found)]
    members = {d.name: d.axes for d in group}
    reads = [(d.name, e) for d in group for e in walk(d.expr) if isinstance(e, Load) and e.buffer in members]
    free = independent(members, reads)
    made: list[Along | None] = []
    ok = all(_in_order(d, found) for d in group)
    for d in group:
        assert d.recurrence is not None
        at = d.recurrence.axis
        apart = frozenset(places[d.name] for places in free) - {at}
        made.append(Along(at if ok else None, _size(d, at), d.recurrence.reverse, apart))
    return made


def _in_order(d: Definition, found: Mapping[str, Along]) -> bool:
    """Whether every recurrence that ``d`` reads runs in its direction, and is read up to the step of ``d`` only."""
    assert d.recurrence is not None
    at = d.recurrence.axis
    return all(_reads_so_far(d, e, at, d.recurrence.reverse, found) for e in _loads(d, found))


def _reader(d: Definition, found: Mapping[str, Along]) -> Along | None:
    """How a definition outside of recurrences follows them; None where it needs none."""
    loads = _loads(d, found)
    if not loads:
        return None
    read = frozenset[str]().union(*map(free_vars, loads))
    free = {p for p, a in enumerate(d.axes) if a.name not in read}  # all positions need the same elements
    axis = reverse = None
    for e in loads:
        seen = found[e.buffer]
        free |= {p for p, a in enumerate(d.axes) for q in seen.free if e.index[q] == Var(a.name)}
        for p, a in enumerate(d.axes):
            if axis is None and seen.axis is not None and e.index[seen.axis] == Var(a.name):
                axis, reverse = p, seen.reverse
    if axis is not None and all(_reads_so_far(d, e, axis, bool(reverse), found) for e in loads):
        return Along(axis, _size(d, axis), bool(reverse), frozenset(free - {axis}))
    return Along(None, max(found[e.buffer].total for e in loads), False, frozenset(free))


def _loads(d: Definition, found: Mapping[str, Along]) -> list[Load]:
    return [e for e in walk(d.expr) if isinstance(e, Load) and e.buffer in found]


def _reads_so_far(d: Definition, e: Load, at: int, reverse: bool, found: Mapping[str, Along]) -> bool:
    """Whether ``e`` reads no step after the one that axis ``at`` of ``d`` counts."""
    seen = found[e.buffer]
    if seen.axis is None or seen.reverse is not reverse or seen.total != _size(d, at):
        return False
    far = distance(e.index[seen.axis], d.axes[at].name)
    return far is not None and (far >= 0 if reverse else far <= 0)


def _size(d: Definition, axis: int) -> int:
    extent = d.axes[axis].extent
    assert isinstance(extent, int)
    return extent
