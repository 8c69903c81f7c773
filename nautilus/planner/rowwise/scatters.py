"""Which reductions with a key become scatters.

The masked form tests every pair of a term and an element, at the rate of arithmetic.  A scatter combines each term
once, at the rate of atomic operations, and needs further launches: one that stores the initial values, and for a sum
of f32 a second scatter and a kernel that reads both results.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.schedule import Schedule
from nautilus.scalar.analysis.definitions import Def
from nautilus.scalar.analysis.ranges.keys import Keyed
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.scatter import LINES, copies, expected, fits_in_blocks, in_one_pass, scattered
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.rates import Machine, machine

MARGIN = 1.25  # least quotient of the times of the masked form and of the scatter
_TEST = 4.0  # issue slots of a term that is tested for one element
LINE = 32  # elements of 4 bytes on a line of memory
_ATOMIC = 20.0  # cycles of a multiprocessor for the atomic operations of a warp, 4 bytes each
_IN_BLOCK = 8.0  # the same cycles where the operations are on shared memory


def plan_scatters(program: Program, schedule: Schedule, arch: str) -> Schedule:
    """``schedule`` with its scatters, by the rule if it leaves them open; none if it has kernels."""
    if schedule.scatters is not None or schedule.kernels:
        return schedule
    m, found = machine(arch), list[str]()
    for d in find_defs(program).values():
        k = scattered(program, d)
        if k is not None and MARGIN * scatter_seconds(d, k, m) < masked_seconds(d, m):
            found.append(d.name)
    return replace(schedule, scatters=tuple(found)) if found else schedule


def masked_seconds(d: Def, m: Machine) -> float:
    """The time of the reduction ``d`` whose every element visits all terms."""
    pairs = expected(d.axes)
    return m.launch + pairs * _TEST / (m.multiprocessors * m.fma * m.clock)


def scatter_seconds(d: Def, k: Keyed, m: Machine) -> float:
    """The time of all kernels of the scatter of ``d``."""
    count, elements = expected(k.axes), expected(d.par)
    whole = in_one_pass(d)
    words = max(1.0, d.buffer.dtype.bytes / 4) if whole else 3  # of the atomic operations of a term
    launches, passes = (2, 1) if whole else (5, 2)
    moved = (passes * count * 4 + (2 if whole else 6) * elements * 4) / m.dram
    if fits_in_blocks(d, k):
        return launches * m.launch + max(count * words * _IN_BLOCK / (32 * m.multiprocessors * m.clock), moved)
    atomics = count * words * _ATOMIC / (32 * m.multiprocessors * m.clock)
    lines = min(LINES, max(1, elements * copies(d, k) * words / LINE))
    serial = count * words / (lines * m.line_atomics * m.clock)
    return launches * m.launch + max(atomics, moved, serial)
