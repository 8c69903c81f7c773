"""``fallback`` and ``floor``: kernels with a conservative plan, and a predicted time far above the lower bound.

A fallback that costs little (smaller tiles of warpgroups, single warps instead of them) has no remark of this kind.  No
remark compares the prediction with the lower bound where the cost model does not know the work: where loops end at
elements of inputs, or where steps of a recurrence follow each other, which no other plan would change.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.expr.nodes import Load, walk
from nautilus.core.fallbacks import EPILOGUES, PLAIN, SMALLER, UNFUSED
from nautilus.cost.roofline import UNITS, binding_unit, roofline
from nautilus.passes.recurrences import has_recurrences
from nautilus.remarks.remark import Facts, Kind, Remark

TIMES = 3.0  # a predicted time of this many times the lower bound has a remark
LEAST = 20e-6  # seconds of a prediction that launches and the first loads do not decide

_PLANS = {
    SMALLER: "smaller tiles",
    EPILOGUES: "its products apart from each other and from other reductions",
    UNFUSED: "each of its definitions in a kernel of its own",
    PLAIN: "one thread for each element, without matrix units and shared memory",
}


def remarks(facts: Facts) -> Iterator[Remark]:
    """The remarks on plans and predicted time."""
    yield from _fallbacks(facts)
    yield from _floor(facts)


def _fallbacks(facts: Facts) -> Iterator[Remark]:
    fallbacks, seen = facts.result.context.fallbacks, set[int]()
    for kernel, step in fallbacks.taken:
        failed = [f for f in fallbacks.failures if f.kernel == kernel]
        line = facts.span(kernel).line
        if step not in _PLANS or not failed or line in seen:
            continue
        seen.add(line)  # the parts of a definition fail for one reason
        message = f"the kernel of {kernel} has a conservative plan, {_PLANS[step]}, because {failed[-1].reason}"
        hint = "'nautilusc tune' searches for a better schedule on a GPU"
        yield Remark(Kind.FALLBACK, message, facts.span(kernel), hint if step >= EPILOGUES else None)


def _floor(facts: Facts) -> Iterator[Remark]:
    e = facts.estimate
    if e.seconds < LEAST or not _known(facts):
        return
    roof = roofline(facts.whole, e, facts.result.context.arch)
    if roof.share * TIMES >= 1:
        return
    k = max(e.kernels, key=lambda k: k.seconds)
    unit, share = binding_unit(k.parts, k.seconds)
    floor, bound = max(roof.floors.values()), UNITS.get(roof.bound, roof.bound)
    message = (
        f"the predicted time of {1e6 * e.seconds:.4g} us is {1 / roof.share:,.1f} times the lower bound of "
        f"{1e6 * floor:.4g} us ({bound}): the kernel of {k.name} takes {1e6 * k.seconds:.4g} us, "
        f"bound by {unit} ({share:.0%} of it)"
    )
    hint = "'nautilusc tune' searches for a better schedule on a GPU"
    yield Remark(Kind.FLOOR, message, facts.span(k.name), hint)


def _known(facts: Facts) -> bool:
    """Whether the cost model knows the number of iterations of every loop, and no loop has steps in order."""
    if any(d.value is None for d in facts.spec.dims):
        return False
    reads = (e for k in facts.module.kernels for _, e in k.decode)
    return not has_recurrences(facts.planned) and not any(isinstance(n, Load) for e in reads for n in walk(e))
