"""Which definitions their readers could compute again instead of reading them from memory (``rematerialise``).

The default rules fuse a definition with its readers only if all of them share one kernel.  A definition whose readers
are in several kernels is stored.  Here its readers are put together in *clusters*, as many kernels in each as have a
legal plan with the definition; every cluster but the first one reads a copy.  A reader in no
cluster keeps the definition in memory.  Readers that share one kernel, for which the definition is stored, may have
kernels of their own: a statistic of its elements, and what the statistic scales.  Where the kernel of the readers has
several phases, such as the best of a row and the best of its other elements, those of each phase are a cluster, also
where the kernel computes the definition itself, once for each phase: kernels of single phases can be split.

Definitions are visited from the outputs to the inputs, so that the operands of a copy are copied after it where they
are large.  Only a definition of :data:`LARGE` bytes or more is a candidate, since a small one costs nothing to store.
The cost model decides whether the copies are made (:mod:`nautilus.passes.selection.copy_choice`).
"""

from __future__ import annotations

from math import prod

from nautilus.core.buffers import Space
from nautilus.core.errors import ScheduleError
from nautilus.core.fallbacks import NO_FALLBACKS, Fallbacks
from nautilus.core.schedule import CopyPlan, KernelPlan, Schedule
from nautilus.planner.cuts import plan_packs
from nautilus.planner.groups import Group, known_of
from nautilus.planner.kernels import grouped
from nautilus.scalar.analysis.definitions import Def, read_defs, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.operands.rematerialise import copied
from nautilus.scalar.passes.pack import Pack

LARGE = 8 << 20  # bytes: two microseconds to write and two for each read
MOST = 4  # definitions that are candidates
READERS = 8  # largest number of kernels that read one of them


def copies(program: Program, fallbacks: Fallbacks = NO_FALLBACKS) -> tuple[CopyPlan, ...]:
    """Every copy that lets a large definition of ``program`` (after ``dead``) be fused with readers."""
    found: tuple[CopyPlan, ...] = ()
    large = [n for n, d in reversed(read_defs(program).items()) if stored_bytes(d) >= LARGE]
    readers = known_of(program).graph.readers if large else {}
    for name in [n for n in large if len(readers[n]) > 1][:MOST]:
        made = _copies(program, name, fallbacks)
        for plan in made:
            program = copied(program, plan)
        found += made
    return found


def stored_bytes(d: Def) -> int:
    """The bytes of ``d`` in memory; 0 for one that is not stored only for its readers, or of a size known late."""
    sizes = [size(a) for a in d.par]
    return d.buffer.dtype.bytes * prod(n or 0 for n in sizes) if d.buffer.space is Space.TEMP else 0


def _copies(program: Program, name: str, fallbacks: Fallbacks) -> tuple[CopyPlan, ...]:
    """Copies of definition ``name`` for the clusters of its readers after the first one."""
    groups, plans = grouped(_packed(program), fallbacks)
    readers: dict[Group, list[str]] = {}
    for r in known_of(program).graph.readers[name]:
        readers.setdefault(groups[r], []).append(r)
    apart = list(readers.values())
    if len(apart) == 1:
        (one,) = readers
        phases = _by_phase(apart[0], plans.get(one))
        if 1 < len(phases) <= READERS:  # the whole reductions may share no kernel with copies, where their chunks do
            return tuple(CopyPlan(name, p) for p in phases[1:])
        apart = [[r] for r in apart[0]]
    if name in {n for g in readers for n in g} or not 1 < len(apart) <= READERS:
        return ()
    clusters: list[list[str]] = []
    for mine in apart:
        for cluster in clusters:
            if _fuses(program, CopyPlan(name, (*cluster, *mine)), fallbacks):
                cluster += mine
                break
        else:
            if _fuses(program, CopyPlan(name, tuple(mine)), fallbacks):
                clusters.append(list(mine))
    whole = sum(map(len, clusters)) == sum(map(len, apart))
    return tuple(CopyPlan(name, tuple(c)) for c in (clusters[1:] if whole else clusters))


def _by_phase(readers: list[str], plan: KernelPlan | None) -> list[tuple[str, ...]]:
    """The ``readers`` of a definition that each phase of their kernel has; none where ``plan`` is not known."""
    found = (tuple(r for r in readers if r in phase) for phase in (plan.phases if plan is not None else ()))
    return [mine for mine in found if mine]


def is_stored(program: Program, name: str, fallbacks: Fallbacks) -> bool:
    """Whether the rules store the definition ``name``, of which a reader is in another kernel."""
    groups, _ = grouped(_packed(program), fallbacks)
    return any(groups[r] != groups[name] for r in known_of(program).graph.readers[name])


def _fuses(program: Program, plan: CopyPlan, fallbacks: Fallbacks) -> bool:
    """Whether the rules fuse the copy of ``plan`` with all of its readers."""
    try:
        made = copied(program, plan)
        copy = next(b.name for b in made.buffers if all(b.name != x.name for x in program.buffers))
        groups, _ = grouped(_packed(made), fallbacks)
    except ScheduleError:
        return False
    return {*plan.readers} <= {*groups[copy]}


def _packed(program: Program) -> Program:
    return Pack(plan_packs(program, Schedule())).apply(program)
