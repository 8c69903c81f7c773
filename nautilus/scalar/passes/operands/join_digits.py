"""``join-digits``: two summed axes that a tensor reads as the digits of one position become one axis.

``sum[g, l](s[i, g] * A[i, g * 128 + l] * B[j, g * 128 + l])`` visits the positions ``k = g * 128 + l`` of ``A`` and
``B`` one after another.  It becomes ``sum[k](s[i, k // 128] * A[i, k] * B[j, k])``, which is what a spec with one axis
has: copies then load plain rows, and the groups of a scale are found as quotients.

The inner axis ``l`` has a known extent, the outer one is multiplied by it, and at least one tensor reads both in one
index.  A number below ``G * L`` has one quotient and one remainder by ``L``, so each position is visited once.  Every
other use of ``g`` becomes ``k // 128``, and every other one of ``l`` becomes ``k % 128``.  Axes by which a window
slides, as in ``X[y + p, x + q] * W[y, x, p * 7 + q]``, stay.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.simplify import linear_in, simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.analysis.windows import slides
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, kernel_of


@dataclass(frozen=True, slots=True)
class JoinDigits:
    """Join the digits of every sum."""

    name = "join-digits"

    def apply(self, program: Program) -> Program:
        """The program with one axis for two; the same object where no tensor reads digits."""
        made = {d.name: joint for d in find_defs(program).values() if (joint := with_joint_digits(d)) is not d}
        if not made:
            return program
        kernels = (kernel_of(made[k.name]) if k.name in made else k for k in program.kernels)
        return replace(program, kernels=tuple(kernels))


def with_joint_digits(d: Def) -> Def:
    """``d`` with one axis for the digits of a position; the same object where a tensor reads no such digits."""
    if d.op != "sum":
        return d
    for outer, inner in permutations(d.red, 2):
        if _slides(d, outer, inner):
            continue
        if any(_position(e, outer, inner) is not None for ld in loads(d.value) for e in ld.index):
            return with_joint_digits(_joint(d, outer, inner))
    return d


def _slides(d: Def, outer: Axis, inner: Axis) -> bool:
    """Whether a window of ``d`` slides by one of the digits: its lines are a loop, which one axis would not have."""
    kept = {a.name for a in d.par}
    indices = [e for ld in loads(d.value) for e in ld.index if not {outer.name, inner.name} <= free_vars(e)]
    return any(slides(e, kept, Var(a.name), size(a) or 1) for e in indices for a in (outer, inner))


def _position(e: Expr, outer: Axis, inner: Axis) -> Expr | None:
    """What ``e`` adds to ``outer * size(inner) + inner``; None where it is something else."""
    step, count = size(inner), size(outer)
    if step is None or count is None or not {outer.name, inner.name} <= free_vars(e):
        return None
    one = linear_in(e, inner.name)
    more = None if one is None or one[0] != 1 else linear_in(one[1], outer.name)
    return more[1] if more is not None and more[0] == step else None


def _joint(d: Def, outer: Axis, inner: Axis) -> Def:
    step, count = size(inner), size(outer)
    assert step is not None and count is not None
    name = unused(f"{outer.name}_{inner.name}", {a.name for a in d.axes})
    axis = Axis(name, step * count, outer.span)
    ranges = {a.name: (0, n - 1) for a in (*d.axes, axis) if (n := size(a)) is not None}

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load):
            return None
        rests = [_position(x, outer, inner) for x in e.index]
        at = (x if r is None else calc("add", Var(name), r) for x, r in zip(e.index, rests, strict=True))
        return replace(e, index=tuple(simplify(x, ranges) for x in at)) if any(r is not None for r in rests) else None

    digits = {
        outer.name: calc("floordiv", Var(name), integer(step)),
        inner.name: calc("mod", Var(name), integer(step)),
    }

    def joint(e: Expr) -> Expr:
        return substitute(rewrite(e, rule), digits)

    red = tuple(axis if a is outer else a for a in d.red if a is not inner)
    return replace(d, red=red, value=joint(d.value), guard=None if d.guard is None else joint(d.guard))
