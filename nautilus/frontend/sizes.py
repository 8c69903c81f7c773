"""Values of runtime sizes at which tools run a spec, which satisfy the facts of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nautilus.core.index.sizes import MAX_DIM

if TYPE_CHECKING:
    from nautilus.frontend.spec import Assumption, Dim

_STEPS = (0, -1, 1, -16, 16, -128, 128)  # between one size and the next, in order of declaration


def samples(dims: Sequence[Dim], facts: Sequence[Assumption], default: int) -> dict[str, int]:
    """A value for each runtime dim: its sample, else one near ``default``.

    The values satisfy every fact about sizes alone, if one of a few choices of different sizes does.
    """
    found = dict[str, int]()
    for chosen in _choices(dims, default):
        if all(holds(f, chosen) is not False for f in facts):
            return chosen
        found = found or chosen
    return found


def _choices(dims: Sequence[Dim], default: int) -> Iterator[dict[str, int]]:
    late = [d for d in dims if d.value is None]
    for step in _STEPS:
        yield {
            d.name: nearest(d, default + n * step * d.multiple) if d.sample is None else d.sample
            for n, d in enumerate(late)
        }


def nearest(dim: Dim, size: int) -> int:
    """The allowed size of ``dim`` that is nearest to ``size`` from below, or else the least one."""
    by = dim.multiple
    least = -(-dim.least // by) * by
    return max(least, min(size, dim.bound or MAX_DIM) // by * by)


def holds(fact: Assumption, sizes: Mapping[str, int]) -> bool | None:
    """Whether ``fact`` holds at ``sizes``; None where it is about something else."""
    from nautilus.core.expr.evaluate import evaluate  # it loads numpy

    if fact.promised:
        return None
    try:
        return bool(evaluate(fact.condition, sizes))
    except KeyError:
        return None
