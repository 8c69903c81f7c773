"""``flatten-positions``: sums of displaced elements run over groups of neighbouring positions, with one loop for all.

The gradient of a depthwise filter, an autocorrelation and a cost of displacements sum over all positions of a tensor,
for each of few displacements (*taps*)::

    D[c, r] = sum[b, x | 0 <= x + r - 1 < 56](X[b, x + r - 1, c] * G[b, x, c])

With a block for each result, the operands come from memory once for every tap.  A thread with all taps and a few
neighbouring positions ``v`` reads most elements for several of its products.  So the axis of positions that is nearest
in memory becomes groups of up to :data:`GROUP` positions, and one axis counts the groups of all positions::

    D[c, r] = sum[z, v | ...](X[z // 7, z % 7 * 8 + v + r - 1, c] * G[z // 7, z % 7 * 8 + v, c])

:mod:`nautilus.planner.lanewise.taps` has the tiles of such sums.

The sizes of positions are known but for one, which is then the outermost.  Sums with fewer than :data:`LEAST` terms for
each result, matrix products, and those whose operands all have the taps stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from nautilus.core.certificate import Certificate
from nautilus.core.expr.build import calc, integer, within
from nautilus.core.expr.conditions import conjunction
from nautilus.core.expr.nodes import Axis, Expr, Load, Reduce, Var, free_vars, loads, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.sizes import blocks, nominal, volume
from nautilus.core.passes import CertifyingPass
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.ir import Kernel, Program
from nautilus.scalar.rewriting import find_defs, fresh_name, kernel_of

GROUP = 8  # neighbouring positions of a thread, at most
LEAST = 1024  # terms of a result: shorter sums have threads enough for each
TAPS = 64  # of an axis, at most: the results of a filter with many terms are no taps of it
WASTE = 8  # at most 1 / WASTE of the positions of long groups are unused
TERMS = 4  # terms of a result for each combination of taps, at least


@dataclass(frozen=True, slots=True)
class FlattenPositions(CertifyingPass[Program]):
    """The pass ``flatten-positions``, which has no options."""

    name = "flatten-positions"

    def derive(self, program: Program) -> tuple[Program, tuple[Certificate, ...]]:
        """The program with groups of positions, and a certificate for each such sum; the same object without one."""
        made = {
            d.name: _flat(program, d, order)
            for d in find_defs(program).values()
            if (order := positions_of(d)) is not None
        }
        if not made:
            return program, ()
        kernels = tuple(made[k.name][0] if k.name in made else k for k in program.kernels)
        return replace(program, kernels=kernels), tuple(c for _, c in made.values())


def positions_of(d: Def) -> tuple[Axis, ...] | None:
    """The axes of the positions of ``d``, the one with the groups last; None where ``d`` is no such sum."""
    if d.op is None or d.scatter is not None or points(d.red) < LEAST or multiplies_matrices(d):
        return None
    red = {a.name for a in d.red}
    found = [ld for ld in d.reads() if ld.index and red <= free_vars(ld)]
    if len(found) < 2 or any(loads(e) for ld in d.reads() for e in ld.index):
        return None
    places = [place for ld in found for place in _displaced(d, ld, found)]
    taps = {x: nominal(a.extent) for _, _, x in places if (a := d.axis(x)) is not None}
    if not taps or max(taps.values()) > TAPS or prod(taps.values()) * TERMS > points(d.red):
        return None
    last = d.red[max(places)[1]]
    others = [a for a in d.red if a is not last]
    others.sort(key=lambda a: (size(a) is not None, _depth(a.name, found[0]), d.red.index(a)))
    known = all(size(a) is not None for a in (*others[1:], last))
    return (*others, last) if known and (size(last) or 0) >= GROUP // 2 else None


def _displaced(d: Def, ld: Load, found: Sequence[Load]) -> Iterator[tuple[int, int, str]]:
    """How near in memory taps move ``ld`` along axes of positions, the numbers of these in ``d.red``, and the taps."""
    names = [a.name for a in d.red]
    for n, e in enumerate(ld.index):
        form = linear(e)
        moved = [x for x in names if form.slope(x)]
        taps = [a.name for a in d.par if form.slope(a.name) and any(a.name not in free_vars(o) for o in found)]
        if len(moved) == 1 and taps and form.slope(moved[0]) > 0:
            yield from ((n - len(ld.index), names.index(moved[0]), x) for x in taps)


def _depth(axis: str, ld: Load) -> int:
    """The place in the index of ``ld`` that ``axis`` moves."""
    return next((n for n, e in enumerate(ld.index) if axis in free_vars(e)), 0)


def group_of(extent: int) -> int:
    """The positions of a group along an axis of ``extent``: many, if that leaves few unused."""
    many, few = (blocks(extent, n) * n for n in (GROUP, GROUP // 2))
    return GROUP if many <= max(few, extent + extent // WASTE) else GROUP // 2


def _flat(program: Program, d: Def, order: Sequence[Axis]) -> tuple[Kernel, Certificate]:
    """The kernel of ``d`` with groups of positions along the last axis of ``order``."""
    *others, last = order
    extent = nominal(last.extent)
    group = group_of(extent)
    taken = [a.name for a in d.axes]
    z = fresh_name(program, "_".join(a.name for a in order), taken)
    v = fresh_name(program, f"{last.name}_in", [*taken, z])
    sizes = [*(a.extent for a in others), blocks(extent, group)]
    env: dict[str, Expr] = {}
    for n, a in enumerate(order):
        place, stride = Var(z), volume(sizes[n + 1 :])
        e: Expr = place if stride == 1 else calc("floordiv", place, stride)
        env[a.name] = calc("mod", e, sizes[n]) if n else e
    env[last.name] = calc("add", calc("mul", env[last.name], integer(group)), Var(v))
    axes = (Axis(z, volume(sizes), last.span), Axis(v, group, last.span))
    made = replace(d, red=axes, value=substitute(d.value, env), guard=_guard(d, last, extent, group, env))
    return kernel_of(made), _certificate(d, made, env)


def _certificate(d: Def, made: Def, env: Mapping[str, Expr]) -> Certificate:
    """The terms of ``d`` are those of ``made``, at these values of its axes."""
    assert d.op is not None
    before, after = (Reduce(d.op, x.red, x.guard, x.value, x.value.dtype, d.span) for x in (d, made))
    given = tuple(c for a in d.par for c in within(Var(a.name), a.extent))
    proof = "each group of positions has its own, and all have one"
    return Certificate("flatten-positions", d.name, before, after, tuple(env.items()), given, (), proof, d.span)


def _guard(d: Def, last: Axis, extent: int, group: int, env: Mapping[str, Expr]) -> Expr | None:
    """The condition of ``d`` at the new positions, and that they are inside of ``last``."""
    guard = None if d.guard is None else substitute(d.guard, env)
    if extent % group == 0:
        return guard
    return conjunction((calc("lt", env[last.name], integer(extent)), guard))
