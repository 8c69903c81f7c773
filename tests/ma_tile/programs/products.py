"""Programs for the passes that schedule wgmma: synchronous MMAs in program order, with one buffer for each operand."""

from __future__ import annotations

import re

from nautilus.ma_tile.ir.instruction_tables import wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.passes.copies.specialise_warps import SpecialiseWarps
from nautilus.ma_tile.passes.mma.pipeline_mma import PipelineMma
from nautilus.ma_tile.text import format as ma_format
from nautilus.ma_tile.text import parse
from tests.ma_tile.roles import schedule

_S = wg_acc_layout("i", "j", 64, 64)
_O = wg_acc_layout("i", "d", 64, 64)
_P = wg_a_layout("wgmma.f16", "i", "j", 64, 64)


def _body(mask: bool) -> str:
    tile = "[i: 64, j: 64] #s"
    first = f"%k = index j + t * 64 < 200 : bool{tile}" if mask else f"%y0 = neg %x0 : f32{tile}"
    return f"""
      tma.load sk[0] swizzle 128, K[t * 64 + j, d]
      %s = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      %x0 = mul %s, %scale : f32[i: 64, j: 64] #s
      {first}
      %x = {"select %k, %x0, %none" if mask else "neg %y0"} : f32[i: 64, j: 64] #s
      %r = reduce max %x over j : f32[i: 64] #row
      %mn = max %m, %r : f32[i: 64] #row
      %dx = sub %x, %mn : f32[i: 64, j: 64] #s
      %e = exp2 %dx : f32[i: 64, j: 64] #s
      %dm = sub %m, %mn : f32[i: 64] #row
      %a = exp2 %dm : f32[i: 64] #row
      %es = reduce sum %e over j : f32[i: 64] #row
      %ls = mul %l, %a : f32[i: 64] #row
      %ln = add %ls, %es : f32[i: 64] #row
      %h = narrow %e : f16[i: 64, j: 64] #s
      %p = convert %h : f16[i: 64, j: 64] #p
      tma.load sv[0] swizzle 128, V[t * 64 + j, d]
      %os = mul %o, %a : f32[i: 64, d: 64] #o
      %on = mma wgmma.f16 %p, smem sv[0] swizzle 128 + %os over j : f32[i: 64, d: 64] #o
      yield %mn, %ln, %on"""


def chained(*ranges: tuple[str, str], grid: int = 2, keys: int = 256, masked: bool = False) -> MemModule:
    """O = sum over key tiles of f(Q . K^T) . V with a running scale, one loop a range (variable ``b``: the block).

    ``masked``: the first loop has another elementwise step on the scores, as a loop of ragged tiles would.
    """
    loops, values = "", ("m0", "l0", "o0")
    for n, (lo, hi) in enumerate(ranges or (("0", str(keys // 64)),)):
        text = _body(masked and n == 0).replace("t * 64", f"t{n} * 64")
        text = re.sub(r"%(?!none|scale)(\w+)", rf"%\g<1>_{n}", text)
        inits = ", ".join(f"%{x}_{n} = %{v}" for x, v in zip("mlo", values, strict=True))
        values = (f"mf{n}", f"lf{n}", f"of{n}")
        results = ", ".join("%" + v for v in values)
        loops += f"    {results} = for t{n} in {lo}..{hi} chain c carry({inits}) {{{text}\n    }}\n"
    return parse(f"""
module chained target sm_90a {{
  input Q: f16[{grid * 64}, 64]
  input K: f16[{keys}, 64]
  input V: f16[{keys}, 64]
  output O: f32[{grid * 64}, 64]
  kernel chained grid {grid} warps 4 min_blocks 1 {{
    let b = block
    layout #s = {_S}
    layout #o = {_O}
    layout #p = {_P}
    layout #row = {_S.project(("i",))}
    layout #one = {_S.project(())}
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sk : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 8192
    smem sv : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 16384
    %scale = const 0.25 : f32 #one
    %none = const -100.0 : f32 #one
    %m0 = const -50.0 : f32[i: 64] #row
    %l0 = const 0.0 : f32[i: 64] #row
    %o0 = const 0.0 : f32[i: 64, d: 64] #o
    tma.load sq[0] swizzle 128, Q[b * 64 + i, d]
{loops}
    %w = div %{values[2]}, %{values[1]} : f32[i: 64, d: 64] #o
    st.global O[b * 64 + i, d], %w vec 2
  }}
}}
""")


def backward(keys: int = 256) -> MemModule:
    """Two MMAs, elementwise work on both, and two MMAs of its results: one accumulates, one feeds a third.

    dQ = sum (f(Q K') * (G V')) K ;  R = sum g(f(Q K') V) W.
    """
    wide, scores = "f32[i: 64, d: 64] #o", "f32[i: 64, j: 64] #s"
    half, operand, left = "f16[i: 64, j: 64] #s", "f16[i: 64, j: 64] #p", "f16[i: 64, d: 64] #a"
    return parse(f"""
module backward target sm_90a {{
  input Q: f16[64, 64]
  input G: f16[64, 64]
  input K: f16[{keys}, 64]
  input V: f16[{keys}, 64]
  input W: f16[64, 64]
  output D: f32[64, 64]
  output R: f32[64, 64]
  kernel backward grid 1 warps 4 min_blocks 1 {{
    layout #s = {_S}
    layout #o = {_O}
    layout #p = {_P}
    layout #a = {wg_a_layout("wgmma.f16", "i", "d", 64, 64)}
    layout #e = {wg_acc_layout("i", "e", 64, 64)}
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sg : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 8192
    smem sw : f16[d: 64, e: 64] stages 1 swizzle 128 pad 0 @ 16384
    smem sk : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 24576
    smem sv : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 32768
    smem sl : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 40960
    smem su : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 49152
    %d0 = const 0.0 : {wide}
    %r0 = const 0.0 : f32[i: 64, e: 64] #e
    %two = const 2.0 : {wide}
    tma.load sq[0] swizzle 128, Q[i, d]
    tma.load sg[0] swizzle 128, G[i, d]
    tma.load sw[0] swizzle 128, W[d, e]
    %df, %rf = for t in 0..{keys // 64} carry(%dc = %d0, %rc = %r0) {{
      tma.load sk[0] swizzle 128, K[t * 64 + j, d]
      %s = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : {scores}
      %x = tanh %s : {scores}
      tma.load sv[0] swizzle 128, V[t * 64 + j, d]
      %g = mma wgmma.f16 smem sg[0] swizzle 128, smem sv[0] swizzle 128 over d : {scores}
      %y = mul %x, %g : {scores}
      %yh = narrow %y : {half}
      %yp = convert %yh : {operand}
      tma.load sl[0] swizzle 128, K[t * 64 + j, d]
      %dn = mma wgmma.f16 %yp, smem sl[0] swizzle 128 + %dc over j : {wide}
      %xh = narrow %x : {half}
      %xp = convert %xh : {operand}
      tma.load su[0] swizzle 128, V[t * 64 + j, d]
      %u = mma wgmma.f16 %xp, smem su[0] swizzle 128 over j : {wide}
      %v = mul %u, %two : {wide}
      %vh = narrow %v : f16[i: 64, d: 64] #o
      %vp = convert %vh : {left}
      %rn = mma wgmma.f16 %vp, smem sw[0] swizzle 128 + %rc over d : f32[i: 64, e: 64] #e
      yield %dn, %rn
    }}
    st.global D[i, d], %df vec 2
    st.global R[i, e], %rf vec 2
  }}
}}
""")


def one_pipeline(stages: int = 2) -> MemModule:
    """``chained`` with roles, its first MMA one iteration ahead: K and V come through one pipeline."""
    m = SpecialiseWarps(schedule(chained(), stages=stages)).apply(PipelineMma().apply(chained()))
    lines: list[str] = []
    declared: set[str] = set()
    for line in ma_format(m).splitlines():
        joined = re.sub(r"\b(full_|empty_)?s[kv](_stage|_phase)\b", r"\1kv\2", line)
        joined = re.sub(r"\b(full_|empty_|advance |pipeline )s[kv]\b", r"\1kv", joined)
        found = re.match(r"\s*(mbar|pipeline) (\w+) ", joined)
        if found is None or found[0] not in declared:
            lines.append(joined)
        declared |= {found[0]} if found else set()
    return parse("\n".join(lines))
