"""The steps of a recurrence one by one, each from the state that a given result shows.

A result cannot be compared with a reference of its own run where a recurrence amplifies rounding errors: a chaotic map
loses every digit after a few steps.  Each step by itself is as accurate as any other expression.  ``stepwise`` makes
the Spec of the single steps: where a definition of a recurrence reads an earlier value that an output shows, the new
Spec reads it from the output of the given result, which is a new input.

A tensor of a recurrence is *shown* where it is an output, or where an output has its elements, converted to the type of
the output at most.  Tensors that are not shown remain recurrences in the new Spec: they start where the recurrence
does, and follow the shown ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import hypot

from nautilus.core.expr.nodes import Expr, Load, Op, Var, rewrite, walk
from nautilus.core.numerics import Array
from nautilus.core.records import dataclass
from nautilus.core.types import FORMATS, DType
from nautilus.frontend.semantics.recurrence import distance
from nautilus.frontend.spec import Definition, Spec, Tensor


@dataclass(frozen=True, slots=True)
class Stepwise:
    """``spec`` of the single steps; ``outputs``: for each of its new inputs, the output whose result it is.

    ``errors``: the relative error with which a new input shows the state, above 0 where its type is narrower.
    ``states``: the tensor of the recurrence that it shows.
    """

    spec: Spec
    outputs: Mapping[str, str]
    errors: Mapping[str, float]
    states: Mapping[str, str]

    def inputs(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """The new inputs for ``results`` by output name."""
        return {name: results[output] for name, output in self.outputs.items()}

    def shown(self, combined: Mapping[str, float]) -> dict[str, float]:
        """The errors of the new inputs, where states may be ``combined`` with these relative errors."""
        return {name: hypot(e, combined.get(self.states[name], 0.0)) for name, e in self.errors.items()}


@dataclass(frozen=True, slots=True)
class _View:
    """``output`` shows a tensor: its axis ``p`` is the axis ``order[p]`` of the tensor; ``error``: of its type."""

    output: Tensor
    order: tuple[int, ...]
    error: float

    @property
    def name(self) -> str:
        return f"%{self.output.name}"


def stepwise(spec: Spec) -> Stepwise | None:
    """The single steps of the recurrences of ``spec``; None where no output shows a state that is read again."""
    members = {d.name: d for d in spec.definitions if d.recurrence is not None}
    views: dict[str, _View] = {}
    for t in spec.outputs:
        target, view = _view(spec, t, members)
        if view is not None and (target not in views or view.error < views[target].error):
            views[target] = view
    used: dict[str, _View] = {}
    made = [_from_given(d, members, views, used) for d in spec.definitions]
    if not used:
        return None
    again = {d.name for d in made if d.recurrence is not None and _reads_earlier(d, members)}
    groups = {m for d in made if d.name in again and d.recurrence is not None for m in d.recurrence.members}
    made = [d if d.name in groups else replace(d, recurrence=None) for d in made]
    given = tuple(Tensor(v.name, _wide(v.output.dtype), v.output.shape) for v in used.values())
    return Stepwise(
        replace(spec, inputs=(*spec.inputs, *given), definitions=tuple(made)),
        {v.name: v.output.name for v in used.values()},
        {v.name: v.error for v in used.values()},
        {v.name: target for target, v in used.items()},
    )


def _wide(dtype: DType) -> DType:
    """The type of the given values, which are rounded already."""
    return DType.F64 if dtype.is_float else dtype


def _view(spec: Spec, output: Tensor, members: Mapping[str, Definition]) -> tuple[str, _View | None]:
    """The tensor of a recurrence that ``output`` shows, and how; None where it shows none."""
    d = spec.definition(output.name)
    if d.name in members:
        return d.name, _View(output, tuple(range(len(d.axes))), 0.0)
    e = d.expr
    while isinstance(e, Op) and e.op == "cast" and e.dtype.is_float and e.args[0].dtype.is_float:
        e = e.args[0]
    if not (isinstance(e, Load) and e.buffer in members):
        return "", None
    names = [a.name for a in d.axes]
    found = [i.name for i in e.index if isinstance(i, Var)]
    state = members[e.buffer]
    if len(found) != len(e.index) or sorted(found) != sorted(names):
        return "", None
    order = tuple(found.index(n) for n in names)
    if any(state.axes[p].extent != a.extent for p, a in zip(order, d.axes, strict=True)):
        return "", None
    if not output.dtype.is_float:
        return e.buffer, _View(output, order, 0.0) if output.dtype is state.stored else None
    types = [output.dtype, *(n.dtype for n in walk(d.expr) if isinstance(n, Op))]
    return e.buffer, _View(output, order, max(_error(t, state.stored) for t in types))


def _error(to: DType, source: DType) -> float:
    """The relative error of a conversion from ``source``."""
    return 0.0 if FORMATS[to].mantissa >= FORMATS[source].mantissa else 2.0 ** -(to.mantissa + 1)


def _from_given(
    d: Definition, members: Mapping[str, Definition], views: Mapping[str, _View], used: dict[str, _View]
) -> Definition:
    """``d`` with the earlier values of shown tensors from the given result; ``used`` gets those that it needs."""
    if d.recurrence is None:
        return d

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer in views and _is_earlier(d, e, members)):
            return None
        view = used[e.buffer] = views[e.buffer]
        return replace(e, buffer=view.name, index=tuple(e.index[p] for p in view.order))

    return replace(d, expr=rewrite(d.expr, rule))


def _is_earlier(d: Definition, e: Load, members: Mapping[str, Definition]) -> bool:
    """Whether ``e`` is a read in ``d`` of an earlier step of their recurrence."""
    if d.recurrence is None or e.buffer not in d.recurrence.members:
        return False
    target = members[e.buffer].recurrence
    assert target is not None
    return distance(e.index[target.axis], d.axes[d.recurrence.axis].name) != 0


def _reads_earlier(d: Definition, members: Mapping[str, Definition]) -> bool:
    return any(isinstance(e, Load) and _is_earlier(d, e, members) for e in walk(d.expr))
