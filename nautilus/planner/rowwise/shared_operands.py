"""Large operands that many results share.

An elementwise kernel with a large operand that lacks an axis of the result (the weights of a norm over images, a
position embedding) computes :data:`RESULTS` results along that axis for each element of the operand that it loads.

Measured on an H200 (us): a norm of 16 images of 16 MB with weights of as many bytes, 275 in tiles of 16 images, 375
image by image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from nautilus.core.expr.nodes import free_vars
from nautilus.scalar.analysis.definitions import Def

RESULTS = 16  # results for each element of a shared operand
LARGE = 4 << 20  # bytes of an operand that L1 does not keep, and L2 not for long


def lacking_axis(defs: Sequence[Def], fast: str | None, grid: Mapping[str, int]) -> str | None:
    """The axis of an elementwise kernel that its largest shared operand lacks; None where there is no such operand.

    ``fast``: the axis that is contiguous in memory; ``grid``: the extents of the axes of the result.
    """
    names = {d.name for d in defs}
    found: dict[str, int] = {}
    for ld in (ld for d in defs for ld in d.reads() if ld.buffer not in names):
        axes = free_vars(ld)
        size = ld.dtype.bytes * prod(n for x, n in grid.items() if x in axes)
        if fast in axes and size >= LARGE:
            found |= {x: max(size, found.get(x, 0)) for x, n in grid.items() if x not in axes and n > 1}
    return max(found, key=lambda x: found[x]) if found else None
