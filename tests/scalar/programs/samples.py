"""Scalar programs as text, shared by the tests of this level."""
# ruff: noqa: E501 (the text form does not break lines)

SOFTMAX = """program softmax {
  input X: f16[R, 40]
  output Y: f16[R, 40]
  temp Y_max: f32[R]
  temp Y_sum: f32[R]
  param scale: f32 = 0.125
  param R: i32
  kernel Y_max {
    par i in 0..R {
      Y_max[i] = -inf
      red j in 0..40 {
        Y_max[i] max= cast<f32>(X[i, j]) * scale where j <= i
      }
    }
  }
  kernel Y_sum {
    par i in 0..R {
      Y_sum[i] = 0.0
      red j in 0..40 {
        Y_sum[i] sum= exp(cast<f32>(X[i, j]) * scale - Y_max[i]) where j <= i
      }
    }
  }
  kernel Y {
    par i in 0..R, j in 0..40 {
      Y[i, j] = select(j <= i, exp(cast<f32>(X[i, j]) * scale - Y_max[i]) / Y_sum[i], 0.0)
    }
  }
}
"""

TILED = """program matmul {
  input A: f16[33, 20]
  input B: f16[20, 17]
  output C: f32[33, 17]
  kernel C {
    local acc: f32[16, 8]
    local part: f32[16]
    grid bi in 0..3, bj in 0..3 {
      tile i in 0..16, j in 0..8 {
        acc[i, j] = 0.0
      }
      tile i in 0..16 {
        part[i] = 0.0
      }
      seq k0 in 0..min(bi * 8 + 3, 3) {
        tile i in 0..16, j in 0..8 {
          tile.red k in 0..8 {
            acc[i, j] sum= cast<f32>(A[bi * 16 + i, k0 * 8 + k]) * cast<f32>(B[k0 * 8 + k, bj * 8 + j]) where bi * 16 + i < 33 and bj * 8 + j < 17 and k0 * 8 + k < 20
          }
        }
      }
      tile i in 0..16, j in 0..8 {
        C[bi * 16 + i, bj * 8 + j] = acc[i, j] + part[i] where bi * 16 + i < 33 and bj * 8 + j < 17
      }
    }
  }
}
"""
