"""Keeping an elementwise definition in memory instead of computing it again in every reader.

The default rule inlines every elementwise temp.  One that takes long and is read by many blocks may be faster as a
kernel of its own; then the program that is scheduled is another one.  It is made again from the module before the
pass ``inline``, which the :class:`Origin` of a program holds.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.errors import ScheduleError
from nautilus.core.records import dataclass
from nautilus.core.schedule import Schedule
from nautilus.passes.manager import Context, steps
from nautilus.passes.pipelines import SCALAR
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.tune.space.fusion import Groups
from nautilus.tune.space.tuning_parameter import RULE

_MATERIALISE = "materialise "
_MOST = 4  # definitions that may be kept in memory


@dataclass(frozen=True)
class Origin:
    """Where a program comes from: the module before the pass ``inline``, and what that inlined."""

    before: Program
    inline: tuple[str, ...]
    context: Context


def ways(found: Origin | None) -> tuple[str, ...]:
    """The ways to inline: the rule, or one definition kept in memory."""
    return (RULE, *(_MATERIALISE + name for name in (found.inline[:_MOST] if found is not None else ())))


def name_of(way: str) -> str:
    """The definition that ``way`` keeps."""
    return way.removeprefix(_MATERIALISE)


def program_with(found: Origin, name: str) -> tuple[Program, tuple[str, ...]]:
    """The program of ``found`` with definition ``name`` kept, and what is inlined then. Raises ScheduleError."""
    inline = tuple(n for n in found.inline if n != name)
    context = replace(found.context, schedule=Schedule(inline=inline))
    todo = steps(SCALAR)
    names = [s.name for s in todo]
    module = found.before
    for step in todo[names.index("inline") : names.index("dead") + 1]:
        module = step.run(module, context)
    return module, inline


def groups_with(program: Program, groups: Groups, name: str) -> Groups:
    """``groups`` with ``name`` as a kernel of its own, and the group that had it cut there. Raises ScheduleError."""
    if name not in read_defs(program):
        raise ScheduleError("it has no reader")
    out: list[tuple[str, ...]] = []
    for g in groups:
        if name not in g:
            out.append(g)
            continue
        at = g.index(name)
        out += [part for part in (g[:at], (name,), g[at + 1 :]) if part]
    return tuple(out)
