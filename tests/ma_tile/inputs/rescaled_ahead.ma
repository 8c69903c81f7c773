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
    tma.load sk[0] swizzle 128, K[j, d]
    %s_0_first = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
    %x0_0_first = mul %s_0_first, %scale : f32[i: 64, j: 64] #s
    %y0_0_first = neg %x0_0_first : f32[i: 64, j: 64] #s
    %x_0_first = neg %y0_0_first : f32[i: 64, j: 64] #s
    %r_0_first = reduce max %x_0_first over j : f32[i: 64] #row
    %mn_0_first = max %m0, %r_0_first : f32[i: 64] #row
    %dx_0_first = sub %x_0_first, %mn_0_first : f32[i: 64, j: 64] #s
    %e_0_first = exp2 %dx_0_first : f32[i: 64, j: 64] #s
    %dm_0_first = sub %m0, %mn_0_first : f32[i: 64] #row
    %a_0_first = exp2 %dm_0_first : f32[i: 64] #row
    %es_0_first = reduce sum %e_0_first over j : f32[i: 64] #row
    %ls_0_first = mul %l0, %a_0_first : f32[i: 64] #row
    %ln_0_first = add %ls_0_first, %es_0_first : f32[i: 64] #row
    %h_0_first = narrow %e_0_first : f16[i: 64, j: 64] #s
    %p_0_first = convert %h_0_first : f16[i: 64, j: 64] #p
    %mf0, %lf0, %of0_before, %a_0_last, %p_0_last = for t0 in 1..4 chain c carry(%m_0 = %mn_0_first, %l_0 = %ln_0_first, %o_0 = %o0, %a_0_before = %a_0_first, %p_0_before = %p_0_first) {
      tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]
      %s_0 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
      %os_0 = mul %o_0, %a_0_before : f32[i: 64, d: 64] #o
      %on_0 = mma wgmma.f16 %p_0_before, smem sv[0] swizzle 128 + %os_0 over j : f32[i: 64, d: 64] #o
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
      yield %mn_0, %ln_0, %on_0, %a_0, %p_0
    }
    tma.load sv[0] swizzle 128, V[j + 192, d]
    %os_0_last = mul %of0_before, %a_0_last : f32[i: 64, d: 64] #o
    %of0 = mma wgmma.f16 %p_0_last, smem sv[0] swizzle 128 + %os_0_last over j : f32[i: 64, d: 64] #o
    %w = div %of0, %lf0 : f32[i: 64, d: 64] #o
    st.global O[b * 64 + i, d], %w vec 2
  }
}
