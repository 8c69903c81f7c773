module backward target sm_90a {
  input Q: f16[64, 64]
  input G: f16[64, 64]
  input K: f16[256, 64]
  input V: f16[256, 64]
  input W: f16[64, 64]
  output D: f32[64, 64]
  output R: f32[64, 64]
  kernel backward grid 1 warps 4 min_blocks 1 {
    layout #s = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #o = reg(d:2x1, i:2x8, d:8x8, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:4x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #a = reg(d:2x1, i:2x8, d:2x8, d:4x16, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
    layout #e = reg(e:2x1, i:2x8, e:8x8, i:1x64) lane(e:4x2, i:8x1) warp(i:4x16)
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sg : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 8192
    smem sw : f16[d: 64, e: 64] stages 1 swizzle 128 pad 0 @ 16384
    smem sk : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 24576
    smem sv : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 32768
    smem sl : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 40960
    smem su : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 49152
    %d0 = const 0.0 : f32[i: 64, d: 64] #o
    %r0 = const 0.0 : f32[i: 64, e: 64] #e
    %two = const 2.0 : f32[i: 64, d: 64] #o
    tma.load sq[0] swizzle 128, Q[i, d]
    tma.load sg[0] swizzle 128, G[i, d]
    tma.load sw[0] swizzle 128, W[d, e]
    %df, %rf = for t in 0..4 carry(%dc = %d0, %rc = %r0) {
      tma.load sk[0] swizzle 128, K[t * 64 + j, d]
      %s = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      %x = tanh %s : f32[i: 64, j: 64] #s
      tma.load sv[0] swizzle 128, V[t * 64 + j, d]
      %g = mma wgmma.f16 smem sg[0] swizzle 128, smem sv[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      %y = mul %x, %g : f32[i: 64, j: 64] #s
      %yh = narrow %y : f16[i: 64, j: 64] #s
      %yp = convert %yh : f16[i: 64, j: 64] #p
      tma.load sl[0] swizzle 128, K[t * 64 + j, d]
      %dn = mma wgmma.f16 %yp, smem sl[0] swizzle 128 + %dc over j : f32[i: 64, d: 64] #o
      %xh = narrow %x : f16[i: 64, j: 64] #s
      %xp = convert %xh : f16[i: 64, j: 64] #p
      tma.load su[0] swizzle 128, V[t * 64 + j, d]
      %u = mma wgmma.f16 %xp, smem su[0] swizzle 128 over j : f32[i: 64, d: 64] #o
      %v = mul %u, %two : f32[i: 64, d: 64] #o
      %vh = narrow %v : f16[i: 64, d: 64] #o
      %vp = convert %vh : f16[i: 64, d: 64] #a
      %rn = mma wgmma.f16 %vp, smem sw[0] swizzle 128 + %rc over d : f32[i: 64, e: 64] #e
      yield %dn, %rn
    }
    st.global D[i, d], %df vec 2
    st.global R[i, e], %rf vec 2
  }
}
