"""Which passes the compilation at the declared sizes uses, and whether a check at smaller sizes reaches them.

A pass may begin above some size, such as one that cuts a long reduction into chunks.  A check at small sizes then says
nothing about it.  :func:`missing` finds such passes.  Those that begin where they are predicted to pay run at the small
sizes without that condition (:func:`with_all`), and :func:`enlarged` gives larger sizes, in order, at which the check
looks for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from nautilus.check.levels import STAGES, Level
from nautilus.check.sizes import Loader, Variant, larger
from nautilus.core.schedule import Schedule
from nautilus.driver import Request
from nautilus.passes.loading import ALWAYS, has_option, load_pass
from nautilus.passes.pipelines import Only, stage


def missing(declared: Sequence[Level], checked: Iterable[Sequence[Level]]) -> tuple[str, ...]:
    """The passes that change the module at the ``declared`` sizes and at none of the ``checked`` ones, in order."""
    reached = {x.subject for levels in checked for x in levels}
    return tuple(x.subject for x in declared if not x.is_lowering and x.subject not in reached)


def with_all(request: Request, lacking: Collection[str]) -> Request | None:
    """``request`` down to VR-tile IR with those passes of ``lacking`` wherever they may run; None where there is none
    that depends on a prediction.

    States in chunks of steps are not rounded: the bound has these roundings where the rule has chunks.
    """
    scalar = stage("scalar")
    named = zip(scalar.step_names, scalar.passes, strict=True)
    wanted = [p for step, p in named if f"{scalar.name}/{step}" in lacking]
    found = [p for p in wanted if has_option(load_pass(p.name, p.target), ALWAYS)]
    precision = "strict" if any(p.only is Only.RECURRENCES for p in found) else request.precision
    names = frozenset(p.name for p in found)
    return replace(request, unpriced=names, until="vr-tile", precision=precision) if names else None


def enlarged(
    load: Loader, fixed: Mapping[str, int], checked: Sequence[Variant], lacking: Sequence[str]
) -> Iterator[Variant]:
    """Larger sizes than those that are ``checked``; none where no pass of ``lacking`` can be reached by them."""
    if any(subject.partition("/")[0] in STAGES for subject in lacking):
        yield from (v for v in larger(load, fixed) if all(v.dims != x.dims for x in checked))


def with_scatters(request: Request, declared: Sequence[Level]) -> Request:
    """``request`` with the scatters of the declared sizes, because at small sizes the rule has none.

    Reductions that a pass made which depends on a prediction are none of them: small sizes do not have them.
    """
    last = declared[-1].context.schedule if declared else None
    if request.schedule is not None or last is None or not last.scatters:
        return request
    made = _predicted(declared)
    return replace(request, schedule=Schedule(scatters=tuple(n for n in last.scatters if n not in made)))


def _predicted(declared: Sequence[Level]) -> frozenset[str]:
    """The buffers that passes made at the declared sizes which run where they are predicted to pay."""
    scalar = stage("scalar")
    named = zip(scalar.step_names, scalar.passes, strict=True)
    priced = {f"{scalar.name}/{step}" for step, p in named if has_option(load_pass(p.name, p.target), ALWAYS)}
    made: set[str] = set()
    for before, after in pairwise(declared):
        if after.subject in priced and before.stage == scalar.name:
            made |= {b.name for b in after.module.buffers} - {b.name for b in before.module.buffers}
    return frozenset(made)
