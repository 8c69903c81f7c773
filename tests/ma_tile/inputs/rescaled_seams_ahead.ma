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
    tma.load sk[0] swizzle 128, K[b * 64 + j, d]
    %s_0_first = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
    %x0_0_first = mul %s_0_first, %scale : f32[i: 64, j: 64] #s
    %k_0_first = index b * 64 + j < 200 : bool[i: 64, j: 64] #s
    %x_0_first = select %k_0_first, %x0_0_first, %none : f32[i: 64, j: 64] #s
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
    %mf0, %lf0, %of0_before, %a_0_last, %p_0_last = for t0 in b + 1..b + 2 chain c carry(%m_0 = %mn_0_first, %l_0 = %ln_0_first, %o_0 = %o0, %a_0_before = %a_0_first, %p_0_before = %p_0_first) {
      tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]
      %s_0 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
      %os_0 = mul %o_0, %a_0_before : f32[i: 64, d: 64] #o
      %on_0 = mma wgmma.f16 %p_0_before, smem sv[0] swizzle 128 + %os_0 over j : f32[i: 64, d: 64] #o
      %x0_0 = mul %s_0, %scale : f32[i: 64, j: 64] #s
      %k_0 = index j + t0 * 64 < 200 : bool[i: 64, j: 64] #s
      %x_0 = select %k_0, %x0_0, %none : f32[i: 64, j: 64] #s
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
    %mf1, %lf1, %of1_before, %a_1_last, %p_1_last = for t1 in 0..b chain c carry(%m_1 = %mf0, %l_1 = %lf0, %o_1 = %of0_before, %a_1_before = %a_0_last, %p_1_before = %p_0_last) {
      tma.load sk[0] swizzle 128, K[t1 * 64 + j, d]
      %s_1 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      tma.load sv[0] swizzle 128, V[select(t1 == 0, b + 1, t1 - 1) * 64 + j, d]
      %os_1 = mul %o_1, %a_1_before : f32[i: 64, d: 64] #o
      %on_1 = mma wgmma.f16 %p_1_before, smem sv[0] swizzle 128 + %os_1 over j : f32[i: 64, d: 64] #o
      %x0_1 = mul %s_1, %scale : f32[i: 64, j: 64] #s
      %y0_1 = neg %x0_1 : f32[i: 64, j: 64] #s
      %x_1 = neg %y0_1 : f32[i: 64, j: 64] #s
      %r_1 = reduce max %x_1 over j : f32[i: 64] #row
      %mn_1 = max %m_1, %r_1 : f32[i: 64] #row
      %dx_1 = sub %x_1, %mn_1 : f32[i: 64, j: 64] #s
      %e_1 = exp2 %dx_1 : f32[i: 64, j: 64] #s
      %dm_1 = sub %m_1, %mn_1 : f32[i: 64] #row
      %a_1 = exp2 %dm_1 : f32[i: 64] #row
      %es_1 = reduce sum %e_1 over j : f32[i: 64] #row
      %ls_1 = mul %l_1, %a_1 : f32[i: 64] #row
      %ln_1 = add %ls_1, %es_1 : f32[i: 64] #row
      %h_1 = narrow %e_1 : f16[i: 64, j: 64] #s
      %p_1 = convert %h_1 : f16[i: 64, j: 64] #p
      yield %mn_1, %ln_1, %on_1, %a_1, %p_1
    }
    %mf2, %lf2, %of2_before, %a_2_last, %p_2_last = for t2 in b + 2..4 chain c carry(%m_2 = %mf1, %l_2 = %lf1, %o_2 = %of1_before, %a_2_before = %a_1_last, %p_2_before = %p_1_last) {
      tma.load sk[0] swizzle 128, K[t2 * 64 + j, d]
      %s_2 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0] swizzle 128 over d : f32[i: 64, j: 64] #s
      tma.load sv[0] swizzle 128, V[select(b + 2 == t2, select(b >= 1, 0, 1), t2 - 1) * 64 + j, d]
      %os_2 = mul %o_2, %a_2_before : f32[i: 64, d: 64] #o
      %on_2 = mma wgmma.f16 %p_2_before, smem sv[0] swizzle 128 + %os_2 over j : f32[i: 64, d: 64] #o
      %x0_2 = mul %s_2, %scale : f32[i: 64, j: 64] #s
      %y0_2 = neg %x0_2 : f32[i: 64, j: 64] #s
      %x_2 = neg %y0_2 : f32[i: 64, j: 64] #s
      %r_2 = reduce max %x_2 over j : f32[i: 64] #row
      %mn_2 = max %m_2, %r_2 : f32[i: 64] #row
      %dx_2 = sub %x_2, %mn_2 : f32[i: 64, j: 64] #s
      %e_2 = exp2 %dx_2 : f32[i: 64, j: 64] #s
      %dm_2 = sub %m_2, %mn_2 : f32[i: 64] #row
      %a_2 = exp2 %dm_2 : f32[i: 64] #row
      %es_2 = reduce sum %e_2 over j : f32[i: 64] #row
      %ls_2 = mul %l_2, %a_2 : f32[i: 64] #row
      %ln_2 = add %ls_2, %es_2 : f32[i: 64] #row
      %h_2 = narrow %e_2 : f16[i: 64, j: 64] #s
      %p_2 = convert %h_2 : f16[i: 64, j: 64] #p
      yield %mn_2, %ln_2, %on_2, %a_2, %p_2
    }
    tma.load sv[0] swizzle 128, V[j + 192, d]
    %os_2_last = mul %of2_before, %a_2_last : f32[i: 64, d: 64] #o
    %of2 = mma wgmma.f16 %p_2_last, smem sv[0] swizzle 128 + %os_2_last over j : f32[i: 64, d: 64] #o
    %w = div %of2, %lf2 : f32[i: 64, d: 64] #o
    st.global O[b * 64 + i, d], %w vec 2
  }
}
