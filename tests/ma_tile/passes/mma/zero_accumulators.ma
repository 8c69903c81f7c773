; Accumulators start from zero by the instruction, and registers need no zeros then.

; CASE: two accumulators of one loop, and a zero that others read
; INPUT: gated.ma
; RUN: zero-accumulators
; COMPLETE:
; AGAIN
; CHECK: %zero = const 0.0
; CHECK: [[A:%[a-z_0-9]+]] = undefined : f32[i: 64, j: 128] #acc
; CHECK-NEXT: [[B:%[a-z_0-9]+]] = undefined : f32[i: 64, j: 128] #acc
; CHECK-NEXT: %c0, %c1 = for t in 0..2 carry(%x0 = [[A]], %x1 = [[B]]) {
; CHECK: %n0 = mma {{.*}} + %x0 over k zero_init t == 0 : f32
; CHECK: %n1 = mma {{.*}} + %x1 over k zero_init t == 0 : f32
; CHECK: max %c0, %zero

; CASE: a zero that nobody else reads goes
; INPUT: biased.ma
; RUN: zero-accumulators
; COMPLETE:
; CHECK-NOT: %zero = const
; CHECK: undefined : f32[i: 64, j: 128] #acc
; CHECK-NOT: %zero = const
; CHECK: zero_init t == 0

; CASE: only the first MMA of a chain starts from zero
; INPUT: biased.ma
; EDIT: yield %n0 => %n00 = mma wgmma.f16 smem a[consumer] swizzle 128, smem b0[0] swizzle 128 + %n0 over k : f32[i: 64, j: 128] #acc\nyield %n00
; RUN: zero-accumulators
; COMPLETE:
; CHECK: %n0 = mma {{.*}} + %x0 over k zero_init t == 0 : f32
; CHECK-NEXT: %n00 = mma {{.*}} + %n0 over k : f32

; CASE: a loop that starts elsewhere
; INPUT: biased.ma
; EDIT: for t in 0..2 => for t in i0 + 1..i0 + 2
; RUN: zero-accumulators
; COMPLETE:
; CHECK: for t in i0 + 1..i0 + 2
; CHECK: zero_init t == i0 + 1 :

; CASE: a loop that may not run keeps its zeros
; INPUT: biased.ma
; EDIT: grid 1 => grid 2
; EDIT: for t in 0..2 => for t in 0..i0
; RUN: zero-accumulators
; UNCHANGED

; CASE: an accumulator that is scaled in front of its MMA keeps its zeros
; INPUT: rescaled.ma
; RUN: zero-accumulators
; UNCHANGED

; CASE: an accumulator that is stored in each iteration keeps its zeros
; INPUT: biased.ma
; EDIT: yield %n0 => st.global D[i, j], %x0 vec 2\nyield %n0
; RUN: zero-accumulators
; UNCHANGED

; CASE: an accumulator that starts from one
; INPUT: biased.ma
; EDIT: const 0.0 => const 1.0
; RUN: zero-accumulators
; UNCHANGED

; CASE: an accumulator that starts from negative zero
; INPUT: biased.ma
; EDIT: const 0.0 => const -0.0
; RUN: zero-accumulators
; UNCHANGED

; CASE: an MMA of a warp keeps its zeros
; RUN: zero-accumulators
; ARCH: sm_80
; UNCHANGED
module warp target sm_80 {
  input A: f16[32, 16]
  input B: f16[16, 16]
  output C: f32[32, 16]
  kernel warp grid 1 warps 2 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #a = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #b = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    %zero = const 0.0 : f32[i: 32, n: 16] #acc
    cp.async s_a[0] swizzle 32, A[i, k] vec 8 threads #a
    cp.async s_b[0] swizzle 32, B[k, n] vec 8 threads #b
    cp.commit
    %c = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %zero over k : f32[i: 32, n: 16] #acc
    st.global C[i, n], %c vec 2
  }
}

; CASE: outside of loops, an MMA onto zeros has no accumulator
; RUN: zero-accumulators
; COMPLETE:
module alone target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel alone grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:8x8, i:1x64) lane(n:4x2, i:8x1) warp(i:4x16)
    smem sa : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sb : f16[k: 64, n: 64] stages 1 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    tma.load sa[0] swizzle 128, A[i, k]
    tma.load sb[0] swizzle 128, B[k, n]
    %c = mma wgmma.f16 smem sa[0] swizzle 128, smem sb[0] swizzle 128 + %zero over k : f32[i: 64, n: 64] #acc
    st.global C[i, n], %c vec 2
  }
}
; CHECK-NOT: const 0.0
; CHECK: %c = mma wgmma.f16 smem sa[0] swizzle 128, smem sb[0] swizzle 128 over k :
