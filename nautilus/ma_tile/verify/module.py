"""What is legal in the MA-tile IR: one rule function per op class; an op without a rule is rejected.

:func:`verify_module` raises :class:`nautilus.core.errors.VerifyError` with the rule's name, the op
and why.  The rules are those of the ``ma_tile.ir.ops`` docstring.  Order in time (waits, barriers,
phases) is not decided here; the interpreter checks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile

from nautilus.core.buffers import Buffer, ScalarParam, Space
from nautilus.core.records.memo import by_identity
from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.ops import MemKernel, MemModule, walk_ops
from nautilus.ma_tile.ir.tile_scheduler import TileFetch
from nautilus.ma_tile.ir.traverse import memory_of
from nautilus.ma_tile.ir.values import MA
from nautilus.ma_tile.verify import reject
from nautilus.ma_tile.verify.async_ops import WARPGROUP_RULES
from nautilus.ma_tile.verify.ops import RULES as OP_RULES
from nautilus.ma_tile.verify.scope import KernelScope, Rule, unique
from nautilus.targets.limits import Limits, limits


def verify(m: MemModule) -> None:
    """Raise VerifyError unless every rule of the level holds for ``m`` on its target."""
    verify_module(m, limits(m.target))


def verify_module(m: MemModule, target: Limits) -> None:
    """:func:`verify` with the limits given. Raises VerifyError."""
    _names(m)
    verify_kernels(m, target)
    _dependent_launches(m)


def verify_kernels(m: MemModule, target: Limits) -> None:
    """The rules of each kernel of ``m``. Raises VerifyError."""
    for k in m.kernels:
        _check_kernel(k, m.buffers, m.params, m.target, target)


def verify_together(m: MemModule) -> None:
    """The rules of ``m`` that are not about a kernel by itself. Raises VerifyError."""
    _names(m)
    _dependent_launches(m)


def _names(m: MemModule) -> None:
    unique("a name denotes one buffer or param", [*(b.name for b in m.buffers), *(p.name for p in m.params)], m.name)
    unique("a name denotes one kernel", [k.name for k in m.kernels], m.name)
    for b in m.buffers:
        if b.space is Space.LOCAL:
            reject("buffers are inputs, outputs and temps", b.name, "it is a local buffer", b.span)


@by_identity(32)  # most passes change one of several kernels
def _check_kernel(
    kernel: MemKernel, buffers: tuple[Buffer, ...], params: tuple[ScalarParam, ...], name: str, target: Limits
) -> None:
    KernelScope(MemModule("", name, buffers, params, (kernel,)), kernel, target, RULES).check()


def _dependent_launches(m: MemModule) -> None:
    """``grid.launch_dependents`` in a kernel and ``grid.wait`` in the next one come in pairs."""
    allowed = False
    for k in m.kernels:
        if k.pdl and not allowed:
            reject("grid.wait follows grid.launch_dependents", k.name, "the kernel before it has none", k.span)
        if allowed and not k.pdl:
            reject("grid.wait follows grid.launch_dependents", k.name, "it has no grid.wait", k.span)
        allowed = any(isinstance(op, GridLaunchDependents) for op in k.body)
    if allowed:
        reject("grid.wait follows grid.launch_dependents", k.name, "no kernel follows it", k.span)


def grid_wait(s: KernelScope, op: GridWait) -> None:
    """No op before it accesses global memory.  No tile counter is there, which would be cleared before the wait."""
    _top(s, op)
    before = takewhile(lambda x: not isinstance(x, GridWait), s.kernel.body)
    used = sorted({b for x in walk_ops(tuple(before)) for b in memory_of(x)})
    s.need(not used, "grid.wait stands before accesses to global memory", ", ".join(used))
    counts = any(isinstance(x, TileFetch) for x in walk_ops(s.kernel.body))
    s.need(not counts, "a kernel with grid.wait fetches no tiles", "its tile counter is cleared between launches")


def launch_dependents(s: KernelScope, op: GridLaunchDependents) -> None:
    """The kernel has one, at the top level; the next kernel waits."""
    _top(s, op)


def _top(s: KernelScope, op: GridWait | GridLaunchDependents) -> None:
    s.need(s.target.warpgroup, "dependent launches need a target of the Hopper class", s.module.target)
    s.need(s.path == (), "dependent launches stand at the top level", " in ".join(t.__name__ for t in s.path))
    count = sum(isinstance(x, type(op)) for x in s.kernel.body)
    s.need(count == 1, "a kernel has one of each op of a dependent launch", str(count))


#: op class -> its rule
RULES: Mapping[type, Rule] = {
    **OP_RULES,
    **WARPGROUP_RULES,
    GridWait: grid_wait,
    GridLaunchDependents: launch_dependents,
}
MA.complete(RULES, "verifier rules")
