"""Large programs, in which each choice is searched alone.

A choice is searched under the best of the choices that follow it, so that the numbers of trials multiply: which
definitions are inlined, which are computed again, how reductions are split.  A trial takes time in proportion to the
definitions of the program.  In a large one, the trials of a choice have what the rules say of the later ones, which are
searched when the passes reach them; and the attempts after one that failed keep its choices about whole definitions.
"""

from __future__ import annotations

from nautilus.core.schedule import Schedule
from nautilus.scalar.ir import Program

LARGE = 12  # definitions


def is_large(program: Program, schedule: Schedule | None) -> bool:
    """Whether ``program`` has :data:`LARGE` definitions that ``schedule`` does not inline."""
    inlined = frozenset(schedule.inline or ()) if schedule is not None else frozenset[str]()
    return sum(k.name not in inlined for k in program.kernels) >= LARGE


def kept_choices(schedule: Schedule | None) -> Schedule | None:
    """The choices of ``schedule``, with the plans of a large program, about whole definitions; None for a small one."""
    if schedule is None or sum(len(k.ops) for k in schedule.kernels) < LARGE:
        return None
    return Schedule(inline=schedule.inline, copies=schedule.copies)
