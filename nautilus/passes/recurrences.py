"""Passes and decisions of Scalar IR in a program with recurrences.

They run on each part of the program without recurrences (:mod:`nautilus.scalar.rewriting.recurrences`), under the
part of the schedule that names its definitions.  A pass that says ``sees_recurrences = True`` runs on the whole
program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nautilus.core.buffers import Space
from nautilus.core.certificate import Certificate
from nautilus.core.fallbacks import Fallbacks
from nautilus.core.schedule import Schedule
from nautilus.scalar.analysis.definitions import is_recurrence, writes_of
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting.recurrences import between, part_of, parts

Derive = Callable[[Program, "Schedule | None"], tuple[Program, tuple[Certificate, ...]]]
Decide = Callable[[Program, "Schedule | None", Fallbacks], tuple[Schedule, Fallbacks]]


def has_recurrences(module: Any) -> bool:
    """Whether ``module`` is a program of Scalar IR with a recurrence."""
    return isinstance(module, Program) and any(map(is_recurrence, module.kernels))


def derive_between(
    derive: Derive, program: Program, schedule: Schedule | None
) -> tuple[Program, tuple[Certificate, ...]]:
    """The program and the certificates of ``derive`` on every part."""
    certificates: list[Certificate] = []

    def apply(part: Program) -> tuple[Program, Callable[[], None]]:
        made, found = derive(part, _within(schedule, part))
        return made, lambda: certificates.extend(found)

    return between(apply, program), tuple(certificates)


def decide_between(
    decide: Decide, program: Program, schedule: Schedule | None, fallbacks: Fallbacks, regroups: bool = False
) -> tuple[Schedule, Fallbacks]:
    """The schedule of ``decide`` on every part as one.

    ``regroups``: the decision changes which kernels are in a part.  What a trial of a part found for its axes, which
    later passes name by the whole part, is then left open.
    """
    found: list[Schedule] = []
    for n, kernels in enumerate(parts(program)):
        if n % 2 == 0 and kernels:
            part = part_of(program, kernels)
            own = _within(schedule, part)
            made, fallbacks = decide(part, own, fallbacks)
            found.append(_axes_as_given(made, own) if regroups else made)
    given, plans = schedule or Schedule(), {k.name: k for s in found for k in s.kernels}
    return replace(
        given,
        inline=_joined([s.inline for s in found]),
        scatters=_joined([s.scatters for s in found]),
        copies=_joined([s.copies for s in found]),
        packs=_joined([s.packs for s in found]),
        splits=_joined([s.splits for s in found]),
        # given plans stay where they are, also those of definitions that a later pass makes
        kernels=(*(plans.pop(k.name, k) for k in given.kernels), *plans.values()),
    ), fallbacks


def _axes_as_given(made: Schedule, given: Schedule | None) -> Schedule:
    """``made`` with the choices about axes that ``given`` has."""
    known = given or Schedule()
    return replace(made, packs=known.packs, splits=known.splits)


def _joined(choices: list[tuple[Any, ...] | None]) -> tuple[Any, ...] | None:
    """The choices of all parts; None where no part has one."""
    made = [c for c in choices if c is not None]
    return tuple(x for c in made for x in c) if made else None


def _within(schedule: Schedule | None, part: Program) -> Schedule | None:
    """``schedule`` without what it says about definitions outside of ``part``.

    A trial of a part alone may have found copies for readers that are in other parts of the whole program, where
    definitions that have no reader any more are not removed yet.  They stay what they are.
    """
    if schedule is None:
        return None
    temps = {b.name for b in part.buffers if b.space is Space.TEMP}
    names = frozenset[str]().union(*map(writes_of, part.kernels)) | {k.name for k in part.kernels}
    return replace(
        schedule,
        inline=None if schedule.inline is None else tuple(n for n in schedule.inline if n in names),
        scatters=None if schedule.scatters is None else tuple(n for n in schedule.scatters if n in names),
        copies=None if schedule.copies is None else tuple(c for c in schedule.copies if c.op in names & temps),
        packs=None if schedule.packs is None else tuple(p for p in schedule.packs if p.op in names),
        splits=None if schedule.splits is None else tuple(s for s in schedule.splits if s.op in names),
        kernels=tuple(k for k in schedule.kernels if k.name in names or set(k.ops) <= names),
    )
