"""``sink-gathers``: a reduction of gathered rows is a gather of the reduction.

Scores of relative positions multiply each query by a row of a small table, which many keys share::

    S[i, j] sum= Q[i, d] * T[clamp(j - i, -16, 16) + 16, d]

No operand of that sum is a matrix over ``j``, and most of its products are equal.  The reduction is done for each row
of the table instead, and gathered::

    S_rows[i, r] sum= Q[i, d] * T[r, d]    ;    S[i, j] = S_rows[i, clamp(j - i, -16, 16) + 16]

The same holds for other combiners, several gathered dimensions (a projection of an image that is enlarged,
``X[b, y // 2, x // 2, c]``), and rows whose numbers are read from memory.  Where they depend on reduced axes, only the
others are reduced before the gather, as in the distances to vectors of which each part is an entry of a code book::

    Y[q, n] sum= (X[q, m, d] - C[m, code[n, m], d]) ** 2
    Y_rows[q, m, r] sum= (X[q, m, d] - C[m, r, d]) ** 2    ;    Y[q, n] sum= Y_rows[q, m, code[n, m]]

Axes that only the positions of rows depend on are no axes of the new reduction.  It is done where at least
:data:`GAIN` times fewer terms are left of :data:`TERMS` or more, or at most :data:`GAIN` times as many where that makes
a product of matrices that fill matrix units (rows and columns of positions that are not clamped).  The new tensor has
at most :data:`GAIN` times the elements of the result.  Other positions are proved to be inside of their tensors,
because those of all rows are read.  A condition that is a congruence stays, because ``split-residues`` leaves out the
terms for which it is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nautilus.core.buffers import Buffer, Space
from nautilus.core.expr.build import calc
from nautilus.core.expr.conditions import conjuncts
from nautilus.core.expr.nodes import Axis, Expr, Load, Param, Var, free_vars, identity, loads, rewrite
from nautilus.core.expr.products import matrix_product
from nautilus.core.index.congruences import congruence
from nautilus.core.index.sizes import Extent
from nautilus.core.records import dataclass
from nautilus.core.text.names import fresh
from nautilus.scalar.analysis.contractions.disjoint import read_points
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.masking import certainly_in_range
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.dead import Dead
from nautilus.scalar.passes.inline import can_inline, replace_reads
from nautilus.scalar.rewriting import ASSOCIATIVE, find_defs, fresh_name, put_defs

GAIN = 2
SIDE = 64  # rows and columns of a product that has the rate of matrix units
TERMS = 1 << 24  # terms of the smallest reduction: fewer take less time than one more kernel


@dataclass(frozen=True, slots=True)
class SinkGathers:
    """Reduce the rows of tables, and gather the results."""

    name = "sink-gathers"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such reduction; the same object where there is none."""
        shapes = {b.name: b.shape for b in program.buffers}
        for name, d in find_defs(program).items():
            made = _over_rows(program, d, shapes, read_points(d, find_defs(Dead().apply(program))))
            if made is not None:
                program = put_defs(program, name, made)
                if can_inline(made[1]):
                    program = Dead().apply(replace_reads(program, made[1]))
        return program


def _over_rows(program: Program, d: Def, shapes: Mapping[str, tuple[Extent, ...]], read: int) -> tuple[Def, Def] | None:
    """The reduction of ``d`` for each row, and ``d`` as a gather of it; None where nothing is gained.

    ``read``: the terms of ``d`` whose results are read.
    """
    if d.op not in ASSOCIATIVE or d.at is not None or d.value.dtype is not d.buffer.dtype or read < TERMS:
        return None
    rows = _rows(d, shapes)
    outer = tuple(a for a in d.red if any(a.name in free_vars(e) for e in rows))
    inner = tuple(a for a in d.red if a not in outer)
    early = d.guard is not None and any(a.name in free_vars(d.guard) for a in inner)
    value = _at_rows(d, rows)
    used = free_vars(value) | (free_vars(d.guard) if d.guard is not None and early else frozenset())
    places = _places(d, outer, rows, used)
    par = tuple(a for a, _ in places)
    buffer = Buffer(
        fresh_name(program, f"{d.name}_rows"), d.value.dtype, tuple(a.extent for a in par), Space.TEMP, d.span
    )
    reduced = replace(
        d, name=buffer.name, buffer=buffer, par=par, red=inner, value=value, guard=d.guard if early else None
    )
    if (
        not rows
        or not inner
        or any(map(congruence, conjuncts(d.guard)))
        or not used <= {a.name for a in reduced.axes}
        or not _gains(d, reduced, read)
    ):
        return None
    alike = not early and all(size(a) for a in inner)  # the gather then reads where and when ``d`` reads
    if not _in_range(reduced, shapes) or not (alike or _in_range(d, shapes)):
        return None
    element = Load(buffer.name, tuple(e for _, e in places), buffer.dtype, d.span)
    return reduced, _gather(d, outer, element, early)


def _places(
    d: Def, outer: tuple[Axis, ...], rows: Mapping[Expr, Axis], used: frozenset[str]
) -> tuple[tuple[Axis, Expr], ...]:
    """The axes of the new reduction, and where ``d`` reads it along each of them.

    An axis of rows stands after the axes that its position depends on, so that neighbouring results of ``d`` along a
    later axis read neighbours.
    """
    order = {a.name: n for n, a in enumerate((*d.par, *outer))}
    found = [(order[a.name], 0, a, Var(a.name)) for a in (*d.par, *outer) if a.name in used]
    placed = [(max(order[x] for x in free_vars(e) & order.keys()), 1, a, e) for e, a in rows.items()]
    return tuple((a, e) for _, _, a, e in sorted([*found, *placed], key=lambda x: x[:2]))


def _gains(d: Def, reduced: Def, read: int) -> bool:
    """Whether ``reduced`` has few terms and few elements beside ``d``, of which ``read`` terms are needed."""
    enabled = _least_side(reduced) >= SIDE > _least_side(d)
    terms, results = points(reduced.axes), read // points(d.red)
    few = terms <= GAIN * read if enabled else GAIN * terms <= read
    return few and points(reduced.par) <= GAIN * results


def _least_side(d: Def) -> int:
    """The rows or columns of ``d`` as a product of matrices, whichever are fewer; 0 for no product."""
    product = matrix_product(d.value, [a.name for a in d.par]) if d.op == "sum" else None
    if product is None:
        return 0
    return min(points(a for a in d.par if a.name in names) for names in (product.rows, product.columns))


def _in_range(d: Def, shapes: Mapping[str, tuple[Extent, ...]]) -> bool:
    scope = {a.name: a.extent for a in d.axes}
    return all(certainly_in_range(ld, shapes, scope, conjuncts(d.guard)) for ld in loads(d.value))


def _gather(d: Def, outer: tuple[Axis, ...], element: Expr, early: bool) -> Def:
    """``d`` as ``element``, or as the reduction of it over ``outer``; ``early``: its condition has been applied."""
    guard = None if early else d.guard
    if outer:
        return replace(d, red=outer, value=element, guard=guard)
    assert d.op is not None
    term = element if guard is None else calc("select", guard, element, identity(d.op, element.dtype))
    return replace(d, op=None, red=(), value=term, guard=None)


def _rows(d: Def, shapes: Mapping[str, tuple[Extent, ...]]) -> dict[Expr, Axis]:
    """An axis of rows for each position in the value of ``d`` that alone depends on some of its parallel axes.

    No position depends on all reduced axes.
    """
    found: dict[Expr, Extent] = {}
    for ld in loads(d.value):
        for e, extent in zip(ld.index, shapes[ld.buffer], strict=True):
            if isinstance(e, Var) or not any(a.name in free_vars(e) for a in d.par):
                continue
            if not isinstance(extent, int | Param) or found.setdefault(e, extent) != extent:
                return {}
    taken = {a.name for a in d.axes}
    axes = {e: Axis(fresh("row", taken), extent, d.span) for e, extent in found.items()}
    left = free_vars(_at_rows(d, axes))
    return {e: a for e, a in axes.items() if any(p.name in free_vars(e) - left for p in d.par)}


def _at_rows(d: Def, rows: Mapping[Expr, Axis]) -> Expr:
    """The value of ``d``, whose tensors are read at ``rows`` in the place of the positions that are their keys."""

    def put(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or not any(x in rows for x in e.index):
            return None
        return replace(e, index=tuple(Var(rows[x].name) if x in rows else x for x in e.index))

    return rewrite(d.value, put)
