"""A program with recurrences at a few positions of its outputs, and the steps whose evaluation is affordable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nautilus.check.bound.probes import FEW, PROBES
from nautilus.check.bound.recurrences.follows import Along
from nautilus.check.bound.sampling import INPUTS
from nautilus.check.bound.sums.admitted import lengths
from nautilus.check.bound.sums.shorter import shorter_sums, volume, work
from nautilus.core.expr.nodes import Expr, Load, Op, Reduce, children
from nautilus.core.index.sizes import Extent
from nautilus.core.numerics import Array, distinct
from nautilus.core.schedule import Schedule
from nautilus.frontend.promises import integer_ranges
from nautilus.frontend.restrict import Restricted
from nautilus.frontend.spec import Definition, Spec, Tensor

FIRST: Final = 16  # steps under all choices of errors
_MOST: Final = 512  # steps under one choice
_LEAST: Final = 32
BUDGET: Final = 1 << 24  # points of an evaluation; above that, sums outside of recurrences are shortened
_WORK: Final = 1 << 22  # points of the steps of one evaluation
_POINTS: Final = 1 << 29  # operations at points in all evaluations: a few seconds
_MOST_POINTS: Final = 1 << 24  # points of one operation, whose values are in memory at the same time
_FEW_POINTS: Final = 1 << 19  # points of a step, up to which the time is that of the calls: all inputs run at once
_ELEMENTS: Final = (64, 16, 4)  # elements of an output at each step: the first number whose work is within the limit
_MORE: Final = (1024, 256)  # where few of them have most of the norm
_MORE_WORK: Final = 1 << 23  # points of the steps of one evaluation then
_MORE_INPUTS: Final = 32  # then, at most
_ALL: Final = 1 << 20  # operations at points of the steps of all inputs then: they take seconds
_MORE_POINTS: Final = 512  # elements of an output on all inputs then, where it has fewer


class Known:
    """The data that all evaluations of the program ``fixed`` share; ``few``: the program at a few positions.

    ``more``: at more positions and on more inputs, with all choices of errors over all steps.  ``first``: the steps
    under all choices.
    """

    def __init__(
        self, fixed: Spec, along: Mapping[str, Along], precision: str, schedule: Schedule, more: bool = False
    ) -> None:  # fmt: skip
        most = _MORE_WORK if more else _WORK
        self.fixed, self.along, self.precision, self.schedule = fixed, along, precision, schedule
        self.terms, self.ranges = lengths(fixed), integer_ranges(fixed)
        self.total = max(a.total for a in along.values())
        for elements in _MORE if more else _ELEMENTS:
            self.chosen = {t.name: _positions(t, along[t.name], elements) for t in fixed.outputs}
            self.few = self.cut(fixed)
            if len(fixed.outputs) > 1:
                apart, self.chosen = self.chosen, _shared(fixed, self.chosen)
                fewer = self.cut(fixed)
                if 2 * work(fewer.spec) < work(self.few.spec):
                    self.few = fewer
                else:
                    self.chosen = apart
            members = tuple(d for d in self.few.spec.definitions if d.recurrence is not None)
            step = max(1, work(replace(self.few.spec, inputs=(), definitions=members)) // self.total)
            if step * self.total <= most:
                break
        least = min(volume(t.shape) for t in self.few.spec.outputs)
        steps = min(self.total, max(_LEAST, min(_MOST, most // step)))
        sizes = [_points(d) for d in members]
        if more:
            every = steps * sum(total for _, total in sizes) // self.total
            inputs = max(INPUTS, min(_MORE_INPUTS, _MORE_POINTS // max(1, least)))
            inputs = max(1, min(inputs, _ALL // max(1, every)))
        else:
            inputs = INPUTS if least < FEW else 1
        self.more = more and inputs > 1
        self.ends = any(a.axis is None for a in along.values())  # an output is the last state alone
        self.inputs, self.probes, self.steps = self._affordable(sizes, inputs, steps)
        self.first = self._first(self.steps)

    def _first(self, steps: int) -> int:
        """Of ``steps``, those under all choices of errors; with ``more``, all of them.

        One choice shows the growth from these steps to all: on a single input that may be the growth of a path by
        chance.  The growth of a last state is that between both numbers of steps.
        """
        return steps if self.more and not (self.ends and steps < self.total) else min(steps, FIRST)

    def _affordable(self, sizes: Sequence[tuple[int, int]], inputs: int, steps: int) -> tuple[int, int, int]:
        """How many inputs, choices of errors and steps are evaluated, at most ``inputs`` and ``steps``.

        ``sizes``: those of the members (:func:`_points`).  No steps: the recurrence is not evaluated.
        """
        each = max(1, sum(total for _, total in sizes) // self.total)

        def cost(inputs: int, probes: int, steps: int) -> int:
            first = self._first(steps)
            again = 2 * first if self.ends and first < steps else 0
            return each * inputs * (2 * steps + (probes - 1) * first + again)

        probes = len(PROBES)
        while inputs > 1 and cost(inputs, probes, steps) > _POINTS:
            inputs -= 1
        while probes > 2 and cost(inputs, probes, steps) > _POINTS:
            probes -= 1
        while steps > 2 and cost(inputs, probes, steps) > _POINTS:
            steps -= 1
        self.joins = each * inputs <= _FEW_POINTS
        drawn = max(each * steps, sum(volume(t.shape) for t in self.few.spec.inputs), 1)
        self.several = max(inputs, min(INPUTS, _ALL // drawn))  # of which the values take little time
        largest = max((most for most, _ in sizes), default=0) // self.total
        fits = cost(inputs, probes, steps) <= 2 * _POINTS and largest <= _MOST_POINTS
        return inputs, probes, steps if fits else 0

    def cut(self, spec: Spec, budget: int = BUDGET) -> Restricted:
        """``spec`` at a few positions, with sums of its members at full length."""
        return shorter_sums(spec, self.chosen, budget)


def _points(d: Definition) -> tuple[int, int]:
    """The points of the largest operation of ``d`` over all its steps, and those of all its operations."""
    outer = volume([a.extent for a in d.axes])
    most, total = 0, 0

    def traverse(e: Expr, around: int) -> None:
        nonlocal most, total
        inside = around * volume([a.extent for a in e.axes]) if isinstance(e, Reduce) else around
        if isinstance(e, Op | Reduce):
            most, total = max(most, inside), total + inside
        for x in () if isinstance(e, Load) else children(e):
            traverse(x, inside)

    traverse(d.expr, outer)
    return most, total


def _positions(t: Tensor, along: Along, elements: int) -> dict[int, Array]:
    """A few indices along each independent axis of output ``t``, so that it has about this many ``elements``."""
    sizes = [n if isinstance(n, int) else 1 for n in t.shape]
    others = int(np.prod([n for p, n in enumerate(sizes) if p not in along.free and p != along.axis]))
    count = max(2, elements // max(others, 1))
    chosen: dict[int, Array] = {}
    for p in sorted(along.free, reverse=True):
        n = min(sizes[p], count)
        chosen[p] = distinct(np.linspace(0, sizes[p] - 1, n).astype(np.int64))
        count = max(2, count // n)
    return chosen


def _shared(fixed: Spec, chosen: Mapping[str, Mapping[int, Array]]) -> dict[str, dict[int, Array]]:
    """``chosen``, where axes of one extent have the same indices, those of the output with the most of them.

    What several outputs read is otherwise needed at all indices.
    """
    most: dict[Extent, Array] = {}
    for t in fixed.outputs:
        for p, x in chosen[t.name].items():
            n = t.shape[p]
            most[n] = max(most.get(n, x), x, key=len)
    return {t.name: {p: most[t.shape[p]] for p in chosen[t.name]} for t in fixed.outputs}
