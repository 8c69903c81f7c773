"""``delinearize``: an axis that numbers the points of a grid becomes the axes of the grid.

A spec may number the positions of windows with one axis, as image models number their patches::

    Y[n, t, e] = sum[c, u, v](X[n, c, t // 14 * 16 + u, t % 14 * 16 + v] * W[e, c, u, v])

Where a reduction reads a tensor at ``t // G`` in one dimension and at ``t % G`` in another, each beside a reduced
axis, ``t`` becomes ``G * t_group + t_member`` (pass ``pack``).  The windows are then those of a convolution with two
axes of the result, for which later passes have rules.  Reads at other functions of ``t`` stay what they are.

Definitions that read each other at the same positions can share a kernel.  So ``c`` also becomes two axes where an
elementwise definition reads a sum at ``c // 64`` and at ``c % 64``, as where heads are put side by side::

    y[i, c] = x[i, c] + O[c // 64, i, c % 64]

The pass applies if G divides the extent of the axis, and to one axis at a time.
"""

from __future__ import annotations

from nautilus.core.expr.build import calc
from nautilus.core.expr.nodes import Const, Expr, Load, Op, Var, free_vars, walk
from nautilus.core.records import dataclass
from nautilus.core.schedule import PackPlan
from nautilus.scalar.analysis.definitions import Def, read_defs
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.pack import pack


@dataclass(frozen=True, slots=True)
class Delinearize:
    """Give every such axis its grid (module docstring)."""

    name = "delinearize"

    def apply(self, program: Program) -> Program:
        """The program with the grids' axes; the same object where no window has its position in one axis."""
        while (plan := _first(program)) is not None:
            program = pack(program, plan)
        return program


def _first(program: Program) -> PackPlan | None:
    """The axis of one definition that numbers a grid, with the grid's last extent."""
    defs = read_defs(program)
    for d in defs.values():
        reduced = frozenset(a.name for a in d.red)
        for axis in d.par:
            for ld in d.reads():
                size = _size(ld, axis.name, reduced) if reduced else sum_digits(ld, axis.name, defs.get(ld.buffer))
                if size is not None and isinstance(axis.extent, int) and axis.extent % size == 0 < size < axis.extent:
                    return PackPlan(d.name, axis.name, size)
    return None


def sum_digits(ld: Load, axis: str, read: Def | None) -> int | None:
    """G where ``ld`` is an element of the sum ``read`` at ``axis // G`` in one dimension, and at ``axis % G``."""
    if read is None or read.op != "sum" or read.at is not None:
        return None
    for n, e in enumerate(ld.index):
        size = read.par[n].extent
        if isinstance(size, int) and e == calc("mod", Var(axis), size):
            return size if calc("floordiv", Var(axis), size) in ld.index else None
    return None


def _size(ld: Load, axis: str, reduced: frozenset[str]) -> int | None:
    """G where ``ld`` is at ``axis // G`` in one dimension and at ``axis % G`` in another, both of windows."""
    quotients, rests = set[int](), set[int]()
    for e in ld.index:
        if axis in free_vars(e) and reduced & free_vars(e):
            quotients |= _divisors("floordiv", e, axis)
            rests |= _divisors("mod", e, axis)
    both = quotients & rests
    return both.pop() if len(both) == 1 else None


def _divisors(op: str, e: Expr, axis: str) -> set[int]:
    """The numbers by which ``op`` divides ``axis`` in ``e``."""
    found = set()
    for n in walk(e):
        if isinstance(n, Op) and n.op == op and n.args[0] == Var(axis) and isinstance(n.args[1], Const):
            found.add(int(n.args[1].value))
    return found
