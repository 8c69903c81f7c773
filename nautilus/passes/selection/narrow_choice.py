"""Whether computed factors that meet 8-bit floats have 8 bits too, by the cost model.

Where a product of 8-bit floats feeds another one (:mod:`nautilus.scalar.passes.narrow`), its results may be rounded to
16 bits or to 8.  Operands of 8 bits have twice the rate; the operand that they meet has to be stored in another order,
and sums need a second accumulator.  Both programs are lowered, and 8 bits are taken where they are predicted to be
clearly faster.  A kernel that was refused once has 16 bits: the next attempt begins with the first plan for these.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.fallbacks import LIGHTER, Fallbacks
from nautilus.core.types import DType
from nautilus.passes.manager import Context
from nautilus.passes.pipelines import SCALAR
from nautilus.passes.selection.trial import Trial, attempt
from nautilus.scalar.ir import Program
from nautilus.scalar.passes.narrow import narrowed
from nautilus.scalar.rewriting import find_defs
from nautilus.targets.limits import limits

MARGIN = 0.05  # relative gain by the cost model below which factors have 16 bits
_BEFORE = SCALAR.before("narrow")


def may_have_bytes(program: Program, arch: str, precision: str) -> bool:
    """Whether a factor of a product may have 8 bits, and ``arch`` has warpgroup MMAs of such operands."""
    target = limits(arch)
    if precision == "strict" or not (target.warpgroup and target.float8):
        return False
    if not any(b.dtype is DType.F8E4M3 for b in program.buffers):
        return False
    defs = find_defs(program)
    found = (narrowed(d, defs, to_bytes=True) for d in defs.values() if d.op == "sum")
    return any(side.dtype is DType.F8E4M3 for n in found if n is not None for side in n.sides)


def is_faster(program: Program, context: Context) -> bool:
    """Whether ``program``, the result of :data:`_BEFORE`, is clearly faster with factors of 8 bits."""
    short = _tried(program, context, True)
    if short is None:
        return False
    wide = _tried(program, context, False)
    return wide is None or short.seconds < (1 - MARGIN) * wide.seconds


def without_bytes(known: Fallbacks) -> Fallbacks:
    """``known``, where the plans that were refused first had factors of 8 bits."""
    steps = {kernel: 0 if step <= LIGHTER else step for kernel, step in known.taken}
    return replace(Fallbacks.of(steps, dict(known.excesses), known.spilling), failures=known.failures)


def _tried(program: Program, context: Context, to_bytes: bool) -> Trial | None:
    assert context.schedule is not None
    schedule = replace(context.schedule, narrow_to_bytes=to_bytes)
    return attempt(program, replace(context, schedule=schedule), _BEFORE)
