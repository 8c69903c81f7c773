"""Operands of a matrix state that are computed from tensors of bf16.

As in ``narrow``, a product of two computed factors may have 16 bits where each of them is made from tensors of 16 bits
at all of its positions, and where only outputs of at most 16 bits depend on it: such outputs are rounded in the same
place anyway.  bf16 has the range of f32, so that nothing needs to be proved about the operands.  Examples are
``silu(k[t, d])``, and the probabilities with which a reader sums the rows.
"""

from __future__ import annotations

from nautilus.core.buffers import Space
from nautilus.core.expr.nodes import Axis, Expr, free_vars, loads
from nautilus.core.types import DType
from nautilus.scalar.analysis.definitions import reads_of, writes_of
from nautilus.scalar.analysis.ranges.precision import NARROW
from nautilus.scalar.analysis.states.matrix_states import MatrixState
from nautilus.scalar.ir import Kernel, Program


def computed_operands(program: Program, k: Kernel, m: MatrixState) -> int:
    """The number of operands of ``m``, the state of ``k``, that are computed; 0 where not all may have bf16."""
    if _feeds_wide_outputs(program, k):
        return 0
    readers = [(r.inside, m.rows) for r in m.readers]
    corrected = [] if m.correction is None else [(m.correction.inside, m.rows)]
    operands: list[tuple[Expr, tuple[Axis, ...]]] = [(m.x, m.rows), (m.u, m.columns), *readers, *corrected]
    types = [_types(program, e, frozenset(a.name for a in axes) & free_vars(e)) for e, axes in operands]
    if not all(types) or frozenset[DType]().union(*types) != {DType.BF16}:
        return 0
    return sum(all(ld.dtype not in NARROW for ld in loads(e)) or len(loads(e)) > 1 for e, _ in operands) or 1


def _types(program: Program, e: Expr, axes: frozenset[str]) -> frozenset[DType]:
    """The types of few bits of the tensors that ``e`` is made from at all positions along ``axes``."""
    found: set[DType] = set()
    behind: set[str] = set()
    for ld in loads(e):
        if axes <= free_vars(ld):
            behind.add(ld.buffer)
    seen: set[str] = set()
    while behind:
        name = behind.pop()
        seen.add(name)
        if (dtype := program.buffer(name).dtype) in NARROW:
            found.add(dtype)
            continue
        behind |= {n for k in program.kernels if name in writes_of(k) for n in reads_of(k)} - seen
    return frozenset(found)


def _feeds_wide_outputs(program: Program, k: Kernel) -> bool:
    """Whether an output that is no float of at most 16 bits depends on ``k``."""
    names = set(writes_of(k))
    for other in program.kernels:
        if other is not k and reads_of(other) & names:
            names |= writes_of(other)
    outputs = [b.dtype for b in program.buffers if b.name in names and b.space is Space.OUTPUT]
    return not all(x.is_float and x.bits <= 16 for x in outputs)
