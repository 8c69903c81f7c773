"""``separate-phases``: results whose windows begin at quotients of their positions have an axis for each phase.

A resampled signal reads its window at a quotient, and its weights at a remainder::

    Y[n] = sum[t](h[t * 3 + 2 * n % 3] * X[2 * n // 3 + t])

With ``n = 3 * q + p`` windows of neighbouring ``q`` are a fixed number of elements apart, so that threads share their
elements, and all results of a phase ``p`` have the same weights::

    Y[3 * q + p] = sum[t](h[t * 3 + 2 * p % 3] * X[2 * q + 2 * p // 3 + t])

The pass applies to sums whose tensors are read along such an axis at quotients and remainders of linear positions
alone, if the period of all of them is at most :data:`MOST`, and windows of neighbouring ``q`` have elements in common:
those of the channels of a convolution in groups have none.  Elementwise definitions that read the results follow
(:mod:`nautilus.scalar.passes.axes.split_residues`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Const, Expr, Op, Var, children, free_vars, loads, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import blocks
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, size, slides
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.axes.split_residues import Cut, Split, following, with_certificates
from nautilus.scalar.rewriting import find_defs, fresh_name

MOST = 8  # phases: each has results of its own in a thread


@dataclass(frozen=True, slots=True)
class SeparatePhases(CertifyingPass[Program]):
    """The pass ``separate-phases``, which has no options."""

    name = "separate-phases"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with phases, and a certificate for each sum; the same object where no sum has any."""
        found: dict[str, Split] = {}
        for name, d in find_defs(program).items():
            phases = _phases(d)
            made = _split(program, d, *phases) if phases is not None else following(d, found)
            if made is not None:
                found[name] = made
        return with_certificates(self.name, program, found)


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
        if 1 < period <= MOST and any(_overlap(e, a.name, period, d) for e in found):
            return a, period
    return None


def _overlap(e: Expr, axis: str, period: int, d: Def) -> bool:
    """Whether the positions ``e`` of the terms of two results, ``period`` apart along ``axis``, are partly the same."""
    form, moves, reach = linear(e), Fraction(0), 0
    sizes = {Var(a.name): size(a) or 0 for a in d.red}
    for x, c in form.terms.items():
        match x:
            case Op(op="floordiv", args=(inner, Const(value=n))) if axis in free_vars(inner):
                moves += Fraction(c * linear(inner).slope(axis) * period, int(n))
            case Var() if x in sizes:
                reach += abs(c) * (sizes[x] - 1)
    return 0 < abs(moves) <= reach


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


def _split(program: Program, d: Def, axis: Axis, period: int) -> Split:
    """``d`` with a quotient and a phase in place of ``axis``."""
    extent, taken = size(axis) or 0, [a.name for a in d.axes]
    q = fresh_name(program, f"{axis.name}_quotient", taken)
    p = fresh_name(program, f"{axis.name}_phase", [*taken, q])
    place = calc("add", calc("mul", Var(q), period), Var(p))
    axes = (Axis(q, blocks(extent, period), axis.span), Axis(p, period, axis.span))
    env = {axis.name: place}
    new = replace(
        d,
        par=tuple(x for a in d.par for x in (axes if a is axis else (a,))),
        value=substitute(d.value, env),
        guard=None if d.guard is None else substitute(d.guard, env),
        at=tuple(substitute(e, env) for e in d.index),
    )
    return Split(new, (Cut(axis.name, extent, axes, place, extent % period > 0),))
