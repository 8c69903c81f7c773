module matmul target sm_80 {
  input A: f16[64, 192]
  input B: f16[192, 32]
  output C: f16[64, 32]
  kernel C grid 2 warps 2 min_blocks 1 {
    let i0 = block
    let j0 = 0
    layout #acc_i_j = reg(j:2x1, i:2x8, j:4x8, i:1x16) lane(j:4x2, i:8x1) warp(i:2x16, j:1x32)
    layout #copy_i_k = reg(k:8x1, i:4x8) lane(k:8x8, i:4x1) warp(i:2x4)
    layout #copy_k_j = reg(j:8x1, k:4x16) lane(j:4x8, k:8x1) warp(k:2x8)
    layout #j_i = reg(j:8x1, i:2x16) lane(j:4x8, i:8x1) warp(i:2x8)
    smem s_at : f16[i: 32, k: 64] stages 3 swizzle 128 pad 0 @ 0
    smem s_bt : f16[k: 64, j: 32] stages 3 swizzle 64 pad 0 @ 12288
    smem out_C : f16[i: 32, j: 32] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, j: 32] #acc_i_j
    cp.async s_at[0] swizzle 128, A[i0 * 32 + i, k] vec 8 threads #copy_i_k
    cp.async s_bt[0] swizzle 64, B[k, j0 * 32 + j] vec 8 threads #copy_k_j
    cp.commit
    cp.async s_at[1] swizzle 128, A[i0 * 32 + i, k + 64] vec 8 threads #copy_i_k
    cp.async s_bt[1] swizzle 64, B[k + 64, j0 * 32 + j] vec 8 threads #copy_k_j
    cp.commit
    %c = for k0 in 0..3 carry(%ci = %zero) {
      if k0 < 1 {
        cp.async s_at[(k0 + 2) % 3] swizzle 128, A[i0 * 32 + i, k0 * 64 + k + 128] vec 8 threads #copy_i_k
        cp.async s_bt[(k0 + 2) % 3] swizzle 64, B[k0 * 64 + k + 128, j0 * 32 + j] vec 8 threads #copy_k_j
      }
      cp.commit
      %cn = mma m16n8k16.f16 smem s_at[k0 % 3] swizzle 128, smem s_bt[k0 % 3] swizzle 64 + %ci over k : f32[i: 32, j: 32] #acc_i_j
      yield %cn
    }
    %c_f16 = cast %c : f16[i: 32, j: 32] #acc_i_j
    st.shared out_C[0], %c_f16 vec 2
    %c_rows = ld.shared out_C[0] vec 8 : f16[i: 32, j: 32] #j_i
    st.global C[i0 * 32 + i, j0 * 32 + j], %c_rows vec 8
  }
}
