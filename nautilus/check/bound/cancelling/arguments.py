"""The exact arguments of steps: elements that lie at a tie over the reals, as positions of a spec often do.

The base 2 logarithm of a position is an integer at each power of two.  Whatever rounds such an argument moves it to one
side of the tie, and equal expressions to the same side at all elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from nautilus.check.bound.cancelling.ties import Ties, are_equal, of_nodes, orders_of
from nautilus.core.expr.nodes import Expr, Op
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.frontend.interp import STEP, Evaluator, exactly, run_spec
from nautilus.frontend.spec import Definition, Spec
from nautilus.frontend.values import Value, line_up

_Key = tuple[str, str, int]


@dataclass
class Arguments:
    """The exact arguments by definition, name of the number and step of a recurrence, in the order of the evaluation;
    of comparisons, whether both sides are equal.

    ``taken`` counts those that a run has read.  ``parts``: for each step of a run, by what factor its ties have a
    smaller effect on all elements than on those that are evaluated.
    """

    found: dict[_Key, list[Array]] = field(default_factory=dict)
    parts: list[float] = field(default_factory=list)
    taken: Counter[_Key] = field(default_factory=Counter)

    def again(self) -> Arguments:
        """The same arguments, of which none is read."""
        return Arguments(self.found, self.parts)

    def take(self, definition: str, name: str, params: Mapping[str, Any], like: Array) -> Array | None:
        """The exact values of the argument ``like``; None where they are not known."""
        key = definition, name, int(params.get(STEP, 0))
        number = self.taken[key]
        self.taken[key] += 1
        known = self.found.get(key, ())
        return known[number] if number < len(known) and known[number].shape == like.shape else None


def arguments(
    program: Spec, known: Ties, arrays: Mapping[str, Array], scalars: Mapping[str, Any], sizes: Mapping[str, int]
) -> Arguments:
    """The exact arguments of the steps ``known`` of ``program``."""
    to = Arguments()

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        recorder = _Recorder(d, buffers, params)
        recorder.nodes = {n: name for n, (_, name) in of_nodes(d.expr, known).items()}
        recorder.orders = orders_of(d.expr, known)
        recorder.to, recorder.step = to, int(params.get(STEP, 0))
        made = exactly(d, buffers, params, recorder)
        if d.name in known.tensors:
            to.found.setdefault((d.name, d.name, recorder.step), []).append(made[0])
        return made

    with np.errstate(all="ignore"):
        run_spec(program, arrays, scalars, sizes, evaluate)
    return to


class _Recorder(Evaluator):
    """An exact evaluation that records the arguments of steps."""

    shares = False

    nodes: Mapping[int, str]
    orders: Mapping[int, str]
    to: Arguments
    step: int

    def compute(self, e: Expr) -> Value:
        value = super().compute(e)
        if (name := self.nodes.get(id(e))) is not None:
            self.to.found.setdefault((self.d.name, name, self.step), []).append(value.array)
        if (name := self.orders.get(id(e))) is not None and isinstance(e, Op):
            a, b = (line_up(self.value(x), value.names) for x in e.args)
            tied = np.broadcast_to(are_equal(a, b), value.array.shape)
            self.to.found.setdefault((self.d.name, name, self.step), []).append(tied)
        return value
