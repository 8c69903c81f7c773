"""Helpers of the lowering tests: they run the modules before and after the lowering."""

from __future__ import annotations

import re

import numpy as np

from nautilus.core.schedule import AxisPlan, KernelPlan, MappingPlan, Schedule, WarpPlan
from nautilus.ma_tile.interp import module as ma_interp
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.lowering.lower import lower_raw
from nautilus.ma_tile.passes.copies.double_buffer_fragments import DoubleBufferFragments
from nautilus.ma_tile.passes.copies.pipeline_copies import PipelineCopies
from nautilus.ma_tile.passes.copies.prefetch_fragments import PrefetchFragments
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.finalise.dead_fragments import DeadFragments
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse as ma_parse
from nautilus.ma_tile.verify.module import verify as ma_verify
from nautilus.vr_tile import interp as vr_interp
from nautilus.vr_tile.ir import TileModule
from nautilus.vr_tile.text import parse
from nautilus.vr_tile.verify import verify

SEED = 7


def tile(text: str) -> TileModule:
    """A verified VR-tile module."""
    module = parse(text)
    verify(module)
    return module


def plan(module: TileModule, mapping: MappingPlan) -> Schedule:
    """A schedule that gives every kernel the same memory plan."""
    kernels = tuple(KernelPlan(k.name, (), (AxisPlan("i", "tile", 1),), mapping=mapping) for k in module.kernels)
    return Schedule((), kernels)


def lowered(
    module: TileModule, mapping: MappingPlan | None = None, target: str = "sm_80", carry: bool = True
) -> MemModule:
    """The module after all passes of the level (``carry``: with double-buffered fragments)."""
    schedule = plan(module, mapping or WarpPlan())
    out = lower_raw(module, schedule, target)
    out = AllocateShared().apply(DeadFragments().apply(out))
    out = PipelineCopies(schedule).apply(out)
    out = DoubleBufferFragments(double_buffer_fragments=carry).apply(out)
    return PrefetchFragments().apply(Synchronize().apply(AllocateShared().apply(out)))


def pipelined(text: str, mapping: WarpPlan) -> MemModule:
    """VR-tile ``text`` lowered, its copies in stages, as the passes on fragments get it."""
    module = tile(text)
    schedule = plan(module, mapping)
    return PipelineCopies(schedule).apply(lower_raw(module, schedule, "sm_80"))


def inputs(module: TileModule, **given: np.ndarray) -> dict[str, np.ndarray]:
    """Random inputs, the same ones in every run; floats are near 1 in size, integers small."""
    rng = np.random.default_rng(SEED)
    out: dict[str, np.ndarray] = {}
    for b in module.buffers:
        if b.space.value != "input":
            continue
        shape = tuple(e for e in b.shape if isinstance(e, int))
        if b.name in given:
            out[b.name] = given[b.name]
        elif b.dtype.is_float:
            out[b.name] = rng.standard_normal(shape).astype(np.float16 if b.dtype.bytes <= 2 else np.float32)
        else:
            out[b.name] = rng.integers(0, 5, shape)
    return out


def agree(module: TileModule, low: MemModule, **given: np.ndarray) -> None:
    """Both sides give the same outputs on the same inputs."""
    assert ma_parse(ma_format(low)) == low
    ma_verify(low)
    data = inputs(module, **given)
    want = vr_interp.run_module(module, data, mode="typed")
    got = ma_interp.run_module(low, data)
    for name, x in want.items():
        y = x.astype(np.float64)
        # where large terms cancel, sums in another order differ by roundings of the terms
        slack = 2e-3 + 1e-4 * np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
        np.testing.assert_allclose(got[name].astype(np.float64), y, rtol=2e-3, atol=slack, err_msg=name)


def compiled(text: str, mapping: MappingPlan | None = None, carry: bool = True, **given: np.ndarray) -> MemModule:
    """Lower ``text``, compare the results of both modules, and return the lowered one."""
    module = tile(text)
    low = lowered(module, mapping, carry=carry)
    agree(module, low, **given)
    return low


def count(low: MemModule, pattern: str) -> int:
    """Matches of a regular expression in the printed kernel."""
    return len(re.findall(pattern, ma_format(low)))


def in_order(low: MemModule, *patterns: str) -> None:
    """Every pattern occurs in the printed module, each after the one before it (as FileCheck's CHECK)."""
    text, at = ma_format(low), 0
    for p in patterns:
        found = re.compile(p).search(text, at)
        assert found is not None, f"no {p!r} after position {at} in\n{text[at:]}"
        at = found.end()
