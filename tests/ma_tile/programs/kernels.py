"""Kernels of the warpgroup engine as lowering makes them (synchronous, one body for all consumers), for the passes
that give them roles."""

from __future__ import annotations

from nautilus.ma_tile.ir.instruction_tables import wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import parse


def product(m: int = 256, n: int = 64, k: int = 192, consumers: int = 2, out: str = "f16", cols: int = 64) -> MemModule:
    """C = A . B' in tiles of ``consumers`` x 64 rows and ``cols`` columns."""
    rows = 64 * consumers
    stage, row = ("consumer", f"i0 * {rows} + consumer * 64 + i") if consumers > 1 else ("0", "i0 * 64 + i")
    return parse(f"""
module product target sm_90a {{
  input A: f16[{m}, {k}]
  input B: f16[{n}, {k}]
  output C: {out}[{m}, {n}]
  kernel product grid {-(-m // rows) * (n // cols)} warps {4 * consumers} min_blocks 1 consumers {consumers} {{
    let i0 = block // {n // cols}
    let j0 = block % {n // cols}
    layout #acc = {wg_acc_layout("i", "j", 64, cols)}
    smem a : f16[i: 64, k: 64] stages {consumers} swizzle 128 pad 0 @ 0
    smem b : f16[j: {cols}, k: 64] stages 1 swizzle 128 pad 0 @ {8192 * consumers}
    %zero = const 0.0 : f32[i: 64, j: {cols}] #acc
    %c = for t in 0..{k // 64} carry(%acc = %zero) {{
      tma.load a[{stage}] swizzle 128, A[{row}, t * 64 + k]
      tma.load b[0] swizzle 128, B[j0 * {cols} + j, t * 64 + k]
      %next = mma wgmma.f16 smem a[{stage}] swizzle 128, smem b[0] swizzle 128 + %acc
        over k : f32[i: 64, j: {cols}] #acc
      yield %next
    }}
    st.global C[{row}, j0 * {cols} + j], %c where {row} < {m} vec 2
  }}
}}
""")


def chained(
    s: int = 192, consumers: int = 2, ahead: bool = False, rows: int = 256, triangle: bool = False, step: int = 64,
    wide: int = 64,
) -> MemModule:  # fmt: skip
    """O = (Q . K') . V over blocks of ``step`` rows of K and V, which has ``wide`` columns.

    ``ahead``: the first MMA belongs to the next iteration; ``triangle``: the trip count is the number of the tile.
    """
    tile = 64 * consumers
    stage, row = ("consumer", f"i0 * {tile} + consumer * 64 + i") if consumers > 1 else ("0", "i0 * 64 + i")
    steps = "i0 + 1" if triangle else str(s // step)

    def first(name: str, at: str) -> str:
        return f"""tma.load k[0] swizzle 128, K[{at} * {step} + j, d]
      %{name} = mma wgmma.f16 smem q[{stage}] swizzle 128, smem k[0] swizzle 128 over d : f32[i: 64, j: {step}] #s"""

    def second(scores: str, out: str, acc: str, at: str) -> str:
        return f"""%{scores}h = cast %{scores} : f16[i: 64, j: {step}] #s
      %{scores}a = convert %{scores}h : f16[i: 64, j: {step}] #p
      tma.load v[0] swizzle 128, V[{at} * {step} + j, e]
      %{out} = mma wgmma.f16 %{scores}a, smem v[0] swizzle 128 + %{acc} over j : f32[i: 64, e: {wide}] #o"""

    plain = f"""%o = for t in 0..{steps} carry(%acc = %zero) {{
      {first("s", "t")}
      {second("s", "next", "acc", "t")}
      yield %next
    }}"""
    early = f"""{first("s0", "0")}
    %o1, %s1 = for t in 0..{steps} - 1 carry(%acc = %zero, %s = %s0) {{
      {first("sn", "(t + 1)")}
      {second("s", "next", "acc", "t")}
      yield %next, %sn
    }}
    {second("s1", "o", "o1", f"({steps} - 1)")}"""
    return parse(f"""
module chained target sm_90a {{
  input Q: f16[{rows}, 64]
  input K: f16[{s}, 64]
  input V: f16[{s}, {wide}]
  output O: f16[{rows}, {wide}]
  kernel chained grid {rows // tile} warps {4 * consumers} min_blocks 1 consumers {consumers} {{
    let i0 = block
    layout #s = {wg_acc_layout("i", "j", 64, step)}
    layout #o = {wg_acc_layout("i", "e", 64, wide)}
    layout #p = {wg_a_layout("wgmma.f16", "i", "j", 64, step)}
    smem q : f16[i: 64, d: 64] stages {consumers} swizzle 128 pad 0 @ 0
    smem k : f16[j: {step}, d: 64] stages 1 swizzle 128 pad 0 @ {8192 * consumers}
    smem v : f16[j: {step}, e: {wide}] stages 1 swizzle 128 pad 0 @ {8192 * consumers + 128 * step}
    %zero = const 0.0 : f32[i: 64, e: {wide}] #o
    tma.load q[{stage}] swizzle 128, Q[{row}, d]
    {early if ahead else plain}
    st.global O[{row}, e], %o vec 2
  }}
}}
""")
