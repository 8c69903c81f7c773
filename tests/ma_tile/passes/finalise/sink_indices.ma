; Indices are computed where they are first used.

; CASE: an index that is used after the loop
; RUN: sink-indices
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; AGAIN
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %row = index i : i32[i: 32, n: 16] #acc_i_n
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %f = cast %row : f32[i: 32, n: 16] #acc_i_n
    %sum = add %c, %f : f32[i: 32, n: 16] #acc_i_n
    st.shared out_C[0], %sum vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: %c = for t in 0..4
; CHECK: yield %next
; CHECK-NEXT: }
; CHECK-NEXT: %row = index i
; CHECK-NEXT: %f = cast %row

; CASE: an index in front of its first use
; RUN: sink-indices
; ARCH: sm_80
; UNCHANGED
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %row = index i : i32[i: 32, n: 16] #acc_i_n
    %f = cast %row : f32[i: 32, n: 16] #acc_i_n
    %sum = add %c, %f : f32[i: 32, n: 16] #acc_i_n
    st.shared out_C[0], %sum vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}

; CASE: in front of a loop that reads it, inside of the loop, after the loop, and after everything
; RUN: sink-indices
; ARCH: sm_80
; COMPLETE:
; AGAIN
module m target sm_80 {
  input X: f32[32, 32]
  output Y: f32[32, 32]
  kernel m grid 1 warps 1 min_blocks 1 {
    layout #t = reg(j:32x1) lane(i:32x1) warp(*:1)
    %i = index i : i32[i: 32, j: 32] #t
    %unused = index j : i32[i: 32, j: 32] #t
    %j = index j : i32[i: 32, j: 32] #t
    %x = ld.global X[i, j] vec 1 : f32[i: 32, j: 32] #t
    %s = for k in 0..4 carry(%acc = %x) {
      %n = index j + k : i32[i: 32, j: 32] #t
      %d = add %acc, %acc : f32[i: 32, j: 32] #t
      %f = cast %n : f32[i: 32, j: 32] #t
      %g = cast %j : f32[i: 32, j: 32] #t
      %e = add %d, %f : f32[i: 32, j: 32] #t
      yield %e
    }
    %h = cast %i : f32[i: 32, j: 32] #t
    %y = add %s, %h : f32[i: 32, j: 32] #t
    st.global Y[i, j], %y vec 1
  }
}
; CHECK: %x = ld.global
; CHECK: %j = index j :
; CHECK: %s = for
; CHECK: %d = add
; CHECK: %n = index j + k :
; CHECK: %f = cast %n
; CHECK: %e = add
; CHECK: %i = index i :
; CHECK: %h = cast %i
; CHECK: %y = add
; CHECK: %unused = index j :
