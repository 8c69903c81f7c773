; One ldmatrix reads the fragments of two column tiles of a right operand.

; CASE: two column tiles of an operand in shared memory
; RUN: pair-fragments
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
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[t % 2] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: mma m16n8k16.f16 {{.*}} over k paired :

; CASE: fragments of one k-step
; The two column tiles of the right operand are paired; a row tile of the left one fills an instruction.
; RUN: pair-fragments
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:1x16, i:1x16) lane(k:4x2, i:8x1) warp(i:2x16, *:1)
    layout #b = reg(k:2x1, k:2x8, k:1x16, n:2x8) lane(k:4x2, n:8x1) warp(*:2, n:1x16)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 2 swizzle 32 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2] swizzle 32, B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %fa = ld.matrix s_a[t % 2] swizzle 32 at k 0 : f16[i: 32, k: 16] #a
      %fb = ld.matrix s_b[t % 2] swizzle 32 at k 0 : f16[k: 16, n: 16] #b
      %next = mma m16n8k16.f16 %fa, %fb + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: ld.matrix s_a[t % 2] swizzle 32 at k 0 : f16[i: 32, k: 16]
; CHECK-NEXT: ld.matrix s_b[t % 2] swizzle 32 at k 0 paired : f16[k: 16, n: 16]
; CHECK-NEXT: mma m16n8k16.f16 %fa, %fb + %acc over k :

; CASE: one column tile, and another type
; RUN: pair-fragments
; ARCH: sm_80
; UNCHANGED
module product target sm_80 {
  input A: f16[32, 64]
  input B: f16[64, 8]
  output C: f32[32, 8]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:1x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x8)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(k:16x1, *:2) warp(*:2)
    layout #a = reg(k:2x1, i:2x8, k:2x8, k:1x16, i:1x16) lane(k:4x2, i:8x1) warp(i:2x16, *:1)
    layout #b = reg(k:2x1, k:2x8, k:1x16, n:1x8) lane(k:4x2, n:8x1) warp(*:2, n:1x8)
    layout #n_i = reg(n:2x1, i:2x16) lane(n:4x2, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 8] stages 2 swizzle 0 pad 0 @ 2048
    smem out_C : f32[i: 32, n: 8] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 8] #acc_i_n
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #copy_i_k
    cp.async s_b[0], B[k, n] vec 8 threads #copy_k_n
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[i, t * 16 + k + 16] vec 8 threads #copy_i_k
        cp.async s_b[(t + 1) % 2], B[t * 16 + k + 16, n] vec 8 threads #copy_k_n
      }
      cp.commit
      %fa = ld.matrix s_a[t % 2] swizzle 32 at k 0 : f16[i: 32, k: 16] #a
      %fb = ld.matrix s_b[t % 2] at k 0 : f16[k: 16, n: 8] #b
      %next = mma m16n8k16.f16 %fa, %fb + %acc over k : f32[i: 32, n: 8] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 2 : f32[i: 32, n: 8] #n_i
    st.global C[i, n], %c_rows vec 2
  }
}
