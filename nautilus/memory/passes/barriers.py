"""Numbers of the named barriers (PTX ISA, ``bar``; 0 is the block's own), one a unit for each purpose."""

from __future__ import annotations

from nautilus.core.expr import Const, Expr, Op, Var
from nautilus.core.types import DType
from nautilus.memory.ops import Barrier
from nautilus.memory.warpgroup_ops import GROUP_THREADS, UNIT

#: most consumer units of a block
MOST_UNITS = 3
#: the threads of one unit meet
STORE = 1
#: one unit hands its turn to the next
TURN = STORE + MOST_UNITS


def number(e: int) -> Const:
    """An index constant."""
    return Const(e, DType.I32)


def of_unit(first: int) -> Expr:
    """The barrier of this unit, of those from ``first`` on."""
    return Op("add", (number(first), Var(UNIT)), DType.I32)


def of_next(first: int, units: int) -> Expr:
    """The barrier of the unit after this one."""
    after = Op("add", (Var(UNIT), number(1)), DType.I32)
    return Op("add", (number(first), Op("mod", (after, number(units)), DType.I32)), DType.I32)


def unit_barrier() -> Barrier:
    """All threads of this unit meet."""
    return Barrier(of_unit(STORE), GROUP_THREADS)
