module product target sm_80 {
  input A: f16[64, 16]
  input B: f16[64, 16]
  input S: f32[64]
  output C: f32[16, 16]
  kernel product grid 1 warps 1 min_blocks 1 {
    layout #acc_i_n = reg(n:2x1, i:2x8, n:2x8) lane(n:4x2, i:8x1) warp()
    layout #copy_k_i = reg(i:8x1) lane(i:2x8, k:16x1) warp()
    layout #k = reg() lane(*:2, k:16x1) warp()
    layout #copy_k_n = reg(n:8x1) lane(n:2x8, k:16x1) warp()
    smem s_a : f16[k: 16, i: 16] stages 2 swizzle 32 pad 0 @ 0
    smem s_b : f16[k: 16, n: 16] stages 1 swizzle 32 pad 0 @ 1024
    %zero = const 0.0 : f32[i: 16, n: 16] #acc_i_n
    cp.async s_a[0] swizzle 32, A[k, i] vec 8 threads #copy_k_i
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t < 3 {
        cp.async s_a[(t + 1) % 2] swizzle 32, A[t * 16 + k + 16, i] vec 8 threads #copy_k_i
      }
      cp.commit
      cp.wait 1
      barrier
      %b = ld.global B[t * 16 + k, n] vec 8 : f16[k: 16, n: 16] #copy_k_n
      %s = ld.global S[t * 16 + k] vec 1 : f32[k: 16] #k
      %b2 = cast %b : f32[k: 16, n: 16] #copy_k_n
      %b3 = mul %b2, %s : f32[k: 16, n: 16] #copy_k_n
      %b4 = cast %b3 : f16[k: 16, n: 16] #copy_k_n
      st.shared s_b[0] swizzle 32, %b4 vec 8
      barrier
      %next = mma m16n8k16.f16 smem s_a[t % 2] swizzle 32, smem s_b[0] swizzle 32 + %acc over k : f32[i: 16, n: 16] #acc_i_n
      barrier
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
