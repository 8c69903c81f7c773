"""``order-temps``: the axis along which a large reduction reads a small temp is its last one.

The logits of a forgetting transformer have a sum of gates for each head, stored in the order of the gates::

    S[h, i, j] = Z[h, i, j] + c[i, h] - c[j, h]                 O[h, i, d] sum= P[h, i, j] * V[h, j, d]

Elements that a loop over ``j`` reads are then apart in memory, and each takes a sector of its own in every tile.  The
temp has the order ``c[h, j]``, so that copy units load the elements of a tile as one row.

It is done for temps that definitions alone read, at distinct axes, where the largest reduction has :data:`AGAIN` terms
or more for each element, and reads the last axis along none of its reduced axes and another one along one of them.
Operands of matrix products stay: tiles have either order, and a stored operand has the one that its product wants.
So do operands of running results, which read each element once: sums along columns of sums along rows store both in
the order of the rows.
"""

from __future__ import annotations

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Var, loads
from nautilus.core.records import dataclass
from nautilus.scalar.analysis.contractions.dense import stored_operands
from nautilus.scalar.analysis.definitions import Def, points, read_by_supports
from nautilus.scalar.analysis.domains import scan_of
from nautilus.scalar.ir import Program, expressions, statements
from nautilus.scalar.rewriting import find_defs, turned

AGAIN = 1024  # terms for each element: its store may then write sectors in parts


@dataclass(frozen=True, slots=True)
class OrderTemps:
    """Give such temps their order; ``always``: also where few terms read an element."""

    always: bool = False

    name = "order-temps"

    def apply(self, program: Program) -> Program:
        """The program with temps in another order; the same object where there are none."""
        elsewhere = _read_elsewhere(program) | read_by_supports(program.buffers)
        for name in find_defs(program):
            defs = find_defs(program)
            d = defs[name]
            if d.buffer.space is not Space.TEMP or d.at is not None or d.buffer.support is not None or len(d.par) < 2:
                continue
            if name in elsewhere:
                continue
            readers = [r for r in defs.values() if r.op is not None and any(ld.buffer == name for ld in r.reads())]
            largest = max(readers, key=lambda r: points(r.axes), default=None)
            last = None if largest is None else _last(d, largest, 1 if self.always else AGAIN)
            if last is not None:
                program = turned(program, d, (*(n for n in range(len(d.par)) if n != last), last))
        return program


def _read_elsewhere(program: Program) -> frozenset[str]:
    """What kernels that are no definitions read."""
    defs = find_defs(program)
    found = (s for k in program.kernels if k.name not in defs for _, s in statements(k.body))
    return frozenset(ld.buffer for s in found for e in expressions(s) for ld in loads(e))


def _last(d: Def, reader: Def, again: int) -> int | None:
    """The axis of ``d`` along which ``reader`` reduces, where that is not the last one; None: ``d`` stays.

    ``again``: the least number of terms for each element.
    """
    if points(reader.axes) < again * points(d.par) or d.name in stored_operands(reader) or scan_of(reader) is not None:
        return None
    reduced, found = {a.name for a in reader.red}, set[int]()
    for ld in reader.reads():
        if ld.buffer != d.name:
            continue
        names = [e.name for e in ld.index if isinstance(e, Var)]
        if len(names) != len(ld.index) or len({*names}) != len(names) or names[-1] in reduced:
            return None
        found |= {n for n, name in enumerate(names) if name in reduced}
    return found.pop() if len(found) == 1 else None
