"""``scratch`` and ``fusion``: definitions whose values go through memory, and why they are in no kernel with readers.

``scratch`` is for a tensor that the caller does not see.  ``fusion`` is for an output that another kernel reads again.
The reason is that of the planner, which tried to join the definition to its readers.  Only a tensor whose traffic takes
a clear share of the predicted time has a remark.  Parts of sums, flags, and tensors that a pass adds because storing
them is faster (windows, copies, operands in another order) have none.
"""

from __future__ import annotations

from collections.abc import Iterator

from nautilus.core.buffers import Buffer, Space
from nautilus.core.index.sizes import nominal, volume
from nautilus.core.types import DType
from nautilus.planner.groups import Unfused, Why
from nautilus.planner.kernels import unfused
from nautilus.remarks.remark import Facts, Kind, Remark
from nautilus.targets.rates import machine

SHARE = 0.1  # least share of the predicted time that storing and reading the tensor once takes


def remarks(facts: Facts) -> Iterator[Remark]:
    """The remarks on tensors that go through memory."""
    known = unfused(facts.planned, facts.result.context.fallbacks)
    own = {b.name for b in facts.ordered.buffers}
    for b in facts.module.buffers:
        found = known.get(b.name)
        if found is None or b.name not in own or b.space is Space.INPUT or not _matters(b, facts):
            continue
        readers = " and ".join(found.readers)
        if b.space is Space.TEMP:
            place = f"scratch memory ({_size(b)} of {b.dtype})"
            message = f"{b.name} goes to {place} between its kernel and that of {readers}"
            yield Remark(Kind.SCRATCH, f"{message}: {_reason(found)}", facts.span(b.name), _narrower(b, facts))
        else:
            verb = "reads" if len(found.readers) == 1 else "read"
            message = f"{readers} {verb} {b.name} again from memory: {_reason(found)}"
            yield Remark(Kind.FUSION, message, facts.span(b.name))


def _bytes(b: Buffer) -> int:
    return b.dtype.bytes * nominal(volume(b.shape))


def _size(b: Buffer) -> str:
    return f"{_bytes(b) / 1e6:.4g} MB"


def _matters(b: Buffer, facts: Facts) -> bool:
    rate = machine(facts.result.context.arch).dram
    return 2 * _bytes(b) / rate >= SHARE * facts.estimate.seconds


def _reason(u: Unfused) -> str:
    return f"{u.why.value}: {u.reason}" if u.why is Why.PLAN and u.reason else u.why.value


def _narrower(b: Buffer, facts: Facts) -> str | None:
    """The advice to round a definition of f32 that has no type in the spec."""
    own = [d for d in facts.spec.definitions if d.name == b.name and d.dtype is None]
    if not own or b.dtype is not DType.F32:
        return None
    axes = ", ".join(a.name for a in own[0].axes)
    return f"where 16 bits suffice, a type on {b.name} halves its traffic: {b.name}: f16[{axes}] = ..."
