module chained target sm_90a {
  input Q: f16[128, 64]
  input K: f16[256, 64]
  input V: f16[256, 64]
  output O: f32[128, 64]
  kernel chained grid 2 warps 8 min_blocks 1 {
    let b = block
    layout #s = reg(j:2x1, i:2x8, j:8x8, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #o = reg(d:2x1, i:2x8, d:8x8, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
    layout #p = reg(j:2x1, i:2x8, j:2x8, j:4x16, i:1x64) lane(j:4x2, i:8x1) warp(i:4x16)
    layout #row = reg(i:2x8, i:1x64) lane(*:4, i:8x1) warp(i:4x16)
    layout #one = reg() lane(*:32) warp(*:4)
    smem sq : f16[i: 64, d: 64] stages 1 swizzle 128 pad 0 @ 32768
    smem sk : f16[j: 64, d: 64] stages 2 swizzle 128 pad 0 @ 0
    smem sv : f16[j: 64, d: 64] stages 2 swizzle 128 pad 0 @ 16384
    mbar full_sq stages 1 arrivals 1 @ 40960
    mbar empty_sq stages 1 arrivals 4 @ 40968
    mbar full_kv stages 2 arrivals 1 @ 40976
    mbar empty_kv stages 2 arrivals 4 @ 40992
    pipeline sq stages 1
    pipeline kv stages 2
    roles {
      role producer warps 0..4 registers 24 single {
        mbar.wait empty_sq[sq_stage] parity 1 - sq_phase
        mbar.expect full_sq[sq_stage] 8192
        tma.load sq[sq_stage] swizzle 128, Q[b * 64 + i, d] mbar full_sq[sq_stage]
        advance sq
        mbar.wait empty_kv[kv_stage] parity 1 - kv_phase
        mbar.expect full_kv[kv_stage] 8192
        tma.load sk[kv_stage] swizzle 128, K[j, d] mbar full_kv[kv_stage]
        advance kv
        for t0 in 1..4 carry() {
          mbar.wait empty_kv[kv_stage] parity 1 - kv_phase
          mbar.expect full_kv[kv_stage] 8192
          tma.load sk[kv_stage] swizzle 128, K[t0 * 64 + j, d] mbar full_kv[kv_stage]
          advance kv
          mbar.wait empty_kv[kv_stage] parity 1 - kv_phase
          mbar.expect full_kv[kv_stage] 8192
          tma.load sv[kv_stage] swizzle 128, V[t0 * 64 + j - 64, d] mbar full_kv[kv_stage]
          advance kv
          yield
        }
        mbar.wait empty_kv[kv_stage] parity 1 - kv_phase
        mbar.expect full_kv[kv_stage] 8192
        tma.load sv[kv_stage] swizzle 128, V[j + 192, d] mbar full_kv[kv_stage]
        advance kv
      }
      role consumers warps 4..8 registers 240 {
        %scale = const 0.25 : f32 #one
        %none = const -100.0 : f32 #one
        %m0 = const -50.0 : f32[i: 64] #row
        %l0 = const 0.0 : f32[i: 64] #row
        %o0 = const 0.0 : f32[i: 64, d: 64] #o
        mbar.wait full_sq[sq_stage] parity sq_phase
        mbar.wait full_kv[kv_stage] parity kv_phase
        %s_0_first = mma wgmma.f16 smem sq[sq_stage] swizzle 128, smem sk[kv_stage] swizzle 128 over d : f32[i: 64, j: 64] #s
        mbar.arrive empty_kv[kv_stage] each warp
        advance kv
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
        %os_0_first = mul %o0, %a_0_first : f32[i: 64, d: 64] #o
        %mf0, %lf0, %p_0_last, %os_0_last = for t0 in 1..4 chain c carry(%m_0 = %mn_0_first, %l_0 = %ln_0_first, %p_0_before = %p_0_first, %os_0_before = %os_0_first) {
          mbar.wait full_kv[kv_stage] parity kv_phase
          %s_0 = mma wgmma.f16 smem sq[sq_stage] swizzle 128, smem sk[kv_stage] swizzle 128 over d : f32[i: 64, j: 64] #s
          mbar.arrive empty_kv[kv_stage] each warp
          advance kv
          mbar.wait full_kv[kv_stage] parity kv_phase
          %on_0 = mma wgmma.f16 %p_0_before, smem sv[kv_stage] swizzle 128 + %os_0_before over j : f32[i: 64, d: 64] #o
          mbar.arrive empty_kv[kv_stage] each warp
          advance kv
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
          %os_0 = mul %on_0, %a_0 : f32[i: 64, d: 64] #o
          yield %mn_0, %ln_0, %p_0, %os_0
        }
        mbar.arrive empty_sq[sq_stage] each warp
        advance sq
        mbar.wait full_kv[kv_stage] parity kv_phase
        %of0 = mma wgmma.f16 %p_0_last, smem sv[kv_stage] swizzle 128 + %os_0_last over j : f32[i: 64, d: 64] #o
        mbar.arrive empty_kv[kv_stage] each warp
        advance kv
        %w = div %of0, %lf0 : f32[i: 64, d: 64] #o
        st.global O[b * 64 + i, d], %w vec 2
      }
    }
  }
}
