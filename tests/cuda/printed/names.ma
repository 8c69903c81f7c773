; Arguments have the names that a printer gives to variables.

; CASE: an output to which the counts of a block are added
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module counts target sm_90a {
  input key: i32[128]
  output x: i32[64]
  kernel x grid 1 warps 1 min_blocks 1 {
    layout #t = reg(t:4x1) lane(t:32x4) warp()
    smem own : i32[key: 64] stages 1 swizzle 0 pad 0 @ 0
    %one = const 1 : i32[t: 128] #t
    %k = ld.global key[t] vec 4 : i32[t: 128] #t
    st.global x[%k], %one where %k >= 0 and %k < 64 vec 1 atomic sum in own
  }
}
; CHECK: for (int i_2 = threadIdx.x; i_2 < 64; i_2 += 32) {
; CHECK-NEXT: const u32 x_2 = (reinterpret_cast<u32*>(smem + own_at))[i_2];
; CHECK-NEXT: put_add(x_2 != (u32)0, reinterpret_cast<u32*>(x + (0)) + i_2, x_2);

; CASE: counts of which a block has several copies
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module counts target sm_90a {
  input key: i32[128]
  output x: i32[64]
  kernel x grid 1 warps 1 min_blocks 1 {
    layout #t = reg(t:4x1) lane(t:32x4) warp()
    smem own : i32[key: 64, copy: 8] stages 1 swizzle 0 pad 0 @ 0
    %one = const 1 : i32[t: 128] #t
    %k = ld.global key[t] vec 4 : i32[t: 128] #t
    st.global x[%k], %one where %k >= 0 and %k < 64 vec 1 atomic sum in own
  }
}
; CHECK: for (int i_2 = threadIdx.x; i_2 < 64; i_2 += 32) {
; CHECK-NEXT: u32 x_2 = (reinterpret_cast<u32*>(smem + own_at) + i_2 * 8)[threadIdx.x % 8];
; CHECK-NEXT: #pragma unroll
; CHECK-NEXT: for (int n_ = 1; n_ < 8; ++n_) {
; CHECK-NEXT: const u32 y = (reinterpret_cast<u32*>(smem + own_at) + i_2 * 8)[(threadIdx.x + n_) % 8];
; CHECK-NEXT: x_2 = x_2 + y;
; CHECK-NEXT: }
; CHECK-NEXT: put_add(x_2 != (u32)0, reinterpret_cast<u32*>(x + (0)) + i_2, x_2);

; CASE: an input whose rows begin between those of vectors
; ARCH: sm_80
; PRINT: cuda
; CONSTANT: cuda.text.wrapping:WIDTH 1000
module rows target sm_80 {
  input low: f16[4, 67]
  output y: f32[4, 64]
  kernel y grid 1 warps 1 min_blocks 1 {
    layout #x = reg(j:2x1, i:4x1) lane(j:32x2) warp()
    %x = ld.global low[2, j + 1] vec 2 shift 1 : f16[j: 64, i: 4] #x
    %y = cast %x : f32[j: 64, i: 4] #x
    st.global y[i, j], %y vec 2
  }
}
; CHECK: rows__y(const f16* __restrict__ low_, float* __restrict__ y) {
; CHECK: u32 low = 0, high = 0;
