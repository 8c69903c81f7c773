"""Rows of a product that several axes number, as one axis, where an elementwise definition stores them elsewhere.

Windows of an image, ``E[b, i, j, u, v, c]``, are rows of a product of matrices in memory, whatever number of axes they
have.  ``collapse-axes`` leaves them, because the result has them at other places.  Where the result is stored at places
that are computed from the rows (``invert-reads``), a row may have one number, of which these places use the digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, free_vars, loads, rewrite, substitute
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, size
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import axis_assumptions, find_defs, put_defs

TILE = 64  # rows of a tile, into which rows of one axis fit without a rest where they are a multiple of it


@dataclass(frozen=True, slots=True)
class _Rows:
    """``axes``, the first ones of a product, are dimensions ``first .. first + len(axes)`` of ``buffer`` alone."""

    axes: tuple[Axis, ...]
    buffer: str
    first: int


def with_flat_rows(program: Program, product: str, reader: str) -> Program:
    """``program`` with one axis of rows for ``product`` and its only ``reader``; itself where that is not possible."""
    defs = find_defs(program)
    d, r = defs[product], defs[reader]
    found = _rows(program, d)
    if found is None or d.guard is not None:
        return program
    sizes = [size(a) or 0 for a in found.axes]
    whole = Axis(unused("row", {a.name for a in (*d.axes, *r.axes)}), prod(sizes), d.span)
    env = _digits(whole, found.axes, sizes)
    par = (whole, *d.par[len(found.axes) :])
    index = tuple(Var(a.name) for a in par)

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in (found.buffer, d.name):
            return None
        first = found.first if e.buffer == found.buffer else 0
        return replace(e, index=(*e.index[:first], index[0], *e.index[first + len(sizes) :]))

    buffer = replace(d.buffer, shape=tuple(a.extent for a in par))
    made = replace(d, par=par, buffer=buffer, value=rewrite(d.value, rule))
    known, given = axis_assumptions(par)

    def placed(e: Expr) -> Expr:
        return simplify(substitute(e, env), known, given)

    at = tuple(placed(e) for e in r.index)
    stored = replace(r, par=par, value=substitute(rewrite(r.value, rule), env), at=at)
    program = put_defs(put_defs(program, d.name, (made,)), r.name, (stored,))
    return replace(program, buffers=tuple(_flat(b, found, prod(sizes)) for b in program.buffers))


def _flat(b: Buffer, found: _Rows, rows: int) -> Buffer:
    if b.name != found.buffer:
        return b
    shape = (*b.shape[: found.first], rows, *b.shape[found.first + len(found.axes) :])
    return b.viewed(shape)


def _digits(whole: Axis, axes: Sequence[Axis], sizes: Sequence[int]) -> dict[str, Expr]:
    """Each of ``axes`` as a digit of ``whole``."""
    found: dict[str, Expr] = {}
    for n, a in enumerate(axes):
        digit = calc("floordiv", Var(whole.name), prod(sizes[n + 1 :]))
        found[a.name] = digit if n == 0 else calc("mod", digit, sizes[n])
    return found


def _rows(program: Program, d: Def) -> _Rows | None:
    """The first axes of ``d`` that only one load has, side by side, of an input that nothing else reads."""
    for ld in loads(d.value):
        names = [e.name if isinstance(e, Var) else "" for e in ld.index]
        first = names.index(d.par[0].name) if d.par[0].name in names else -1
        axes: list[Axis] = []
        while first >= 0 and first + len(axes) < len(names) and len(axes) < len(d.par):
            a = d.par[len(axes)]
            if names[first + len(axes)] != a.name:
                break
            axes.append(a)
        b = program.buffer(ld.buffer)
        shape = tuple(a.extent for a in axes)
        own = {a.name for a in axes}
        others = [x for x in loads(d.value) if x != ld]
        alone = not any(own & free_vars(x) for x in others) and sum(map(names.count, own)) == len(axes)
        plain = b.space is Space.INPUT and b.strides is None and b.shape[max(first, 0) :][: len(axes)] == shape
        reads = [x for r in find_defs(program).values() for x in r.reads() if x.buffer == b.name]
        if len(axes) > 1 and alone and plain and len(reads) == 1 and all(isinstance(n, int) for n in shape):
            uneven = size(axes[-1]) or 0
            return _Rows(tuple(axes), b.name, first) if uneven % TILE else None
    return None
