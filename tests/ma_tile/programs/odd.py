"""Small VR-tile programs of unusual shape, one a way of lowering."""

from __future__ import annotations

MATVEC = """
module mv {
  input A: f16[40, 64]
  input X: f16[64]
  output Y: f32[40]
  kernel y grid(i0: 5) axes(i: 8, k: 64) {
    %a = load A[i0 * 8 + i, k] : f16[i: 8, k: 64]
    %x = load X[k] : f16[k: 64]
    %y = dot %a, %x over k : f32[i: 8]
    store Y[i0 * 8 + i], %y
  }
}
"""

DECODE = """
module dec {
  input Q: f16[2, 32]
  input K: f16[2, 50, 32]
  input V: f16[2, 50, 32]
  output O: f16[2, 32]
  kernel o grid(h: 2) axes(j: 16, k: 32, d: 32) {
    %q = load Q[h, k] : f16[k: 32]
    %m0 = const -inf : f32
    %l0 = const 0.0 : f32
    %o0 = const 0.0 : f32[d: 32]
    %m, %l, %o = for j0 in 0..4 carry(%mi = %m0, %li = %l0, %oi = %o0) {
      %kt = load K[h, j0 * 16 + j, k] where j0 * 16 + j < 50 : f16[j: 16, k: 32]
      %s0 = dot %q, %kt over k : f32[j: 16]
      %in = index j0 * 16 + j < 50 : bool[j: 16]
      %low = const -inf : f32
      %s = select %in, %s0, %low : f32[j: 16]
      %mr = reduce max %s over j : f32
      %mn = max %mi, %mr : f32
      %t = sub %s, %mn : f32[j: 16]
      %p = exp %t : f32[j: 16]
      %u = sub %mi, %mn : f32
      %a = exp %u : f32
      %ps = reduce sum %p over j : f32
      %la = mul %li, %a : f32
      %ln = add %la, %ps : f32
      %ph = narrow %p : f16[j: 16]
      %v = load V[h, j0 * 16 + j, d] where j0 * 16 + j < 50 : f16[j: 16, d: 32]
      %oa = mul %oi, %a : f32[d: 32]
      %on = dot %ph, %v + %oa over j : f32[d: 32]
      yield %mn, %ln, %on
    }
    %r = div %o, %l : f32[d: 32]
    store O[h, d], %r
  }
}
"""

BATCHED = """
module bm {
  input A: f16[4, 16, 16]
  input B: f16[4, 16, 16]
  output C: f32[4, 16, 16]
  kernel c grid() axes(h: 4, i: 16, j: 16, k: 16) {
    %a = load A[h, i, k] : f16[h: 4, i: 16, k: 16]
    %b = load B[h, k, j] : f16[h: 4, j: 16, k: 16]
    %c = dot %a, %b over k : f32[h: 4, i: 16, j: 16]
    store C[h, i, j], %c
  }
}
"""

TWO_AXES = """
module ta {
  input A: f16[16, 4, 8]
  input B: f16[4, 8, 16]
  output C: f32[16, 16]
  kernel c grid() axes(i: 16, j: 16, u: 4, k: 8) {
    %a = load A[i, u, k] : f16[i: 16, u: 4, k: 8]
    %b = load B[u, k, j] : f16[j: 16, u: 4, k: 8]
    %z = const 1.0 : f32[i: 16, j: 16]
    %c = dot %a, %b + %z over u, k : f32[i: 16, j: 16]
    store C[i, j], %c
  }
}
"""

PAGED = """
module pg {
  input Q: f16[16, 32]
  input K: f16[9, 8, 32]
  input T: i32[6]
  output S: f32[16, 48]
  kernel s grid(j0: 3) axes(i: 16, j: 16, k: 32) {
    %q = load Q[i, k] : f16[i: 16, k: 32]
    %t = load T[(j0 * 16 + j) // 8] : i32[j: 16]
    %kt = load K[%t, (j0 * 16 + j) % 8, k] : f16[j: 16, k: 32]
    %s = dot %q, %kt over k : f32[i: 16, j: 16]
    store S[i, j0 * 16 + j], %s
  }
}
"""

PAGED_LOOP = """
module pgl {
  input Q: f16[16, 32]
  input K: f16[9, 8, 32]
  input T: i32[6]
  output S: f32[16, 16]
  kernel s grid() axes(i: 16, j: 16, k: 32) {
    %q = load Q[i, k] : f16[i: 16, k: 32]
    %z = const 0.0 : f32[i: 16, j: 16]
    %r = for j0 in 0..3 carry(%c = %z) {
      %t = load T[(j0 * 16 + j) // 8] : i32[j: 16]
      %kt = load K[%t, (j0 * 16 + j) % 8, k] : f16[j: 16, k: 32]
      %s = dot %q, %kt + %c over k : f32[i: 16, j: 16]
      yield %s
    }
    store S[i, j], %r
  }
}
"""

THREE_AXES = """
module t3 {
  input X: f32[4, 6, 10]
  input Y: f32[6]
  output Z: f32[10, 4]
  output M: i32[6]
  kernel z grid() axes(a: 4, b: 8, c: 16) {
    %x = load X[a, b, c] where b < 6 and c < 10 : f32[a: 4, b: 8, c: 16]
    %y = load Y[b] where b < 6 : f32[b: 8]
    %p = mul %x, %y : f32[a: 4, b: 8, c: 16]
    %s = reduce sum %p over b : f32[a: 4, c: 16]
    store Z[c, a], %s where c < 10
    %big = const 0.5 : f32
    %q = gt %p, %big : bool[a: 4, b: 8, c: 16]
    %one = const 1 : i32
    %none = const 0 : i32
    %w = select %q, %one, %none : i32[a: 4, b: 8, c: 16]
    %n = reduce sum %w over a, c : i32[b: 8]
    store M[b], %n where b < 6
  }
}
"""

TRANSPOSE = """
module tr {
  input X: f16[64, 32]
  output Y: f16[32, 64]
  kernel t grid(i0: 2) axes(i: 32, j: 32) {
    %x = load X[i0 * 32 + i, j] : f16[i: 32, j: 32]
    store Y[j, i0 * 32 + i], %x
  }
}
"""

OUTER_PRODUCT_BACK = """
module bwd {
  input P: f16[32, 32]
  input D: f16[32, 32]
  input K: f16[32, 32]
  output X: f32[32, 32]
  output Y: f32[32, 32]
  kernel b grid() axes(i: 32, j: 32, d: 32) {
    %p = load P[i, d] : f16[i: 32, d: 32]
    %k = load K[j, d] : f16[j: 32, d: 32]
    %s = dot %p, %k over d : f32[i: 32, j: 32]
    %e = sigmoid %s : f32[i: 32, j: 32]
    %h = narrow %e : f16[i: 32, j: 32]
    %x = dot %h, %k over j : f32[i: 32, d: 32]
    %y = dot %h, %p over i : f32[j: 32, d: 32]
    store X[i, d], %x
    store Y[j, d], %y
  }
}
"""

DEQUANT = """
module dq {
  input A: f16[32, 64]
  input B: i8[64, 32]
  input S: f32[32]
  output C: f16[32, 32]
  kernel c grid() axes(i: 32, j: 32, k: 32) {
    %z = const 0.0 : f32[i: 32, j: 32]
    %c = for k0 in 0..2 carry(%ci = %z) {
      %a = load A[i, k0 * 32 + k] : f16[i: 32, k: 32]
      %b0 = load B[k0 * 32 + k, j] : i8[j: 32, k: 32]
      %b1 = cast %b0 : f32[j: 32, k: 32]
      %s = load S[j] : f32[j: 32]
      %b2 = mul %b1, %s : f32[j: 32, k: 32]
      %b = narrow %b2 : f16[j: 32, k: 32]
      %n = dot %a, %b + %ci over k : f32[i: 32, j: 32]
      yield %n
    }
    store C[i, j], %c
  }
}
"""

NORM_MATMUL = """
module nm {
  input A: f16[32, 64]
  input B: f16[64, 32]
  input R: f32[32]
  output C: f16[32, 32]
  output N: f32[32]
  kernel c grid() axes(i: 32, j: 32, k: 32) {
    %z = const 0.0 : f32[i: 32, j: 32]
    %n0 = const 0.0 : f32[i: 32]
    %c, %nn = for k0 in 0..2 carry(%ci = %z, %ni = %n0) {
      %a0 = load A[i, k0 * 32 + k] : f16[i: 32, k: 32]
      %a1 = cast %a0 : f32[i: 32, k: 32]
      %r = load R[i] : f32[i: 32]
      %sq = mul %a1, %a1 : f32[i: 32, k: 32]
      %ss = reduce sum %sq over k : f32[i: 32]
      %n1 = add %ni, %ss : f32[i: 32]
      %a2 = mul %a1, %r : f32[i: 32, k: 32]
      %a = narrow %a2 : f16[i: 32, k: 32]
      %b = load B[k0 * 32 + k, j] : f16[j: 32, k: 32]
      %n = dot %a, %b + %ci over k : f32[i: 32, j: 32]
      yield %n, %n1
    }
    store C[i, j], %c
    store N[i], %nn
  }
}
"""

GATHER_INDEX_LOOP = """
module gi {
  input L: i32[4]
  input X: f32[4, 64]
  output Y: f32[4]
  kernel y grid(b: 4) axes(j: 16) {
    %n = load L[b] : i32
    %z = const 0.0 : f32[j: 16]
    %r = for t in 0..(%n + 15) // 16 carry(%c = %z) {
      %x = load X[b, t * 16 + j] where t * 16 + j < %n : f32[j: 16]
      %d = add %c, %x : f32[j: 16]
      yield %d
    }
    %s = reduce sum %r over j : f32
    store Y[b], %s
  }
}
"""

ODD_TILE = """
module od {
  input A: f32[12, 10]
  input B: f32[10, 6]
  output C: f32[12, 6]
  output R: f32[12]
  kernel c grid() axes(i: 12, j: 6, k: 10) {
    %a = load A[i, k] : f32[i: 12, k: 10]
    %b = load B[k, j] : f32[j: 6, k: 10]
    %c = dot %a, %b over k : f32[i: 12, j: 6]
    store C[i, j], %c
    %r = reduce max %a over k : f32[i: 12]
    store R[i], %r
  }
}
"""

SCALAR = """
module sc {
  input X: f64[4]
  output Y: f64[]
  output Z: bool[4]
  param eps: f64 = 0.5
  kernel y grid() axes(i: 4) {
    %x = load X[i] : f64[i: 4]
    %e = param eps : f64
    %s = reduce sum %x over i : f64
    %t = add %s, %e : f64
    store Y[], %t
    %g = gt %x, %e : bool[i: 4]
    store Z[i], %g
    %a = reduce any %g over i : bool
  }
}
"""
