"""Scalar programs in tiled form, in text, shared by the tests of the lowering and the passes."""

HEAD = """
program small {
  input Q: f16[1, 2, 40, 16]
  input K: f16[1, 1, 40, 16]
  input V: f16[1, 1, 40, 16]
  output O: f16[1, 2, 40, 16]
  kernel O {
    local S: f32[16, 8]
    local m: f32[16]
    local mn: f32[16]
    local l: f32[16]
    local acc: f32[16, 16]
    grid b in 0..1, h in 0..2, i0 in 0..3 {
      tile i in 0..16 { m[i] = -inf }
      tile i in 0..16 { l[i] = 0.0 }
      tile i in 0..16 { tile d in 0..16 { acc[i, d] = 0.0 } }
"""

BODY = """
        tile i in 0..16 { tile j in 0..8 { S[i, j] = 0.0 } }
        tile i in 0..16 { tile j in 0..8 { tile.red k in 0..16 {
          S[i, j] sum= cast<f32>(Q[b, h, i0 * 16 + i, k]) * cast<f32>(K[b, h // 2, j0 * 8 + j, k]) GUARD } } }
        tile i in 0..16 { mn[i] = m[i] }
        tile i in 0..16 { tile.red j in 0..8 { mn[i] max= S[i, j] * 0.25 GUARD } }
        tile i in 0..16 { l[i] = l[i] * exp(m[i] - mn[i]) }
        tile i in 0..16 { tile d in 0..16 { acc[i, d] = acc[i, d] * exp(m[i] - mn[i]) } }
        tile i in 0..16 { tile.red j in 0..8 { l[i] sum= exp(S[i, j] * 0.25 - mn[i]) GUARD } }
        tile i in 0..16 { tile d in 0..16 { tile.red j in 0..8 {
          acc[i, d] sum= cast<f32>(narrow<f16>(exp(S[i, j] * 0.25 - mn[i])))
            * cast<f32>(V[b, h // 2, j0 * 8 + j, d]) GUARD } } }
        tile i in 0..16 { m[i] = mn[i] }
"""

TAIL = """
      tile i in 0..16 { tile d in 0..16 { O[b, h, i0 * 16 + i, d] = acc[i, d] / l[i] where i0 * 16 + i < 40 } }
    }
  }
}
"""

FULL = BODY.replace("GUARD", "where i0 * 16 + i < 40")
MASKED = BODY.replace("GUARD", "where i0 * 16 + i < 40 and j0 * 8 + j <= i0 * 16 + i")
ATTENTION = (
    f"{HEAD}      seq j0 in 0..2 * i0 {{{FULL}      }}\n"
    f"      seq j0 in 2 * i0..min(2 * i0 + 2, 5) {{{MASKED}      }}\n{TAIL}"
)

ROWWISE = """
program rows {
  input X: f32[6, 13]
  input W: f16[13]
  output Y: f16[6, 13]
  output T: f32[6]
  param eps: f32 = 1e-05
  kernel rows {
    local s: f32[4]
    local t: f32[4]
    grid r0 in 0..2 {
      tile r in 0..4 { s[r] = 0.0 }
      tile r in 0..4 { t[r] = -inf where r0 * 4 + r < 6 }
      tile r in 0..4 { tile.red c in 0..16 {
        s[r] sum= X[r0 * 4 + r, c] * X[r0 * 4 + r, c] where r0 * 4 + r < 6 and c < 13 } }
      tile r in 0..4 { tile.red c in 0..16 { t[r] max= X[r0 * 4 + r, c] + 1.0 where r0 * 4 + r < 6 and c < 13 } }
      tile r in 0..4 { tile c in 0..16 {
        Y[r0 * 4 + r, c] = X[r0 * 4 + r, c] * rsqrt(s[r] / 13.0 + eps) * cast<f32>(W[c])
          where r0 * 4 + r < 6 and c < 13 } }
      tile r in 0..4 { T[r0 * 4 + r] = t[r] where r0 * 4 + r < 6 }
    }
  }
}
"""

#: A product over blocks, the last of which is masked and a loop of its own.
CHAIN = """
program p {
  input A: f16[16, 37]
  input B: f16[37, 16]
  output C: f32[16, 16]
  kernel k {
    local acc: f32[16, 16]
    tile i in 0..16, j in 0..16 { acc[i, j] = 0.0 }
    seq k0 in 0..2 { tile i in 0..16, j in 0..16 { tile.red k in 0..16 {
      acc[i, j] sum= cast<f32>(A[i, k0 * 16 + k]) * cast<f32>(B[k0 * 16 + k, j]) } } }
    seq k0 in 2..3 { tile i in 0..16, j in 0..16 { tile.red k in 0..16 {
      acc[i, j] sum= cast<f32>(A[i, k0 * 16 + k]) * cast<f32>(B[k0 * 16 + k, j]) where k0 * 16 + k < 37 } } }
    tile i in 0..16, j in 0..16 { C[i, j] = acc[i, j] }
  }
}
"""
