"""VR-tile modules in text form, shared by the tests of this folder."""

ATTENTION = """
module small_attention {
  input Q: f16[1, 2, 32, 16]
  input K: f16[1, 1, 32, 16]
  input V: f16[1, 1, 32, 16]
  output O: f16[1, 2, 32, 16]
  kernel O grid(b: 1, h: 2, i0: 2) axes(i: 16, d: 16, j: 8, k: 16) {
    %scale = const 0.25 : f32
    %m0 = const -inf : f32[i: 16]
    %l0 = const 0.0 : f32[i: 16]
    %o0 = const 0.0 : f32[i: 16, d: 16]
    %q = load Q[b, h, i0 * 16 + i, k] : f16[i: 16, k: 16]
    %m, %l, %o = for j0 in 0..2 * i0 + 2 chain c0 carry(%mi = %m0, %li = %l0, %oi = %o0) {
      %kt = load K[b, h // 2, j0 * 8 + j, k] where j0 * 8 + j < 32 : f16[j: 8, k: 16]
      %s = dot %q, %kt over k : f32[i: 16, j: 8]
      %x = mul %s, %scale : f32[i: 16, j: 8]
      %c = index j0 * 8 + j <= i0 * 16 + i : bool[i: 16, j: 8]
      %low = const -inf : f32
      %y = select %c, %x, %low : f32[i: 16, j: 8]
      %mr = reduce max %y over j : f32[i: 16]
      %mn = max %mi, %mr : f32[i: 16]
      %t = sub %y, %mn : f32[i: 16, j: 8]
      %p = exp %t : f32[i: 16, j: 8]
      %u = sub %mi, %mn : f32[i: 16]
      %a = exp %u : f32[i: 16]
      %ps = reduce sum %p over j : f32[i: 16]
      %la = mul %li, %a : f32[i: 16]
      %ln = add %la, %ps : f32[i: 16]
      %ph = narrow %p : f16[i: 16, j: 8]
      %v = load V[b, h // 2, j0 * 8 + j, d] where j0 * 8 + j < 32 : f16[d: 16, j: 8]
      %oa = mul %oi, %a : f32[i: 16, d: 16]
      %on = dot %ph, %v + %oa over j : f32[i: 16, d: 16]
      yield %mn, %ln, %on
    }
    %r = div %o, %l : f32[i: 16, d: 16]
    store O[b, h, i0 * 16 + i, d], %r where i0 * 16 + i < 32
  }
}
"""

GATHER = """
module gather {
  input T: i32[5]
  input E: f32[7, 6]
  output O: f32[5, 6]
  output S: f32[5]
  param eps: f32 = 1e-05
  kernel k0 grid(i0: 2) axes(i: 4, d: 8) {
    %t = load T[i0 * 4 + i] where i0 * 4 + i < 5 : i32[i: 4]
    %e = load E[%t, d] where %t >= 0 and %t < 7 and d < 6 : f32[i: 4, d: 8]
    %eps = param eps : f32
    %x = add %e, %eps : f32[i: 4, d: 8]
    store O[i0 * 4 + i, d], %x where i0 * 4 + i < 5 and d < 6
    %s = reduce sum %e over d : f32[i: 4]
    store S[i0 * 4 + i], %s where i0 * 4 + i < 5
  }
}
"""
