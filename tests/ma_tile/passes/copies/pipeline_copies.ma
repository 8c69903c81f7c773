; Copies into shared memory run stages ahead of the MMAs that read them, through a pipeline of buffers.

; CASE: two stages: the copies of the next iteration
; RUN: pipeline-copies {"stages": 2}
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
; CHECK: smem s_a : f16[i: 32, k: 16] stages 2
; CHECK: smem s_b : f16[k: 16, n: 16] stages 2
; CHECK: cp.async s_a[0] {{.*}}, A[i, k]
; CHECK-NEXT: cp.async s_b[0] {{.*}}, B[k, n]
; CHECK-NEXT: cp.commit
; CHECK-NEXT: for t in 0..4
; CHECK-NEXT: if t < 3 {
; CHECK-NEXT: cp.async s_a[(t + 1) % 2] {{.*}}, A[i, t * 16 + k + 16]
; CHECK-NEXT: cp.async s_b[(t + 1) % 2] {{.*}}, B[t * 16 + k + 16, n]
; CHECK-NEXT: }
; CHECK-NEXT: cp.commit
; CHECK-NEXT: mma {{.*}} smem s_a[t % 2] {{.*}} smem s_b[t % 2]

; CASE: three stages: two iterations ahead
; RUN: pipeline-copies {"stages": 3}
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
; CHECK: smem s_a : f16[i: 32, k: 16] stages 3
; CHECK: cp.async s_a[0]
; CHECK: cp.commit
; CHECK: cp.async s_a[1]
; CHECK: cp.commit
; CHECK: for t in 0..4
; CHECK-NEXT: if t < 2 {
; CHECK-NEXT: cp.async s_a[(t + 2) % 3]
; CHECK: mma {{.*}} smem s_a[t % 3]

; CASE: no stages: copies stay where they are
; RUN: pipeline-copies {"stages": 0}
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

; CASE: a buffer that is read after the loop keeps its one stage
; RUN: pipeline-copies {"stages": 2}
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
    %last = ld.shared s_a[0] swizzle 32 vec 8 : f16[i: 32, k: 16] #copy_i_k
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
; CHECK: smem s_a : f16[i: 32, k: 16] stages 1
; CHECK: smem s_b : f16[k: 16, n: 16] stages 2
; CHECK: cp.async s_b[0] {{.*}}, B[k, n]
; CHECK: for t in 0..4
; CHECK: cp.async s_a[0] {{.*}}, A[i, t * 16 + k]
; CHECK: mma {{.*}} smem s_a[0] {{.*}} smem s_b[t % 2]

; CASE: copies with a mask keep it
; RUN: pipeline-copies {"stages": 2}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
module product target sm_80 {
  input A: f16[32, 56]
  input B: f16[64, 16]
  output C: f32[32, 16]
  kernel product grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %c = for t in 0..4 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] where t * 16 + k < 56 vec 8 threads #copy_i_k
      cp.commit
      cp.async s_b[0] swizzle 32, B[t * 16 + k, n] vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
; CHECK: cp.async s_a[0] {{.*}}, A[i, k] where k < 56 vec 8
; CHECK: cp.async s_a[(t + 1) % 2] {{.*}}, A[i, t * 16 + k + 16] where t * 16 + k < 40 vec 8

; CASE: an index that a copy needs is loaded an iteration before the copy
; INPUT: gathered.ma
; RUN: pipeline-copies {"stages": 2}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; CHECK: smem s_b : f16[k: 16, n: 16] stages 2
; CHECK: %n = ld.global length[0]
; CHECK: %[[FIRST:.*]] = ld.global page[0]
; CHECK: cp.async s_b[0] {{.*}}, B[%[[FIRST]] * 16 + k, n] where %[[FIRST]] < 6
; CHECK: %[[SECOND:.*]] = ld.global page[1]
; CHECK: for t in 0..2 {{.*}}carry({{.*}}%[[NOW:[a-z_0-9]*]] = %[[SECOND]])
; CHECK-NEXT: cp.async s_a[(t + 1) % 2]
; CHECK-NEXT: cp.async s_b[(t + 1) % 2] {{.*}}, B[%[[NOW]] * 16 + k, n] where %[[NOW]] < 6 and (t < 1 or t * 16 + k + 17 <= %n)
; CHECK: %[[NEXT:.*]] = ld.global page[t + 2] where t < 2
; CHECK: yield {{.*}}, %[[NEXT]]
; CHECK: for t in 2..4
; CHECK-NEXT: if t < 3 {
; CHECK-NEXT: cp.async s_a
; CHECK-NEXT: cp.async s_b[{{.*}}B[%[[LAST:[a-z_0-9]*]] * 16 + k, n] where %[[LAST]] < 6 and

; CASE: one stage: an index that a copy needs is loaded with it
; INPUT: gathered.ma
; RUN: pipeline-copies {"stages": 1}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; CHECK: for t in 0..2
; CHECK: %[[AHEAD:.*]] = ld.global page[t + 1]
; CHECK-NEXT: cp.async s_b[0] {{.*}}, B[%[[AHEAD]] * 16 + k, n]

; CASE: a volatile load of an index stays, and the copy with it
; INPUT: gathered.ma
; EDIT: page[t] vec 1 => page[t] vec 1 volatile
; RUN: pipeline-copies {"stages": 2}
; ARCH: sm_80
; COMPLETE: allocate-shared, synchronize
; CHECK: smem s_a : f16[i: 32, k: 16] stages 2
; CHECK: smem s_b : f16[k: 16, n: 16] stages 1
; CHECK: for t in 0..2
; CHECK: cp.async s_b[0]
