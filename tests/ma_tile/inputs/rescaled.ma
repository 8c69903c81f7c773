module chained target sm_90a {
  input Q: f16[128, 64]
  input K: f16[256, 64]
  input V: f16[256, 64]
  output O: f32[128, 64]
  kernel chained grid 2 warps 4 min_blocks 1 {
    let b = block
    layout #s = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #o = reg(d:2x1, i:2x8, d:8x8, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:4x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #row = reg(i:2x8, i:1x64) lane(*:4, i:8x1) warp(i:4x16)
    layout #one = reg() lane(*:32) warp(*:4)
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sk : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 8192
    smem sv : f16[j: 64, d: 64] stages 1 swizzle 128 pad 0 @ 16384
    %scale = const 0.25 : f32 #one
    %none = const -100.0 : f32 #one
    %m0 = const -50.0 : f32[i: 64] #row
    %l0 = const 0.0 : f32[i: 64] #row
    %o0 = const 0.0 : f32[i: 64, d: 64] #o
    tma.load sq[0] swizzle 128, Q[b * 64 + i, d]
    %mf0, %lf0, %of0 = for t0 in 0..4 chain c carry(%m_0 = %m0, %l_0 = %l0, %o_0 = %o0) {
      tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]
      %s_0 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      %x0_0 = mul %s_0, %scale : f32[i: 64, j: 64] #s
      %y0_0 = neg %x0_0 : f32[i: 64, j: 64] #s
      %x_0 = neg %y0_0 : f32[i: 64, j: 64] #s
      %r_0 = reduce max %x_0 over j : f32[i: 64] #row
      %mn_0 = max %m_0, %r_0 : f32[i: 64] #row
      %dx_0 = sub %x_0, %mn_0 : f32[i: 64, j: 64] #s
      %e_0 = exp2 %dx_0 : f32[i: 64, j: 64] #s
      %dm_0 = sub %m_0, %mn_0 : f32[i: 64] #row
      %a_0 = exp2 %dm_0 : f32[i: 64] #row
      %es_0 = reduce sum %e_0 over j : f32[i: 64] #row
      %ls_0 = mul %l_0, %a_0 : f32[i: 64] #row
      %ln_0 = add %ls_0, %es_0 : f32[i: 64] #row
      %h_0 = narrow %e_0 : f16[i: 64, j: 64] #s
      %p_0 = convert %h_0 : f16[i: 64, j: 64] #p
      tma.load sv[0] swizzle 128, V[t0 * 64 + j, d]
      %os_0 = mul %o_0, %a_0 : f32[i: 64, d: 64] #o
      %on_0 = mma wgmma.f16 %p_0, smem sv[0] swizzle 128 + %os_0 over j : f32[i: 64, d: 64] #o
      yield %mn_0, %ln_0, %on_0
    }
    %w = div %of0, %lf0 : f32[i: 64, d: 64] #o
    st.global O[b * 64 + i, d], %w vec 2
  }
}
