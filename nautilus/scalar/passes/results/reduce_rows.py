"""``reduce-rows``: a reduction over rows and their elements reduces each row first, where rows have statistics.

Losses are sums over all elements of values that a reduction of their row scales or shifts::

    m[b] = max[v](x[b, v])        Z[b] = sum[v](exp(x[b, v] - m[b]))        L = sum[b, v](f(x[b, v], m[b], Z[b]))

As one reduction over ``b`` and ``v``, ``L`` shares no kernel with the statistics, whose axis ``b`` is parallel, and
reads ``x`` from memory again.  In two steps the rows are a kernel with the statistics::

    T[b] = sum[v](f(x[b, v], m[b], Z[b]))        L = sum[b](T[b])

Running results of rows, as in ``L = sum[b, v](sum[u | u <= v](x[b, u]) ** 2)``, are statistics too: a block has those
of a row in registers.

Reductions may be associated again (``grammar/README.md``, "Numbers"), and an element of ``T`` has the type of the
accumulator, so nothing more is rounded.  The conditions stay in the first step: a row without terms has the identity.

It is done for rows that are contiguous in memory, of :data:`LONG` elements or more, if they are :data:`MANY` or more:
fewer rows would leave the GPU idle.

A reduction over rows and columns of a product of matrices is done along the columns first as well: the kernel of
the product does that, where one over both needs the elements of all blocks::

    Y[t, g, r] = sum[c](X[t, g, c] * H[c, r])        T[t, g] = max[r](Y[t, g, r])        S[t] = max[g](T[t, g])

Columns are as many as the elements of a row.  Where the product has other readers, its sums have :data:`SHORT` terms at
most, so that these may compute it again.

A total over pairs of particles, whose terms take :data:`COSTLY` issue slots or more, is the total of those of each
particle, of which a block has several (``planner.rowwise.shared_vectors``)::

    E = sum[i, j | i != j](f(x[i], x[j]))        T[i] = sum[j | i != j](f(x[i], x[j]))        E = sum[i](T[i])
"""

from __future__ import annotations

from collections.abc import Mapping

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Axis, Load, Var, free_vars, loads
from nautilus.core.expr.products import matrix_product
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import multiplies_matrices
from nautilus.scalar.analysis.contractions.shared_parts import slots
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.analysis.domains import scan_of
from nautilus.scalar.ir import Program
from nautilus.scalar.rewriting import ASSOCIATIVE, find_defs, in_two_steps, put_defs

LONG = 32  # elements of a row, one for each thread of a warp
MANY = 128  # rows, one for most multiprocessors
PAIRS = 1024  # least number of particles
COSTLY = 8  # least number of issue slots of a term
SHORT = 256  # terms of a product that two kernels may compute


@dataclass(frozen=True, slots=True)
class ReduceRows:
    """Reduce rows that have statistics before the results of rows are reduced."""

    name = "reduce-rows"

    def apply(self, program: Program) -> Program:
        """The program with one more definition for each such reduction; the same object where there is none."""
        defs = find_defs(program)
        for d in defs.values():
            rows = _rows(d, defs) or _rows_of_product(d, defs) or _rows_of_pairs(d)
            if rows:
                program = put_defs(program, d.name, in_two_steps(program, d, rows))
        return program


def _rows(d: Def, defs: Mapping[str, Def]) -> tuple[Axis, ...]:
    """The reduced axes of ``d`` that number rows with statistics; none where ``d`` is no such reduction."""
    if d.op not in ASSOCIATIVE or d.at is not None or len(d.red) < 2 or multiplies_matrices(d):
        return ()
    own = frozenset(a.name for a in d.red)
    read = (_row_of(ld, defs) & own for ld in d.reads() if ld.buffer in defs)
    numbered = {names for names in read if names and names != own}
    if len(numbered) != 1:
        return ()
    (names,) = numbered
    row = [a for a in d.red if a.name not in names]
    along = {a.name for a in row}
    near = any(own <= free_vars(ld) and free_vars(ld.index[-1]) & own <= along for ld in d.reads())
    rows = tuple(a for a in d.red if a.name in names)
    long = points(row) >= LONG
    many = points([*d.par, *rows]) >= MANY
    return rows if near and long and many else ()


def _rows_of_product(d: Def, defs: Mapping[str, Def]) -> tuple[Axis, ...]:
    """The reduced axes of ``d`` that number rows of the product that it reads, where it reduces the columns too."""
    read = [ld for ld in d.reads() if ld.buffer in defs and multiplies_matrices(defs[ld.buffer])]
    plain = all(isinstance(e, Var) for ld in read for e in ld.index) and len(read) == 1
    if d.op not in ASSOCIATIVE or d.at is not None or multiplies_matrices(d) or not plain:
        return ()
    product = defs[read[0].buffer]
    sides = matrix_product(product.value, [a.name for a in product.par])
    if sides is None:
        return ()
    near = sides.columns if product.par[-1].name in sides.columns else sides.rows
    columns = {e for a, e in zip(product.par, read[0].index, strict=True) if a.name in near}
    rows = tuple(a for a in d.red if Var(a.name) not in columns)
    long = points(a for a in d.red if a not in rows) >= LONG
    many = points([*d.par, *rows]) >= MANY
    alone = all(r is d for r in defs.values() if any(ld.buffer == product.name for ld in r.reads()))
    short = points(product.red) <= SHORT and points(d.par) >= MANY
    again = product.buffer.space is Space.TEMP and (alone or short)
    return rows if long and many and again and 0 < len(rows) < len(d.red) else ()


def _rows_of_pairs(d: Def) -> tuple[Axis, ...]:
    """The first of the two axes of pairs over which ``d`` is a total; none where it is none."""
    if d.op not in ASSOCIATIVE or d.at is not None or len(d.red) != 2 or d.par or multiplies_matrices(d):
        return ()
    names = [a.name for a in d.red]
    read = [free_vars(ld) & {*names} for ld in d.reads() if not any(map(loads, ld.index))]
    apart = all(len(found) < 2 for found in read) and all(any(x in found for found in read) for x in names)
    long = all((size(a) or 0) >= PAIRS for a in d.red)
    return d.red[:1] if apart and long and slots(d.value) >= COSTLY else ()


def _row_of(ld: Load, defs: Mapping[str, Def]) -> frozenset[str]:
    """The variables that say of which row ``ld`` reads a statistic or running results; none where it reads neither."""
    d = defs[ld.buffer]
    if (scan := scan_of(d)) is not None:
        return frozenset[str]().union(
            *(free_vars(e) for a, e in zip(d.par, ld.index, strict=True) if a.name != scan.into)
        )
    return free_vars(ld) if _is_statistic(d, defs) else frozenset()


def _is_statistic(d: Def, defs: Mapping[str, Def]) -> bool:
    """Whether ``d`` is a reduction, but no product of matrices, or an element made from one."""
    if d.is_reduction:
        return not multiplies_matrices(d)
    own = tuple(Var(a.name) for a in d.par)
    return any(ld.index == own and _is_statistic(defs[ld.buffer], defs) for ld in d.reads() if ld.buffer in defs)
