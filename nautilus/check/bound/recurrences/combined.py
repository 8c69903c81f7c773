"""Steps that a kernel combines in any order, and how far its states are from those of one step after another.

The states of a linear recurrence that need each other, ``h = A * h' + b``, may be found from those of many steps
before (``scan-tiles``, ``chunk-filters``).  A power of ``A`` may have elements far above 1, whose products with the
states cancel: the roundings are then those of numbers far above the result.  Neighbouring states may come from
different powers, so a single step from one of them to the next one is off by that much, and later steps amplify it
again.

The amplification is measured: all states of one step are moved by a part of themselves, and the recurrence follows
from there over the reals.  The largest move after it is that of a power of ``A``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite, sqrt
from typing import Any, Final

import numpy as np

from nautilus.check.bound.exactness import U32, U64
from nautilus.core.numerics import Array
from nautilus.core.records.memo import by_identity
from nautilus.core.types import DType
from nautilus.frontend.interp import STEP, Evaluator, run_spec
from nautilus.frontend.spec import Definition, Spec, extent_at
from nautilus.scalar.analysis.definitions import is_recurrence
from nautilus.scalar.lowering import lower

#: The steps that one thread computes one after another, from a state that is found from those before it.
APART: Final = 16
#: The error of such a state for each unit of what a power of the matrix amplifies, in units of roundoff: of its own
#: additions, and of those of the lanes and warps before it.
_ROUNDINGS: Final = 4.0
_MOVED: Final = 2.0**-20  # the part of a state by which it is moved
_START: Final = 4  # all steps, divided by those before the move


@by_identity(1 << 6)
def may_be_combined(spec: Spec) -> Mapping[str, float]:
    """The tensors of linear recurrences of ``spec`` whose states need each other, each with its unit roundoff.

    Those are left out whose steps are known to be more exact one after another.
    """
    if all(d.recurrence is None for d in spec.definitions):
        return {}
    from nautilus.scalar.analysis.states.coupled_states import coupled_states, may_combine
    from nautilus.scalar.analysis.states.linear_states import filter_state
    from nautilus.scalar.analysis.states.recurrences import form_of
    from nautilus.scalar.passes.recurrences.chunk_filters import may_chunk
    from nautilus.scalar.passes.recurrences.members.join_recurrences import JoinRecurrences
    from nautilus.scalar.passes.simplify import Simplify

    found: dict[str, float] = {}
    program = JoinRecurrences().apply(Simplify().apply(lower(spec)))
    for k in program.kernels:
        form = form_of(k) if is_recurrence(k) else None
        if form is None:
            continue
        states, coupled = filter_state(form), coupled_states(form)
        if states is not None and may_chunk(program, form, states):
            found[states.name] = _unit(states.value.dtype)
        if coupled is not None and may_combine(coupled, form):
            found |= {c.name: _unit(coupled.dtype) for c in coupled.columns}
    return found


def _unit(dtype: DType) -> float:
    return U64 if dtype is DType.F64 else U32


def combined(
    states: Mapping[str, float], program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any],
    sizes: Mapping[str, int] | None = None, steps: int | None = None,
) -> dict[str, float]:  # fmt: skip
    """The relative errors of the ``states`` of ``program`` on given inputs; ``steps``: that run, at most."""
    members = [d for d in program.definitions if d.name in states and d.recurrence is not None]
    if not members:
        return {}
    total = max(_extent(d, sizes or {}) for d in members)
    count = total if steps is None else min(steps, total)
    given, start = (program, arrays, scalars, sizes, steps), count // _START
    exact, moved = (states_of(*given, states, at) for at in (None, start))
    return {n: _ROUNDINGS * states[n] * _amplified(moved[n], x, start) for n, x in exact.items()}


def _extent(d: Definition, sizes: Mapping[str, int]) -> int:
    assert d.recurrence is not None
    return int(extent_at(d.axes[d.recurrence.axis].extent, sizes))


def states_of(
    program: Spec, arrays: Mapping[str, Array], scalars: Mapping[str, Any], sizes: Mapping[str, int] | None,
    steps: int | None, states: Collection[str], at: int | None,
) -> dict[str, list[Array]]:  # fmt: skip
    """The ``states`` of ``program`` after each step over the reals, moved in the step number ``at``."""
    found: dict[str, list[Array]] = {}

    def evaluate(d: Definition, buffers: Mapping[str, Array], params: Mapping[str, Any]) -> tuple[Array, Array]:
        made = Evaluator(d, buffers, params).run()
        if d.name in states and STEP in params:
            after = found.setdefault(d.name, [])
            if len(after) == at:
                made = made * (1.0 + _MOVED * np.random.default_rng(at).choice([-1.0, 1.0], made.shape))
            after.append(made)
        return made, made

    with np.errstate(all="ignore"):
        run_spec(program, arrays, scalars, sizes, evaluate, steps)
    return found


def _amplified(moved: Sequence[Array], exact: Sequence[Array], at: int) -> float:
    """The largest move of a step from ``at`` on, relative to the part by which the states of all these steps move."""
    with np.errstate(all="ignore"):
        far = [float(np.sum(np.square(x - y))) for x, y in zip(moved[at:], exact[at:], strict=True)]
        size = [float(np.sum(np.square(y))) for y in exact[at:]]
    usual = [(f, s) for f, s in zip(far, size, strict=True) if isfinite(f) and isfinite(s)]
    total = sum(s for _, s in usual)
    return sqrt(max(f for f, _ in usual) / (total / len(usual))) / _MOVED if total > 0.0 else 0.0
