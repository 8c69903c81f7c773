"""Sums of columns beside statistics of rows, of which one loop over rows reads the tensor once.

Gradients of norms reduce each row, and each column over all rows::

    R[m] = sum[d](g[m, d] * x[m, d])          dX[m, d] = f(g[m, d], x[m, d], R[m])
    dW[d] = sum[m](g[m, d] * x[m, d] * r[m])

A kernel of rows and one of columns each read the tensor.  Where the rows are packed in groups and the columns are
reduced in chunks of a group each, a block has the rows of a group one after another in registers, and partial results
of all columns beside them (:func:`nautilus.planner.rowwise.columns.plan_of_rows`)::

    for m in group:  R[m], dX[m, :], dW_part[group, :] += ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

from nautilus.core.expr.nodes import Var, free_vars
from nautilus.core.schedule import PackPlan, Schedule, SplitPlan
from nautilus.planner.products.dots import dot_of
from nautilus.planner.rowwise.columns import LONGEST_ROW
from nautilus.planner.rowwise.pairs import BLOCKS
from nautilus.scalar.analysis.axes import Unified, unify
from nautilus.scalar.analysis.definitions import Def, read_defs, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.pack import pack

LEAST = 1 << 22  # elements that are read once more otherwise: about 5 microseconds
GROUPS = 256  # of rows at least: two blocks for each multiprocessor
SHARE = 1 << 19  # elements of one row of each group: short rows have more groups
NEAR = 0.75, 1.5  # numbers of groups, as shares of these, that serve as well
SHORTEST = 4  # rows of a group


def schedules(program: Program, schedule: Schedule) -> Iterator[Schedule]:
    """``schedule`` with rows in groups and columns in chunks; none where no columns are reduced beside rows.

    ``program``: the program before ``pack``.
    """
    defs = read_defs(program)
    unified = unify(tuple(defs.values()), tuple(p.name for p in program.params))
    for axis, names in _columns(unified).items():
        first = defs[names[0]]
        own = _own_axis(first, unified.get(first.name), axis)
        for rows in _rows(unified.extents[axis], size(first.par[0]) or 1):
            plan = PackPlan(first.name, own, rows)
            packed = read_defs(pack(program, plan, contracted=False))
            group = {n: next((a for a in packed[n].red), None) for n in names}
            cuts = tuple(SplitPlan(n, a.name, int(str(a.extent)), 1) for n, a in group.items() if a is not None)
            if all(len(packed[n].red) == 2 for n in names):
                yield replace(schedule, packs=(plan,), splits=cuts)


def shares_rows(operand: Def, reader: Def) -> bool:
    """Whether ``reader`` reduces columns of many groups of rows, and ``operand`` each row of the same tensor.

    A loop over the rows of a group has each row for both.
    """
    groups = size(reader.par[0]) if len(reader.par) == 2 and len(reader.red) == 1 else None
    if groups is None or groups < BLOCKS or len(operand.red) != 1:
        return False
    rows = reader.par[0].name, reader.red[0].name
    read = {ld.buffer for ld in reader.reads() if free_vars(ld).issuperset({*rows, reader.par[1].name})}
    beside = any(ld.buffer == operand.name and ld.index == tuple(map(Var, rows)) for ld in reader.reads())
    return beside and any(ld.buffer in read for ld in operand.reads() if operand.red[0].name in free_vars(ld))


def _columns(unified: Unified) -> Mapping[str, list[str]]:
    """The axes of rows, each with the reductions over them that are columns beside reductions of rows."""
    found: dict[str, list[str]] = {}
    for d in unified.defs:
        rows = d.red[0].name if len(d.red) == 1 and len(d.par) == 1 else None
        if rows is None or d.op is None or d.guard is not None or dot_of(d) is not None or not _is_long(d):
            continue
        column, read = d.par[0].name, _tensors(d, rows, d.par[0].name)
        beside = [x for x in unified.defs if [a.name for a in x.red] == [column] and [a.name for a in x.par] == [rows]]
        if any(read & _tensors(x, rows, column) for x in beside) and _is_alike(d, unified):
            found.setdefault(rows, []).append(d.name)
    return found


def _is_long(d: Def) -> bool:
    """Whether ``d`` reads enough elements, and its rows are no longer than a tile."""
    extents = [size(a) for a in d.axes]
    known = [e for e in extents if e is not None]
    return len(known) == len(extents) and prod(known) >= LEAST and known[0] <= LONGEST_ROW


def _is_alike(d: Def, unified: Unified) -> bool:
    """Whether all reductions over the rows of ``d`` are columns as ``d``, or all results along them."""
    rows = d.red[0].name
    return all([a.name for a in x.red] == [rows] for x in unified.defs if rows in {a.name for a in x.red})


def _tensors(d: Def, rows: str, column: str) -> set[str]:
    """The tensors of which ``d`` reads ``rows`` that are contiguous along ``column``."""
    return {ld.buffer for ld in d.reads() if rows in free_vars(ld) and ld.index[-1] == Var(column)}


def _own_axis(original: Def, d: Def, axis: str) -> str:
    """The name that ``original`` has for ``axis`` of ``d``, the same definition with unified axes."""
    return next(o.name for o, a in zip(original.axes, d.axes, strict=True) if a.name == axis)


def _rows(extent: object, row: int) -> list[int]:
    """Rows of a group of rows of ``row`` elements: about as many groups as are wanted, and twice as many."""
    if not isinstance(extent, int):
        return []
    found, least = [], max(GROUPS, SHARE // row)
    for wanted in (least, 2 * least):
        near = [
            r
            for r in range(SHORTEST, extent // SHORTEST + 1)
            if extent % r == 0 and NEAR[0] * wanted <= extent // r <= NEAR[1] * wanted
        ]
        found += [min(near, key=lambda r: abs(extent // r - wanted))] if near else []
    return sorted(set(found))
