"""Recurrences: kernels that read in global memory what they write themselves, their loops and their nests.

Such a kernel has the form::

    par b... { seq t { nest... } }

``t`` counts the steps, and ``b...`` are the *independent* axes: every read of what the kernel writes is at the same
position along them, so their iterations never need each other.  A nest is that of an unfused definition
(:mod:`nautilus.scalar.analysis.definitions`) without these loops.  Invariants:

* an element is written once, by one nest in one step;
* a nest reads elements of earlier steps, or of earlier nests of the same step, and only where they were written.

``tile-recurrences`` brings it into tiled form.  No other pass of this level looks into it
(:mod:`nautilus.scalar.rewriting.recurrences`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import Axis, Expr, Load, Op, Var, free_vars, loads, walk
from nautilus.core.functions import FUNCTIONS
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import as_extent, nominal
from nautilus.core.records import dataclass
from nautilus.scalar.ir import Kernel, Kind, Loop, Stmt, Update, statements

ISSUES = 3.3e7  # instructions of single threads in a microsecond, on all multiprocessors
READ = 2  # issue slots of a read: its address, and itself
RATE = 4.0e6  # bytes of memory in a microsecond


@dataclass(frozen=True, slots=True)
class Form:
    """The loops of a recurrence, and for each of its tensors the role of each axis: a loop's variable, or ""."""

    shared: tuple[Loop, ...]
    step: Loop
    reverse: bool
    roles: Mapping[str, tuple[str, ...]]


def form_of(k: Kernel) -> Form | None:
    """The loops of the recurrence ``k``; None where it has tiles already."""
    shared: list[Loop] = []
    body = k.body
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.PAR:
        shared.append(body[0])
        body = body[0].body
    if not (len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is Kind.SEQ):
        return None
    step, names = body[0], {loop.var for loop in (*shared, body[0])}
    roles: dict[str, tuple[str, ...]] = {}
    slopes: set[int] = set()
    for _, s in statements(step.body):
        found = [free_vars(e) & names for e in s.index]
        if any(len(f) > 1 for f in found):
            return None
        roles[s.buffer] = tuple(min(f, default="") for f in found)
        slopes |= {linear(e).slope(step.var) for e in s.index if step.var in free_vars(e)}
    return Form(tuple(shared), step, slopes == {-1}, roles) if len(slopes) == 1 and slopes <= {1, -1} else None


def nests(body: Sequence[Stmt]) -> list[tuple[Stmt, ...]]:
    """The nests of a step; one over no axes of its own is a store, or a store and its reduction."""
    out: list[tuple[Stmt, ...]] = []
    for s in body:
        inside = s
        while isinstance(inside, Loop) and inside.kind is Kind.RED:
            (inside,) = inside.body
        if isinstance(inside, Update):
            out[-1] = (*out[-1], s)
        else:
            out.append((s,))
    return out


def issue_slots(e: Expr) -> float:
    """The issue slots of the functions in ``e``."""
    return sum(FUNCTIONS[n.op].slots for n in walk(e) if isinstance(n, Op) and n.op in FUNCTIONS)


def step_slots(form: Form) -> tuple[float, float]:
    """The issue slots of a step for a position along all axes, and for one along the independent axes."""
    found = [(issue_slots(s.value), loops) for loops, s in statements(form.step.body)]
    return sum(n for n, _ in found), sum(n * prod(nominal(as_extent(x.hi)) for x in loops) for n, loops in found)


def read_slots(form: Form) -> float:
    """The issue slots of a step for its reads of tensors of others, for one position along the independent axes."""
    found = [
        ({ld for ld in loads(s.value) if ld.buffer not in form.roles}, loops) for loops, s in statements(form.step.body)
    ]
    return sum(READ * len(read) * prod(nominal(as_extent(x.hi)) for x in loops) for read, loops in found)


def independent(
    members: Mapping[str, tuple[Axis, ...]], reads: Sequence[tuple[str, Load]]
) -> tuple[dict[str, int], ...]:
    """The independent axes of a recurrence: for each, its position in every member.

    ``members``: the axes of each; ``reads``: (reader, its read of a member).
    """
    first = next(iter(members))
    found = []
    for axis in range(len(members[first])):
        places = {first: axis}
        for _ in members:
            for reader, ld in reads:
                if reader in places and ld.buffer not in places:
                    var = Var(members[reader][places[reader]].name)
                    places |= dict.fromkeys([ld.buffer], ld.index.index(var)) if var in ld.index else {}
                elif ld.buffer in places and reader not in places:
                    at = ld.index[places[ld.buffer]]
                    mine = [p for p, a in enumerate(members[reader]) if at == Var(a.name)]
                    places |= dict.fromkeys([reader], mine[0]) if mine else {}
        extents = {members[n][p].extent for n, p in places.items()}
        aligned = all(
            reader in places
            and ld.buffer in places
            and ld.index[places[ld.buffer]] == Var(members[reader][places[reader]].name)
            for reader, ld in reads
        )
        if len(places) == len(members) and len(extents) == 1 and aligned:
            found.append(places)
    return tuple(found)
