"""Which reductions with a key become scatters.

The masked form tests every pair of a term and an element, at the rate of arithmetic, and reads the keys for it.  A
scatter combines each term once, at the rate of atomic operations, and needs further launches: one that stores the
initial values, and for a sum of f32 one for the scales, a second scatter, and a kernel that reads both results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.expr.nodes import free_vars, loads
from nautilus.core.schedule import Schedule
from nautilus.planner.rowwise.terms import keyed_elements
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.keys import Keyed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.scatter import (
    LINE,
    arranged,
    copies,
    expected,
    fits_in_blocks,
    in_one_pass,
    scattered,
    without_position,
)
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.limits import SCATTER_BYTES, SCATTERS_BYTES
from nautilus.targets.memory_rates import ATOMIC_LINES, SHARED_ATOMIC
from nautilus.targets.rates import Machine, machine

MARGIN = 1.25  # least quotient of the times of the masked form and of the scatter
_TEST = 4.0  # issue slots of a term that is tested for one element
_ATOMIC = 20.0  # cycles of a multiprocessor for the atomic operations of a warp, 4 bytes each


def plan_scatters(program: Program, schedule: Schedule, arch: str) -> Schedule:
    """``schedule`` with its scatters, by the rule if it leaves them open; none if it has kernels."""
    if schedule.scatters is not None or schedule.kernels:
        return schedule
    m, found = machine(arch), list[str]()
    for d in find_defs(program).values():
        k = scattered(program, d)
        if k is not None and MARGIN * scatter_seconds(d, k, m) < masked_seconds(d, k, m):
            found.append(d.name)
    return replace(schedule, scatters=tuple(found)) if found else schedule


def share_terms(defs: Sequence[Def]) -> bool:
    """Whether ``defs`` are scatters whose kernel, if they have the same terms, combines as they do alone.

    Blocks combine in shared memory where all results fit there together, or none does alone.
    """
    if any(d.scatter is None for d in defs):
        return False
    sizes = [keyed_elements(d) * d.buffer.dtype.bytes for d in defs]
    return sum(sizes) <= SCATTERS_BYTES if min(sizes) <= SCATTER_BYTES else True


def masked_seconds(d: Def, k: Keyed, m: Machine) -> float:
    """The time of the reduction ``d`` whose every element visits all terms.

    Where lanes lie along terms, every element reads all keys and all terms from L2.  Where they lie along an axis of
    the result, lanes share a key, and a term is read for its own element alone.  Terms that differ from key to key are
    read once in both forms.
    """
    pairs, keys = expected(d.axes), {a.name for a in k.keys}
    last = {x for ld in loads(d.value) if ld.index for x in free_vars(ld.index[-1])}
    lanes = expected(a for a in d.par if a.name in last - keys)
    read = [ld for e in (d.guard, d.value if lanes == 1 else None) if e is not None for ld in loads(e)]
    again = not any(free_vars(ld) & keys for ld in loads(d.value))
    moved = pairs / lanes * sum(ld.dtype.bytes for ld in read) / m.l2_sectors if again else 0.0
    return m.launch + max(pairs * _TEST / (m.multiprocessors * m.fma * m.clock), moved)


def scatter_seconds(d: Def, k: Keyed, m: Machine) -> float:
    """The time of all kernels of the scatter of ``d``."""
    d, k = arranged(d, k)
    first, elements = expected(without_position(d, k)), expected(d.par)
    count = expected(k.axes) // first
    whole = in_one_pass(d)
    words = max(1.0, d.buffer.dtype.bytes / 4) if whole else 3  # of the atomic operations of a term
    launches, passes = (2, 1) if whole else (6, 2)
    launches += first > 1
    moved = ((passes * count + (first > 1) * (first + 1) * count) * 4 + (2 if whole else 8) * elements * 4) / m.dram
    if fits_in_blocks(d, k):
        atomics = count * words * SHARED_ATOMIC / (32 * m.multiprocessors * m.clock)
        return launches * m.launch + max(atomics, moved)
    atomics = count * words * _ATOMIC / (32 * m.multiprocessors * m.clock)
    lines = min(ATOMIC_LINES, max(1, elements * copies(d, k) * words / LINE))
    serial = count * words / (lines * m.line_atomics * m.clock)
    return launches * m.launch + max(atomics, moved, serial)
