; The last wait for an mbarrier is repeated before a volatile wait for warpgroup MMAs.

; CASE: a wait in the same block of ops
; RUN: repeat-waits
; COMPLETE:
; AGAIN
module t target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, m:2x8, n:8x8, m:1x64) lane(n:4x2, m:8x1) warp(m:4x16)
    smem a : f16[m: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem b : f16[k: 64, n: 64] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.expect full[0] 16384
    tma.load a[0] swizzle 128, A[m, k] mbar full[0]
    tma.load b[0] swizzle 128, B[k, n] mbar full[0]
    mbar.wait full[0] parity 0
    wg.fence
    %c = mma wgmma.f16 smem a[0] swizzle 128, smem b[0] swizzle 128 over k async : f32[m: 64, n: 64] #acc
    wg.commit
    wg.wait 0 volatile %c
    st.global C[m, n], %c vec 2
  }
}
; CHECK: mbar.wait full[0] parity 0
; CHECK-NEXT: wg.fence
; CHECK-NEXT: mma wgmma.f16
; CHECK-NEXT: wg.commit
; CHECK-NEXT: mbar.wait full[0] parity 0
; CHECK-NEXT: wg.wait 0 volatile %c

; CASE: a wait that is not volatile
; RUN: repeat-waits
; UNCHANGED
module t target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, m:2x8, n:8x8, m:1x64) lane(n:4x2, m:8x1) warp(m:4x16)
    smem a : f16[m: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem b : f16[k: 64, n: 64] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    mbar.expect full[0] 16384
    tma.load a[0] swizzle 128, A[m, k] mbar full[0]
    tma.load b[0] swizzle 128, B[k, n] mbar full[0]
    mbar.wait full[0] parity 0
    wg.fence
    %c = mma wgmma.f16 smem a[0] swizzle 128, smem b[0] swizzle 128 over k async : f32[m: 64, n: 64] #acc
    wg.commit
    wg.wait 0 %c
    st.global C[m, n], %c vec 2
  }
}

; CASE: the state of the pipeline has advanced
; RUN: repeat-waits
; UNCHANGED
module t target sm_90a {
  input A: f16[64, 64]
  input B: f16[64, 64]
  output C: f32[64, 64]
  kernel k grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, m:2x8, n:8x8, m:1x64) lane(n:4x2, m:8x1) warp(m:4x16)
    smem a : f16[m: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem b : f16[k: 64, n: 64] stages 1 swizzle 128 pad 0 @ 8192
    mbar full stages 1 arrivals 1 @ 16384
    pipeline p stages 1
    mbar.expect full[0] 16384
    tma.load a[0] swizzle 128, A[m, k] mbar full[0]
    tma.load b[0] swizzle 128, B[k, n] mbar full[0]
    mbar.wait full[0] parity p_phase
    advance p
    wg.fence
    %c = mma wgmma.f16 smem a[0] swizzle 128, smem b[0] swizzle 128 over k async : f32[m: 64, n: 64] #acc
    wg.commit
    wg.wait 0 volatile %c
    st.global C[m, n], %c vec 2
  }
}
