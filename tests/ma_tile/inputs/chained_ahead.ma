module chained target sm_90a {
  input Q: f16[256, 64]
  input K: f16[192, 64]
  input V: f16[192, 64]
  output O: f16[256, 64]
  kernel chained grid 2 warps 8 min_blocks 1 consumers 2 {
    let i0 = block
    layout #s = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #o = reg(e:2x1, i:2x8, e:8x8, i:1x64) lane(e:4x2, i:8x1) warp(i:4x16)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:4x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    smem q : f16[i: 64, d: 64] stages 2 swizzle 128 pad 0 @ 0
    smem k : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 16384
    smem v : f16[j: 64, e: 64] stages 1 swizzle 128 pad 0 @ 24576
    %zero = const 0.0 : f32[i: 64, e: 64] #o
    tma.load q[consumer] swizzle 128, Q[i0 * 128 + consumer * 64 + i, d]
    tma.load k[0] swizzle 128, K[0 * 64 + j, d]
    %s0 = mma wgmma.f16 smem q[consumer] swizzle 128, smem k[0] swizzle 128 over d : f32[i: 64, j: 64] #s
    %o1, %s1 = for t in 0..3 - 1 carry(%acc = %zero, %s = %s0) {
      tma.load k[0] swizzle 128, K[(t + 1) * 64 + j, d]
      %sn = mma wgmma.f16 smem q[consumer] swizzle 128, smem k[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      %sh = cast %s : f16[i: 64, j: 64] #s
      %sa = convert %sh : f16[i: 64, j: 64] #p
      tma.load v[0] swizzle 128, V[t * 64 + j, e]
      %next = mma wgmma.f16 %sa, smem v[0] swizzle 128 + %acc over j : f32[i: 64, e: 64] #o
      yield %next, %sn
    }
    %s1h = cast %s1 : f16[i: 64, j: 64] #s
    %s1a = convert %s1h : f16[i: 64, j: 64] #p
    tma.load v[0] swizzle 128, V[(3 - 1) * 64 + j, e]
    %o = mma wgmma.f16 %s1a, smem v[0] swizzle 128 + %o1 over j : f32[i: 64, e: 64] #o
    st.global O[i0 * 128 + consumer * 64 + i, e], %o vec 2
  }
}
