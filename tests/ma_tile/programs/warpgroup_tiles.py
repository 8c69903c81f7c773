"""VR-tile programs for the engine ``warpgroup``: what it takes, and what it must refuse."""

from __future__ import annotations

#: (A B^T) C with the inner product rounded to f16, widened, and rounded to tf32 for nothing
CHAIN = """
module chain {
  input A: f16[256, 64]
  input B: f16[128, 64]
  input C: f16[128, 64]
  output O: f16[256, 64]
  kernel O grid(i0: 2) axes(i: 128, d: 64, j: 64, k: 64) {
    %zero = const 0.0 : f32[i: 128, d: 64]
    %a = load A[i0 * 128 + i, k] : f16[i: 128, k: 64]
    %o = for j0 in 0..2 carry(%oi = %zero) {
      %b = load B[j0 * 64 + j, k] : f16[j: 64, k: 64]
      %t = dot %a, %b over k : f32[i: 128, j: 64]
      %h = cast %t : f16[i: 128, j: 64]
      %w = cast %h : f32[i: 128, j: 64]
      %n = narrow %w : tf32[i: 128, j: 64]
      %x = cast %n : f32[i: 128, j: 64]
      %c = load C[j0 * 64 + j, d] : f16[d: 64, j: 64]
      %y = cast %c : f32[d: 64, j: 64]
      %on = dot %x, %y + %oi over j : f32[i: 128, d: 64]
      yield %on
    }
    store O[i0 * 128 + i, d], %o
  }
}
"""


def _product(
    extra: str, body: str, outputs: str = "", b_load: str = "B[j, k]", a_load: str = "A[i0 * 128 + i, k]"
) -> str:
    """One product of a 128 x 64 tile with side inputs, and what follows it."""
    return f"""
module product {{
  input A: f16[256, 64]
  input B: f16[64, 64]{extra}
  output C: f16[256, 64]{outputs}
  kernel C grid(i0: 2) axes(i: 128, j: 64, k: 64) {{
    %a = load {a_load} : f16[i: 128, k: 64]
    %b0 = load {b_load} : f16[j: 64, k: 64]
    %s = dot %a, %b0 over k : f32[i: 128, j: 64]{body}
  }}
}}
"""


EPILOGUE = _product(
    "\n  input bias: f16[64]\n  input R: f16[256, 64]\n  input g: f32[256]",
    """
    %b = load bias[j] : f16[j: 64]
    %b1 = cast %b : f32[j: 64]
    %r = load R[i0 * 128 + i, j] : f16[i: 128, j: 64]
    %r1 = cast %r : f32[i: 128, j: 64]
    %g1 = load g[i0 * 128 + i] : f32[i: 128]
    %x = add %s, %b1 : f32[i: 128, j: 64]
    %y = mul %x, %g1 : f32[i: 128, j: 64]
    %z = add %y, %r1 : f32[i: 128, j: 64]
    store C[i0 * 128 + i, j], %z""",
)

SCALED_LEFT = """
module scaled {
  input A: f8e4m3[256, 64]
  input B: f8e4m3[64, 64]
  output C: f16[256, 64]
  kernel C grid(i0: 2) axes(i: 128, j: 64, k: 64) {
    %a0 = load A[i0 * 128 + i, k] : f8e4m3[i: 128, k: 64]
    %a1 = cast %a0 : f32[i: 128, k: 64]
    %two = const 2.0 : f32
    %a2 = mul %a1, %two : f32[i: 128, k: 64]
    %a = narrow %a2 : f8e4m3[i: 128, k: 64]
    %b0 = load B[j, k] : f8e4m3[j: 64, k: 64]
    %s = dot %a, %b0 over k : f32[i: 128, j: 64]
    store C[i0 * 128 + i, j], %s
  }
}
"""

COLUMN_OUTPUT = _product(
    "\n  input bias: f16[64]",
    """
    store C[i0 * 128 + i, j], %s
    %v = load bias[j] : f16[j: 64]
    %v1 = cast %v : f32[j: 64]
    %v2 = add %v1, %v1 : f32[j: 64]
    store W[j], %v2 where i0 == 0""",
    "\n  output W: f32[64]",
)

OVER_ROWS = _product(
    "",
    """
    store C[i0 * 128 + i, j], %s
    %t = reduce sum %s over i : f32[j: 64]
    store W[i0, j], %t
    %u = reduce sum %s over j : f32[i: 128]
    store U[i0 * 128 + i], %u""",
    "\n  output W: f32[2, 64]\n  output U: f32[256]",
)
COLUMN_SUMS = OVER_ROWS[: OVER_ROWS.index("    %u")].replace("  output U: f32[256]\n", "") + "  }\n}\n"

#: rows that begin where a number of another tensor says, and rows that a tensor lists
BEGINNING = _product("\n  input P: i32[2]", "\n    store C[i0 * 128 + i, j], %s", b_load="B[%p + j, k]").replace(
    "%a = load", "%p = load P[i0] : i32\n    %a = load"
)
GATHERED = BEGINNING.replace("P[i0] : i32", "P[j % 2] : i32[j: 64]")

STRIDED = _product("", "\n    store C[i0 * 128 + i, j], %s", b_load="B[j, (k * 3) % 64]")

#: rows of A by halves, as where groups of heads share a tile, and every third element of them
STRIDED_LEFT = """
module strided {
  input A: f16[2, 64, 64]
  input B: f16[128, 64]
  output C: f16[2, 64, 128]
  kernel C grid(i0: 1) axes(i: 128, j: 64, k: 64) {
    %a = load A[i % 2, i // 2, (k * 3) % 64] : f16[i: 128, k: 64]
    for j0 in 0..2 carry() {
      %b = load B[j0 * 64 + j, k] : f16[j: 64, k: 64]
      %s = dot %a, %b over k : f32[i: 128, j: 64]
      store C[i % 2, i // 2, j0 * 64 + j], %s
      yield
    }
  }
}
"""

COMPUTED_RIGHT = """
module computed {
  input A: f16[128, 64]
  input B: i8[64, 64]
  output C: f16[128, 64]
  kernel C grid(i0: 1) axes(i: 128, j: 64, k: 64) {
    %a = load A[i, k] : f16[i: 128, k: 64]
    %b = load B[j, k] : i8[j: 64, k: 64]
    %h = cast %b : f16[j: 64, k: 64]
    %s = dot %a, %h over k : f32[i: 128, j: 64]
    store C[i, j], %s
  }
}
"""

#: two products: rows along i, then along j; what is known of a row of the second is wanted in the first
TRANSPOSED_USE = """
module transposed {
  input A: f16[128, 64]
  input B: f16[128, 64]
  input D: f16[64, 64]
  output C: f32[128, 128]
  output E: f32[128, 64]
  kernel C grid(i0: 1) axes(i: 128, j: 128, d: 64, k: 64) {
    %a = load A[i, k] : f16[i: 128, k: 64]
    %b = load B[j, k] : f16[j: 128, k: 64]
    %s = dot %a, %b over k : f32[i: 128, j: 128]
    %e = load B[j, k] : f16[j: 128, k: 64]
    %f = load D[d, k] : f16[d: 64, k: 64]
    %t = dot %e, %f over k : f32[j: 128, d: 64]
    store E[j, d], %t
    %m = reduce max %t over d : f32[j: 128]
    %x = add %s, %m : f32[i: 128, j: 128]
    store C[i, j], %x
  }
}
"""

TWO_ROW_AXES = "\n".join(line for line in TRANSPOSED_USE.replace("%x\n", "%s\n").splitlines() if "= add" not in line)
TWO_ROW_AXES = "\n".join(line for line in TWO_ROW_AXES.splitlines() if "reduce" not in line)
