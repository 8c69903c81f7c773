"""The state after the last step of a recurrence in chunks of steps, which kernels after it may read.

It is that before the last chunk, and what the steps of this chunk add::

    last[p, d, e] = G(chunk) * S0[p, last chunk, d, e] + sum[t in the last chunk](G(t, end) * x[p, t, d] * u[p, t, e])
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nautilus.core.buffers import Buffer
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Expr, Load, Op, Var, loads, rewrite
from nautilus.core.expr.products import product_of
from nautilus.core.index.simplify import simplify
from nautilus.core.index.sizes import extent_expr, total
from nautilus.scalar.analysis.states.matrix_states import MatrixState
from nautilus.scalar.ir import Kernel, Loop, Program, Store, Update, expressions, statements, with_expressions
from nautilus.scalar.rewriting import map_statements, with_body

if TYPE_CHECKING:
    from nautilus.scalar.rewriting.states.chunks import StateChunks


def reads_last(program: Program, k: Kernel, m: MatrixState) -> bool:
    """Whether kernels other than ``k`` read ``m`` after its last step only."""
    place, last = m.order.index(m.time.name), _last(m)
    found = (
        ld
        for other in program.kernels
        if other is not k
        for _, s in statements(other.body)
        for e in expressions(s)
        for ld in loads(e)
        if ld.buffer == m.name
    )
    return all(simplify(ld.index[place]) == last for ld in found)


def _last(m: MatrixState) -> Expr:
    """The position of the last step."""
    return integer(0) if m.reverse else simplify(extent_expr(total(m.time.extent, -1)))


def last_state(c: StateChunks, entry: Buffer | None) -> Buffer:
    """The definitions of the last state; ``entry``: the states before chunks ``[p, n, d, e]`` in any order of axes."""
    m = c.m
    t = _last(m)
    chunk: Expr = integer(0) if m.reverse else extent_expr(total(c.count, -1))
    at = calc("add", calc("mul", chunk, c.length), Var(c.place))
    inside = c.inside_of(at)
    axes = {a.name: a for a in (*m.outer, *m.rows, *m.columns)}
    par = tuple(axes[name] for name in m.order if name != m.time.name)
    faded = None if c.fade is None else c.fade.behind(at, t)
    parts = [f for f in (c.behind(at, t), faded, *c.added(at)) if f is not None]
    value: Expr = c.read(c.define("last_added", par, product_of(parts), (c.axis(c.place, c.length),), inside), par)
    if entry is not None:
        columns_first = m.correction is not None
        own = (*m.columns, *m.rows) if columns_first else (*m.rows, *m.columns)
        outer, columns = ([Var(a.name) for a in axes] for axes in (m.outer, own))
        before: Expr = Load(entry.name, (*outer, chunk, *columns), c.dtype, m.span)
        left = (c.entering(t, before=False), None if c.fade is None else c.fade.entering(t, before=False))
        moved = product_of([*(f for f in left if f is not None), before])
        value = Op("add", (moved, value), c.dtype)
    return c.elementwise("last", par, value)


def with_last(program: Program, m: MatrixState, made: Buffer) -> Program:
    """``program`` whose kernels read ``made`` in place of the state after the last step."""
    place = m.order.index(m.time.name)

    def read(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer == m.name):
            return None
        index = tuple(x for n, x in enumerate(e.index) if n != place)
        return replace(e, buffer=made.name, index=tuple(rewrite(x, read) for x in index))

    def rule(_: tuple[Loop, ...], s: Store | Update) -> Store | Update:
        return with_expressions(s, lambda e: rewrite(e, read))

    return replace(program, kernels=tuple(with_body(k, map_statements(k.body, rule)) for k in program.kernels))
