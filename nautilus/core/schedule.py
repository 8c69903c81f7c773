"""A schedule: every choice the compiler made, as data a person can read, edit, replay and diff.

Rules (or, later, a search) produce a :class:`Schedule`; passes only carry it out and check that
each choice is legal.  JSON form: the field names below, one object a kernel.

A kernel computes the definitions ``ops`` (names of Scalar-level buffers, in dependence order) over
named *axes*.  Names are those of the Scalar IR after ``fuse`` (one name a unified axis):

* role ``grid``: independent blocks; ``tile`` elements of it in one block (1: none);
* role ``loop``: walked by the block in steps of ``tile`` (``seq``);
* role ``tile``: the whole extent is in one tile (``tile`` is the extent rounded up).

``phases`` lists, for the ``loop`` axis, which ops share one walk over it; an op that depends on the
complete result of another in the *same* phase is repaired by ``rolling_update``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class AxisPlan:
    """How one axis of a kernel is walked. ``tile`` in elements."""

    name: str
    role: str  # grid | loop | tile
    tile: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Choices of the MA-tile passes. ``warps`` counts warps in (rows, columns) of the main tile."""

    warps: tuple[int, int] = (4, 1)
    stages: int = 2  # ring depth of staged operands; 1 means no overlap
    min_blocks: int = 1  # blocks per multiprocessor asked of the register allocator
    vector_bytes: int = 16  # widest global access
    epilogue: str = "shared"  # shared: through shared memory, 16-byte stores; direct: from fragments
    order: str = "natural"  # natural | longest-first | grouped (rows of tiles that share operands)
    group: int = 8  # tiles of the slow axis walked together when order is grouped
    fragments_across: bool = False  # double-buffer operand fragments across the iterations of product loops
    fast_math: bool = True  # ex2.approx and kin, where the precision contract allows


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """One kernel: what it computes, how its axes are walked, how it is placed."""

    name: str
    ops: tuple[str, ...]
    axes: tuple[AxisPlan, ...]
    phases: tuple[tuple[str, ...], ...] = ()
    partition: bool = True
    memory: MemoryPlan = field(default_factory=MemoryPlan)

    def axis(self, name: str) -> AxisPlan:
        """The plan of axis ``name``. Raises KeyError."""
        for a in self.axes:
            if a.name == name:
                return a
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Schedule:
    """All choices for one spec. ``inline`` names the definitions substituted into their readers."""

    inline: tuple[str, ...]
    kernels: tuple[KernelPlan, ...]
    factor: bool = True
    narrow: bool = True
    version: int = 1

    def to_json(self) -> str:
        """Readable JSON, stable under repetition."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Parse :meth:`to_json`'s form. Raises ValueError, KeyError or TypeError on anything else."""
        raw: dict[str, Any] = json.loads(text)
        if raw.get("version") != 1:
            raise ValueError(f"schedule version {raw.get('version')!r} is not 1")
        kernels = tuple(_kernel(k) for k in raw.pop("kernels"))
        return Schedule(inline=tuple(raw.pop("inline")), kernels=kernels, **raw)


def _kernel(raw: dict[str, Any]) -> KernelPlan:
    memory = dict(raw.get("memory", {}))
    if "warps" in memory:
        memory["warps"] = tuple(memory["warps"])
    return KernelPlan(
        name=raw["name"],
        ops=tuple(raw["ops"]),
        axes=tuple(AxisPlan(**a) for a in raw["axes"]),
        phases=tuple(tuple(p) for p in raw.get("phases", ())),
        partition=raw.get("partition", True),
        memory=MemoryPlan(**memory),
    )
