"""VR-tile programs of realistic shape for the lowering tests, as text."""

from __future__ import annotations

import re


def attention(rows: int, keys: int, dim: int, bm: int, bn: int, heads: int = 1, scaled_q: bool = False) -> str:
    """Causal attention of one head group: full blocks, then masked blocks, in one chain of loops."""

    def body(mask: bool) -> str:
        loaded = f"where j0 * {bn} + j < {keys}" if keys % bn else ""
        select = (
            f"""
      %c = index j0 * {bn} + j <= i0 * {bm} + i + {keys - rows} and j0 * {bn} + j < {keys} : bool[i: {bm}, j: {bn}]
      %low = const -inf : f32
      %y = select %c, %x, %low : f32[i: {bm}, j: {bn}]"""
            if mask
            else ""
        )
        y = "%y" if mask else "%x"
        return f"""
      %kt = load K[h, j0 * {bn} + j, k] {loaded if mask else ""} : f16[j: {bn}, k: {dim}]
      %s = dot %q, %kt over k : f32[i: {bm}, j: {bn}]
      %x = mul %s, %scale : f32[i: {bm}, j: {bn}]{select}
      %mr = reduce max {y} over j : f32[i: {bm}]
      %mn = max %mi, %mr : f32[i: {bm}]
      %t = sub {y}, %mn : f32[i: {bm}, j: {bn}]
      %p = exp2 %t : f32[i: {bm}, j: {bn}]
      %u = sub %mi, %mn : f32[i: {bm}]
      %a = exp2 %u : f32[i: {bm}]
      %ps = reduce sum %p over j : f32[i: {bm}]
      %la = mul %li, %a : f32[i: {bm}]
      %ln = add %la, %ps : f32[i: {bm}]
      %ph = narrow %p : f16[i: {bm}, j: {bn}]
      %v = load V[h, j0 * {bn} + j, d] {loaded if mask else ""} : f16[d: {dim}, j: {bn}]
      %oa = mul %oi, %a : f32[i: {bm}, d: {dim}]
      %on = dot %ph, %v + %oa over j : f32[i: {bm}, d: {dim}]
      yield %mn, %ln, %on"""

    def named(mask: bool) -> str:
        """The body with its own names, as every definition is unique."""
        local = "kt|s|x|c|low|y|mr|mn|t|p|u|a|ps|la|ln|ph|v|oa|on|mi|li|oi"
        return re.sub(rf"%({local})\b", lambda found: found[0] + ("2" if mask else "1"), body(mask))

    where = f"where i0 * {bm} + i < {rows}" if rows % bm else ""
    full = f"(i0 * {bm} + {keys - rows + 1}) // {bn}"
    last = f"min((i0 * {bm} + {bm - 1 + keys - rows}) // {bn} + 1, {-(-keys // bn)})"
    q = f"%q = load Q[h, i0 * {bm} + i, k] {where} : f16[i: {bm}, k: {dim}]"
    if scaled_q:
        q = f"""%q0 = load Q[h, i0 * {bm} + i, k] {where} : f16[i: {bm}, k: {dim}]
    %q1 = cast %q0 : f32[i: {bm}, k: {dim}]
    %half = const 0.5 : f32
    %q2 = mul %q1, %half : f32[i: {bm}, k: {dim}]
    %q = narrow %q2 : f16[i: {bm}, k: {dim}]"""
    return f"""
module attention {{
  input Q: f16[{heads}, {rows}, {dim}]
  input K: f16[{heads}, {keys}, {dim}]
  input V: f16[{heads}, {keys}, {dim}]
  output O: f16[{heads}, {rows}, {dim}]
  kernel O grid(h: {heads}, i0: {-(-rows // bm)}) axes(i: {bm}, d: {dim}, j: {bn}, k: {dim}) {{
    %scale = const 0.125 : f32
    %m0 = const -inf : f32[i: {bm}]
    %l0 = const 0.0 : f32[i: {bm}]
    %o0 = const 0.0 : f32[i: {bm}, d: {dim}]
    {q}
    %ma, %lb, %oc = for j0 in 0..{full} chain c carry(%mi1 = %m0, %li1 = %l0, %oi1 = %o0) {{{named(False)}
    }}
    %mf, %lf, %of = for j0 in {full}..{last} chain c carry(%mi2 = %ma, %li2 = %lb, %oi2 = %oc) {{{named(True)}
    }}
    %r = div %of, %lf : f32[i: {bm}, d: {dim}]
    store O[h, i0 * {bm} + i, d], %r {where}
  }}
}}
"""


def matmul(
    m: int, n: int, k: int, bm: int, bn: int, bk: int,
    dtype: str = "f16", out: str = "f16", acc: str = "f32", a: str = "ik", b: str = "kj",
) -> str:  # fmt: skip
    """C = A . B; ``a`` and ``b`` give the order of the axes in memory."""
    size = {"i": m, "j": n, "k": k}
    tile = {"i": bm, "j": bn, "k": bk}
    at = {"i": f"i0 * {bm} + i", "j": f"j0 * {bn} + j", "k": f"k0 * {bk} + k"}

    def guard(axes: str) -> str:
        parts = [f"{at[x]} < {size[x]}" for x in axes if size[x] % tile[x]]
        return f"where {' and '.join(parts)}" if parts else ""

    def load(name: str, axes: str) -> str:
        order = sorted(axes, key="ijk".index)
        shape = ", ".join(f"{x}: {tile[x]}" for x in order)
        return f"load {name}[{', '.join(at[x] for x in axes)}] {guard(axes)} : {dtype}[{shape}]"

    zero = "0" if acc == "i32" else "0.0"
    return f"""
module matmul {{
  input A: {dtype}[{size[a[0]]}, {size[a[1]]}]
  input B: {dtype}[{size[b[0]]}, {size[b[1]]}]
  output C: {out}[{m}, {n}]
  kernel C grid(i0: {-(-m // bm)}, j0: {-(-n // bn)}) axes(i: {bm}, j: {bn}, k: {bk}) {{
    %zero = const {zero} : {acc}[i: {bm}, j: {bn}]
    %c = for k0 in 0..{-(-k // bk)} carry(%ci = %zero) {{
      %at = {load("A", a)}
      %bt = {load("B", b)}
      %cn = dot %at, %bt + %ci over k : {acc}[i: {bm}, j: {bn}]
      yield %cn
    }}
    store C[i0 * {bm} + i, j0 * {bn} + j], %c {guard("ij")}
  }}
}}
"""


def softmax_rows(rows: int, cols: int, bi: int, bj: int, dtype: str = "f16") -> str:
    """Softmax over whole rows, a column weight on top."""
    masked = [f"i0 * {bi} + i < {rows}"] * bool(rows % bi) + [f"j < {cols}"] * (bj != cols)
    where = f"where {' and '.join(masked)}" if masked else ""
    column = f"where j < {cols}" if bj != cols else ""
    return f"""
module softmax {{
  input X: {dtype}[{rows}, {cols}]
  input W: {dtype}[{cols}]
  output Y: {dtype}[{rows}, {cols}]
  output L: f32[{rows}]
  kernel Y grid(i0: {-(-rows // bi)}) axes(i: {bi}, j: {bj}) {{
    %x0 = load X[i0 * {bi} + i, j] {where} : {dtype}[i: {bi}, j: {bj}]
    %x1 = cast %x0 : f32[i: {bi}, j: {bj}]
    %in = index j < {cols} : bool[j: {bj}]
    %low = const -inf : f32
    %x = select %in, %x1, %low : f32[i: {bi}, j: {bj}]
    %m = reduce max %x over j : f32[i: {bi}]
    %t = sub %x, %m : f32[i: {bi}, j: {bj}]
    %e = exp %t : f32[i: {bi}, j: {bj}]
    %s = reduce sum %e over j : f32[i: {bi}]
    %p = div %e, %s : f32[i: {bi}, j: {bj}]
    %w0 = load W[j] {column} : {dtype}[j: {bj}]
    %w = cast %w0 : f32[j: {bj}]
    %y = mul %p, %w : f32[i: {bi}, j: {bj}]
    store Y[i0 * {bi} + i, j], %y {where}
    %lg = log %s : f32[i: {bi}]
    %l = add %lg, %m : f32[i: {bi}]
    store L[i0 * {bi} + i], %l {f"where i0 * {bi} + i < {rows}" if rows % bi else ""}
  }}
}}
"""


#: Y = (X . U) * (X . V): two products that share their left operand
GATED = """
module gated {
  input X: f16[64, 100]
  input U: f16[100, 32]
  input V: f16[100, 32]
  output Y: f16[64, 32]
  kernel Y grid(i0: 2) axes(i: 32, j: 32, k: 32) {
    %z = const 0.0 : f32[i: 32, j: 32]
    %u, %v = for k0 in 0..4 carry(%ui = %z, %vi = %z) {
      %x = load X[i0 * 32 + i, k0 * 32 + k] where k0 * 32 + k < 100 : f16[i: 32, k: 32]
      %p = load U[k0 * 32 + k, j] where k0 * 32 + k < 100 : f16[j: 32, k: 32]
      %q = load V[k0 * 32 + k, j] where k0 * 32 + k < 100 : f16[j: 32, k: 32]
      %un = dot %x, %p + %ui over k : f32[i: 32, j: 32]
      %vn = dot %x, %q + %vi over k : f32[i: 32, j: 32]
      yield %un, %vn
    }
    %y = mul %u, %v : f32[i: 32, j: 32]
    store Y[i0 * 32 + i, j], %y
  }
}
"""
