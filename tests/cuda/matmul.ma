module matmul target sm_80 {
  input A : f16[333, 256]
  input B : f16[256, 136]
  output C : f16[333, 136]
  kernel C grid 6 warps 4 min_blocks 1 {
    let i0 = block // 2
    let j0 = block % 2
    layout #acc = reg(j:2x1, i:2x8, j:4x8, i:4x16) lane(j:4x2, i:8x1) warp(i:2x64, j:2x32)
    layout #ta = reg(k:8x1, i:8x16) lane(k:4x8, i:8x1) warp(i:2x8, *:2)
    layout #tb = reg(j:8x1, k:2x16) lane(j:8x8, k:4x1) warp(k:4x4)
    smem As : f16[i: 128, k: 32] stages 2 swizzle 64 pad 0 @ 0
    smem Bs : f16[k: 32, j: 64] stages 2 swizzle 128 pad 0 @ 16384
    %zero = const 0.0 : f32[i: 128, j: 64] #acc
    cp.async As[0] swizzle 64, A[i0 * 128 + i, k] where i0 * 128 + i < 333 vec 8 threads #ta
    cp.async Bs[0] swizzle 128, B[k, j0 * 64 + j] where j0 * 64 + j < 136 vec 8 threads #tb
    cp.commit
    %out = for k0 in 0..8 carry(%c = %zero) {
      cp.wait 0
      barrier
      if k0 + 1 < 8 {
        cp.async As[(k0 + 1) % 2] swizzle 64, A[i0 * 128 + i, (k0 + 1) * 32 + k] where i0 * 128 + i < 333 vec 8 threads #ta
        cp.async Bs[(k0 + 1) % 2] swizzle 128, B[(k0 + 1) * 32 + k, j0 * 64 + j] where j0 * 64 + j < 136 vec 8 threads #tb
      }
      cp.commit
      %d = mma m16n8k16.f16 smem As[k0 % 2] swizzle 64, smem Bs[k0 % 2] swizzle 128 + %c over k ahead 1 : f32[i: 128, j: 64] #acc
      yield %d
    }
    %r = cast %out : f16[i: 128, j: 64] #acc
    st.global C[i0 * 128 + i, j0 * 64 + j], %r where i0 * 128 + i < 333 and j0 * 64 + j < 136 vec 2
  }
}
