"""Definitions that their readers compute again instead of reading them from memory, by the cost model.

The rules store a definition whose readers are in several kernels.  :mod:`nautilus.planner.rematerialise` lists the
copies with which each of these kernels computes it for itself.  All copies of a program are tried together, then those
of one definition alone, and all copies with the splits that are best without copies.  The fastest program by the cost
model is taken.  Where the time that the bytes of the stored definitions take alone is longer than that of the program
with all copies, the plan of the rules is not lowered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import inf

from nautilus.core.fallbacks import Fallbacks
from nautilus.core.records import dataclass
from nautilus.core.schedule import CopyPlan, SplitPlan
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.selection import split_choice
from nautilus.passes.selection.trial import Trial
from nautilus.planner.rematerialise import copies, is_stored, stored_bytes
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

MARGIN = 0.03  # relative gain by the cost model below which the choice of the rules stays
_BEFORE = SCALAR.before("rematerialise")
_BANDWIDTH = machine(DEFAULT_TARGET).dram_read  # bytes a second


@dataclass(frozen=True, slots=True)
class Alternative:
    """The program with ``copies``; ``trial`` is None where it is refused or was not lowered."""

    copies: tuple[CopyPlan, ...]
    trial: Trial | None


def choose(program: Program, context: Context) -> Trial | None:
    """The fastest trial of ``program``, the result of :data:`_BEFORE`; None where there is nothing to copy."""
    tried = [a.trial for a in alternatives(program, context) if a.trial is not None]
    if not tried:
        return None
    first = next((t for t in tried if not t.schedule.copies), None)
    best = min(tried, key=lambda t: t.seconds)
    return first if first is not None and best.seconds > (1 - MARGIN) * first.seconds else best


def alternatives(program: Program, context: Context, every: bool = False) -> list[Alternative]:
    """What may be copied, the trial of each with all else by the rules; none where there is nothing to copy.

    ``every``: all of them are lowered.
    """
    live = Dead().apply(program)
    found = copies(live, context.fallbacks)
    if not found:
        return []
    tried = [_tried(program, context, found)]
    whole = tried[0].trial
    if not every and whole is not None and whole.seconds <= _stored_seconds(live, found, context.fallbacks):
        return [*tried, Alternative((), None)]
    for made in ((), *_alone(found, find_defs(live).keys())):
        best = min((a.trial.seconds for a in tried if a.trial is not None), default=inf)
        tried.append(_tried(program, context, made, inf if every else best / (1 - MARGIN)))
    stored = tried[1].trial
    if stored is not None and stored.schedule.splits and (whole is None or stored.seconds < whole.seconds):
        tried[0] = _with_splits(program, context, tried[0], stored.schedule.splits)
    return tried


def _with_splits(program: Program, context: Context, first: Alternative, splits: tuple[SplitPlan, ...]) -> Alternative:
    """The faster one of ``first`` and the program with its copies and the ``splits`` of that without copies.

    Kernels with copies are split one after another, and each is slow until all are.
    """
    assert context.schedule is not None
    schedule = replace(context.schedule, splits=splits)
    again = _tried(program, replace(context, schedule=schedule), first.copies).trial
    slower = again is None or (first.trial is not None and first.trial.seconds <= again.seconds)
    return first if slower else Alternative(first.copies, again)


def _tried(program: Program, context: Context, made: tuple[CopyPlan, ...], below: float = inf) -> Alternative:
    """The trial of the program with the copies ``made``; one that is not faster than ``below`` may have no splits."""
    assert context.schedule is not None
    wanted = replace(context, schedule=replace(context.schedule, copies=made))
    return Alternative(made, split_choice.priced_after(program, wanted, _BEFORE, below))


def _alone(found: tuple[CopyPlan, ...], known: Collection[str]) -> Iterator[tuple[CopyPlan, ...]]:
    """The copies of each definition alone, where several are copied; their readers are ``known`` without copies."""
    names = dict.fromkeys(c.op for c in found)
    for name in names if len(names) > 1 else ():
        own = (replace(c, readers=tuple(r for r in c.readers if r in known)) for c in found if c.op == name)
        if made := tuple(c for c in own if c.readers):
            yield made


def _stored_seconds(program: Program, found: tuple[CopyPlan, ...], fallbacks: Fallbacks) -> float:
    """The least time of the bytes that are written, and read once by each kernel, without the copies ``found``."""
    defs = find_defs(program)
    written = [c.op for c in found if c.op in defs and is_stored(program, c.op, fallbacks)]
    return sum(stored_bytes(defs[name]) * 2 for name in written) / _BANDWIDTH
