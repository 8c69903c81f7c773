"""What accesses of warps to memory cost beside their bytes.

Loads: lines of L1 that each instruction touches, and sectors of memory that a warp moves, beyond the fewest.  Stores:
instructions, sectors that they write in part, and atomic operations that wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from nautilus.core.buffers import Buffer
from nautilus.core.expr.nodes import free_vars, loads, refs
from nautilus.core.index.sizes import nominal
from nautilus.core.records import dataclass
from nautilus.ma_tile.analysis.sectors import LINE, sectors
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import GlobalLoad, GlobalStore, MemKernel, TmaLoad, walk_ops
from nautilus.targets.memory_rates import SECTOR

SPARE = 1.8  # cycles of a sector of memory that a load moves in vain: 201 MB of f32 in a sector each take 344 us
APART = 1.35  # cycles of a line of L1 in which a load finds few bytes: 237 MB of f32 in a line each take 326 us
COMBINED = 8  # sectors written in part, as which an instruction that combines 32 elements counts
IN_BLOCK = 8.0  # slots of an instruction that combines 32 elements of 4 bytes in shared memory, with its conflicts
_LINES = 1024  # atomic operations on this many lines do not wait for each other


@dataclass(frozen=True, slots=True)
class StoreWork:
    """The work of a store: warp instructions, sectors written in part, and requests for each line that combines."""

    issue: float = 0.0
    sectors: float = 0.0
    meets: float = 0.0


def store_work(buffer: Buffer, op: GlobalStore, layout: FragLayout, warps: int) -> StoreWork:
    """The work of ``op`` in ``buffer``, whose value has ``layout`` in each of ``warps`` warps.

    A request is that of a lane where values decide about its place, and that of a warp where lanes have neighbours.
    """
    count, words = warps * layout.registers / max(1, op.vec), buffer.dtype.bytes / 4
    if op.scratch is not None:
        return StoreWork(issue=count * IN_BLOCK * words)
    if op.combiner is not None:
        lines = min(_LINES, max(1, prod(nominal(n) for n in buffer.shape) * buffer.dtype.bytes // LINE))
        each = 32 if refs(op.index[-1]) else 1
        return StoreWork(sectors=count * COMBINED * words, meets=count * each * words / lines)
    found = sectors(buffer, op.index, layout, op.vec)
    return StoreWork(issue=2 * count, sectors=count * found.part)


def spare_cycles(buffer: Buffer, op: GlobalLoad, layout: FragLayout) -> float:
    """Cycles in which a warp loads what ``op`` does not need, or finds it in many lines.

    0 where values decide about places.
    """
    if any(refs(e) or loads(e) for e in op.index):
        return 0.0
    whole = sectors(buffer, op.index, layout, layout.registers)
    each = sectors(buffer, op.index, layout, op.vec)
    moved = max(0.0, whole.touched - -(-whole.size // SECTOR))
    lines = max(0.0, each.lines - -(-each.size // LINE)) * layout.registers / max(1, op.vec)
    return max(moved * SPARE, lines * APART)


def alone(buffer: Buffer, op: GlobalLoad, axes: Mapping[str, tuple[str, ...]]) -> float:
    """Bytes that an element of ``op`` moves beside its own, where a loaded value decides about each element's place.

    ``axes``: those of values by their names.  Rows that a value chooses are read along their contiguous axis.
    """
    chosen = {x for e in op.index for name in refs(e) for x in axes.get(name, ())}
    last = op.index[-1] if op.index else None
    rows = {a.name for a in op.result.type.axes} - chosen
    near = last is not None and not refs(last) and bool(free_vars(last) & rows)
    return 0.0 if not chosen or near else float(SECTOR - buffer.dtype.bytes)


def shares_loads(kernel: MemKernel) -> bool:
    """Whether the blocks of a cluster share loads (pass ``multicast-loads``)."""
    return any(isinstance(op, TmaLoad) and op.multicast > 1 for op in walk_ops(kernel.body))
