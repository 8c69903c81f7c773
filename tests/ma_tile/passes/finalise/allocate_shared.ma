; Shared buffers get addresses: buffers that are in use at the same time do not overlap, others may.

; CASE: operands of one product lie apart, the result takes their place
; RUN: allocate-shared
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
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 0
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
; CHECK: smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
; CHECK-NEXT: smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
; CHECK-NEXT: smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0

; CASE: buffers with addresses keep them
; RUN: allocate-shared
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

; CASE: more than the target has is an error
; RUN: allocate-shared {"limit": 1024}
; ARCH: sm_80
; ERROR: shared memory
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
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 0
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

; CASE: mbarriers have 8 bytes for each stage, after the buffers
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; EDIT: mbar full_k stages 3 arrivals 1 @ 65552 => mbar full_k stages 3 arrivals 1 @ 80000
; RUN: allocate-shared
; COMPLETE: synchronize
; CHECK: smem q : f16[i: 64, d: 64] stages 2 {{.*}} @ 49152
; CHECK: smem k : f16[j: 64, d: 64] stages 3 {{.*}} @ 0
; CHECK: smem v : f16[j: 64, e: 64] stages 3 {{.*}} @ 24576
; CHECK: mbar full_q stages 1 arrivals 1 @ 65536
; CHECK-NEXT: mbar empty_q stages 1 arrivals 8 @ 65544
; CHECK-NEXT: mbar full_k stages 3 arrivals 1 @ 65552
; CHECK-NEXT: mbar empty_k stages 3 arrivals 8 @ 65576
; CHECK-NEXT: mbar full_v stages 3 arrivals 1 @ 65600
; CHECK-NEXT: mbar empty_v stages 3 arrivals 8 @ 65624
