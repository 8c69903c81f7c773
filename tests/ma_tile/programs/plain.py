"""Hand-written MA-tile programs and what they compute, for the text, interpreter and fault tests."""

from __future__ import annotations

import numpy as np

from nautilus.ma_tile.ir.instruction_tables import a_layout, acc_layout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import parse

COPY = """
module copy target sm_80 {
  input X: f16[77, 64]
  output Y: f16[77, 64]
  kernel copy grid 2 warps 4 min_blocks 1 {
    let r = block * 64
    layout #in = reg(j:8x1, i:4x16) lane(j:8x8, i:4x1) warp(i:4x4)
    layout #out = reg(j:8x1, i:4x1) lane(j:8x8, i:4x4) warp(i:4x16)
    smem s : f16[i: 64, j: 64] stages 1 swizzle 128 pad 0 @ 0
    %x = ld.global X[r + i, j] where r + i < 77 vec 8 : f16[i: 64, j: 64] #in
    st.shared s[0] swizzle 128, %x vec 8
    barrier
    %y = ld.shared s[0] swizzle 128 vec 8 : f16[i: 64, j: 64] #out
    st.global Y[r + i, j], %y where r + i < 77 vec 8
  }
}
"""

ACC = acc_layout("i", "n", (64, 64), (2, 2))


def gemm(axes: str = "k_last", steps: int = 4) -> MemModule:
    """C = A . B through a cp.async pipeline of two stages. ``axes`` names the contiguous axis of B."""
    depth = 32 * steps
    b_shape, b_tile = ("64, " + str(depth), "n: 64, k: 32") if axes == "k_last" else (f"{depth}, 64", "k: 32, n: 64")
    b_index = "n, {t} * 32 + k" if axes == "k_last" else "{t} * 32 + k, n"
    b_threads = (
        "reg(k:8x1, n:2x32) lane(k:4x8, n:8x1) warp(n:4x8)"
        if axes == "k_last"
        else "reg(n:8x1, k:2x16) lane(n:8x8, k:4x1) warp(k:4x4)"
    )
    swizzle = 64 if axes == "k_last" else 128
    return parse(f"""
module gemm target sm_80 {{
  input A: f16[64, {depth}]
  input B: f16[{b_shape}]
  output C: f32[64, 64]
  kernel gemm grid 1 warps 4 min_blocks 1 {{
    layout #acc = {ACC}
    layout #ca = reg(k:8x1, i:2x32) lane(k:4x8, i:8x1) warp(i:4x8)
    layout #cb = {b_threads}
    smem sa : f16[i: 64, k: 32] stages 2 swizzle 64 pad 0 @ 0
    smem sb : f16[{b_tile}] stages 2 swizzle {swizzle} pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    cp.async sa[0] swizzle 64, A[i, k] vec 8 threads #ca
    cp.async sb[0] swizzle {swizzle}, B[{b_index.format(t="0")}] vec 8 threads #cb
    cp.commit
    %c = for t in 0..{steps} carry(%acc = %zero) {{
      if t + 1 < {steps} {{
        cp.async sa[(t + 1) % 2] swizzle 64, A[i, (t + 1) * 32 + k] vec 8 threads #ca
        cp.async sb[(t + 1) % 2] swizzle {swizzle}, B[{b_index.format(t="(t + 1)")}] vec 8 threads #cb
      }}
      cp.commit
      cp.wait 1
      barrier
      %next = mma m16n8k16.f16 smem sa[t % 2] swizzle 64, smem sb[t % 2] swizzle {swizzle} + %acc
        over k : f32[i: 64, n: 64] #acc
      barrier
      yield %next
    }}
    st.global C[i, n], %c vec 2
  }}
}}
""")


S_ACC = acc_layout("i", "j", (64, 32), (4, 1))
O_ACC = acc_layout("i", "d", (64, 64), (4, 1))
P_A = a_layout("m16n8k16.f16", "i", "j", (64, 32), (4, 1))


def chained(steps: int = 3) -> MemModule:
    """O = sum over tiles of exp(Q . K^T) . V: the result of the first MMA is the register operand of the second."""
    n = 32 * steps
    return parse(f"""
module chained target sm_80 {{
  input Q: f16[64, 64]
  input K: f16[{n}, 64]
  input V: f16[{n}, 64]
  output O: f16[64, 64]
  kernel chained grid 1 warps 4 min_blocks 1 {{
    layout #s = {S_ACC}
    layout #o = {O_ACC}
    layout #p = {P_A}
    layout #qa = {a_layout("m16n8k16.f16", "i", "d", (64, 64), (4, 1))}
    layout #row = {S_ACC.project(("i",))}
    layout #c = reg(d:8x1, j:2x16) lane(d:8x8, j:4x1) warp(j:4x4)
    layout #cq = reg(d:8x1, i:4x16) lane(d:8x8, i:4x1) warp(i:4x4)
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sk : f16[j: 32, d: 64] stages 2 swizzle 128 pad 0 @ 8192
    smem sv : f16[j: 32, d: 64] stages 2 swizzle 128 pad 0 @ 16384
    cp.async sq[0] swizzle 128, Q[i, d] vec 8 threads #cq
    cp.async sk[0] swizzle 128, K[j, d] vec 8 threads #c
    cp.async sv[0] swizzle 128, V[j, d] vec 8 threads #c
    cp.commit
    cp.wait 0
    barrier
    %q = ld.matrix sq[0] swizzle 128 at d 0 : f16[i: 64, d: 64] #qa
    %zero = const 0.0 : f32[i: 64, d: 64] #o
    %lz = const 0.0 : f32[i: 64] #row
    %o, %l = for t in 0..{steps} carry(%acc = %zero, %sum = %lz) {{
      cp.wait 0
      barrier
      if t + 1 < {steps} {{
        cp.async sk[(t + 1) % 2] swizzle 128, K[(t + 1) * 32 + j, d] vec 8 threads #c
        cp.async sv[(t + 1) % 2] swizzle 128, V[(t + 1) * 32 + j, d] vec 8 threads #c
        cp.commit
      }}
      %s = mma m16n8k16.f16 %q, smem sk[t % 2] swizzle 128 over d : f32[i: 64, j: 32] #s
      %e = exp %s : f32[i: 64, j: 32] #s
      %part = reduce sum %e over j : f32[i: 64] #row
      %sum2 = add %sum, %part : f32[i: 64] #row
      %p = narrow %e : f16[i: 64, j: 32] #s
      %pa = convert %p : f16[i: 64, j: 32] #p
      %next = mma m16n8k16.f16 %pa, smem sv[t % 2] swizzle 128 + %acc over j : f32[i: 64, d: 64] #o
      yield %next, %sum2
    }}
    %r = div %o, %l : f32[i: 64, d: 64] #o
    %h = cast %r : f16[i: 64, d: 64] #o
    st.global O[i, d], %h vec 2
  }}
}}
""")


REDUCE = """
module reduce target sm_80 {
  input X: f32[8, 256]
  output Y: f32[8, 256]
  output M: f32[8]
  kernel reduce grid 1 warps 4 min_blocks 1 {
    layout #x = reg(j:2x1, i:8x1) lane(j:32x2) warp(j:4x64)
    layout #r = reg(i:8x1) lane(*:32) warp(*:4)
    smem scratch : f32[e: 1024] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[i, j] vec 2 : f32[i: 8, j: 256] #x
    %m = reduce max %x over j scratch scratch : f32[i: 8] #r
    barrier
    %d = sub %x, %m : f32[i: 8, j: 256] #x
    %e = exp %d : f32[i: 8, j: 256] #x
    %s = reduce sum %e over j scratch scratch : f32[i: 8] #r
    %y = div %e, %s : f32[i: 8, j: 256] #x
    st.global Y[i, j], %y vec 2
    st.global M[i], %m vec 1
  }
}
"""


def roles(steps: int = 6) -> MemModule:
    """A producer warp fills a pipeline of two stages with mbarriers; four consumer warps add the stages up."""
    return parse(f"""
module roles target sm_80 {{
  input X: f32[{64 * steps}, 32]
  output Y: f32[64, 32]
  kernel roles grid 1 warps 5 min_blocks 1 {{
    layout #copy = reg(j:4x1, i:16x4) lane(j:8x4, i:4x1) warp()
    layout #use = reg(j:4x1, i:4x16) lane(j:8x4, i:4x1) warp(i:4x4)
    smem s : f32[i: 64, j: 32] stages 2 swizzle 128 pad 0 @ 0
    mbar full stages 2 arrivals 32 @ 16384
    mbar empty stages 2 arrivals 128 @ 16400
    roles {{
      role load warps 0..1 {{
        for t in 0..{steps} carry() {{
          mbar.wait empty[t % 2] parity (t // 2 + 1) % 2
          cp.async s[t % 2] swizzle 128, X[t * 64 + i, j] vec 4 threads #copy mbar full[t % 2]
          yield
        }}
      }}
      role add warps 1..5 {{
        %zero = const 0.0 : f32[i: 64, j: 32] #use
        %y = for t in 0..{steps} carry(%acc = %zero) {{
          mbar.wait full[t % 2] parity t // 2 % 2
          %x = ld.shared s[t % 2] swizzle 128 vec 4 : f32[i: 64, j: 32] #use
          mbar.arrive empty[t % 2]
          %next = add %acc, %x : f32[i: 64, j: 32] #use
          yield %next
        }}
        st.global Y[i, j], %y vec 4
      }}
    }}
  }}
}}
""")


def random(seed: int, *shape: int) -> np.ndarray:
    """Normal float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def f16(x: np.ndarray) -> np.ndarray:
    """Values of f16, in float32."""
    return x.astype(np.float16).astype(np.float32)
