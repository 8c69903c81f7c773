"""Repair terms of reductions over the elements that equal a running maximum or minimum.

A position or a count of the largest element depends on the maximum through its condition::

    r = max_j v_j
    A = combine_j y_j where v_j == r

Under a running ``r``, which bounds every element that it has seen, ``A`` holds the elements that equal it.  If the next
block has a larger element, none of the earlier ones equals the new ``r``, so ``A`` starts again; else it goes on::

    t(A) = select(old == new, A, identity)

With the element ``f(x, r) = select(x == r, y, identity)``, the equations of ``repair.terms`` hold where ``x <= old``
or ``old`` is NaN, and ``old <= new`` or ``new`` is NaN (``>=`` for a minimum).  The first one needs that every element
of ``A`` is one of ``r``: the other conditions of ``A`` imply those of ``r``.  If an element is NaN, so is ``r``, which
then equals nothing, and ``A`` is its identity, as over the whole domain.

The position of an extremum is that of the first NaN where there is one, so its condition is ``v_j == r or v_j != v_j``.
``A`` then goes on where ``old == new or old != old``: the same condition with ``old`` in the place of the element.
"""

from __future__ import annotations

from collections.abc import Sequence

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Op, Var, free_vars, identity, loads
from nautilus.core.records import dataclass
from nautilus.core.types import DType
from nautilus.scalar.analysis.repair.records import Refusal, Repair, Running, parts_of

_BOUND = {"max": "le", "min": "ge"}  # how the extremum compares with what it bounds


def derive(
    value: Expr, guard: tuple[Expr, ...], combiner: str, running: Sequence[Running], reduced: frozenset[str]
) -> Repair | Refusal:
    """The repair term of an accumulator of ``value`` whose ``guard`` reads one of ``running``."""
    if len(running) > 1 or any(ld == running[0].load for ld in loads(value)):
        return Refusal("the condition and the value, or several running results, need a repair together")
    (r,) = running
    parts = parts_of(guard)
    asking = [p for p in parts if r.load in loads(p)]
    hit = _Hit.of(asking[0], r) if len(asking) == 1 else None
    if r.op not in _BOUND or hit is None:
        return Refusal(f"the condition does not ask whether an element of {r.load.buffer} is its extremum")
    if not set(parts_of(r.guard)) <= set(parts):
        return Refusal(f"{r.load.buffer} is not proved to bound every element")
    x, reference, old, new = (Var(n, r.value.dtype) for n in ("x0", "r0", "old0", "new0"))
    held = Var("a", value.dtype)
    y = value if isinstance(value, Const) else Var("x1" if free_vars(value) & reduced else "c0", value.dtype)
    empty = identity(combiner, value.dtype)
    return Repair(
        mode="reset",
        combiner=combiner,
        f=Op("select", (hit(x, reference), y, empty), value.dtype),
        factor=None,
        t=Op("select", (hit(old, new), held, empty), value.dtype),
        symbols=(("x0", r.value), *([(y.name, value)] if isinstance(y, Var) else [])),
        references=(None,),
        raw_old=(True,),
        finite=(False,),
        finalise=False,
        conditions=("f(x, new) = t(f(x, old), old, new)", f"{r.load.buffer} bounds every earlier element"),
        domain=(_bounded(r.op, x, old), _bounded(r.op, old, new)),
    )


@dataclass(frozen=True, slots=True)
class _Hit:
    """The condition that an element equals an extremum, ``or_nan``: or is NaN."""

    or_nan: bool

    @staticmethod
    def of(c: Expr, r: Running) -> _Hit | None:
        """What ``c`` says about an element of ``r``; None for another condition."""
        x = r.value
        same, nan = c.args if isinstance(c, Op) and c.op == "or" else (c, calc("ne", x, x))
        if same not in (calc("eq", x, r.load), calc("eq", r.load, x)) or nan != calc("ne", x, x):
            return None
        return _Hit(c != same)

    def __call__(self, x: Expr, r: Expr) -> Expr:
        same = calc("eq", x, r)
        return Op("or", (same, calc("ne", x, x)), DType.BOOL) if self.or_nan else same


def _bounded(op: str, x: Expr, r: Expr) -> Expr:
    """Whether ``r`` is an extremum that ``x`` may be an element of."""
    return Op("or", (calc(_BOUND[op], x, r), calc("ne", r, r)), DType.BOOL)
