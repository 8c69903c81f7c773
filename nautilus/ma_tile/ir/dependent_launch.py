"""MA-tile ops of programmatic dependent launch (PTX ISA, ``griddepcontrol``).

Meaning.

* ``grid.launch_dependents``: this block no longer delays the launch of the next kernel of the module.  The blocks of
  the next kernel may start once every block of this launch has executed the op or has ended.
* ``grid.wait``: the block waits until every earlier launch has ended and what it wrote to global memory is visible.
  Nothing before it accesses global memory.  A kernel with this op is launched with the attribute of programmatic
  stream serialization (:attr:`nautilus.ma_tile.ir.ops.MemKernel.pdl`).
* Both ops stand at the top level of a kernel, at most once each, and every thread executes them.  A kernel has
  ``grid.launch_dependents`` if and only if the next kernel has ``grid.wait``.
"""

from __future__ import annotations

from typing import TypeAlias

from nautilus.core.ops import SPAN, Effect, op
from nautilus.core.source import Span
from nautilus.ma_tile.ir.values import MA


@op(MA, "grid.wait", Effect.WAIT)
class GridWait:
    """All earlier launches have ended."""

    span: Span = SPAN


@op(MA, "grid.launch_dependents", Effect.ARRIVE)
class GridLaunchDependents:
    """The next kernel may be launched."""

    span: Span = SPAN


#: the ops of this file
DependentLaunchOp: TypeAlias = GridWait | GridLaunchDependents
