; Fragments that no op reads go, and layouts and shared buffers that no op uses.

; CASE: a chain of fragments that only an unread buffer takes, a layout and a buffer
; RUN: dead-fragments
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
    layout #unused = reg(n:4x1, i:4x8) lane(n:4x4, i:8x1) warp(i:1x32, n:1x16)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    smem unused : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 8192
    smem unloaded : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 16384
    %unread = const 1.0 : f32[i: 32, n: 16] #acc_i_n
    %from_unread = neg %unread : f32[i: 32, n: 16] #acc_i_n
    st.shared unloaded[0], %from_unread vec 2
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK-NOT: layout #unused
; CHECK: smem s_a
; CHECK-NOT: smem unused
; CHECK-NOT: unloaded
; CHECK-NOT: %unread
; CHECK: %zero = const
; CHECK-NOT: %from_unread
; CHECK: st.global C

; CASE: stores, copies and what they read stay
; RUN: dead-fragments
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
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
