"""Values of runtime sizes at which tools run a spec, which satisfy the facts of the spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Op
from nautilus.core.index.sizes import MAX_DIM

if TYPE_CHECKING:
    from nautilus.frontend.spec import Assumption, Dim

_LEAST_GAP = {"eq": 0, "le": 0, "lt": 1, "ge": 0, "gt": -1}  # the least difference of the right side and the left one
_STEPS = (0, -1, 1, -16, 16, -128, 128)  # between one size and the next, in order of declaration


def samples(dims: Sequence[Dim], facts: Sequence[Assumption], default: int) -> dict[str, int]:
    """A value for each runtime dim: its sample, else one near ``default``.

    The values satisfy every fact about sizes alone, if one of a few choices of different sizes does, or one in which
    sizes moved by what their facts lack, as that of ``assume B1 == B + 1``.
    """
    found = dict[str, int]()
    for chosen in _choices(dims, default):
        for _ in range(len(facts) + 1):
            broken = next((f for f in facts if holds(f, chosen) is False), None)
            if broken is None:
                return chosen
            found = found or chosen
            chosen = _moved(broken, chosen, dims)
    return found


def _moved(fact: Assumption, sizes: dict[str, int], dims: Sequence[Dim]) -> dict[str, int]:
    """``sizes`` with the last one of ``dims`` moved that makes ``fact`` hold; as they are if none does."""
    from nautilus.core.expr.evaluate import evaluate

    for part in conjuncts(fact.condition):
        if not isinstance(part, Op) or part.op not in _LEAST_GAP or evaluate(part, sizes):
            continue
        for dim in reversed([d for d in dims if d.value is None and d.sample is None]):
            (gap, more) = (
                int(evaluate(part.args[1], at)) - int(evaluate(part.args[0], at))
                for at in (sizes, sizes | {dim.name: sizes[dim.name] + 1})
            )
            by = 0 if more == gap else (_LEAST_GAP[part.op] - gap) // (more - gap)
            moved = sizes | {dim.name: sizes[dim.name] + by}
            if by and nearest(dim, moved[dim.name]) == moved[dim.name] and evaluate(part, moved):
                return moved
    return sizes


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
