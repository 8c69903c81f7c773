"""Reductions over pairs: each result combines a row of one operand with a row of another one.

Distances, comparisons of codes and products in other semirings (``max[k](A[i, k] + B[k, j])``) have the operands of a
matrix product and no MMA.  A block has :data:`SIDE` rows and columns of results and a loop over the reduction, so that
a thread uses each element that it loads for several results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nautilus.core.expr.nodes import Load, free_vars, loads
from nautilus.scalar.analysis.definitions import Def

SIDE = 32  # rows and columns of results of a block, 8 of each thread
STEP = 8  # terms of a step: one sector of f32
WARPS = (4, 1)
LEAST = 16  # rows, columns and terms that are worth a tile


def pair_of(defs: Sequence[Def], grid: Mapping[str, int], extents: Mapping[str, int]) -> tuple[str, str, str] | None:
    """The axes of rows, columns and terms of the one reduction of ``defs``; None where it reduces no pairs.

    ``grid``: extents of the axes of all results; ``extents``: of all axes.
    """
    found = [d for d in defs if d.is_reduction]
    if len(found) != 1 or not found[0].red or not found[0].par:
        return None
    (d,) = found
    terms = max((a.name for a in d.red), key=lambda x: extents[x])
    operands = [_names(ld) for ld in loads(d.value) if terms in _names(ld)]
    columns = [a.name for a in reversed(d.par) if grid.get(a.name, 0) >= LEAST]
    for column in columns:
        rows = [x for x in columns if x != column and _apart(operands, x, column)]
        if rows and extents[terms] >= LEAST:
            return max(rows, key=lambda x: grid[x]), column, terms
    return None


def _apart(operands: Sequence[frozenset[str]], row: str, column: str) -> bool:
    """Whether some operand has ``row``, another ``column``, and none both."""
    return all(any(x in o for o in operands) for x in (row, column)) and not any({row, column} <= o for o in operands)


def _names(ld: Load) -> frozenset[str]:
    return frozenset[str]().union(*map(free_vars, ld.index))
