"""Hand-written MA-tile programs of the sm_90a class: TMA pipelines, wgmma, several consumers, the tile scheduler."""

from __future__ import annotations

from nautilus.ma_tile.ir.instruction_tables import wg_a_layout, wg_acc_layout
from nautilus.ma_tile.ir.ops import MemModule
from nautilus.ma_tile.text import parse

ACC = wg_acc_layout("i", "n", 64, 64)


def alone() -> str:
    """C = A . B of one tile: one warpgroup, synchronous copies and MMAs."""
    return f"""
module alone target sm_90a {{
  input A: f16[64, 128]
  input B: f16[128, 64]
  output C: f32[64, 64]
  kernel alone grid 1 warps 4 min_blocks 1 {{
    layout #acc = {ACC}
    smem sa : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sb : f16[k: 64, n: 64] stages 1 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    %c = for t in 0..2 carry(%acc = %zero) {{
      barrier
      tma.load sa[0] swizzle 128, A[i, t * 64 + k]
      tma.load sb[0] swizzle 128, B[t * 64 + k, n]
      %next = mma wgmma.f16 smem sa[0] swizzle 128, smem sb[0] swizzle 128 + %acc over k : f32[i: 64, n: 64] #acc
      yield %next
    }}
    st.global C[i, n], %c vec 2
  }}
}}
"""


def product(steps: int = 4, consumers: int = 2, behind: int = 0, rows: int = 130) -> str:
    """C = A . B^T: a producer, ``consumers`` consumers of 64 rows each, a pipeline of three stages.

    ``behind``: groups that stay outstanding at a wait; their stages are released one iteration later.
    """
    whole, bytes_ = 64 * consumers, 8192 * (consumers + 1)
    stage = f"r_stage * {consumers} + consumer"
    loads = "\n".join(
        f"          tma.load sa[r_stage * {consumers} + {u}] swizzle 128, A[block * {whole} + {64 * u} + i, t * 64 + k]"
        " mbar full[r_stage]"
        for u in range(consumers)
    )
    release = {
        0: "wg.wait 0 %next\n          mbar.arrive empty[r_stage] each warp",
        1: "wg.wait 1\n          if t >= 1 { mbar.arrive empty[(r_stage + 2) % 3] each warp }",
    }[behind]
    finish = {0: "", 1: "wg.wait 0 %c\n        mbar.arrive empty[(r_stage + 2) % 3] each warp"}[behind]
    at = 3 * bytes_
    return f"""
module product target sm_90a {{
  input A: f16[{rows}, {64 * steps}]
  input B: f16[64, {64 * steps}]
  output C: f16[{rows}, 64]
  kernel product grid {-(-rows // whole)} warps {4 + 4 * consumers} min_blocks 1 {{
    layout #acc = {ACC}
    smem sa : f16[i: 64, k: 64] stages {3 * consumers} swizzle 128 pad 0 @ 0
    smem sb : f16[n: 64, k: 64] stages 3 swizzle 128 pad 0 @ {3 * consumers * 8192}
    smem so : f16[i: 64, n: 64] stages {consumers} swizzle 128 pad 0 @ {at}
    mbar full stages 3 arrivals 1 @ {at + 8192 * consumers}
    mbar empty stages 3 arrivals {4 * consumers} @ {at + 8192 * consumers + 24}
    pipeline r stages 3
    roles {{
      role producer warps 0..4 registers 24 single {{
        for t in 0..{steps} carry() {{
          mbar.wait empty[r_stage] parity 1 - r_phase
          mbar.expect full[r_stage] {bytes_}
{loads}
          tma.load sb[r_stage] swizzle 128, B[n, t * 64 + k] mbar full[r_stage]
          advance r
          yield
        }}
      }}
      role consumers warps 4..{4 + 4 * consumers} registers 240 consumers {consumers} {{
        %zero = const 0.0 : f32[i: 64, n: 64] #acc
        %c = for t in 0..{steps} carry(%acc = %zero) {{
          mbar.wait full[r_stage] parity r_phase
          wg.fence
          %next = mma wgmma.f16 smem sa[{stage}] swizzle 128, smem sb[r_stage] swizzle 128 + %acc
            over k async : f32[i: 64, n: 64] #acc
          wg.commit
          {release}
          advance r
          yield %next
        }}
        {finish}
        %h = narrow %c : f16[i: 64, n: 64] #acc
        st.matrix so[consumer] swizzle 128, %h
        fence.proxy
        barrier (consumer + 1), 128
        tma.store so[consumer] swizzle 128, C[block * {whole} + consumer * 64 + i, n]
        tma.commit
        tma.wait 0 read
      }}
    }}
  }}
}}
"""


def chain(steps: int = 3) -> str:
    """O = sum over tiles of exp(Q . K^T) . V: the first MMA overlaps with the second MMA of the previous iteration."""
    s, o = wg_acc_layout("i", "j", 64, 64), wg_acc_layout("i", "d", 64, 64)
    n = 64 * steps
    return f"""
module chain target sm_90a {{
  input Q: f16[128, 64]
  input K: f16[{n}, 64]
  input V: f16[{n}, 64]
  output O: f32[128, 64]
  kernel chain grid 1 warps 12 min_blocks 1 {{
    layout #s = {s}
    layout #o = {o}
    layout #p = {wg_a_layout("wgmma.f16", "i", "j", 64, 64)}
    smem sq : f16[i: 64, d: 64] stages 2 swizzle 128 pad 0 @ 0
    smem sk : f16[j: 64, d: 64] stages 2 swizzle 128 pad 0 @ 16384
    smem sv : f16[j: 64, d: 64] stages 2 swizzle 128 pad 0 @ 32768
    mbar fullq stages 1 arrivals 1 @ 49152
    mbar fullk stages 2 arrivals 1 @ 49160
    mbar emptyk stages 2 arrivals 8 @ 49176
    mbar fullv stages 2 arrivals 1 @ 49192
    mbar emptyv stages 2 arrivals 8 @ 49208
    pipeline k stages 2
    pipeline v stages 2
    roles {{
      role producer warps 0..4 registers 24 single {{
        mbar.expect fullq[0] 16384
        tma.load sq[0] swizzle 128, Q[i, d] mbar fullq[0]
        tma.load sq[1] swizzle 128, Q[64 + i, d] mbar fullq[0]
        for t in 0..{steps} carry() {{
          mbar.wait emptyk[k_stage] parity 1 - k_phase
          mbar.expect fullk[k_stage] 8192
          tma.load sk[k_stage] swizzle 128, K[t * 64 + j, d] mbar fullk[k_stage]
          advance k
          mbar.wait emptyv[v_stage] parity 1 - v_phase
          mbar.expect fullv[v_stage] 8192
          tma.load sv[v_stage] swizzle 128, V[t * 64 + j, d] mbar fullv[v_stage]
          advance v
          yield
        }}
      }}
      role consumers warps 4..12 registers 240 consumers 2 {{
        %zs = const 0.0 : f32[i: 64, j: 64] #s
        %zo = const 0.0 : f32[i: 64, d: 64] #o
        mbar.wait fullq[0] parity 0
        mbar.wait fullk[k_stage] parity k_phase
        wg.fence
        %s0 = mma wgmma.f16 smem sq[consumer] swizzle 128, smem sk[k_stage] swizzle 128
            over d async : f32[i: 64, j: 64] #s
        wg.commit
        wg.wait 0 %s0
        mbar.arrive emptyk[k_stage] each warp
        advance k
        %e0 = exp %s0 : f32[i: 64, j: 64] #s
        %h0 = narrow %e0 : f16[i: 64, j: 64] #s
        %p0 = convert %h0 : f16[i: 64, j: 64] #p
        %o, %last = for t in 1..{steps} carry(%acc = %zo, %p = %p0) {{
          mbar.wait fullk[k_stage] parity k_phase
          mbar.wait fullv[v_stage] parity v_phase
          wg.fence
          %s = mma wgmma.f16 smem sq[consumer] swizzle 128, smem sk[k_stage] swizzle 128
            over d async : f32[i: 64, j: 64] #s
          wg.commit
          wg.fence
          %next = mma wgmma.f16 %p, smem sv[v_stage] swizzle 128 + %acc over j async : f32[i: 64, d: 64] #o
          wg.commit
          wg.wait 1 %s
          mbar.arrive emptyk[k_stage] each warp
          advance k
          %e = exp %s : f32[i: 64, j: 64] #s
          wg.wait 0 %next
          mbar.arrive emptyv[v_stage] each warp
          advance v
          %h = narrow %e : f16[i: 64, j: 64] #s
          %pn = convert %h : f16[i: 64, j: 64] #p
          yield %next, %pn
        }}
        mbar.wait fullv[v_stage] parity v_phase
        wg.fence
        %end = mma wgmma.f16 %last, smem sv[v_stage] swizzle 128 + %o over j async : f32[i: 64, d: 64] #o
        wg.commit
        wg.wait 0 volatile %end
        mbar.arrive emptyv[v_stage] each warp
        st.global O[consumer * 64 + i, d], %end vec 2
      }}
    }}
  }}
}}
"""


def tiles(order: str = "static", blocks: int = 3, count: int = 8) -> str:
    """Y = 2 X by tiles of 64 rows: persistent blocks, a producer, a consumer that stores by TMA."""
    dynamic = order == "dynamic"
    before = "tile.first t_next" if dynamic else ""
    send = (
        """mbar.wait emptyt[t_stage] parity 1 - t_phase
          let v = t_next
          tile.reset v of {count}
          queue.push next[t_stage], v
          mbar.arrive fullt[t_stage]
          advance t
          break if v >= {count}"""
        if dynamic
        else ""
    ).format(count=count)
    receive = (
        """mbar.wait fullt[t_stage] parity t_phase
          queue.pop v, next[t_stage]
          mbar.arrive emptyt[t_stage] each warp
          advance t
          break if v >= {count}"""
        if dynamic
        else ""
    ).format(count=count)
    fetch = "tile.fetch t_next" if dynamic else ""
    queue = "smem next : i32[x: 1] stages 2 swizzle 0 pad 0 @ 24640" if dynamic else ""
    extra = (
        """mbar fullt stages 2 arrivals 1 @ 24656
    mbar emptyt stages 2 arrivals 4 @ 24672
    pipeline t stages 2"""
        if dynamic
        else ""
    )
    return f"""
module tiles target sm_90a {{
  input X: f16[{64 * count}, 64]
  output Y: f16[{64 * count}, 64]
  kernel tiles grid {blocks} warps 8 min_blocks 1 {{
    layout #acc = {ACC}
    smem sx : f16[i: 64, n: 64] stages 2 swizzle 128 pad 0 @ 0
    smem so : f16[i: 64, n: 64] stages 1 swizzle 128 pad 0 @ 16384
    {queue}
    mbar full stages 2 arrivals 1 @ 24576
    mbar empty stages 2 arrivals 4 @ 24592
    {extra}
    pipeline r stages 2
    roles {{
      role producer warps 0..4 single {{
        {before}
        tile.loop v, iteration in {count} {order} {{
          {send}
          mbar.wait empty[r_stage] parity 1 - r_phase
          mbar.expect full[r_stage] 8192
          tma.load sx[r_stage] swizzle 128, X[v * 64 + i, n] mbar full[r_stage]
          advance r by 1
          {fetch}
        }}
      }}
      role consumer warps 4..8 {{
        tile.loop v, iteration in {count} {order} {{
          {receive}
          let first = v * 64
          mbar.wait full[r_stage] parity r_phase
          %x = ld.shared sx[r_stage] swizzle 128 vec 2 : f16[i: 64, n: 64] #acc
          mbar.arrive empty[r_stage] each warp
          advance r
          %w = cast %x : f32[i: 64, n: 64] #acc
          %y = add %w, %w : f32[i: 64, n: 64] #acc
          %h = narrow %y : f16[i: 64, n: 64] #acc
          tma.wait 0 read
          barrier 1, 128
          st.matrix so[0] swizzle 128, %h
          fence.proxy
          barrier 1, 128
          tma.store so[0] swizzle 128, Y[first + i, n]
          tma.commit
        }}
        tma.wait 0
      }}
    }}
  }}
}}
"""


def cluster() -> str:
    """C = A . B^T in clusters of two blocks that share B: each loads one slab for both."""
    return f"""
module cluster target sm_90a {{
  input A: f16[128, 128]
  input B: f16[64, 128]
  output C: f32[128, 64]
  kernel cluster grid 2 warps 8 min_blocks 1 cluster 2 {{
    layout #acc = {ACC}
    smem sa : f16[i: 64, k: 128] stages 1 swizzle 128 pad 0 @ 0
    smem sb : f16[n: 64, k: 128] stages 1 swizzle 128 pad 0 @ 16384
    mbar full stages 1 arrivals 1 @ 32768
    mbar empty stages 1 arrivals 8 @ 32776
    pipeline r stages 1
    roles {{
      role producer warps 0..4 single {{
        for t in 0..2 carry() {{
          mbar.wait empty[r_stage] parity 1 - r_phase
          mbar.expect full[r_stage] 32768
          tma.load sa[r_stage] swizzle 128, A[block * 64 + i, k] mbar full[r_stage]
          tma.load sb[r_stage] swizzle 128, B[n, k] mbar full[r_stage] multicast 2
          advance r
          yield
        }}
      }}
      role consumer warps 4..8 {{
        %zero = const 0.0 : f32[i: 64, n: 64] #acc
        %c = for t in 0..2 carry(%acc = %zero) {{
          mbar.wait full[r_stage] parity r_phase
          %next = mma wgmma.f16 smem sa[r_stage] swizzle 128, smem sb[r_stage] swizzle 128 + %acc
            over k : f32[i: 64, n: 64] #acc
          mbar.arrive empty[r_stage] each warp cluster
          advance r
          yield %next
        }}
        st.global C[block * 64 + i, n], %c vec 2
      }}
    }}
  }}
}}
"""


def named() -> str:
    """Two consumers of a kernel alternate by named barriers; the number of the barrier depends on the consumer."""
    return f"""
module named target sm_90a {{
  input X: f32[128, 64]
  output Y: f32[128, 64]
  kernel named grid 1 warps 8 min_blocks 1 consumers 2 {{
    layout #acc = {ACC}
    if consumer == 1 {{ named.arrive 1, 256 }}
    %x = ld.global X[consumer * 64 + i, n] vec 2 : f32[i: 64, n: 64] #acc
    barrier (1 + consumer), 256
    %y = add %x, %x : f32[i: 64, n: 64] #acc
    if consumer == 0 {{ named.arrive (2 - consumer), 256 }}
    st.global Y[consumer * 64 + i, n], %y vec 2
  }}
}}
"""


ALL = {
    "alone": alone, "product": product, "one_consumer": lambda: product(consumers=1, rows=64),
    "after": lambda: product(behind=1), "chain": chain, "static": tiles, "snake": lambda: tiles("snake"),
    "dynamic": lambda: tiles("dynamic"), "cluster": cluster, "named": named,
}  # fmt: skip


def module(name: str) -> MemModule:
    """The program called ``name``."""
    return parse(ALL[name]())
