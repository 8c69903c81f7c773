"""GEMMs with epilogues as lowering makes them (synchronous, one body for all consumers, whole tiles), and the passes
that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nautilus.core.passes import Pass
from nautilus.ma_tile.ir.instruction_tables import wg_acc_layout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.await_copies import AwaitCopies
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.epilogue.chunk_epilogue import ChunkEpilogue
from nautilus.ma_tile.passes.epilogue.tma_stores import TmaStores
from nautilus.ma_tile.passes.finalise.allocate_shared import AllocateShared
from nautilus.ma_tile.passes.finalise.dead_fragments import DeadFragments
from nautilus.ma_tile.passes.finalise.synchronize import Synchronize
from nautilus.ma_tile.passes.grid.persistent_grid import PersistentGrid
from nautilus.ma_tile.passes.mma.async_mma import AsyncMma
from nautilus.ma_tile.passes.mma.ping_pong import PingPong
from nautilus.ma_tile.passes.mma.pipeline_mma import PipelineMma
from nautilus.ma_tile.passes.mma.zero_accumulators import ZeroAccumulators
from nautilus.ma_tile.text import parse
from nautilus.ma_tile.verify.module import verify
from tests.ma_tile.roles import schedule


@dataclass(frozen=True)
class Sizes:
    """Tiles of ``rows`` a consumer x ``columns``, of a GEMM m x n x k with ``gates`` operands b."""

    rows: int = 64
    columns: int = 128
    m: int = 128
    n: int = 128
    k: int = 128
    gates: int = 1
    steps: str = ""
    consumers: int = 2

    @property
    def row(self) -> str:
        return f"i0 * {self.consumers * self.rows} + {self.consumer} * {self.rows} + i"

    @property
    def swizzle(self) -> int:
        return 64 if self.columns % 64 else 128

    @property
    def consumer(self) -> str:
        return "consumer" if self.consumers > 1 else "0"

    @property
    def column(self) -> str:
        return f"j0 * {self.columns} + j"

    @property
    def inside(self) -> str:
        return f"{self.row} < {self.m} and {self.column} < {self.n}"

    @property
    def tile(self) -> str:
        return f"[i: {self.rows}, j: {self.columns}] #acc"


def _loop(s: Sizes) -> str:
    """MMAs in one loop: %c0, %c1, ..."""
    gates = range(s.gates)
    loads = "\n".join(f"      tma.load b{g}[0] swizzle {s.swizzle}, B{g}[t * 64 + k, {s.column}]" for g in gates)
    mmas = "\n".join(
        f"      %n{g} = mma wgmma.f16 smem a[{s.consumer}] swizzle 128, smem b{g}[0] swizzle {s.swizzle} + %x{g} over k"
        f" : f32{s.tile}"
        for g in gates
    )
    results, carried = (", ".join(text.format(g=g) for g in gates) for text in ("%c{g}", "%x{g} = %zero"))
    return f"""
    {results} = for t in 0..{s.steps or s.k // 64} carry({carried}) {{
      tma.load a[{s.consumer}] swizzle 128, A[{s.row}, t * 64 + k]
{loads}
{mmas}
      yield {", ".join(f"%n{g}" for g in gates)}
    }}"""


def _module(s: Sizes, before: str, behind: str) -> MemModule:
    acc, grid = wg_acc_layout("i", "j", s.rows, s.columns), -(-s.n // s.columns)
    gates, consumers = range(s.gates), f"consumers {s.consumers} " if s.consumers > 1 else ""
    rights = "\n".join(f"  input B{g}: f16[{s.k}, {s.n}]" for g in gates)
    buffers = "\n".join(
        f"    smem b{g} : f16[k: 64, j: {s.columns}] stages 1 swizzle {s.swizzle} pad 0"
        f" @ {128 * s.consumers * s.rows + g * 128 * s.columns}"
        for g in gates
    )
    return parse(f"""
module fused target sm_90a {{
  input A: f16[{s.m}, {s.k}]
{rights}
  input bias: f16[{s.n}]
  input scale: f32[{s.m}]
  input R: f16[{s.m}, {s.n}]
  output C: f16[{s.m}, {s.n}]
  output D: f32[{s.m}, {s.n}]
  kernel fused grid {-(-s.m // (s.consumers * s.rows)) * grid} warps {4 * s.consumers} min_blocks 1 {consumers}{{
    let i0 = block // {grid}
    let j0 = block % {grid}
    layout #acc = {acc}
    layout #row = {acc.project(("i",))}
    layout #col = {acc.project(("j",))}
    smem a : f16[i: {s.rows}, k: 64] stages {s.consumers} swizzle 128 pad 0 @ 0
{buffers}
    %zero = const 0.0 : f32{s.tile}{before}{_loop(s)}{behind}
  }}
}}
""")


def biased(**sizes: int | str) -> MemModule:
    """C = every second column of (A . B) s + bias + R halved: vectors along both axes, a whole tile, indices."""
    s = Sizes(**sizes)  # type: ignore[arg-type]
    before = f"""
    %b = ld.global bias[{s.column}] where {s.column} < {s.n} vec 2 : f16[j: {s.columns}] #col
    %w = cast %b : f32[j: {s.columns}] #col
    %s = ld.global scale[{s.row}] where {s.row} < {s.m} vec 1 : f32[i: {s.rows}] #row"""
    behind = f"""
    %y0 = mul %c0, %s : f32{s.tile}
    %y1 = add %y0, %w : f32{s.tile}
    %r = ld.global R[{s.row}, {s.column}] where {s.inside} vec 2 : f16{s.tile}
    %rw = cast %r : f32{s.tile}
    %y2 = add %y1, %rw : f32{s.tile}
    %half = const 0.5 : f32{s.tile}
    %y3 = mul %y2, %half : f32{s.tile}
    %even = index ({s.column}) % 2 == 0 : bool{s.tile}
    %y = select %even, %y2, %y3 : f32{s.tile}
    st.global C[{s.row}, {s.column}], %y where {s.inside} vec 2"""
    return _module(s, before, behind)


def gated(**sizes: int | str) -> MemModule:
    """C = h, D = h + h with h = max(A . B0, 0) (A . B1): two accumulators, two stores of one shape."""
    s = Sizes(gates=2, **sizes)  # type: ignore[arg-type]
    behind = f"""
    %least = max %c0, %zero : f32{s.tile}
    %h = mul %least, %c1 : f32{s.tile}
    st.global C[{s.row}, {s.column}], %h where {s.inside} vec 2
    %d = add %h, %h : f32{s.tile}
    st.global D[{s.row}, {s.column}], %d where {s.inside} vec 2"""
    return _module(s, "", behind)


def through(m: MemModule, blocks: int = 132, **memory: Any) -> MemModule:
    """``m`` after all passes of the level, in chunks of 64 columns; ``blocks`` stay where it is persistent."""
    plan = schedule(m, **{"stages": 2, "epilogue": "tma", "store_columns": 64, **memory})
    passes: tuple[Pass, ...] = (
        *(ChunkEpilogue(plan), TmaStores(plan), PipelineMma(plan), SpecialiseWarps(plan)),
        *(ZeroAccumulators(), AsyncMma(plan), PersistentGrid(plan, blocks), PingPong(plan), DeadFragments()),
        *(AllocateShared(), Synchronize(), AwaitCopies()),
    )
    for step in passes:
        m = step.apply(m)
    verify(m)
    return m
