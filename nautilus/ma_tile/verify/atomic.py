"""The verifier's rule of stores that combine with what is there."""

from __future__ import annotations

from nautilus.core.buffers import Buffer
from nautilus.core.expr.atomics import is_exact
from nautilus.ma_tile.ir.layout import FragLayout
from nautilus.ma_tile.ir.ops import GlobalStore, walk_ops
from nautilus.ma_tile.ir.traverse import memory_of
from nautilus.ma_tile.verify.module import KernelScope


def atomic_store(s: KernelScope, op: GlobalStore, buffer: Buffer, layout: FragLayout) -> None:
    """Every order gives the same bits, each element is combined once, and the kernel uses the buffer only here."""
    given = op.value.type.dtype
    exact = op.combiner is not None and given is buffer.dtype and is_exact(op.combiner, given)
    s.need(exact, "an atomic store does not depend on the order", f"{op.combiner} of {given} in {buffer.dtype}")
    once = op.vec == 1 and all(m.axis is not None for m in layout.reg if m.size > 1)
    s.need(once, "an atomic store is of one register at a time, without copies", str(layout))
    alone = s.path == () and s.kernel.cluster == 1 and s.kernel.consumers <= 1
    s.need(alone, "an atomic store stands at the top level of a kernel without roles", s.kernel.name)
    uses = sum(memory_of(x).count(op.buffer) for x in walk_ops(s.kernel.body))
    s.need(uses == 1, "a kernel uses a buffer that it combines into only there", op.buffer)
