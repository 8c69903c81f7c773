module gemm target sm_90a {
  input A: f16[64, 128]
  input B: f16[64, 128]
  output C: f32[64, 64]
  kernel gemm grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:4x8, i:2x16) lane(n:4x2, i:8x1) warp(i:2x32, n:2x32)
    layout #ca = reg(k:8x1, i:2x32) lane(k:4x8, i:8x1) warp(i:4x8)
    layout #cb = reg(k:8x1, n:2x32) lane(k:4x8, n:8x1) warp(n:4x8)
    smem sa : f16[i: 64, k: 32] stages 2 swizzle 64 pad 0 @ 0
    smem sb : f16[n: 64, k: 32] stages 2 swizzle 64 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    cp.async sa[0] swizzle 64, A[i, k] vec 8 threads #ca
    cp.async sb[0] swizzle 64, B[n, 0 * 32 + k] vec 8 threads #cb
    cp.commit
    %c = for t in 0..4 carry(%acc = %zero) {
      if t + 1 < 4 {
        cp.async sa[(t + 1) % 2] swizzle 64, A[i, (t + 1) * 32 + k] vec 8 threads #ca
        cp.async sb[(t + 1) % 2] swizzle 64, B[n, (t + 1) * 32 + k] vec 8 threads #cb
      }
      cp.commit
      cp.wait 1
      barrier
      %next = mma m16n8k16.f16 smem sa[t % 2] swizzle 64, smem sb[t % 2] swizzle 64 + %acc over k : f32[i: 64, n: 64] #acc
      barrier
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
