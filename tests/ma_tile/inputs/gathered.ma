module gathered target sm_80 {
  input A: f16[32, 64]
  input B: f16[96, 16]
  input page: i32[4]
  input length: i32[1]
  output C: f32[32, 16]
  kernel gathered grid 1 warps 2 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8, i:1x16) lane(n:4x2, i:8x1) warp(i:2x16, n:1x16)
    layout #copy_i_k = reg(k:8x1) lane(k:2x8, i:16x1) warp(i:2x16)
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp(*:2)
    layout #n_i = reg(n:4x1, i:2x16) lane(n:4x4, i:8x1) warp(i:2x8)
    layout #one = reg() lane(*:32) warp(*:2)
    smem s_a : f16[i: 32, k: 16] stages 1 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    smem out_C : f32[i: 32, n: 16] stages 1 swizzle 0 pad 16 @ 0
    %zero = const 0.0 : f32[i: 32, n: 16] #acc_i_n
    %half = for t in 0..2 chain c0 carry(%acc = %zero) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      %p = ld.global page[t] vec 1 : i32 #one
      cp.async s_b[0] swizzle 32, B[%p * 16 + k, n] where %p < 6 vec 8 threads #copy_k_n
      cp.commit
      %next = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 32, n: 16] #acc_i_n
      yield %next
    }
    %n = ld.global length[0] vec 1 : i32 #one
    %c = for t in 2..4 chain c0 carry(%acc2 = %half) {
      cp.async s_a[0] swizzle 32, A[i, t * 16 + k] vec 8 threads #copy_i_k
      cp.commit
      %q = ld.global page[t] vec 1 : i32 #one
      cp.async s_b[0] swizzle 32, B[%q * 16 + k, n] where %q < 6 and t * 16 + k < %n vec 8 threads #copy_k_n
      cp.commit
      %next2 = mma m16n8k16.f16 smem s_a[0] swizzle 32, smem s_b[0] swizzle 32 + %acc2 over k : f32[i: 32, n: 16] #acc_i_n
      yield %next2
    }
    st.shared out_C[0], %c vec 2
    %c_rows = ld.shared out_C[0] vec 4 : f32[i: 32, n: 16] #n_i
    st.global C[i, n], %c_rows vec 4
  }
}
