; Loops say how far they are unrolled.

; CASE: loops of warpgroups are not unrolled
; RUN: limit-unrolling
; COMPLETE:
; AGAIN
module t target sm_90a {
  input X: f32[8, 256]
  output Y: f32[256]
  kernel k grid 1 warps 8 min_blocks 1 consumers 2 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    %zero = const 0.0 : f32[i: 128] #i
    %sum = for t in 0..8 carry(%s = %zero) {
      %x = ld.global X[t, consumer * 128 + i] vec 1 : f32[i: 128] #i
      %n = add %s, %x : f32[i: 128] #i
      yield %n
    }
    st.global Y[consumer * 128 + i], %sum vec 1
  }
}
; CHECK: for t in 0..8 unroll 1 carry

; CASE: the compiler unrolls other loops as it likes
; RUN: limit-unrolling
; ARCH: sm_80
; UNCHANGED
module t target sm_80 {
  input X: f32[8, 128]
  output Y: f32[128]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    %zero = const 0.0 : f32[i: 128] #i
    %sum = for t in 0..8 carry(%s = %zero) {
      %x = ld.global X[t, i] vec 1 : f32[i: 128] #i
      %n = add %s, %x : f32[i: 128] #i
      yield %n
    }
    st.global Y[i], %sum vec 1
  }
}

; CASE: a scalar product of shared operands has four steps in its body
; RUN: limit-unrolling
; ARCH: sm_80
; COMPLETE: synchronize
; AGAIN
module t target sm_80 {
  input A: f32[8, 16]
  input B: f32[16, 8]
  output C: f32[8, 8]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #c = reg(n:2x1) lane(n:4x2, m:8x1) warp()
    layout #a = reg(k:4x1) lane(k:4x4, m:8x1) warp()
    layout #b = reg(n:4x1) lane(n:2x4, k:16x1) warp()
    smem s_a : f32[m: 8, k: 16] stages 1 swizzle 0 pad 0 @ 0
    smem s_b : f32[k: 16, n: 8] stages 1 swizzle 0 pad 0 @ 512
    cp.async s_a[0], A[m, k] vec 4 threads #a
    cp.async s_b[0], B[k, n] vec 4 threads #b
    cp.commit
    cp.wait 0
    %c = mma fma smem s_a[0], smem s_b[0] over k : f32[m: 8, n: 8] #c
    st.global C[m, n], %c vec 2
  }
}
; CHECK: mma fma smem s_a[0], smem s_b[0] over k unroll 4 :

; CASE: the loads of several steps are in flight at once where each step stores what it carries
; RUN: limit-unrolling
; ARCH: sm_80
; COMPLETE:
; AGAIN
module t target sm_80 {
  input X: f32[100, 128]
  output Y: f32[100, 128]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp(i:4x32)
    %zero = const 0.0 : f32[i: 128] #i
    %sum = for t in 0..100 carry(%s = %zero) {
      %x = ld.global X[t, i] vec 1 : f32[i: 128] #i
      %n = add %s, %x : f32[i: 128] #i
      st.global Y[t, i], %n vec 1
      yield %n
    }
  }
}
; CHECK: for t in 0..100 unroll 32 carry
