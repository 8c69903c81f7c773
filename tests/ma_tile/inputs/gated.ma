module fused target sm_90a {
  input A: f16[128, 128]
  input B0: f16[128, 128]
  input B1: f16[128, 128]
  input bias: f16[128]
  input scale: f32[128]
  input R: f16[128, 128]
  output C: f16[128, 128]
  output D: f32[128, 128]
  kernel fused grid 1 warps 8 min_blocks 1 consumers 2 {
    let i0 = block // 1
    let j0 = block % 1
    layout #acc = reg(j:2x1, i:2x8, j:16x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #row = reg(i:2x8, i:1x64) lane(*:4, i:8x1) warp(i:4x16)
    layout #col = reg(j:2x1, j:16x8) lane(j:4x2, *:8) warp(*:4)
    smem a : f16[i: 64, k: 64] stages 2 swizzle 128 pad 0 @ 0
    smem b0 : f16[k: 64, j: 128] stages 1 swizzle 128 pad 0 @ 16384
    smem b1 : f16[k: 64, j: 128] stages 1 swizzle 128 pad 0 @ 32768
    %zero = const 0.0 : f32[i: 64, j: 128] #acc
    %c0, %c1 = for t in 0..2 carry(%x0 = %zero, %x1 = %zero) {
      tma.load a[consumer] swizzle 128, A[i0 * 128 + consumer * 64 + i, t * 64 + k]
      tma.load b0[0] swizzle 128, B0[t * 64 + k, j0 * 128 + j]
      tma.load b1[0] swizzle 128, B1[t * 64 + k, j0 * 128 + j]
      %n0 = mma wgmma.f16 smem a[consumer] swizzle 128, smem b0[0] swizzle 128 + %x0 over k : f32[i: 64, j: 128] #acc
      %n1 = mma wgmma.f16 smem a[consumer] swizzle 128, smem b1[0] swizzle 128 + %x1 over k : f32[i: 64, j: 128] #acc
      yield %n0, %n1
    }
    %least = max %c0, %zero : f32[i: 64, j: 128] #acc
    %h = mul %least, %c1 : f32[i: 64, j: 128] #acc
    st.global C[i0 * 128 + consumer * 64 + i, j0 * 128 + j], %h where i0 * 128 + consumer * 64 + i < 128 and j0 * 128 + j < 128 vec 2
    %d = add %h, %h : f32[i: 64, j: 128] #acc
    st.global D[i0 * 128 + consumer * 64 + i, j0 * 128 + j], %d where i0 * 128 + consumer * 64 + i < 128 and j0 * 128 + j < 128 vec 2
  }
}
