"""Keeping an elementwise definition in memory instead of computing it again in every reader.

The default rule inlines every elementwise temp.  One that is dear and read by many blocks may be better off as a
kernel of its own; then the program that is scheduled is another one.  It is made again from the module before the
pass ``inline``, which is remembered for every program that the scheduler is asked about.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from nautilus.core.errors import ScheduleError
from nautilus.core.schedule import Schedule
from nautilus.passes.manager import Context, steps
from nautilus.passes.pipelines import SCALAR
from nautilus.scalar.analysis.definitions import read_defs
from nautilus.scalar.ir import Program
from nautilus.tune.space.fusion import Groups

RULE = "rule"
_MATERIALISE = "materialise "
_KEPT, _MOST = 256, 4


@dataclass(frozen=True)
class Origin:
    """Where ``program`` comes from: the module before the pass ``inline``, and what that inlined."""

    program: Program
    before: Program
    inline: tuple[str, ...]
    context: Context


_origins: OrderedDict[int, Origin] = OrderedDict()


def remember(program: Program, before: Program, inline: tuple[str, ...], context: Context) -> None:
    """Note the origin of ``program``."""
    _origins[id(program)] = Origin(program, before, inline, context)
    while len(_origins) > _KEPT:
        _origins.popitem(last=False)


def origin_of(program: Program) -> Origin | None:
    """What was noted of ``program``."""
    found = _origins.get(id(program))
    return found if found is not None and found.program is program else None


def ways(found: Origin | None) -> tuple[str, ...]:
    """What may be done about inlining: the rule, or one definition kept in memory."""
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
        raise ScheduleError("nobody reads it")
    out: list[tuple[str, ...]] = []
    for g in groups:
        if name not in g:
            out.append(g)
            continue
        at = g.index(name)
        out += [part for part in (g[:at], (name,), g[at + 1 :]) if part]
    return tuple(out)
