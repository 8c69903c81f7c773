module gated target sm_80 {
  input X: f16[64, 100]
  input U: f16[100, 32]
  input V: f16[100, 32]
  output Y: f16[64, 32]
  kernel Y grid 2 warps 2 min_blocks 1 {
    let i0 = block
    layout #acc_i_j = reg(j:2x1, i:2x8, j:4x8, i:1x16) lane(j:4x2, i:8x1) warp(i:2x16, j:1x32)
    layout #copy_i_k = reg(k:4x1, i:4x8) lane(k:8x4, i:4x1) warp(i:2x4)
    layout #copy_k_j = reg(j:8x1, k:2x16) lane(j:4x8, k:8x1) warp(k:2x8)
    layout #j_i = reg(j:8x1, i:2x16) lane(j:4x8, i:8x1) warp(i:2x8)
    smem s_x : f16[i: 32, k: 32] stages 3 swizzle 64 pad 0 @ 0
    smem s_p : f16[k: 32, j: 32] stages 3 swizzle 64 pad 0 @ 6144
    smem s_q : f16[k: 32, j: 32] stages 3 swizzle 64 pad 0 @ 12288
    smem out_Y : f16[i: 32, j: 32] stages 1 swizzle 0 pad 16 @ 0
    %z = const 0.0 : f32[i: 32, j: 32] #acc_i_j
    cp.async s_x[0] swizzle 64, X[i0 * 32 + i, k] where k < 100 vec 4 threads #copy_i_k
    cp.async s_p[0] swizzle 64, U[k, j] where k < 100 vec 8 threads #copy_k_j
    cp.async s_q[0] swizzle 64, V[k, j] where k < 100 vec 8 threads #copy_k_j
    cp.commit
    cp.async s_x[1] swizzle 64, X[i0 * 32 + i, k + 32] where k < 68 vec 4 threads #copy_i_k
    cp.async s_p[1] swizzle 64, U[k + 32, j] where k < 68 vec 8 threads #copy_k_j
    cp.async s_q[1] swizzle 64, V[k + 32, j] where k < 68 vec 8 threads #copy_k_j
    cp.commit
    %u, %v = for k0 in 0..4 carry(%ui = %z, %vi = %z) {
      if k0 < 2 {
        cp.async s_x[(k0 + 2) % 3] swizzle 64, X[i0 * 32 + i, k0 * 32 + k + 64] where k0 * 32 + k < 36 vec 4 threads #copy_i_k
        cp.async s_p[(k0 + 2) % 3] swizzle 64, U[k0 * 32 + k + 64, j] where k0 * 32 + k < 36 vec 8 threads #copy_k_j
        cp.async s_q[(k0 + 2) % 3] swizzle 64, V[k0 * 32 + k + 64, j] where k0 * 32 + k < 36 vec 8 threads #copy_k_j
      }
      cp.commit
      %un = mma m16n8k16.f16 smem s_x[k0 % 3] swizzle 64, smem s_p[k0 % 3] swizzle 64 + %ui over k : f32[i: 32, j: 32] #acc_i_j
      %vn = mma m16n8k16.f16 smem s_x[k0 % 3] swizzle 64, smem s_q[k0 % 3] swizzle 64 + %vi over k : f32[i: 32, j: 32] #acc_i_j
      yield %un, %vn
    }
    %y = mul %u, %v : f32[i: 32, j: 32] #acc_i_j
    %y_f16 = cast %y : f16[i: 32, j: 32] #acc_i_j
    st.shared out_Y[0], %y_f16 vec 2
    %y_rows = ld.shared out_Y[0] vec 8 : f16[i: 32, j: 32] #j_i
    st.global Y[i0 * 32 + i, j], %y_rows vec 8
  }
}
