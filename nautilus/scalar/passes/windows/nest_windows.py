"""``nest-windows``: reductions over long windows share the results of short ones.

Every result of ``Y[t] = op_u f(t + u)`` for ``u < W`` combines ``W`` elements, most of which its neighbours combine as
well.  The results over windows of 8, 64, ... elements serve all of them::

    S1[p] = op_m f(p + m)                       m < 8
    S2[p] = op_m S1[p + 8 * m]                  m < 8
    Y[t]  = op_m S2[t + 64 * m]  op  op_m S1[t + 64 * d2 + 8 * m]  op  op_m f(t + 64 * d2 + 8 * d1 + m)

where ``d2 d1 d0`` are the digits of ``W`` in base 8, and ``m`` is less than the digit of its size.  A first digit of 1
is part of the next one.  Every element is combined once, in another order (``grammar/README.md``, "Numbers").  The
positions ``p`` are those of all windows of their size that lie in a window of ``W``.

Invariants: the element, and the conditions on it, depend on ``t`` and ``u`` by ``t + u`` alone, and no other axis is
reduced.  A level costs a kernel, and a tensor that is stored and loaded; a term costs :data:`TERM` seconds.  The levels
have to take :data:`SHARE` of the time of the window at most: sums over 25 of 16 million f16 take 107 us at once and 112
in levels on an H200, for which the estimate is 64% of that for the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.conditions import conjunction, conjuncts
from nautilus.core.expr.nodes import COMBINERS, Axis, Expr, Load, Op, Var, free_vars, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import find_defs, fresh_name, put_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET

BASE = 8  # windows of a level, of which a thread holds the terms
TERM = 0.28e-12  # seconds of a term of one result, as the cost model predicts for f32
SHARE = 0.6  # the estimate is at most this share of that for the window


@dataclass(frozen=True, slots=True)
class NestWindows:
    """Compute long windows from short ones; ``always``: where the invariants permit it (for tests)."""

    always: bool = False

    name = "nest-windows"

    def apply(self, program: Program) -> Program:
        """The program with windows of up to :data:`BASE` terms in place of longer ones."""
        for d in find_defs(program).values():
            t = _moving(d)
            if t is not None and (self.always or _pays(d)):
                program = put_defs(program, d.name, _nested(program, d, t))
        return program


def _moving(d: Def) -> Axis | None:
    """The axis of the result with which the windows of ``d`` move; None where the invariants do not hold."""
    if not d.is_reduction or d.at is not None or len(d.red) != 1 or (size(d.red[0]) or 0) < 2 * BASE:
        return None
    u = d.red[0].name
    exprs = (d.value, *(() if d.guard is None else conjuncts(d.guard)))
    for t in d.par:
        moves = [e for e in exprs if free_vars(e) & {t.name, u}]
        if size(t) is not None and moves and all(by_sum(e, t.name, u) for e in moves):
            return t
    return None


def by_sum(e: Expr, t: str, u: str) -> bool:
    """Whether ``e`` depends on ``t`` and ``u`` by their sum."""
    moved = substitute(e, {t: calc("add", Var(t), Var(u)), u: integer(0)})
    return {t, u} <= free_vars(e) and simplify(moved) == simplify(e)


def _digits(width: int) -> list[int]:
    """The digits of ``width``, the least one first; the last one is 2 or more, up to twice the base."""
    out = []
    while width >= 2 * BASE:
        width, digit = divmod(width, BASE)
        out.append(digit)
    return [*out, width]


def _pays(d: Def) -> bool:
    """Whether the kernels of all levels are predicted to be faster than that of ``d``."""
    width, results = d.red[0].extent, points(d.par)
    assert isinstance(width, int)
    digits = _digits(width)
    levels, terms = len(digits) - 1, BASE * (len(digits) - 1) + sum(digits)
    moved = 2 * results * d.buffer.dtype.bytes / machine(DEFAULT_TARGET).dram
    return levels * (LAUNCH * 1e-6 + moved) + results * terms * TERM < SHARE * results * width * TERM


def _nested(program: Program, d: Def, t: Axis) -> tuple[Def, ...]:
    assert d.op is not None and isinstance(t.extent, int) and isinstance(d.red[0].extent, int)
    u, width, taken = d.red[0], d.red[0].extent, list[str]()
    made: list[Def] = []

    def reduction(level: Def | None, axes: tuple[Axis, ...], terms: int, first: int, suffix: str) -> Def:
        """The reduction over ``terms`` results of ``level``, or elements of ``d``, from the place ``first`` on."""
        step = 1 if level is None else BASE ** (made.index(level) + 1)
        place = simplify(calc("add", calc("add", Var(t.name), first), calc("mul", Var(u.name), step)))
        name = fresh_name(program, f"{d.name}_{suffix}", taken)
        taken.append(name)
        buffer = Buffer(name, d.buffer.dtype, tuple(a.extent for a in axes), Space.TEMP, d.span)
        red = (replace(u, extent=terms),)
        if level is None:
            at = {t.name: place, u.name: integer(0)}
            guard = None if d.guard is None else conjunction(simplify(substitute(c, at)) for c in conjuncts(d.guard))
            return Def(name, buffer, axes, red, d.op, simplify(substitute(d.value, at)), guard, d.span)
        index = tuple(place if a is t else Var(a.name) for a in d.par)
        return Def(name, buffer, axes, red, d.op, Load(level.name, index, level.buffer.dtype, d.span), None, d.span)

    digits = _digits(width)
    for k in range(1, len(digits)):
        axes = tuple(replace(t, extent=t.extent + width - BASE**k) if a is t else a for a in d.par)
        made.append(reduction(made[-1] if made else None, axes, BASE, 0, "window"))
    parts: list[Def] = []
    first = 0
    for k in reversed(range(len(digits))):
        if digits[k]:
            parts.append(reduction(made[k - 1] if k else None, d.par, digits[k], first, "part"))
            first += digits[k] * BASE**k
    if len(parts) == 1:
        return (*made, replace(parts[0], name=d.name, buffer=d.buffer))
    return (*made, *parts, replace(d, red=(), op=None, value=_combined(d, parts), guard=None))


def _combined(d: Def, parts: Sequence[Def]) -> Expr:
    """All of ``parts``, as the combiner of ``d`` joins them."""
    total: Expr | None = None
    for part in parts:
        read: Expr = Load(part.name, tuple(Var(a.name) for a in d.par), part.buffer.dtype, d.span)
        if read.dtype.compute is not read.dtype:
            read = Op("cast", (read,), read.dtype.compute)
        total = read if total is None else Op(COMBINERS[d.op or ""].binary, (total, read), read.dtype)
    assert total is not None
    return total
