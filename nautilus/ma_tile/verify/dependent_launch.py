"""The verifier's rules of programmatic dependent launch (``ma_tile.ir.dependent_launch``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import takewhile

from nautilus.ma_tile.ir.dependent_launch import GridLaunchDependents, GridWait
from nautilus.ma_tile.ir.ops import TileFetch, walk_ops
from nautilus.ma_tile.ir.traverse import memory_of
from nautilus.ma_tile.verify.module import KernelScope


def grid_wait(s: KernelScope, op: GridWait) -> None:
    """No op before it accesses global memory.  No tile counter is there, which would be cleared before the wait."""
    _top(s, op)
    before = takewhile(lambda x: not isinstance(x, GridWait), s.kernel.body)
    used = sorted({b for x in walk_ops(tuple(before)) for b in memory_of(x)})
    s.need(not used, "grid.wait stands before accesses to global memory", ", ".join(used))
    counts = any(isinstance(x, TileFetch) for x in walk_ops(s.kernel.body))
    s.need(not counts, "a kernel with grid.wait fetches no tiles", "its tile counter is cleared between launches")


def launch_dependents(s: KernelScope, op: GridLaunchDependents) -> None:
    """The kernel has one, at the top level; ``verify.module`` checks that the next kernel waits."""
    _top(s, op)


def _top(s: KernelScope, op: GridWait | GridLaunchDependents) -> None:
    s.need(s.target.warpgroup, "dependent launches need a target of the Hopper class", s.module.target)
    s.need(s.path == (), "dependent launches stand at the top level", " in ".join(t.__name__ for t in s.path))
    count = sum(isinstance(x, type(op)) for x in s.kernel.body)
    s.need(count == 1, "a kernel has one of each op of a dependent launch", str(count))


DEPENDENT_LAUNCH_RULES: Mapping[type, Callable[..., None]] = {
    GridWait: grid_wait,
    GridLaunchDependents: launch_dependents,
}
