"""``vector-steps``: how accesses follow the steps. What the pass makes: ``vector_steps.ma``."""

from __future__ import annotations

from nautilus.ma_tile.ir.ops import GlobalLoad, walk_ops
from nautilus.ma_tile.passes.steps.vector_steps import _slope
from nautilus.ma_tile.text.printer import parse

LOADS = {
    "X[i, t]": 1,
    "X[i, t + 3]": 1,
    "X[i, 31 - t]": -1,
    "X[i, 2 * t]": 0,
    "X[i, i]": 0,
    "X[i, t // 2]": 0,
    "X[i, t + t // 2]": 0,
    "X[t, t]": 0,
    "X[t, i]": 0,
    "N[]": 0,
}


def test_slopes() -> None:
    loads = "\n".join(
        f"      %x{n} = ld.global {read} vec 1 : f32{'[i: 32]' if 'i' in read else ''} #{'i' if 'i' in read else 'one'}"
        for n, read in enumerate(LOADS)
    )
    module = parse(
        f"""module t target sm_90a {{
  input X: f32[32, 32]
  input N: f32[]
  output Y: f32[32, 32]
  kernel k grid 1 warps 1 min_blocks 1 {{
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..32 carry(%h = %zero) {{
{loads}
      yield %h
    }}
  }}
}}
""",
        "t",
    )
    found = [x for x in walk_ops(module.kernels[0].body) if isinstance(x, GlobalLoad)]
    assert dict(zip(LOADS, (_slope(x, "t") for x in found), strict=True)) == LOADS
