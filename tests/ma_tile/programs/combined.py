"""Kernels whose blocks become consumers of another kernel's blocks, or clusters: a small pair, and real ones."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from nautilus.core.numerics import Array
from nautilus.core.schedule import AxisPlan, KernelPlan, Schedule, WarpPlan
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.grid.combine_in_block import CombineInBlock
from nautilus.ma_tile.passes.grid.combine_in_cluster import CombineInCluster
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from nautilus.passes.pipelines import MA_TILE
from tests.core.schedule.engines import warp_of
from tests.endtoend.collection.decode import Decode, compilation, schedule
from tests.ma_tile.programs import plain as p

GIVEN = Decode(256, heads=2, group=2)
INPUTS = {"Q": p.random(1, 1, 2, 1, 64), "K": p.random(2, 1, 1, 256, 64), "V": p.random(3, 1, 1, 256, 64)}

#: sums and the maximum of 64 rows, of which each of four blocks has 16; ``whole`` has its block's number as ``r``
PAIR = """
module sums target sm_90a {
  input X: f32[2, 64, 32]
  temp T: f32[4, 2, 32]
  temp M: f32[4, 2]
  output Y: f32[2, 32]
  kernel part grid 8 warps 1 min_blocks 1 {
    let c = block // 2
    let b = block % 2
    layout #in = reg(r:16x1) lane(d:32x1) warp()
    layout #d = reg() lane(d:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    smem s : f32[r: 16, d: 32] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[b, c * 16 + r, d] vec 1 : f32[r: 16, d: 32] #in
    st.shared s[0], %x vec 1
    barrier
    %y = ld.shared s[0] vec 1 : f32[r: 16, d: 32] #in
    %sum = reduce sum %y over r : f32[d: 32] #d
    %most = reduce max %y over r, d : f32[] #one
    st.global T[c, b, d], %sum vec 1
    st.global M[c, b], %most vec 1
  }
  kernel whole grid 2 warps 4 min_blocks 1 {
    let r = block
    layout #all = reg(c:4x1) lane(d:32x1) warp(*:4)
    layout #d = reg() lane(d:32x1) warp(*:4)
    layout #c = reg(c:4x1) lane(*:32) warp(*:4)
    layout #one = reg() lane(*:32) warp(*:4)
    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all
    %m = ld.global M[c, r] vec 1 : f32[c: 4] #c
    %sum = reduce sum %t over c : f32[d: 32] #d
    %most = reduce max %m over c : f32[] #one
    %y = add %sum, %most : f32[d: 32] #d
    st.global Y[r, d], %y vec 1
  }
}
"""
#: the same for blocks of one warp: those of ``part`` are clusters of four
ALIKE = PAIR.replace("grid 2 warps 4", "grid 2 warps 1").replace("warp(*:4)", "warp()")
ROWS = {"X": np.random.default_rng(0).normal(size=(2, 64, 32)).astype(np.float32)}


def sums() -> np.ndarray:
    """What ``PAIR`` computes of ``ROWS``."""
    x = ROWS["X"].astype(np.float64)
    return np.asarray(x.sum(1) + x.max((1, 2))[:, None])


def edited(*changes: tuple[str, str], text: str = PAIR) -> str:
    """``text`` with every occurrence of the first of each pair replaced."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def plan(m: MemModule, *joined: str) -> Schedule:
    """A schedule that wants the blocks of kernels ``joined`` as consumers."""
    axes = (AxisPlan("i", "tile", 1),)
    return Schedule(
        (), tuple(KernelPlan(k.name, (), axes, mapping=WarpPlan(combine_in_block=k.name in joined)) for k in m.kernels)
    )


def cluster_plan(m: MemModule, name: str, size: int) -> Schedule:
    """A schedule that wants the blocks of kernel ``name`` in clusters of ``size``."""
    kernels = (
        KernelPlan(k.name, (), (AxisPlan("i", "tile", 1),), mapping=WarpPlan(cluster=size if k.name == name else 1))
        for k in m.kernels
    )
    return Schedule((), tuple(kernels))


def clustered(m: MemModule, name: str = "part", size: int = 4) -> MemModule:
    """``m`` with the blocks of ``name`` in clusters; it verifies and reads back."""
    out = CombineInCluster(cluster_plan(m, name, size)).apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


def joined(m: MemModule, *names: str) -> MemModule:
    """``m`` with ``names`` (``part``) joined; it verifies and reads back."""
    out = CombineInBlock(plan(m, *(names or ("part",)))).apply(m)
    verify(out)
    assert parse(ma_format(out)) == out
    return out


@lru_cache(maxsize=8)
def apart(given: Decode, groups: int, consumers: int, step: int, **memory: Any) -> MemModule:
    """A kernel of ``given`` as it is before its blocks are joined."""
    wanted = schedule(given.text, groups, consumers, step, **memory)
    kernels = tuple(
        replace(k, mapping=replace(warp_of(k), combine_in_block=False, cluster=1, dependent_launch=False))
        for k in wanted.kernels
    )
    levels = compilation(given.text, replace(wanted, kernels=kernels)).levels
    module = next(x.module for x in reversed(levels) if x.stage == "ma-tile" and x.step not in _AFTER_JOINING)
    assert isinstance(module, MemModule)
    return module


#: passes that run after kernels are joined
_AFTER_JOINING = MA_TILE.step_names[MA_TILE.step_names.index("combine-in-block") :]


def attended() -> Array:
    """What the kernels of ``GIVEN`` make of ``INPUTS``."""
    q, k, v = (INPUTS[n].astype(np.float64) for n in "QKV")
    s = np.einsum("bhid,bgjd->bhij", q, k) / 8
    e = np.exp(s - s.max(-1, keepdims=True))
    found: Array = np.einsum("bhij,bgjd->bhid", e / e.sum(-1, keepdims=True), v)
    return found


def inputs_of(m: MemModule) -> dict[str, Array]:
    """``ROWS`` for the small kernels, ``INPUTS`` for the real ones."""
    return ROWS if "X" in {b.name for b in m.buffers} else INPUTS


def changed(text: str, old: str, new: str) -> MemModule:
    """The program with the first ``old`` replaced."""
    assert old in text, old
    return parse(text.replace(old, new, 1))
