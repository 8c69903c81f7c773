"""``order``: sums that keep the order of the spec because an input may hold inf, steps that run one after another, and
sums over segments that may overlap.

What the remark says is tried: with the promise that it names, ``order-contractions``, ``join-groups`` or ``split-sums``
rewrites the sum, ``chunk-recurrences`` cuts the steps into chunks, and ``choose-terms`` computes one term.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.frontend.spec import Spec
from nautilus.remarks.remark import Facts, Kind, Remark
from nautilus.scalar.passes.operands import join_groups, order_contractions, split_sums
from nautilus.scalar.passes.results import choose_terms


def remarks(facts: Facts) -> Iterator[Remark]:
    """The remarks on the order of sums."""
    done = join_groups.joined(facts.ordered, facts.spec)
    passes = order_contractions, join_groups, split_sums
    found = dict.fromkeys(f for p in passes for f in p.fenced(facts.ordered, facts.spec))
    for f in (f for f in found if f.name not in done):
        names = " and ".join(f.inputs)
        message = (
            f"this sum keeps the order in which it is written because {names} may hold inf; another order is cheaper"
        )
        promises = "; ".join(f"assume {promise(facts.spec, name)}" for name in f.inputs)
        yield Remark(Kind.ORDER, message, f.span, f"if all elements are finite, promise it: {promises}")


def segments(facts: Facts) -> Iterator[Remark]:
    """The remarks on sums over segments of which a position may have several."""
    for f in choose_terms.overlapping(facts.chosen):
        message = f"each element computes the terms of all {f.count} segments because segments may overlap"
        promises = "; ".join(f"assume {x}" for x in f.facts)
        yield Remark(Kind.ORDER, message, f.span, f"if they never do, promise it: {promises}")


def steps(facts: Facts) -> Iterator[Remark]:
    """The remarks on recurrences whose states may grow from step to step, or whose operands may be infinite."""
    if all(d.recurrence is None for d in facts.spec.definitions):
        return
    from nautilus.scalar.passes.recurrences import (  # most specs have no recurrence
        chunk_matrix_states,
        chunk_recurrences,
    )

    for m in chunk_matrix_states.fenced(facts.planned, facts.spec):
        names = " and ".join(m.inputs)
        message = (
            f"the {m.steps} steps of {m.name} run one after another because {names} may hold inf; "
            f"chunks of {m.length} steps would be products of matrices"
        )
        promises = "; ".join(f"assume {promise(facts.spec, n)}" for n in m.inputs)
        yield Remark(Kind.ORDER, message, m.span, f"if all elements are finite, promise it: {promises}")
    for f in chunk_recurrences.fenced(facts.planned, facts.spec):
        names = " and ".join(f.inputs)
        message = (
            f"the {f.steps} steps of {f.name} run one after another because {names} may be above 1 in magnitude; "
            f"chunks of {f.length} steps would run at the same time"
        )
        scalars = {x.name for x in facts.spec.scalars}
        promises = "; ".join(
            f"assume -1 <= {n} <= 1" if n in scalars else f"assume {promise(facts.spec, n, '<= 1')}" for n in f.inputs
        )
        yield Remark(Kind.ORDER, message, f.span, f"if it never is, promise it: {promises}")


def promise(spec: Spec, name: str, bound: str = "< inf") -> str:
    """The condition on all elements of input ``name`` that its magnitude is ``bound``, as the spec would write it."""
    tensor = next(t for t in spec.inputs if t.name == name)
    named = (spec.inputs, spec.scalars, spec.dims, spec.definitions)
    taken = {str(x.name) for group in named for x in group}
    index = ", ".join([x for x in "ijklmnopqrstuvwxyz" if x not in taken][: len(tensor.shape)])
    return f"abs({name}[{index}]) {bound}"
