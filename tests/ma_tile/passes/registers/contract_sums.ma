; Products are added to sums by multiply-adds.

; CASE: squares of differences, whose product is in the layout of the terms
; RUN: contract-sums
; COMPLETE:
; TOLERANCE: 1e-6
; AGAIN
module t target sm_80 {
  input X: f32[64]
  input Y: f32[64, 4]
  output Z: f32[64]
  kernel t grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[block * 32 + i] vec 1 : f32[i: 32] #i
    %y = ld.global Y[block * 32 + i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %d = sub %x, %y : f32[i: 32, k: 4] #i_k
    %p = mul %d, %d : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    st.global Z[block * 32 + i], %s vec 1
  }
}
; CHECK: %d = sub
; CHECK-NEXT: %s = reduce sum %d times %d over k : f32[i: 32] #i

; CASE: a condition becomes one of the sum, the whole factor is that of the terms, and lanes combine what they have
; RUN: contract-sums
; COMPLETE:
; TOLERANCE: 1e-6
module t target sm_80 {
  input X: f32[32, 4]
  input W: f32[4]
  output Z: f32[16]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #w = reg(k:4x1) lane(*:32) warp()
    layout #i_h_k = reg(k:4x1) lane(h:2x1, i:16x1) warp()
    layout #i = reg() lane(*:2, i:16x1) warp()
    %x = ld.global X[i * 2 + h, k] vec 4 : f32[i: 16, h: 2, k: 4] #i_h_k
    %w = ld.global W[k] vec 4 : f32[k: 4] #w
    %p = mul %w, %x : f32[i: 16, h: 2, k: 4] #i_h_k
    %c = index i + k < 14 : bool[i: 16, h: 2, k: 4] #i_h_k
    %zero = const 0.0 : f32[i: 16, h: 2, k: 4] #i_h_k
    %t = select %c, %p, %zero : f32[i: 16, h: 2, k: 4] #i_h_k
    %s = reduce sum %t over h, k : f32[i: 16] #i
    st.global Z[i], %s vec 1
  }
}
; CHECK-NOT: mul
; CHECK-NOT: select
; CHECK: %s = reduce sum %x times %w where %c over h, k : f32[i: 16] #i

; CASE: the printed sum has one multiply-add for each term
; RUN: contract-sums
; PRINT: cuda
module t target sm_80 {
  input X: f32[32, 4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %p = mul %x, %x : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}
; CHECK: fmaf(x[r], x[r], s

; CASE: the printed sum is selected where terms are converted, so that no conversion stands behind a branch
; RUN: contract-sums
; PRINT: cuda
module t target sm_80 {
  input X: f16[32, 4]
  input W: f32[4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #w = reg(k:4x1) lane(*:32) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %h = ld.global X[i, k] vec 4 : f16[i: 32, k: 4] #i_k
    %x = cast %h : f32[i: 32, k: 4] #i_k
    %w = ld.global W[k] vec 4 : f32[k: 4] #w
    %p = mul %w, %x : f32[i: 32, k: 4] #i_k
    %c = index i + k < 34 : bool[i: 32, k: 4] #i_k
    %zero = const 0.0 : f32[i: 32, k: 4] #i_k
    %t = select %c, %p, %zero : f32[i: 32, k: 4] #i_k
    %s = reduce sum %t over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}
; CHECK: const float s_before = r == 0 ? 0.0f : s[0];
; CHECK: const float s_after = r == 0 ? __fmul_rn(x[r], w[r]) : fmaf(x[r], w[r], s[0]);
; CHECK: s[0] = c[r] ? s_after : s_before;

; CASE: a product that something else reads, and sums that are compared with each other
; RUN: contract-sums
; UNCHANGED
module t target sm_80 {
  input X: f32[32, 4]
  output Z: f32[32]
  output B: bool[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %p = mul %x, %x : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    %q = mul %x, %x : f32[i: 32, k: 4] #i_k
    %m = reduce max %q over k : f32[i: 32] #i
    %b = lt %s, %m : bool[i: 32] #i
    st.global Z[i], %s vec 1
    st.global B[i], %b vec 1
  }
}

; CASE: every product rounds under strict precision
; RUN: contract-sums {"precision": "strict"}
; UNCHANGED
module t target sm_80 {
  input X: f32[32, 4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %p = mul %x, %x : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}

; CASE: the factors of long terms have more registers than their products
; RUN: contract-sums
; UNCHANGED
module t target sm_80 {
  input X: f32[32, 4]
  input Y: f32[32, 4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %y = ld.global Y[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %e = exp %x : f32[i: 32, k: 4] #i_k
    %l = log %y : f32[i: 32, k: 4] #i_k
    %p = mul %e, %l : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}

; CASE: such terms keep their condition
; RUN: contract-sums
; UNCHANGED
module t target sm_80 {
  input X: f32[32, 4]
  input Y: f32[32, 4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %y = ld.global Y[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %e = exp %x : f32[i: 32, k: 4] #i_k
    %l = log %y : f32[i: 32, k: 4] #i_k
    %p = mul %e, %l : f32[i: 32, k: 4] #i_k
    %c = index i + k < 14 : bool[i: 32, k: 4] #i_k
    %zero = const 0.0 : f32[i: 32, k: 4] #i_k
    %t = select %c, %p, %zero : f32[i: 32, k: 4] #i_k
    %s = reduce sum %t over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}

; CASE: short terms have a multiply-add, although their factors have more registers
; RUN: contract-sums
; COMPLETE:
; TOLERANCE: 1e-6
module t target sm_80 {
  input X: f32[32, 4]
  input Y: f32[32, 4]
  output Z: f32[32]
  kernel t grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    %x = ld.global X[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %y = ld.global Y[i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %a = abs %x : f32[i: 32, k: 4] #i_k
    %p = mul %a, %y : f32[i: 32, k: 4] #i_k
    %s = reduce sum %p over k : f32[i: 32] #i
    st.global Z[i], %s vec 1
  }
}
; CHECK: %s = reduce sum %a times %y over k : f32[i: 32] #i

; CASE: a number of cases is a sum under a condition, although computed numbers are compared
; RUN: contract-sums
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[64]
  input Y: f32[64, 4]
  output Z: f32[64]
  kernel t grid 2 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #i_k = reg(k:4x1) lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %x = ld.global X[block * 32 + i] vec 1 : f32[i: 32] #i
    %y = ld.global Y[block * 32 + i, k] vec 4 : f32[i: 32, k: 4] #i_k
    %one = const 1.0 : f32 #one
    %zero = const 0.0 : f32 #one
    %c = lt %x, %y : bool[i: 32, k: 4] #i_k
    %t = select %c, %one, %zero : f32[i: 32, k: 4] #i_k
    %s = reduce sum %t over k : f32[i: 32] #i
    %p = mul %y, %y : f32[i: 32, k: 4] #i_k
    %q = reduce sum %p over k : f32[i: 32] #i
    %r = add %s, %q : f32[i: 32] #i
    st.global Z[block * 32 + i], %r vec 1
  }
}
; CHECK: %t = const 1.0 : f32[i: 32, k: 4] #i_k
; CHECK: %s = reduce sum %t where %c over k : f32[i: 32] #i
; CHECK: %q = reduce sum %p over k : f32[i: 32] #i
