"""``separate-phases``: results whose windows begin at quotients of their positions have an axis for each phase.

A resampled signal reads its window at a quotient, and its weights at a remainder::

    Y[n] = sum[t](h[t * 3 + 2 * n % 3] * X[2 * n // 3 + t])

With ``n = 3 * q + p`` windows of neighbouring ``q`` are a fixed number of elements apart, so that threads share their
elements, and all results of a phase ``p`` have the same weights::

    Y[3 * q + p] = sum[t](h[t * 3 + 2 * p % 3] * X[2 * q + 2 * p // 3 + t])

The pass applies to sums whose tensors are read along such an axis at quotients and remainders of linear positions
alone, if the period of all of them divides its extent and is at most :data:`MOST`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, lcm

from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Var, children, free_vars, loads, substitute
from nautilus.core.index.linear import linear
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.passes.simplify import Simplify
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of

MOST = 8  # phases: each has results of its own in a thread


@dataclass(frozen=True, slots=True)
class SeparatePhases:
    """The pass ``separate-phases``, which has no options."""

    name = "separate-phases"

    def apply(self, program: Program) -> Program:
        """The program with phases; the same object where no sum has any."""
        made = {d.name: _cut(program, d, *found) for d in find_defs(program).values() if (found := _phases(d))}
        if not made:
            return program
        kernels = tuple(made.get(k.name, k) for k in program.kernels)
        return Simplify().apply(replace(program, kernels=kernels))


def _phases(d: Def) -> tuple[Axis, int] | None:
    """The axis of ``d`` with phases, and their number."""
    if not d.is_reduction or d.at is not None or multiplies_matrices(d):
        return None
    red = {a.name for a in d.red}
    for a in reversed(d.par):
        found = [e for ld in d.reads() for e in ld.index if a.name in free_vars(e)]
        found += [c for c in conjuncts(d.guard) if a.name in free_vars(c)]
        periods = [n for e in found for n in _periods(e, a.name)]
        extent = size(a)
        if not slides(d, {a.name}, red) or 0 in periods or extent is None or not periods:
            continue
        period = lcm(*periods)
        if 1 < period <= MOST and extent % period == 0:
            return a, period
    return None


def _periods(e: Expr, axis: str) -> Iterator[int]:
    """After how many positions along ``axis`` each quotient and remainder of ``e`` moves evenly; 0 for other uses."""
    if axis not in free_vars(e):
        return
    match e:
        case Op(op="floordiv" | "mod", args=(inner, Const(value=n))) if not loads(inner):
            form = linear(inner)
            alone = not any(axis in free_vars(x) for x in form.terms if not isinstance(x, Var))
            yield int(n) // gcd(int(n), abs(form.slope(axis))) if alone and int(n) > 0 else 0
        case Var():
            yield 0
        case _:
            for c in children(e):
                yield from _periods(c, axis)


def _cut(program: Program, d: Def, axis: Axis, period: int) -> Kernel:
    """The kernel of ``d`` with a quotient and a phase in place of ``axis``."""
    taken = [a.name for a in d.axes]
    q = fresh_name(program, f"{axis.name}_quotient", taken)
    p = fresh_name(program, f"{axis.name}_phase", [*taken, q])
    place = calc("add", calc("mul", Var(q), period), Var(p))
    axes = (Axis(q, (size(axis) or 0) // period, axis.span), Axis(p, period, axis.span))
    env = {axis.name: place}
    new = replace(
        d,
        par=tuple(x for a in d.par for x in (axes if a is axis else (a,))),
        value=substitute(d.value, env),
        guard=None if d.guard is None else substitute(d.guard, env),
        at=tuple(substitute(e, env) for e in d.index),
    )
    return kernel_of(new)
