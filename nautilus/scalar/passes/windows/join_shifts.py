"""``join-shifts``: two axes of a reduction that only move together become one.

A sum inside of another one has a result for each position of both, though neighbours share it::

    P[y, r, x] sum= h[s] * X[y + r, x + s]              becomes     P[u, x] sum= h[s] * X[u, x + s]
    Y[y, x]    sum= g[r] * P[y, r, x]                               Y[y, x] sum= g[r] * P[y + r, x]

as ``separate-windows`` makes it from one sum over both axes.  A step of the outer axis may be several positions
(``X[2 * y + r]``), forwards or backwards.

Invariants: elements and conditions depend on both axes by ``u = k * y + r`` alone, and every position between the first
and the last ``u`` is that of an element, so nothing else is read.  The result is a temp, and no recurrence.

The inner results are stored, while a kernel for both sums may keep those of few terms.  So the estimate has to be
:data:`~nautilus.scalar.passes.windows.nest_windows.SHARE` of that of the terms of all positions at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nautilus.core.buffers import Space
from nautilus.core.expr.build import calc, integer
from nautilus.core.expr.nodes import Axis, Expr, Load, Var, free_vars, rewrite, substitute
from nautilus.core.index.linear import linear
from nautilus.core.index.simplify import simplify
from nautilus.core.records import dataclass
from nautilus.core.text.names import unused
from nautilus.scalar.analysis.definitions import Def, points, size
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.windows.nest_windows import SHARE, TERM
from nautilus.scalar.rewriting import all_defs, find_defs, put_defs
from nautilus.targets.memory_rates import LAUNCH
from nautilus.targets.rates import machine
from nautilus.targets.records import DEFAULT_TARGET


@dataclass(frozen=True, slots=True)
class JoinShifts:
    """Join axes; ``always``: where the invariants permit it (for tests)."""

    always: bool = False

    name = "join-shifts"

    def apply(self, program: Program) -> Program:
        """The program with fewer axes; the same object where none are joined."""
        defs = all_defs(program)
        for name in defs or ():
            while (found := _shift(find_defs(program)[name], self.always)) is not None:
                program = _joined(program, name, found)
        return program


@dataclass(frozen=True, slots=True)
class _Shift:
    """The axes ``y`` and ``r`` move by ``step * y + r``."""

    y: Axis
    r: Axis
    step: int

    @property
    def first(self) -> int:
        """The least position."""
        return min(0, self.step * ((size(self.y) or 1) - 1))

    @property
    def extent(self) -> int:
        """The number of positions."""
        return abs(self.step) * ((size(self.y) or 1) - 1) + (size(self.r) or 1)

    def at(self, y: Expr, r: Expr) -> Expr:
        """The position of an element, counted from the first one."""
        return simplify(calc("sub", calc("add", calc("mul", y, integer(self.step)), r), integer(self.first)))

    def moved(self, e: Expr, place: Expr) -> Expr:
        """``e`` at the position ``place``."""
        return simplify(substitute(e, {self.y.name: integer(0), self.r.name: calc("add", place, integer(self.first))}))

    def decides(self, e: Expr) -> bool:
        """Whether ``e`` depends on both axes by the position alone, if at all."""
        names = {self.y.name, self.r.name}
        if not free_vars(e) & names:
            return True
        position = calc("add", calc("mul", Var(self.y.name), integer(self.step)), Var(self.r.name))
        other = substitute(e, {self.y.name: integer(0), self.r.name: position})
        return names <= free_vars(e) and simplify(other) == simplify(e)


def _shift(d: Def, always: bool) -> _Shift | None:
    """Axes of ``d`` that become one; None where there are none."""
    if not d.is_reduction or d.buffer.space is not Space.TEMP or d.at is not None:
        return None
    for s in _candidates(d):
        parts = (d.value,) if d.guard is None else (d.value, d.guard)
        if all(map(s.decides, parts)) and (always or _pays(d, s)):
            return s
    return None


def _candidates(d: Def) -> Iterator[_Shift]:
    """The pairs of axes that an index adds, each with its step."""
    axes = {a.name: a for a in d.par if (size(a) or 0) > 1}
    for e in dict.fromkeys(e for ld in d.reads() for e in ld.index):
        slopes = {name: linear(e).slope(name) for name in axes if name in free_vars(e)}
        for y, k in slopes.items():
            for r, one in slopes.items():
                if y != r and one and k % one == 0 and abs(k // one) <= (size(axes[r]) or 0):
                    yield _Shift(axes[y], axes[r], k // one)


def _pays(d: Def, s: _Shift) -> bool:
    """Whether the kernels of both reductions are predicted to be faster than one with the terms of all positions."""
    elements = points(a for a in d.par if a not in (s.y, s.r)) * s.extent
    moved = 2 * elements * d.buffer.dtype.bytes / machine(DEFAULT_TARGET).dram
    seconds = LAUNCH * 1e-6 + moved + elements * points(d.red) * TERM
    return seconds < SHARE * points(d.axes) * TERM


def _joined(program: Program, name: str, s: _Shift) -> Program:
    """``program`` whose definition ``name`` has one axis for those of ``s``."""
    d = find_defs(program)[name]
    y, r = (next(n for n, a in enumerate(d.par) if a.name == x.name) for x in (s.y, s.r))
    u = replace(s.y, name=unused("u", {a.name for a in d.axes}), extent=s.extent)
    par = tuple(u if n == y else a for n, a in enumerate(d.par) if n != r)
    buffer = replace(d.buffer, shape=tuple(a.extent for a in par))
    guard = None if d.guard is None else s.moved(d.guard, Var(u.name))
    program = put_defs(
        program, name, (replace(d, buffer=buffer, par=par, value=s.moved(d.value, Var(u.name)), guard=guard),)
    )

    def read(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != name:
            return None
        at = s.at(e.index[y], e.index[r])
        return replace(e, index=tuple(at if n == y else x for n, x in enumerate(e.index) if n != r))

    for other in find_defs(program).values():
        if any(ld.buffer == name for ld in other.reads()):
            condition = None if other.guard is None else rewrite(other.guard, read)
            program = put_defs(
                program, other.name, (replace(other, value=rewrite(other.value, read), guard=condition),)
            )
    return program
