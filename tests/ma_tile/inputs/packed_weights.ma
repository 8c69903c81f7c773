module packed target sm_90a {
  input X: f16[24, 1024]
  input Q: u8[256, 512]
  input s: f16[256, 8]
  output Y: f32[24, 256]
  kernel packed grid 2 warps 8 min_blocks 1 consumers 2 {
    let j0 = block
    layout #acc = reg(i:2x1, j:2x8, i:3x8, j:1x64) lane(i:4x2, j:8x1) warp(j:4x16)
    layout #a = reg(k:2x1, j:2x8, k:2x8, k:8x16, j:1x64) lane(k:4x2, j:8x1) warp(j:4x16)
    layout #words = reg(b:4x1, j:2x8, b:2x4, b:8x8, j:1x64) lane(*:4, j:8x1) warp(j:4x16)
    layout #j = reg(j:2x8, j:1x64) lane(*:4, j:8x1) warp(j:4x16)
    smem x : f16[i: 24, k: 128] stages 1 swizzle 128 pad 0 @ 0
    %zero = const 0.0 : f32[i: 24, j: 64] #acc
    %y = for t in 0..8 carry(%sum = %zero) {
      %q = ld.global Q[j0 * 128 + consumer * 64 + j, t * 64 + b] vec 4 : u8[j: 64, b: 64] #words
      %s = ld.global s[j0 * 128 + consumer * 64 + j, t] vec 1 : f16[j: 64] #j
      %w = unpack u4 %q over b into k less 8.0 times %s : f16[j: 64, k: 128] #a
      tma.load x[0] swizzle 128, X[i, t * 128 + k]
      %next = mma wgmma.f16 %w, smem x[0] swizzle 128 + %sum over k : f32[i: 24, j: 64] #acc
      yield %next
    }
    st.global Y[i, j0 * 128 + consumer * 64 + j], %y vec 1
  }
}
