module product target sm_90a {
  input A: f16[512, 192]
  input B: f16[64, 192]
  output C: f16[512, 64]
  kernel product grid 8 warps 4 min_blocks 1 {
    let i0 = block // 1
    let j0 = block % 1
    layout #acc = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    smem a : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem b : f16[j: 64, k: 64] stages 1 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, j: 64] #acc
    %c = for t in 0..3 carry(%acc = %zero) {
      tma.load a[0] swizzle 128, A[i0 * 64 + i, t * 64 + k]
      tma.load b[0] swizzle 128, B[j0 * 64 + j, t * 64 + k]
      %next = mma wgmma.f16 smem a[0] swizzle 128, smem b[0] swizzle 128 + %acc over k : f32[i: 64, j: 64] #acc
      yield %next
    }
    st.global C[i0 * 64 + i, j0 * 64 + j], %c where i0 * 64 + i < 512 vec 2
  }
}
