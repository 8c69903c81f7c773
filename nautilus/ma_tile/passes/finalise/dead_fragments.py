"""Remove fragments that no op reads, and layouts and shared buffers that no op uses.

A load from shared memory or global memory has no effect but its result, so it is removed too, and so is a store of
registers to a shared buffer that nothing else uses.  Other stores, copies, waits and barriers stay.
"""

from __future__ import annotations

from dataclasses import replace

from nautilus.core.ops import Kind, declaration
from nautilus.core.records import dataclass
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, MemOp, SharedStore, walk_ops
from nautilus.ma_tile.ir.traverse import bound, buffers_of, defined, each_kernel, reads, rebuild


@dataclass(frozen=True, slots=True)
class DeadFragments:
    """The pass ``dead-fragments``, which has no options."""

    name = "dead-fragments"

    def apply(self, module: MemModule) -> MemModule:
        """``module`` without dead fragments."""
        return each_kernel(module, clean)


def clean(kernel: MemKernel) -> MemKernel:
    """``kernel`` without dead ops, layouts and shared buffers."""
    body = kernel.body
    while True:
        used = {name for op in walk_ops(body) for name in reads(op)}
        used |= {b for op in walk_ops(body) for b in buffers_of(op) if not _fills(op)}
        new = rebuild(body, lambda op, used=used: () if _dead(op, used) else (op,))  # type: ignore[misc]
        if new == body:
            break
        body = new
    ops = list(walk_ops(body))
    layouts = {f.layout for op in ops for f in bound(op)}
    layouts |= {getattr(op, n) for op in ops for n in declaration(type(op)).names(Kind.LAYOUT)}
    buffers = {b for op in ops for b in buffers_of(op)}
    return replace(
        kernel,
        body=body,
        layouts={n: x for n, x in kernel.layouts.items() if n in layouts},
        smem=tuple(s for s in kernel.smem if s.name in buffers),
    )


def _fills(op: MemOp) -> bool:
    """Whether ``op`` stores registers to a shared buffer of its own block, and does nothing else."""
    return isinstance(op, SharedStore) and op.block is None


def _dead(op: MemOp, used: set[str]) -> bool:
    if _fills(op):
        return used.isdisjoint(buffers_of(op))
    return declaration(type(op)).pure and not any(d.name in used for d in defined(op))
